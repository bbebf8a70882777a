"""Multiple choice of TensorFlow Datasets: the library's own set, mocked."""

import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.errors import InputError
from bert_tf.tasks.multiple_choice import ColumnNames
from bert_tf.tasks.swag_tfds import read_tfds_choices

ROWS = (("A dog sits. It", ["barks.", "flies.", "sings.", "reads."], 0),) * 2 + (
    ("Él", ["é", "b", "c", "d"], 3),
)


def mocked(rows=ROWS):
    def as_dataset(self, split, **_):
        def generate():
            for context, endings, label in rows:
                yield {
                    "activity_label": "x",
                    "context": context,
                    "endings": endings,
                    "label": label,
                    "source_id": "s",
                    "split_type": "t",
                }

        return tf.data.Dataset.from_generator(
            generate,
            output_types=self.info.features.dtype,
            output_shapes=self.info.features.shape,
        )

    return tfds.testing.mock_data(
        as_dataset_fn=as_dataset, policy=tfds.testing.MockPolicy.USE_CODE
    )


class ReadTfdsChoicesTest(tf.test.TestCase):
    def test_hellaswag(self):
        with mocked():
            examples, target = read_tfds_choices(
                "hellaswag", "validation", ColumnNames(), has_labels=True
            )
        self.assertLen(examples, 3)
        self.assertEqual(examples[2][:4], ("Él", "", ("é", "b", "c", "d"), "3"))
        self.assertRegex(examples[2].source, r"^tfds:hellaswag/[\d.]+:validation:2$")
        self.assertEqual(target.num_outputs, 4)

    def test_kept_back_labels(self):
        with mocked([(*ROWS[0][:2], -1)]):
            split = ("hellaswag", "test", ColumnNames())
            examples, _ = read_tfds_choices(*split, has_labels=False)
            self.assertIsNone(examples[0].label)
            with self.assertRaisesRegex(InputError, ":test:0: it has no label"):
                read_tfds_choices(*split, has_labels=True)

    def test_features_that_are_not_there(self):
        with mocked(), self.assertRaisesRegex(InputError, "'ctx'; --premise_column"):
            read_tfds_choices(
                "hellaswag", "test", ColumnNames(premise="ctx"), has_labels=False
            )


if __name__ == "__main__":
    tf.test.main()
