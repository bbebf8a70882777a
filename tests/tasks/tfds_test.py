"""TensorFlow Datasets: GLUE's own sets, mocked, and sets made here."""

import tempfile

import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.errors import InputError
from bert_tf.tasks.data_set import DataSet
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION
from bert_tf.tasks.tfds import TfdsSet, TfdsSplit

# What a model's outputs of 0, 1, ... are, against the library's numbers of a class.
LABELS = {
    "CoLA": ("0", "1"),
    "SST-2": ("0", "1"),
    "MRPC": ("0", "1"),
    "QQP": ("0", "1"),
    "WNLI": ("0", "1"),
    "QNLI": ("entailment", "not_entailment"),
    "RTE": ("entailment", "not_entailment"),
    # The library's order is not ours, which is the original's.
    "MNLI": ("entailment", "neutral", "contradiction"),
}


def rows_of(features, labels):
    """Rows in a shuffled order: sentence 2 of the file first."""
    for index in (2, 0, 1):
        row = {
            name: f"{name} {index}"
            for name, feature in features.items()
            if isinstance(feature, tfds.features.Text)
        }
        yield {**row, "label": labels[index], "idx": index}


def mocked(labels, asked=None):
    def as_dataset(self, split, **kwargs):
        if asked is not None:
            asked.append(str(split))
        return tf.data.Dataset.from_generator(
            lambda: rows_of(self.info.features, labels),
            output_types=self.info.features.dtype,
            output_shapes=self.info.features.shape,
        )

    return tfds.testing.mock_data(
        as_dataset_fn=as_dataset, policy=tfds.testing.MockPolicy.USE_CODE
    )


class GlueTest(tf.test.TestCase):
    """As the library has GLUE's sets, with rows of our own."""

    def test_classes_and_the_order_of_the_file(self):
        for task, labels in LABELS.items():
            classes = [2, 0, 1] if task == "MNLI" else [1, 0, 1]
            with mocked(classes):
                examples = GLUE_TASKS[task].from_tfds().read(None, "train")
            self.assertEqual(
                [example.label for example in examples], [labels[i] for i in classes]
            )
            self.assertEqual([e.text_a[-1] for e in examples], ["0", "1", "2"])
            self.assertContainsSubset(labels, GLUE_TASKS[task].labels)

    def test_the_same_columns_as_those_of_the_files(self):
        columns = {
            "CoLA": ("sentence", None),
            "MRPC": ("sentence1", "sentence2"),
            "QQP": ("question1", "question2"),
            "MNLI": ("premise", "hypothesis"),
            "QNLI": ("question", "sentence"),
            "AX": ("premise", "hypothesis"),
        }
        for task, (text_a, text_b) in columns.items():
            with mocked([-1, -1, -1]):
                example = GLUE_TASKS[task].from_tfds().read(None, "test")[1]
            self.assertEqual(example.text_a, f"{text_a} 1")
            self.assertEqual(example.text_b, text_b and f"{text_b} 1")
            self.assertIsNone(example.label)

    def test_scores(self):
        with mocked([3.8, 0.0, 5.0]):
            data_set = GLUE_TASKS["STS-B"].from_tfds()
            examples = data_set.read(None, "dev")
        self.assertEqual([e.label for e in examples], ["3.8", "0.0", "5.0"])
        self.assertEqual(examples[0].source, "tfds:glue/stsb/2.0.0:validation:0")

    def test_both_sets_of_mnli(self):
        asked = []
        with mocked([0, 1, 2], asked):
            data_set = GLUE_TASKS["MNLI"].from_tfds()
            for split in (*data_set.dev_splits, *data_set.test_splits):
                data_set.read(None, split)
        self.assertEqual(
            " ".join(asked),
            "validation_matched validation_mismatched test_matched test_mismatched",
        )

    def test_rows_without_a_label_are_left_out_and_counted(self):
        rte = GLUE_TASKS["RTE"].from_tfds()
        with mocked([1, -1, 0]), self.assertLogs(level="WARNING") as logs:
            examples = rte.read(None, "train")
        self.assertEqual([e.text_a[-1] for e in examples], ["0", "2"])
        self.assertIn(
            "glue/rte/2.0.0:train: left out 1 unlabelled row: line 1.", logs.output[-1]
        )
        with mocked([-1, -1, -1]), self.assertRaisesRegex(
            InputError, "glue/rte/2.0.0:train: no labelled examples in this split"
        ):  # fmt: skip
            rte.read(None, "train")

    def test_random_examples_of_the_library(self):
        """Every task's features are read as the library types them."""
        for task in GLUE_TASKS.values():
            with tfds.testing.mock_data(
                num_examples=300, policy=tfds.testing.MockPolicy.USE_CODE
            ):
                examples = task.from_tfds().read(None, "test")
            self.assertLen(examples, 300)
            self.assertIsInstance(examples[0].text_a, str)


class Reviews(tfds.core.GeneratorBasedBuilder):
    """Reviews with labels of every kind; the last one has none."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # nothing is downloaded, so no checksums lie beside the code
    NUM = 200

    def _info(self):
        features = {
            "text": tfds.features.Text(),
            "mood": tfds.features.ClassLabel(names=["sad", "glad"]),
            "stars": tf.int64,
            "word": tfds.features.Text(),
            "topics": tfds.features.Sequence(
                tfds.features.ClassLabel(names=["plot", "cast", "music"])
            ),
            "numbers": tfds.features.Sequence(tf.float32, length=2),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(self.NUM):
            yield (
                number,
                {
                    "text": f"Review {number}. é",
                    "mood": number % 2 if number else -1,
                    "stars": number % 5,
                    "word": "yes" if number % 2 else "no",
                    "topics": list(range(number % 4)),
                    "numbers": [0.5, number],
                },
            )


class AnySetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tfds.disable_progress_bar()
        # One for all tests: the set is prepared once.
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())

    def data_set(self, label, **kwargs):
        return DataSet(
            name="reviews",
            metrics=kwargs.pop("metrics", ("accuracy",)),
            files={"train": "train.tsv"},
            splits={},
            tfds=TfdsSet(
                name="reviews",
                splits={"train": "train", "dev": "train[90%:]", "test": "nowhere"},
                text_a="text",
                label=label,
                index=None,
            ),
            **kwargs,
        ).from_tfds(folder=self.folder)

    def by_number(self, data_set, split="train"):
        examples = data_set.read(None, split)
        return {int(e.text_a.split()[1][:-1]): e.label for e in examples}

    def test_classes_have_the_sets_own_order(self):
        data_set = self.data_set("mood")
        self.assertEqual(data_set.read_target(None).labels, ("sad", "glad"))
        with self.assertLogs(level="WARNING") as logs:
            labels = self.by_number(data_set)
        self.assertLen(labels, Reviews.NUM - 1)
        self.assertEqual((labels[1], labels[2]), ("glad", "sad"))
        self.assertIn("left out 1 unlabelled row", logs.output[-1])
        self.assertLen(data_set.read(None, "dev"), Reviews.NUM // 10)

    def test_numbers_and_words_as_classes(self):
        data_set = self.data_set("stars")
        self.assertEqual(data_set.read_target(None).labels, ("0", "1", "2", "3", "4"))
        self.assertEqual(self.by_number(data_set)[7], "2")
        data_set = self.data_set("word")
        self.assertEqual(data_set.read_target(None).labels, ("no", "yes"))

    def test_several_labels_and_numbers(self):
        data_set = self.data_set("topics", kind=MULTI_LABEL, metrics=("f1_micro",))
        self.assertEqual(data_set.read_target(None).labels, ("plot", "cast", "music"))
        labels = self.by_number(data_set)
        self.assertEqual(
            [labels[i] for i in (0, 1, 3)], ["", "plot", "plot,cast,music"]
        )
        data_set = self.data_set(
            "numbers",
            kind=REGRESSION,
            labels=("half", "number"),
            separator=";",
            metrics=("pearson",),
        )
        self.assertEqual(self.by_number(data_set)[12], "0.5;12.0")

    def test_errors_are_one_line(self):
        for reason, arguments in (
            ("no feature 'body' for --text_a_.* has: text, word", {"text_a": "body"}),
            ("no feature 'stars' for --text_b_column", {"text_b": "stars"}),
            ("no feature 'tag' for --label_column", {"label": "tag"}),
            ("has no split 'nowhere'; it has: train", {"split": "nowhere"}),
            ("'nothing': Dataset nothing not found", {"name": "nothing"}),
        ):  # fmt: skip
            split = TfdsSplit(**{
                "name": "reviews", "split": "train", "text_a": "text",
                "folder": self.folder, **arguments,
            })  # fmt: skip
            with self.assertRaisesRegex(InputError, reason) as raised:
                split.read()
            self.assertNotIn("\n", str(raised.exception))


if __name__ == "__main__":
    tf.test.main()
