import csv
import os
import random
import tempfile

import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.modeling import objectives
from bert_tf.tasks import classification
from bert_tf.tasks.classification import (
    labelled,
    mistakes,
    read_predictions,
    write_predictions,
    write_reports,
)
from bert_tf.tasks.tables import Example, Target
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer, truncate_pair
from tests.finetuning.drawn import drawn
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9
CLASSES = Target(kind=SINGLE_LABEL, labels=("y", "x"))
LABELS = Target(kind=MULTI_LABEL, labels=("y", "x", "z"))
NUMBER = Target(kind=REGRESSION)


def plain_truncate(a, b, limit):
    """The original's rule, one token at a time: the longer gives way, b on a tie."""
    a, b = list(a), list(b)
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    return a, b


def featurizer(length=8, target=CLASSES, **options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    return classification.Featurizer(
        tokenizer, max_seq_length=length, target=target, **options
    )


def examples(*texts, label="x"):
    """Examples of texts and of pairs."""
    pairs = [(text, None) if isinstance(text, str) else text for text in texts]
    return [
        Example(a, b, label, f"file.tsv:{line}")
        for line, (a, b) in enumerate(pairs, start=3)
    ]


def records(make, examples):
    """All blocks' arrays as one, as lists."""
    blocks = list(make.blocks(examples))
    return {
        name: np.concatenate([block[name] for block in blocks]).tolist()
        for name in blocks[0]
    }


class TaskTest(tf.test.TestCase):
    def test_model_and_objective_are_the_targets(self):
        for target, objective in (
            (CLASSES, objectives.CLASSIFICATION),
            (LABELS, objectives.MULTI_LABEL),
            (NUMBER, objectives.REGRESSION),
        ):
            task = classification.task(toy.CONFIG, target, "t", dropout=0.2)
            self.assertIs(task.objective, objective)
            model = task.build_model()
            self.assertIs(model.objective, objective)
            self.assertEqual(model.num_labels, target.num_outputs)
            self.assertEqual(model.get_layer("dropout").rate, 0.2)


class FeaturizerTest(tf.test.TestCase):
    def record(self, text, label="x", **options):
        found = records(featurizer(**options), examples(text, label=label))
        self.assertEqual({len(values) for values in found.values()}, {1})
        return {name: values[0] for name, values in found.items()}

    def test_a_sentence(self):
        self.assertEqual(
            self.record("a b"),
            {
                "input_ids": [CLS, A, B, SEP, 0, 0, 0, 0],
                "input_mask": [1, 1, 1, 1, 0, 0, 0, 0],
                "segment_ids": [0] * 8,
                "label_ids": [1],
                "is_real_example": [1],
            },
        )

    def test_a_pair(self):
        record = self.record(("a b", "c"))
        self.assertEqual(record["input_ids"], [CLS, A, B, SEP, C, SEP, 0, 0])
        self.assertEqual(record["segment_ids"], [0, 0, 0, 0, 1, 1, 0, 0])
        self.assertEqual(record["input_mask"], [1, 1, 1, 1, 1, 1, 0, 0])

    def test_cut_to_the_length(self):
        self.assertEqual(
            self.record("a b c d e a b")["input_ids"], [CLS, A, B, C, D, E, A, SEP]
        )
        self.assertEqual(
            self.record(("a b c", "d e d"))["input_ids"],
            [CLS, A, B, C, SEP, D, E, SEP],
        )

    def test_an_empty_second_sentence_is_none(self):
        # Spaces and what tokenizes to nothing count as empty too.
        for empty in ("", " ", "\u200b"):
            self.assertEqual(
                self.record(("a b c d e a b", empty))["input_ids"],
                [CLS, A, B, C, D, E, A, SEP],
            )

    def test_labels(self):
        self.assertEqual(self.record("a", label=None)["label_ids"], [0])
        self.assertEqual(
            self.record("a", label="2.5", target=NUMBER)["label_ids"], [2.5]
        )
        self.assertEqual(
            self.record("a", label="z,y", target=LABELS)["label_ids"], [1.0, 0.0, 1.0]
        )
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            self.record("a", label="z")
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            classification.check_labels(examples("a", label="z"), CLASSES)

    def test_records_are_those_of_the_schema(self):
        for target, label in ((CLASSES, "x"), (NUMBER, "1.5"), (LABELS, "x,z")):
            schema = classification.schema(target, 8)
            for block in featurizer(target=target).blocks(examples("a", label=label)):
                parsed = schema.parse(schema.serialize_block(block))
                self.assertAllEqual(parsed["label_ids"], block["label_ids"])

    def test_counts_what_was_cut(self):
        make = featurizer()
        pairs = ("a b c d e a", "a b c d e a b", ("a b c", "d e"), ("a b c", "d e a"))
        records(make, examples(*pairs))
        self.assertEqual(make.num_truncated, 2)
        records(make, examples("a"))
        self.assertEqual(make.num_truncated, 0)

    def test_many_examples(self):
        texts = [" ".join("abcde"[: 1 + number % 5]) for number in range(2500)]
        found = records(featurizer(), examples(*texts))["input_ids"]
        self.assertLen(found, 2500)
        for number in (0, 1023, 1024, 2499):
            ids = [A, B, C, D, E][: 1 + number % 5]
            self.assertEqual(found[number][: len(ids) + 2], [CLS, *ids, SEP])

    def test_windows(self):
        make = featurizer(windows=True)
        found = records(make, examples("a b c d e a b c", "d", ("a b c d e", "d e")))
        self.assertEqual(
            found["input_ids"],
            [
                [CLS, A, B, C, D, E, A, SEP],
                [CLS, D, E, A, B, C, SEP, 0],
                [CLS, D, SEP, 0, 0, 0, 0, 0],
                [CLS, A, B, C, SEP, D, E, SEP],
                [CLS, B, C, D, SEP, D, E, SEP],
                [CLS, C, D, E, SEP, D, E, SEP],
            ],
        )
        self.assertEqual(found["label_ids"], [[1]] * 6)
        self.assertEqual(make.window_counts, [2, 1, 3])
        self.assertEqual(make.num_truncated, 0)
        make = featurizer(windows=True, doc_stride=5)
        found = records(make, examples("a b c d e a b c"))
        self.assertEqual(found["input_ids"][1], [CLS, A, B, C, SEP, 0, 0, 0])

    def test_settings_tell_records_apart(self):
        settings = [
            make.settings
            for make in (
                featurizer(),
                featurizer(length=9),
                featurizer(target=LABELS),
                featurizer(windows=True),
                featurizer(windows=True, doc_stride=2),
            )
        ]
        for number, one in enumerate(settings):
            self.assertEqual(settings.index(one), number)
        self.assertEqual(featurizer(doc_stride=2).settings, settings[0])


class TruncationTest(tf.test.TestCase):
    def test_equals_one_token_at_a_time(self):
        rng = random.Random(0)
        for _ in range(2000):
            a = [rng.random() for _ in range(rng.randint(0, 12))]
            b = [rng.random() for _ in range(rng.randint(0, 12))]
            limit = rng.randint(0, 26)
            self.assertEqual(
                truncate_pair(a, b, limit),
                tuple(plain_truncate(a, b, limit)),
            )


NLI = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
SCORE = Target(kind=REGRESSION)
TOPICS = Target(kind=MULTI_LABEL, labels=("a", "b", "c"))
# log 3 against 0 is 3 : 1, log 9 is 9 : 1.
LOG_3, LOG_9 = np.log(3.0), np.log(9.0)


def examples_of(*labels, texts=("A.", "B.")):
    return [
        Example(texts[0], texts[1], label, f"dev.tsv:{number}")
        for number, label in enumerate(labels, start=2)
    ]


class TableTest(tf.test.TestCase):
    def path(self):
        return os.path.join(self.get_temp_dir(), "dev_predictions.tsv")

    def written(self, examples, target, logits, **kwargs):
        write_predictions(self.path(), examples, target, np.array(logits), **kwargs)
        with open(self.path(), encoding="utf-8", newline="") as file:
            return file.read()

    def test_one_label(self):
        text = self.written(
            examples_of("yes", "yes", None),
            NLI,
            [[0, LOG_3], [LOG_9, 0], [0, LOG_9]],
        )
        self.assertEqual(
            text,
            "index\tlabel\tprediction\tcorrect\tp_no\tp_yes\ttext_a\ttext_b\n"
            "0\tyes\tyes\t1\t0.250000\t0.750000\tA.\tB.\n"
            "1\tyes\tno\t0\t0.900000\t0.100000\tA.\tB.\n"
            "2\t\tyes\t\t0.100000\t0.900000\tA.\tB.\n",
        )

    def test_several_labels_are_right_together(self):
        text = self.written(
            examples_of("a,c", "a", "", None),
            TOPICS,
            [
                [LOG_3, -LOG_3, LOG_9],
                [LOG_3, LOG_3, -LOG_3],
                [-LOG_9, -LOG_9, -LOG_9],
                [-LOG_9, -LOG_9, LOG_9],
            ],
        )
        self.assertEqual(
            text,
            "index\tlabel\tprediction\tcorrect\tp_a\tp_b\tp_c\ttext_a\ttext_b\n"
            "0\ta,c\ta,c\t1\t0.750000\t0.250000\t0.900000\tA.\tB.\n"
            "1\ta\ta,b\t0\t0.750000\t0.750000\t0.250000\tA.\tB.\n"
            "2\t\t\t1\t0.100000\t0.100000\t0.100000\tA.\tB.\n"
            "3\t\tc\t\t0.100000\t0.100000\t0.900000\tA.\tB.\n",
        )

    def test_a_number(self):
        text = self.written(
            examples_of("4.5", None, texts=("A.", None)), SCORE, [[4.25], [1]]
        )
        self.assertEqual(
            text,
            "index\tlabel\tprediction\terror\ttext_a\ttext_b\n"
            "0\t4.5\t4.250\t-0.250\tA.\t\n"
            "1\t\t1.000\t\tA.\t\n",
        )

    def test_several_numbers(self):
        target = Target(kind=REGRESSION, labels=("valence", "arousal"))
        text = self.written(examples_of("1,2"), target, [[1.5, 0]])
        self.assertEqual(
            text.splitlines()[1], "0\t1,2\t1.500,0.000\t0.500,-2.000\tA.\tB."
        )

    def test_chosen_rows_keep_their_numbers(self):
        text = self.written(
            examples_of("no", "yes", "no"), NLI, [[1, 0], [0, 1], [1, 0]], rows=[2, 0]
        )
        self.assertEqual([line[0] for line in text.splitlines()[1:]], ["2", "0"])

    def test_any_text_is_a_line_and_comes_back(self):
        texts = ('a "quoted\ttab', "back\\slash, \\t\\n\nline\r\n\u2028end\x0b\x85\\")
        examples = examples_of("no", "yes", texts=texts)
        text = self.written(examples, NLI, [[1, 0], [1, 0]])
        self.assertEqual(text.count("\n"), 3)
        rows = read_predictions(self.path())
        self.assertLen(rows, 2)
        for row, label in zip(rows, ("no", "yes"), strict=True):
            self.assertEqual((row["text_a"], row["text_b"]), texts)
            self.assertEqual((row["label"], row["prediction"]), (label, "no"))
        # As the docstring says, another reader needs nothing but "no quotes".
        with open(self.path(), encoding="utf-8", newline="") as file:
            table = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        self.assertEqual({len(row) for row in table}, {8})
        self.assertEqual(table[1][6], 'a "quoted\\ttab')

    def test_a_row_of_another_length_is_named(self):
        with open(self.path(), "w", encoding="utf-8") as file:
            file.write("index\tlabel\n0\tyes\n1\n")
        with self.assertRaisesRegex(InputError, r"dev_predictions.tsv:3: 1 cells"):
            read_predictions(self.path())

    def test_other_logits_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"\(1, 2\); expected: \(2, 2\)"):
            self.written(examples_of("no", "no"), NLI, [[1, 0]])


class LabelledTest(tf.test.TestCase):
    def test_only_what_has_a_label(self):
        rows, labels = labelled(examples_of("yes", None, "no"), NLI)
        self.assertAllEqual(rows, [0, 2])
        self.assertAllEqual(labels, [1, 0])
        rows, labels = labelled(examples_of(None, "c,a"), TOPICS)
        self.assertAllEqual(rows, [1])
        self.assertAllEqual(labels, [[1, 0, 1]])
        rows, labels = labelled(examples_of("1.5", None), SCORE)
        self.assertAllEqual(rows, [0])
        self.assertAllEqual(labels, [1.5])
        self.assertEqual(labelled(examples_of(None), TOPICS)[1].shape, (0, 3))


class MistakesTest(tf.test.TestCase):
    def test_the_surest_first(self):
        # P(predicted): wrong 0.75, right, wrong 0.9, unknown, wrong 0.75.
        logits = [[LOG_3, 0], [0, 5], [0, LOG_9], [9, 0], [0, LOG_3]]
        examples = examples_of("yes", "yes", "no", None, "no")
        self.assertEqual(mistakes(examples, NLI, np.array(logits), 9), [2, 0, 4])
        self.assertEqual(mistakes(examples, NLI, np.array(logits), 2), [2, 0])

    def test_of_several_labels_the_surest_wrong_decision_counts(self):
        logits = [
            [9, -9, -9],  # right, and sure of it
            [9, LOG_3, -9],  # b with 0.75, wrongly
            [-LOG_9, -9, -9],  # a missed, at 0.1
        ]
        examples = examples_of("a", "a", "a")
        self.assertEqual(mistakes(examples, TOPICS, np.array(logits), 9), [2, 1])

    def test_numbers_by_how_far_off(self):
        examples = examples_of("1", "2", None, "3", "4")
        logits = np.array([[1.5], [0], [9], [3], [5]])
        self.assertEqual(mistakes(examples, SCORE, logits, 9), [1, 4, 0])

    def test_nothing_is_known(self):
        self.assertEqual(mistakes(examples_of(None), NLI, np.zeros([1, 2]), 9), [])
        self.assertEqual(mistakes(examples_of(None), TOPICS, np.zeros([1, 3]), 9), [])


class ReportsTest(tf.test.TestCase):
    def written(self, target, labels, logits, **kwargs):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        examples = [
            Example(f"Text {number}.", None, label, f"dev.tsv:{number}")
            for number, label in enumerate(labels)
        ]
        paths = write_reports(
            folder, "dev", examples, target, np.array(logits), **kwargs
        )
        names = [os.path.basename(path) for path in paths]
        self.assertEqual(sorted(names), sorted(os.listdir(folder)))
        return folder, names

    def test_a_labelled_split(self):
        target = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
        folder, names = self.written(
            target, ["no", "no", "no"], [[0, 1], [1, 0], [0, 2]], num_mistakes=1
        )
        self.assertEqual(
            names,
            [
                "dev_predictions.tsv",
                "dev_mistakes.tsv",
                "dev_confusion.png",
                "dev_calibration.png",
            ],
        )
        rows = read_predictions(os.path.join(folder, "dev_predictions.tsv"))
        self.assertEqual([row["prediction"] for row in rows], ["yes", "no", "yes"])
        (worst,) = read_predictions(os.path.join(folder, "dev_mistakes.tsv"))
        self.assertEqual((worst["index"], worst["text_a"]), ("2", "Text 2."))

    def test_pictures_name_the_task_and_its_classes(self):
        target = Target(kind=SINGLE_LABEL, labels=("0", "1"))
        said = []

        def draw():
            folder, _ = self.written(
                target,
                ["0", "1"],
                [[0, 1], [1, 0]],
                task_name="CoLA",
                class_names={"0": "unacceptable", "1": "acceptable"},
            )
            said.append(folder)
            with open(os.path.join(folder, "dev_confusion.png"), "rb") as file:
                return file.read()

        texts, _ = drawn(draw)
        self.assertContainsSubset(
            ["CoLA, dev: 2 examples", "unacceptable (0)", "acceptable (1)"], texts
        )
        # The table keeps the labels of the data.
        rows = read_predictions(os.path.join(said[0], "dev_predictions.tsv"))
        self.assertEqual([row["prediction"] for row in rows], ["1", "0"])

    def test_several_labels(self):
        target = Target(kind=MULTI_LABEL, labels=("a", "b"))
        _, names = self.written(target, ["a,b", ""], [[1, 1], [1, -1]])
        self.assertIn("dev_confusion.png", names)
        self.assertIn("dev_calibration.png", names)

    def test_numbers(self):
        _, names = self.written(Target(kind=REGRESSION), ["1", None], [[1.5], [2]])
        self.assertEqual(
            names, ["dev_predictions.tsv", "dev_mistakes.tsv", "dev_regression.png"]
        )

    def test_without_labels_or_unwanted_there_are_only_predictions(self):
        target = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
        _, names = self.written(target, [None, None], [[0, 1], [1, 0]])
        self.assertEqual(names, ["dev_predictions.tsv"])
        _, names = self.written(
            target, ["no", "no"], [[0, 1], [1, 0]], plots=False, num_mistakes=0
        )
        self.assertEqual(names, ["dev_predictions.tsv"])


if __name__ == "__main__":
    tf.test.main()
