import csv
import io
import os
import random
import tempfile
import types
from unittest import mock

import keras
import matplotlib
import numpy as np
import tensorflow as tf
from matplotlib.image import imread
from sklearn.calibration import calibration_curve

from bert_tf import cli, run_classifier
from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import DivergedError, InputError
from bert_tf.modeling import objectives
from bert_tf.modeling.heads import BertClassifier
from bert_tf.tasks import classification, finetuning
from bert_tf.tasks.classification import (
    average_windows,
    confusion_matrix,
    confusion_picture,
    labelled,
    mistakes,
    read_predictions,
    windows_of_pair,
    write_predictions,
    write_reports,
)
from bert_tf.tasks.tables import Example, Target
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer, truncate_pair
from bert_tf.training import run_folder
from tests.finetuning.drawn import drawn
from tests.training import toy
from tests.training.toy_examples import several_lengths


class ConfusionTest(tf.test.TestCase):
    def test_rows_are_true_classes(self):
        target = Target(kind=SINGLE_LABEL, labels=("x", "y", "z"))
        counts = confusion_matrix(
            target, np.array([0, 1, 1, 0, 1]), np.array([0, 0, 0, 1, 1])
        )
        # A class that nobody has or predicts has a row and a column too.
        self.assertAllEqual(counts, [[1, 2, 0], [1, 1, 0], [0, 0, 0]])

    def test_several_labels_by_themselves(self):
        target = Target(kind=MULTI_LABEL, labels=("x", "y"))
        predictions = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
        labels = np.array([[1, 0], [0, 1], [0, 1], [1, 1]])
        # x: found, false alarm, rightly not, missed. y: not, found twice, missed.
        self.assertAllEqual(
            confusion_matrix(target, predictions, labels), [[1, 1, 1, 1], [2, 1, 0, 1]]
        )
        one = Target(kind=MULTI_LABEL, labels=("x",))
        self.assertAllEqual(
            confusion_matrix(one, np.array([[1], [0]]), np.array([[1], [1]])),
            [[1, 1, 0, 0]],
        )

    def test_the_picture_says_counts_shares_and_labels(self):
        target = Target(kind=SINGLE_LABEL, labels=("$x$ or $", "y" * 60))
        predictions = np.array([0, 1, 1, 1, 0, 0, 1, 1])
        labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])

        def draw():
            return confusion_picture(target, predictions, labels, "dev: 8 examples")

        texts, content = drawn(draw)
        for text in ("1\n25.0%", "3\n75.0%", "2\n50.0%", "dev: 8 examples"):
            self.assertIn(text, texts)
        # The scale of the colours.
        self.assertContainsSubset({"share of the row", "0%", "100%"}, texts)
        self.assertContainsSubset({"$x$ or $", "y" * 39 + "…"}, texts)
        self.assertEqual(draw(), content)

    def test_a_large_matrix_has_no_numbers(self):
        target = Target(kind=SINGLE_LABEL, labels=tuple(f"c{i}" for i in range(41)))
        ids = np.arange(41)
        texts, _ = drawn(lambda: confusion_picture(target, ids, ids, "dev"))
        self.assertIn("c40", texts)
        self.assertFalse([text for text in texts if "\n" in text])

    def test_a_very_large_matrix_is_no_very_large_picture(self):
        target = Target(kind=SINGLE_LABEL, labels=tuple(f"c{i}" for i in range(1000)))
        ids = np.arange(1000)
        texts, content = drawn(lambda: confusion_picture(target, ids, ids, "dev"))
        self.assertNotIn("c0", texts)
        # A PNG's width and height stand in its first chunk.
        self.assertAllLess(np.frombuffer(content[16:24], ">u4"), 5000)


PAIR = Target(kind=SINGLE_LABEL, labels=("no", "yes"))
# The predicted class at 0.91, right; 0.97, wrong; 0.6, right; 0.62, wrong.
PROBABILITIES = np.array([[0.09, 0.91], [0.97, 0.03], [0.6, 0.4], [0.38, 0.62]])
LABELS = np.array([1, 1, 0, 0])


class ReliabilityTest(tf.test.TestCase):
    def test_error_by_hand(self):
        # Fifteen bins: (0.5333, 0.6], (0.6, 0.6667], (0.8667, 0.9333], (0.9333, 1].
        (part,) = classification.reliabilities(PAIR, PROBABILITIES, LABELS)
        counts = np.zeros(15)
        counts[[8, 9, 13, 14]] = 1
        self.assertAllEqual(part.counts, counts)
        self.assertAllClose(part.confidence[[8, 9, 13, 14]], [0.6, 0.62, 0.91, 0.97])
        self.assertAllEqual(part.accuracy[[8, 9, 13, 14]], [1, 0, 1, 0])
        # (0.4 + 0.62 + 0.09 + 0.97) / 4
        self.assertAllClose(part.expected_calibration_error, 0.52)

    def test_a_bin_is_weighed_by_its_predictions(self):
        # Two bins: three at 0.4 of which one came true, one at 0.8 that did.
        part = classification.reliability(
            [0.4, 0.4, 0.4, 0.8], [1, 0, 0, 1], num_bins=2
        )
        self.assertAllEqual(part.counts, [3, 1])
        self.assertAllClose(part.accuracy, [1 / 3, 1])
        # 3/4 |1/3 - 0.4| + 1/4 |1 - 0.8|
        self.assertAllClose(part.expected_calibration_error, 0.05 + 0.05)

    def test_the_edges_belong_to_the_lower_bin(self):
        part = classification.reliability(
            [0, 0.5, 0.50001, 1], [0, 1, 1, 1], num_bins=2
        )
        self.assertAllEqual(part.counts, [2, 2])

    def test_as_scikit_learn_has_it(self):
        rng = np.random.default_rng(0)
        confidence = rng.random(500)
        came_true = rng.random(500) < confidence**2
        part = classification.reliability(confidence, came_true)
        accuracy, mean = calibration_curve(came_true, confidence, n_bins=15)
        self.assertAllClose(part.accuracy, accuracy)
        self.assertAllClose(part.confidence, mean)

    def test_several_labels_have_one_each(self):
        target = Target(kind=MULTI_LABEL, labels=("a", "b"))
        parts = classification.reliabilities(
            target, np.array([[0.1, 0.8], [0.1, 0.8]]), np.array([[0, 1], [1, 1]])
        )
        # a: 0.1 said, half came true; b: 0.8 said, all did.
        errors = [part.expected_calibration_error for part in parts]
        self.assertAllClose(errors, [0.4, 0.2])

    def test_brier_score_by_hand(self):
        # 2 * (0.0081 + 0.9409 + 0.16 + 0.3844) / 4
        self.assertAllClose(
            classification.brier_score(PAIR, PROBABILITIES, LABELS), 0.7467
        )
        several = Target(kind=MULTI_LABEL, labels=("a", "b"))
        score = classification.brier_score(
            several, np.array([[0.5, 0.9]]), np.array([[1, 0]])
        )
        self.assertAllClose(score, (0.25 + 0.81) / 2)


class PicturesTest(tf.test.TestCase):
    def test_calibration_of_classes(self):
        def draw():
            return classification.calibration_picture(
                PAIR, PROBABILITIES, LABELS, "dev: 4 examples"
            )

        texts, content = drawn(draw)
        self.assertIn(
            "dev: 4 examples\nexpected calibration error 0.520, Brier score 0.747",
            texts,
        )
        self.assertEqual(draw(), content)
        # What the user set for pictures of their own makes no difference.
        with matplotlib.rc_context({"font.size": 20, "axes.grid": True}):
            self.assertEqual(draw(), content)

    def test_what_few_predictions_say_is_paler(self):
        # 40 predictions at 0.95, all right, and one at 0.55.
        probabilities = np.array([[0.05, 0.95]] * 40 + [[0.45, 0.55]])
        labels = np.ones(41, np.int64)

        def blue(content):
            """How far from white the lower middle of the two bars is."""
            pixels = imread(io.BytesIO(content))[..., :3]
            row = pixels[int(0.6 * len(pixels))]
            # From the axes' left end, at 0.11 of the width, to their right end.
            left, right = 0.11 * len(row), 0.97 * len(row)
            places = [left + (right - left) * x for x in (8.5 / 15, 14.5 / 15)]
            return [1 - row[int(place)].min() for place in places]

        texts, content = drawn(
            lambda: classification.calibration_picture(
                PAIR, probabilities, labels, "dev"
            )
        )
        few, many = blue(content)
        self.assertGreater(few, 0.1)
        self.assertGreater(many, 3 * few)
        self.assertIn("paler above: of fewer than 30 predictions", texts)

    def test_calibration_of_labels(self):
        def draw(num_labels):
            target = Target(
                kind=MULTI_LABEL, labels=tuple(f"c${i}" for i in range(num_labels))
            )
            shape = [3, num_labels]
            labels = np.eye(*shape, dtype=np.int64)
            return classification.calibration_picture(
                target, np.full(shape, 0.25), labels, "dev"
            )

        texts, _ = drawn(lambda: draw(3))
        # A third came true of what was said to be a quarter. Each row's squares are
        # 9/16, 1/16 and 1/16.
        self.assertIn("dev\nexpected calibration error 0.083, Brier score 0.229", texts)
        self.assertContainsSubset({"c$0", "c$1", "c$2"}, texts)
        texts, _ = drawn(lambda: draw(11))
        self.assertIn("all labels", texts)
        self.assertNotIn("c$0", texts)

    def test_numbers(self):
        def draw():
            return classification.regression_picture(
                Target(kind=REGRESSION), np.array([1.0, 2, 3]), np.array([0.0, 3, 3]),
                "dev: 3 examples",
            )  # fmt: skip

        texts, content = drawn(draw)
        # Deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6).
        self.assertIn("dev: 3 examples\nPearson 0.866", texts)
        self.assertEqual(draw(), content)
        several = Target(kind=REGRESSION, labels=("valence", "arousal"))
        numbers = np.array([[1.0, 5], [2, 4], [3, 3]])
        truth = np.array([[0.0, 1], [3, 2], [3, 3]])
        texts, _ = drawn(
            lambda: classification.regression_picture(several, numbers, truth, "dev")
        )
        self.assertIn("dev\nPearson valence 0.866, arousal -1.000", texts)


class WindowsTest(tf.test.TestCase):
    def test_what_fits_is_one_window(self):
        self.assertEqual(windows_of_pair([1, 2], [3], 3), ([([1, 2], [3])], False))
        self.assertEqual(windows_of_pair([], [], 3), ([([], [])], False))

    def test_a_text(self):
        pairs, is_cut = windows_of_pair([1, 2, 3, 4, 5, 6, 7], [], 4)
        self.assertEqual(
            pairs, [([1, 2, 3, 4], []), ([3, 4, 5, 6], []), ([5, 6, 7], [])]
        )
        self.assertFalse(is_cut)
        pairs, _ = windows_of_pair([1, 2, 3, 4, 5, 6, 7], [], 4, stride=3)
        self.assertEqual(pairs, [([1, 2, 3, 4], []), ([4, 5, 6, 7], [])])

    def test_a_stride_leaves_nothing_out(self):
        pairs, _ = windows_of_pair([1, 2, 3, 4, 5], [], 2, stride=100)
        self.assertEqual(pairs, [([1, 2], []), ([3, 4], []), ([5], [])])
        pairs, _ = windows_of_pair([1, 2, 3], [], 1)
        self.assertEqual(pairs, [([1], []), ([2], []), ([3], [])])

    def test_the_longer_of_a_pair(self):
        pairs, is_cut = windows_of_pair([1, 2, 3, 4], [8, 9], 4)
        self.assertEqual(pairs, [([1, 2], [8, 9]), ([2, 3], [8, 9]), ([3, 4], [8, 9])])
        self.assertFalse(is_cut)
        pairs, _ = windows_of_pair([8, 9], [1, 2, 3], 4)
        self.assertEqual(pairs, [([8, 9], [1, 2]), ([8, 9], [2, 3])])
        # At equal lengths the second one.
        pairs, _ = windows_of_pair([1, 2], [3, 4], 3)
        self.assertEqual(pairs, [([1], [3, 4])])

    def test_what_stands_whole_has_half_of_the_room(self):
        pairs, is_cut = windows_of_pair([1, 2, 3, 4, 5], [6, 7, 8], 4)
        self.assertEqual(
            pairs,
            [([1, 2], [6, 7]), ([2, 3], [6, 7]), ([3, 4], [6, 7]), ([4, 5], [6, 7])],
        )
        self.assertTrue(is_cut)

    def test_each_token_is_in_a_window_and_all_fit(self):
        rng = random.Random(0)
        for _ in range(500):
            tokens = list(range(rng.randint(0, 40)))
            room, stride = rng.randint(1, 12), rng.choice([None, *range(1, 14)])
            pairs, _ = windows_of_pair(tokens, [], room, stride)
            windows = [window for window, _ in pairs]
            self.assertEqual(sorted({x for window in windows for x in window}), tokens)
            self.assertLessEqual(max(map(len, windows)), room)
            # Only the last one reaches the end.
            for window in windows[:-1]:
                self.assertNotEqual(window[-1], tokens[-1])


class AverageTest(tf.test.TestCase):
    def test_mean_of_each_examples_windows(self):
        logits = np.array([[1, 2], [3, 8], [7, 7], [0, 3], [0, 3], [3, 6]], np.float32)
        averages = average_windows(logits, [2, 1, 3])
        self.assertAllClose(averages, [[2, 5], [7, 7], [1, 4]])
        self.assertEqual(averages.dtype, np.float32)

    def test_counts_that_are_of_other_records(self):
        for counts in ([2, 2], [6, 0], [6, 1], [7, -1]):
            with self.assertRaisesRegex(ValueError, "add up to 6"):
                average_windows(np.zeros([6, 2]), counts)


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9
CLASSES = Target(kind=SINGLE_LABEL, labels=("y", "x"))
LABELS_CLASSIFICATION = Target(kind=MULTI_LABEL, labels=("y", "x", "z"))
NUMBER = Target(kind=REGRESSION)


def plain_truncate(a, b, limit):
    """The original's rule, one token at a time: the longer gives way, b on a tie."""
    a, b = list(a), list(b)
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    return a, b


def featurizer(length=8, target=CLASSES, **options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    return classification.TextFeaturizer(
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
            (LABELS_CLASSIFICATION, objectives.MULTI_LABEL),
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
            self.record("a", label="z,y", target=LABELS_CLASSIFICATION)["label_ids"],
            [1.0, 0.0, 1.0],
        )
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            self.record("a", label="z")
        with self.assertRaisesRegex(InputError, "file.tsv:3.*one of y, x. Found: 'z'"):
            classification.check_labels(examples("a", label="z"), CLASSES)

    def test_records_are_those_of_the_schema(self):
        for target, label in (
            (CLASSES, "x"),
            (NUMBER, "1.5"),
            (LABELS_CLASSIFICATION, "x,z"),
        ):
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
                featurizer(target=LABELS_CLASSIFICATION),
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


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(20)]
CLS_CLASSIFIER_SESSION, SEP_CLASSIFIER_SESSION, FIRST = 2, 3, 5
# Words of each development example; 12 are the most that fit.
LENGTHS = (5, 1, 12, 3, 9, 2, 7, 12, 4, 1, 8)
LABELS_CLASSIFIER_SESSION = [("no", "yes")[number % 3 == 0] for number in range(11)]


def words(number, count):
    """The numbers of an example's words."""
    return [(7 * number + 3 * place) % len(WORDS) for place in range(count)]


class SessionTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.config = toy.write_config(cls.root)
        Vocabulary([*SPECIAL, *WORDS]).save(cls.path("v.txt"))
        os.makedirs(cls.path("data"))
        cls.write("dev.tsv", LENGTHS, LABELS_CLASSIFIER_SESSION)
        cls.write("long.tsv", (3, 12, 6), ["no", "yes", "no"])
        keras.utils.set_random_seed(4)
        cls.model = BertClassifier(toy.CONFIG, 2)
        for variable in cls.model.variables:
            if variable.dtype == "float32":  # far from 0, so that logits differ
                variable.assign(variable + keras.random.normal(variable.shape) * 0.3)
        os.makedirs(cls.path("trained"))
        toy.save_checkpoint(cls.path("trained"), cls.model)

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.root, *names)

    @classmethod
    def write(cls, name, lengths, labels):
        with open(cls.path("data", name), "w") as file:
            file.write("text_a\tlabel\n")
            for number, (count, label) in enumerate(zip(lengths, labels, strict=True)):
                text = " ".join(WORDS[word] for word in words(number, count))
                file.write(f"{text}\t{label}\n")

    def session(self, *arguments, records="records", **options):
        options = {
            "task_name": "tsv",
            "data_dir": self.path("data"),
            "labels": "no,yes",
            "vocab_file": self.path("v.txt"),
            "bert_config_file": self.config,
            "init_checkpoint": self.path("trained"),
            "output_dir": self.path(records),
            "max_seq_length": 14,
            "eval_batch_size": 4,
            **options,
        }
        values = cli.parse(
            run_classifier.run,
            [
                "--do_eval",
                *arguments,
                *(f"--{name}={value}" for name, value in options.items()),
            ],
        )
        found = finetuning.files_of(values, values.output_dir)
        strategy = tf.distribute.get_strategy()
        kept = []

        class Texts(classification._Texts):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                kept.append(self)

        with mock.patch.object(classification, "_Texts", Texts):
            task = classification.classification_task(values, found, strategy)
        run = finetuning.FineTuning(task, values, found, strategy)
        return types.SimpleNamespace(
            task=task,
            records=kept[0].records,
            restore=run.restore,
            logits=run.predict,
            scores=task.score,
        )

    def logits_of(self, numbers):
        """The model's outputs for one text by itself, without padding."""
        ids = [
            CLS_CLASSIFIER_SESSION,
            *(FIRST + number for number in numbers),
            SEP_CLASSIFIER_SESSION,
        ]
        outputs = self.model(
            {
                "input_ids": np.array([ids]),
                "input_mask": np.ones([1, len(ids)], np.int64),
                "segment_ids": np.zeros([1, len(ids)], np.int64),
            },
            training=False,
        )
        return outputs["logits"].numpy()[0]

    @several_lengths()
    def test_outputs_in_the_order_of_the_examples_whatever_the_padding(self):
        expected = [self.logits_of(words(n, count)) for n, count in enumerate(LENGTHS)]
        session = self.session(length_buckets=3)
        model, step = session.restore(self.path("restored"))
        self.assertEqual(step, 0)
        by_length = session.logits(model, "dev")
        self.assertAllClose(by_length, expected, rtol=1e-5, atol=1e-5)
        padded = self.session(pad="max").logits(model, "dev")
        self.assertAllClose(by_length, padded, rtol=1e-5, atol=1e-5)
        # The comparison tells one example from another.
        distances = np.abs(np.subtract.outer(by_length[:, 0], by_length[:, 0]))
        self.assertGreater(distances[~np.eye(11, dtype=bool)].min(), 1e-4)

    def test_windows_are_averaged(self):
        session = self.session(
            long_text="window", doc_stride=3, max_seq_length=8, dev_file="long.tsv"
        )
        logits = session.logits(self.model, "dev")
        # Six words fit: the twelve of the second text are read in three windows.
        self.assertEqual(session.records("dev").num_records, 5)
        long = words(1, 12)
        expected = [
            self.logits_of(words(0, 3)),
            np.mean([self.logits_of(long[at : at + 6]) for at in (0, 3, 6)], axis=0),
            self.logits_of(words(2, 6)),
        ]
        self.assertAllClose(logits, expected, rtol=1e-5, atol=1e-5)
        # Found again, with the windows' counts, by another session.
        with mock.patch.object(classification.TextFeaturizer, "blocks", made_again):
            session = self.session(
                long_text="window", doc_stride=3, max_seq_length=8, dev_file="long.tsv"
            )
            self.assertAllClose(session.logits(self.model, "dev"), logits)

    def test_scores(self):
        logits = np.array([[0.0, float(number - 5) / 2] for number in range(11)])
        session = self.session()
        scores = session.scores("dev", logits)
        # yes, no, no, yes, ...: each one's own -log of its probability.
        right = np.arange(11) % 3 == 0
        losses = np.log1p(np.exp(np.where(right, -logits[:, 1], logits[:, 1])))
        self.assertAlmostEqual(scores["eval_loss"], losses.mean(), places=5)
        batches = [losses[:4].mean(), losses[4:8].mean(), losses[8:].mean()]
        self.assertAlmostEqual(scores["loss"], np.mean(batches), places=5)
        self.assertNotAlmostEqual(scores["loss"], scores["eval_loss"], places=3)
        # Yes is predicted of 6 to 10: right for 6 and 9, as no is for 1, 2, 4 and 5.
        self.assertAlmostEqual(scores["accuracy"], 6 / 11)
        self.assertAlmostEqual(scores["majority"], 7 / 11)  # yes is each third of 11
        self.assertEqual(set(scores), {"accuracy", "eval_loss", "loss", "majority"})
        with self.assertRaisesRegex(DivergedError, "lower --learning_rate"):
            session.scores("dev", np.full([11, 2], np.nan))

    def test_records_of_the_same_are_made_once(self):
        made = self.session(records="once").records("dev").made_from
        with mock.patch.object(classification.TextFeaturizer, "blocks", made_again):
            # Who evaluates otherwise has the same records.
            session = self.session("--pad=max", records="once", eval_batch_size=7)
            self.assertEqual(session.records("dev").made_from, made)
            others = (
                {"max_seq_length": 13},
                {"long_text": "window"},
                {"labels": "yes,no"},
                {"dev_file": "long.tsv"},
            )
            for options in others:
                session = self.session(records="once", **options)
                with self.assertRaisesRegex(AssertionError, "made again"):
                    session.records("dev")

    def test_what_is_cut_is_said(self):
        with self.assertLogs(level="INFO") as logs:
            self.session(max_seq_length=10, records="cut").records("dev")
        said = "3 of 11 dev examples were longer than --max_seq_length=10 and cut."
        self.assertTrue(any(said in line for line in logs.output), logs.output)
        # And said again where the records are there already.
        with self.assertLogs(level="INFO") as logs:
            self.session(max_seq_length=10, records="cut").records("dev")
        self.assertTrue(any(said in line for line in logs.output), logs.output)

    def test_another_head_is_refused(self):
        number = BertClassifier(toy.CONFIG, 1)
        for place, (model, labels, kind, described) in enumerate(
            (
                (self.model, ("a", "b"), SINGLE_LABEL, "one of a, b"),
                (self.model, ("yes", "no"), SINGLE_LABEL, "one of yes, no"),
                (self.model, ("no", "yes"), MULTI_LABEL, "any of no, yes"),
                (self.model, ("no", "yes"), REGRESSION, "no, yes"),
                (number, (), REGRESSION, "a number"),
            )
        ):
            folder = self.path(f"other{place}")
            os.makedirs(folder)
            toy.save_checkpoint(folder, model)
            run_folder.check_labels(folder, labels, kind)
            with self.assertRaisesRegex(
                InputError, f"that predicts {described}; this task's predicts one of no"
            ):
                self.session(init_checkpoint=folder)
            self.session("--init_head=false", init_checkpoint=folder)

    def test_labels_of_the_checkpoint_where_nothing_is_trained(self):
        folder = self.path("labelled")
        os.makedirs(folder)
        toy.save_checkpoint(folder, self.model)
        run_folder.check_labels(folder, ("yes", "no"), SINGLE_LABEL)
        # There is no training file to read them from.
        session = self.session(init_checkpoint=folder, labels="", records="labelled")
        self.assertEqual(session.task.labels, ("yes", "no"))


def made_again(self, examples):
    """Stands for the making of records that are there."""
    raise AssertionError("made again")
    yield


if __name__ == "__main__":
    tf.test.main()
