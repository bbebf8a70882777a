import numpy as np
import tensorflow as tf

from bert_tf.study.probing import (
    ProbedWords,
    ProbeScore,
    baseline,
    control_labels,
    probe,
    probing_picture,
)
from tests.finetuning.drawn import drawn


def words_with(labels, vectors, words=None):
    if words is None:
        words = [f"w{number}" for number in range(len(labels))]
    return ProbedWords(words=words, labels=labels, vectors=np.float32(vectors))


class ControlTaskTest(tf.test.TestCase):
    def test_a_type_has_one_label_wherever_it_stands(self):
        first = control_labels(["a", "b", "a"], ["X", "Y"])
        self.assertEqual(first[0], first[2])
        # Whatever other words are there, and in whatever order the labels are.
        words = [f"word {number}" for number in range(20)]
        alone = control_labels(words, ["X", "Y"])
        self.assertEqual(control_labels(["a", *words], ["Y", "X"])[1:], alone)

    def test_labels_are_as_frequent_as_they_were(self):
        words = [f"word {number}" for number in range(4000)]
        drawn_labels = control_labels(words, ["X"] * 3 + ["Y"])
        # Four standard deviations: 4 sqrt(4000 0.75 0.25) = 110.
        self.assertNear(drawn_labels.count("X"), 3000, 110)
        other = control_labels(words, ["X"] * 3 + ["Y"], seed=1)
        self.assertNotEqual(drawn_labels, other)


class ProbeTest(tf.test.TestCase):
    def test_finds_what_is_in_a_layer_and_nothing_in_noise(self):
        rng = np.random.default_rng(0)

        def words(count):
            classes = rng.integers(3, size=count)
            signal = 0.1 * rng.normal(size=[count, 5])
            signal[:, :3] += 40.0 * np.eye(3)[classes]
            vectors = np.stack([rng.normal(size=[count, 5]), signal], axis=1)
            return words_with(["XYZ"[one] for one in classes], vectors)

        train, test = words(600), words(300)
        noise, signal = (probe(train, test, layer) for layer in (0, 1))
        self.assertEqual(signal.accuracy, 1.0)
        # A third is right by chance; every word is another type, which cannot be
        # learned by heart.
        for accuracy in (noise.accuracy, signal.control_accuracy):
            self.assertNear(accuracy, 1 / 3, 0.12)
        self.assertAllClose(signal.selectivity, 1.0 - signal.control_accuracy)

    def test_learns_types_by_heart_when_it_can_tell_them_apart(self):
        # Each of six types has its own direction, and the task's labels say nothing.
        rng = np.random.default_rng(1)
        types = rng.integers(6, size=600)
        names = [f"type {number}" for number in types]
        labels = ["XY"[one] for one in rng.integers(2, size=600)]
        vectors = np.eye(6)[types][:, None]
        halves = [
            words_with(labels[part], vectors[part], names[part])
            for part in (slice(400), slice(400, None))
        ]
        found = probe(*halves, 0, seed=3)
        self.assertEqual(found.control_accuracy, 1.0)
        self.assertNear(found.accuracy, 0.5, 0.15)
        self.assertLess(found.selectivity, 0.0)

    def test_a_heavy_penalty_leaves_the_bias_alone(self):
        vectors = np.array([[[1.0]]] * 15 + [[[-1.0]]] * 5)
        train = words_with(["X"] * 15 + ["Y"] * 5, vectors)
        test = words_with(["X", "Y", "Y"], [[[1.0]], [[-1.0]], [[-1.0]]])
        self.assertEqual(probe(train, test, 0).accuracy, 1.0)
        # Then all words are X, as most are.
        self.assertAllClose(probe(train, test, 0, l2=1e6).accuracy, 1 / 3)

    def test_a_number_that_is_always_the_same(self):
        vectors = np.array([[[1.0, 7.0]], [[-1.0, 7.0]]] * 5)
        train = words_with(["X", "Y"] * 5, vectors)
        self.assertEqual(probe(train, train, 0).accuracy, 1.0)

    def test_one_label(self):
        one = words_with(["X", "X"], np.zeros([2, 1, 1]))
        with self.assertRaisesRegex(ValueError, "two labels"):
            probe(one, one, 0)


class BaselineTest(tf.test.TestCase):
    def test_by_hand(self):
        nothing = np.zeros([0, 1, 1])
        train = words_with(
            ["N", "V", "N", "D", "D", "D", "D"],
            nothing,
            ["run", "run", "run", "the", "the", "a", "a"],
        )
        # `run` is N, `the` is D; what is new is D, the commonest.
        test = words_with(["V", "N", "D", "D", "N"], nothing,
                          ["run", "run", "the", "new", "new"])  # fmt: skip
        found = baseline(train, test)
        self.assertEqual(found.accuracy, 3 / 5)
        # All types that are there are known by heart.
        known = words_with(["N"] * 3, nothing, ["run", "the", "a"])
        self.assertEqual(baseline(train, known).control_accuracy, 1.0)


class PictureTest(tf.test.TestCase):
    def test_names_layers_and_lines(self):
        scores = [
            ProbeScore(accuracy=0.9, control_accuracy=0.7),
            ProbeScore(accuracy=0.95, control_accuracy=0.6),
        ]
        texts, _ = drawn(
            lambda: probing_picture(
                ["embeddings", "0"], scores, scores[0], "5 $labels$"
            )
        )
        expected = {"embeddings", "0", "accuracy", "control task", "selectivity"}
        self.assertContainsSubset(expected | {"5 $labels$"}, texts)


if __name__ == "__main__":
    tf.test.main()
