import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks.targets import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target

ONE = Target(kind=SINGLE_LABEL, labels=("no", "yes", "maybe"))
SEVERAL = Target(kind=MULTI_LABEL, labels=("a", "b", "c"))
NUMBER = Target(kind=REGRESSION)
NUMBERS = Target(kind=REGRESSION, labels=("width", "height"))


class EncodeTest(tf.test.TestCase):
    def test_one_label(self):
        self.assertEqual(ONE.encode("maybe", "f:1"), [2])
        self.assertEqual(ONE.encode(None, "f:1"), [0])
        with self.assertRaisesRegex(
            InputError, "f:7: .* one of no, yes, maybe. Found: 'Yes'"
        ):
            ONE.encode("Yes", "f:7")

    def test_several_labels(self):
        self.assertEqual(SEVERAL.encode("c,a", "f:1"), [1.0, 0.0, 1.0])
        self.assertEqual(SEVERAL.encode(" b , b", "f:1"), [0.0, 1.0, 0.0])
        for none in ("", " ", None):
            self.assertEqual(SEVERAL.encode(none, "f:1"), [0.0, 0.0, 0.0])
        with self.assertRaisesRegex(InputError, "f:7: .*',' between.*Found: 'd'"):
            SEVERAL.encode("a,d", "f:7")

    def test_another_separator(self):
        target = Target(kind=MULTI_LABEL, labels=("a", "b, c"), separator="; ")
        self.assertEqual(target.encode("b, c; a", "f:1"), [1.0, 1.0])
        self.assertEqual(target.words(np.ones([1, 2])), ["a; b, c"])

    def test_numbers(self):
        self.assertEqual(NUMBER.encode("2.5", "f:1"), [2.5])
        self.assertEqual(NUMBER.encode(None, "f:1"), [0.0])
        self.assertEqual(NUMBERS.encode("1, -2e1", "f:1"), [1.0, -20.0])
        self.assertEqual(NUMBERS.encode(None, "f:1"), [0.0, 0.0])
        for wrong in ("x", "", "1,2", "nan", "inf"):
            with self.assertRaisesRegex(InputError, "f:7: .* a number. Found"):
                NUMBER.encode(wrong, "f:7")
        for wrong in ("1", "1,2,3", "1,"):
            with self.assertRaisesRegex(InputError, "f:7: .* 2 numbers"):
                NUMBERS.encode(wrong, "f:7")

    def test_what_a_record_holds(self):
        found = [
            (target.num_outputs, target.label_length, target.label_dtype)
            for target in (ONE, SEVERAL, NUMBER, NUMBERS)
        ]
        self.assertEqual(
            found,
            [(3, 1, "int64"), (3, 3, "float32"), (1, 1, "float32"), (2, 2, "float32")],
        )


class OutputsTest(tf.test.TestCase):
    def test_one_label(self):
        # Odds of 1 : 3 : 4.
        logits = np.log([[1.0, 3.0, 4.0], [5.0, 2.0, 1.0]])
        self.assertAllClose(
            ONE.probabilities(logits), [[0.125, 0.375, 0.5], [0.625, 0.25, 0.125]]
        )
        self.assertAllEqual(ONE.predictions(logits), [2, 0])
        self.assertEqual(ONE.words(logits), ["maybe", "no"])

    def test_several_labels(self):
        # Odds of 1 : 3 against, even, 4 : 1 for.
        logits = np.log([[1 / 3, 1.0, 4.0], [3.0, 1.5, 1 / 4]])
        self.assertAllClose(
            SEVERAL.probabilities(logits), [[0.25, 0.5, 0.8], [0.75, 0.6, 0.2]]
        )
        self.assertAllEqual(SEVERAL.predictions(logits), [[0, 0, 1], [1, 1, 0]])
        self.assertEqual(SEVERAL.words(logits), ["c", "a,b"])
        self.assertEqual(SEVERAL.words(-np.ones([1, 3])), [""])

    def test_numbers(self):
        logits = np.array([[3.21449], [-1.0]])
        self.assertAllClose(NUMBER.probabilities(logits), logits)
        self.assertAllClose(NUMBER.predictions(logits), [3.21449, -1.0])
        self.assertEqual(NUMBER.words(logits), ["3.214", "-1.000"])
        logits = np.array([[1.0, 2.5]])
        self.assertAllClose(NUMBERS.predictions(logits), logits)
        self.assertEqual(NUMBERS.words(logits), ["1.000,2.500"])

    def test_large_logits(self):
        logits = np.array([[1000.0, 0.0, -1000.0]])
        with np.errstate(all="raise", under="ignore"):
            self.assertAllClose(ONE.probabilities(logits), [[1.0, 0.0, 0.0]])
            self.assertAllClose(SEVERAL.probabilities(logits), [[1.0, 0.5, 0.0]])


class TargetTest(tf.test.TestCase):
    def test_what_is_no_target(self):
        with self.assertRaisesRegex(ValueError, "`kind` must be one of"):
            Target(kind="ranking")
        for kind, labels in (
            (SINGLE_LABEL, ("a",)),
            (MULTI_LABEL, ()),
            (SINGLE_LABEL, ("a", "b", "a")),
        ):
            with self.assertRaisesRegex(ValueError, "`labels` of a"):
                Target(kind=kind, labels=labels)


if __name__ == "__main__":
    tf.test.main()
