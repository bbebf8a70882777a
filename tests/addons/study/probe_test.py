import glob
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.addons.study import probe
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.tasks.tagging.sentences import Sentence
from tests.conversion import runs
from tests.drawn import drawn
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "run", "##s", "."]
TAGGED = "A DT\ndog NN\nruns VBZ\n. .\n\na DT\nrun NN\n. .\n\n"


def words_with(labels, vectors, words=None):
    if words is None:
        words = [f"w{number}" for number in range(len(labels))]
    return probe.ProbedWords(words=words, labels=labels, vectors=np.float32(vectors))


class ControlTaskTest(tf.test.TestCase):
    def test_a_type_has_one_label_wherever_it_stands(self):
        first = probe.control_labels(["a", "b", "a"], ["X", "Y"])
        self.assertEqual(first[0], first[2])
        # Whatever other words are there, and in whatever order the labels are.
        words = [f"word {number}" for number in range(20)]
        alone = probe.control_labels(words, ["X", "Y"])
        self.assertEqual(probe.control_labels(["a", *words], ["Y", "X"])[1:], alone)

    def test_labels_are_as_frequent_as_they_were(self):
        words = [f"word {number}" for number in range(4000)]
        drawn_labels = probe.control_labels(words, ["X"] * 3 + ["Y"])
        # Four standard deviations: 4 sqrt(4000 0.75 0.25) = 110.
        self.assertNear(drawn_labels.count("X"), 3000, 110)
        other = probe.control_labels(words, ["X"] * 3 + ["Y"], seed=1)
        self.assertNotEqual(drawn_labels, other)


class LinearProbeTest(tf.test.TestCase):
    def test_finds_what_is_in_a_layer_and_nothing_in_noise(self):
        rng = np.random.default_rng(0)

        def words(count):
            classes = rng.integers(3, size=count)
            signal = 0.1 * rng.normal(size=[count, 5])
            signal[:, :3] += 40.0 * np.eye(3)[classes]
            vectors = np.stack([rng.normal(size=[count, 5]), signal], axis=1)
            return words_with(["XYZ"[one] for one in classes], vectors)

        train, test = words(600), words(300)
        noise, signal = (probe.probe(train, test, layer) for layer in (0, 1))
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
        found = probe.probe(*halves, 0, seed=3)
        self.assertEqual(found.control_accuracy, 1.0)
        self.assertNear(found.accuracy, 0.5, 0.15)
        self.assertLess(found.selectivity, 0.0)

    def test_a_heavy_penalty_leaves_the_bias_alone(self):
        vectors = np.array([[[1.0]]] * 15 + [[[-1.0]]] * 5)
        train = words_with(["X"] * 15 + ["Y"] * 5, vectors)
        test = words_with(["X", "Y", "Y"], [[[1.0]], [[-1.0]], [[-1.0]]])
        self.assertEqual(probe.probe(train, test, 0).accuracy, 1.0)
        # Then all words are X, as most are.
        self.assertAllClose(probe.probe(train, test, 0, l2=1e6).accuracy, 1 / 3)

    def test_a_number_that_is_always_the_same(self):
        vectors = np.array([[[1.0, 7.0]], [[-1.0, 7.0]]] * 5)
        train = words_with(["X", "Y"] * 5, vectors)
        self.assertEqual(probe.probe(train, train, 0).accuracy, 1.0)


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
        found = probe.baseline(train, test)
        self.assertEqual(found.accuracy, 3 / 5)
        # All types that are there are known by heart.
        known = words_with(["N"] * 3, nothing, ["run", "the", "a"])
        self.assertEqual(probe.baseline(train, known).control_accuracy, 1.0)


class ProbeTest(FolderCase):
    def setUp(self):
        super().setUp()
        encoder = BertEncoder(toy.CONFIG)
        randomize(encoder)
        self.folder = runs.save(self.path("run"), encoder, tokens=TOKENS)
        self.tagged = self.write("tagged.txt", TAGGED * 5)

    def probe(self, *arguments):
        return printed(
            probe,
            f"--init_checkpoint={self.folder}",
            f"--train_file={self.tagged}",
            "--max_seq_length=16",
            f"--output_dir={self.path('out')}",
            *arguments,
        )

    def test_a_table_of_layers(self):
        pictures = []

        def draw():
            pictures.append(self.probe())
            return pathlib.Path(self.path("out", "probing.png")).read_bytes()

        texts, picture = drawn(draw)
        expected = {"embeddings", "0", "accuracy", "control task", "selectivity"}
        self.assertContainsSubset(expected, texts)
        self.assertGreater(len(picture), 5000)
        (table,) = pictures
        self.assertEqual(table, self.read("out", "probing.md"))
        first_cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
        expected = ["| layer     ", "| ----------", "| word types", "| embeddings"]
        self.assertEqual(first_cells, [*expected, "| 0         "])
        self.assertRegex(table, "^4 labels; 2[789] words to train on, [678] to score")
        # `run` is once a noun, and `runs` another word: types tell all.
        self.assertIn("| word types |   100.00 |", table)
        layers = self.read_json("out", "probing.json")["layers"]
        self.assertEqual(list(layers), ["embeddings", "0"])
        # What the position adds does not hide which of five words it is.
        self.assertEqual(layers["embeddings"]["accuracy"], 1.0)

    def test_a_word_has_its_first_pieces_vector(self):
        seen = []
        with (
            mock.patch.object(
                probe, "baseline", side_effect=lambda *a, **_: seen.extend(a) or 1 / 0
            ),
            self.assertRaises(ZeroDivisionError),
        ):
            self.probe("--test_file=" + self.tagged, "--max_words=8")
        train, test = seen
        # Whole sentences, of 4 and 3 words.
        self.assertIn(len(train.words), (7, 8))
        self.assertIn(len(test.words), (6, 7, 8))
        self.assertContainsSubset(train.words, {"a", "dog", "run", "runs", "."})
        self.assertEqual(train.vectors.shape, (len(train.words), 2, 8))
        by_word = dict(zip(train.words, train.labels, strict=True))
        self.assertEqual((by_word["a"], by_word["."]), ("DT", "."))
        (path,) = glob.glob(self.path("out", "train_vectors-*.npy"))
        self.assertAllEqual(train.vectors, np.load(path))

    def test_bad_input(self):
        for content, found in (("a X\ndog X\n\na X\n", "X"), ("a X\ndog Y\n", "none")):
            path = self.write("bad.txt", content)
            with self.assertRaisesRegex(
                InputError, f"labels at least. Received: {found}"
            ):
                self.probe(f"--train_file={path}")

    def test_first_words(self):
        some = [
            Sentence.of_words(["w"] * count, None, document=0, source="")
            for count in (3, 2, 1)
        ]
        for most, expected in ((1, 1), (4, 1), (5, 2), (100, 3)):
            self.assertLen(probe.first_words(some, most), expected)
