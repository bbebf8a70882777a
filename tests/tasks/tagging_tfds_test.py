"""Tagged words of TensorFlow Datasets: the library's own set, mocked; one made here."""

import tempfile

import tensorflow as tf
import tensorflow_datasets as tfds
from absl import logging

from bert_tf.errors import InputError
from bert_tf.tasks.tagging_tfds import read_split


def mocked(*rows):
    def as_dataset(self, split, **_):

        def generate():
            for row in rows:
                # The other features are not asked for.
                others = {"chunks": row["ner"], "pos": row["ner"]}
                yield {**row, **others}

        return tf.data.Dataset.from_generator(
            generate,
            output_signature={
                "tokens": tf.TensorSpec([None], tf.string),
                **{
                    name: tf.TensorSpec([None], tf.int64)
                    for name in ("ner", "chunks", "pos")
                },
            },
        )

    return tfds.testing.mock_data(
        as_dataset_fn=as_dataset, policy=tfds.testing.MockPolicy.USE_CODE
    )


class LibrarysSetTest(tf.test.TestCase):
    def test_conll2003(self):
        rows = (
            {"tokens": ["EU", "rejects", "it"], "ner": [3, 0, 0]},
            {"tokens": [], "ner": []},
            {"tokens": ["東京"], "ner": [5]},
        )
        with mocked(*rows), self.assertLogs(logging.get_absl_logger()) as log:
            found = read_split("conll2003", "train")
        self.assertIn("passed over 1 sentences without a word", log.output[-1])
        self.assertEqual(
            [(one.words, one.labels) for one in found],
            [(("EU", "rejects", "it"), ("B-ORG", "O", "O")), (("東京",), ("B-LOC",))],
        )
        self.assertEqual(found[1].source, "tfds:conll2003/conll2003/1.0.0:train:2")
        with mocked(*rows):
            self.assertIsNone(
                read_split("conll2003", "train", has_labels=False)[0].labels
            )

    def test_what_cannot_be_read(self):
        for row, message in (
            ({"tokens": [b"a\xff"], "ner": [0]}, ":train:0: not UTF-8 .byte 0xff"),
            (
                {"tokens": ["a"], "ner": [-1]},
                "label -1. -1 mostly stands for",
            ),
            ({"tokens": ["a"], "ner": [0, 0]}, "1 words, but 2 labels"),
            ({"tokens": [], "ner": []}, "no sentences"),
        ):
            with mocked(row), self.assertRaisesRegex(InputError, message):
                read_split("conll2003", "train")

    def test_features_that_are_not_there(self):
        with (
            mocked({"tokens": ["a"], "ner": [0]}),
            self.assertRaisesRegex(InputError, "no feature 'x'; --label_column"),
        ):
            read_split("conll2003", "train", label_feature="x")


class Parts(tfds.core.GeneratorBasedBuilder):
    """Tagged words as the library prepares them; the labels are text."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # nothing is downloaded, so no checksums lie beside the code

    def _info(self):
        words = tfds.features.Sequence(tfds.features.Text())
        numbers = tfds.features.Sequence(tf.int64)
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {"words": words, "tags": words, "numbers": numbers}
            ),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(300):
            size = number % 7 + 1
            yield (
                number,
                {
                    "words": [f"w{number}"] * size,
                    "tags": [f"t{number}"] * size,
                    "numbers": [number % 2] * size,
                },
            )


class PreparedSetTest(tf.test.TestCase):
    def test_all_sentences_of_a_split(self):
        tfds.disable_progress_bar()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        options = {"data_dir": folder, "word_feature": "words"}
        found = read_split("parts", "train", label_feature="tags", **options)
        self.assertLen(found, 300)
        self.assertLen({one.words for one in found}, 300)
        for one in found:
            self.assertEqual(
                [label.replace("t", "w") for label in one.labels], [*one.words]
            )
        numbered = read_split(
            "parts",
            "train[:10%]",
            label_feature="numbers",
            label_names=("even", "odd"),
            **options,
        )
        self.assertLen(numbered, 30)
        for one in numbered:
            is_odd = int(one.words[0][1:]) % 2
            self.assertEqual({*one.labels}, {("even", "odd")[is_odd]})
        with self.assertRaisesRegex(InputError, "labels are numbers"):
            read_split("parts", "train", label_feature="numbers", **options)
        with self.assertRaisesRegex(InputError, "no split 'dev'; it has: train"):
            read_split("parts", "dev", label_feature="tags", **options)


if __name__ == "__main__":
    tf.test.main()
