import numpy as np
import tensorflow as tf

from bert_tf.base.errors import DivergedError
from bert_tf.records.batching import Batching
from bert_tf.tasks.tagging.sentence_windows import NO_LABEL, SentenceFeatures
from bert_tf.tasks.tagging.sentences import Layout, read_sentences
from bert_tf.tasks.tagging.word_predictions import (
    entity_scores,
    f1_macro,
    metric_names,
    predict_words,
    write_predictions,
)
from tests.script_case import FolderCase
from tests.tasks.tagging.sentences_test import CONLL


class PredictionFilesTest(FolderCase):
    def read_sentences(self, text, **layout):
        path = self.write("file.txt", text)
        return read_sentences([path], Layout(**layout), has_labels=None)

    def written(self, sentences, labels):
        write_predictions(self.path("predictions.txt"), sentences, labels)
        return self.read("predictions.txt")

    def test_the_files_lines_with_a_column_more_or_two(self):
        # Labels that are not the last column stand before the predicted ones.
        others = [["NNP", "VB"], ["NN"], ["NN"]]
        for layout, labels, ends in (
            ({}, [["I-ORG", "O"], ["B-X"], ["O"]], "O||I-ORG|O||B-X||O||O"),
            ({"label_column": "1"}, others, "O O||NNP NNP|VBZ VB||NN NN||O O||NNP NN"),
        ):
            rows = zip(CONLL.splitlines(), ends.split("|"), strict=True)
            expected = "".join(f"{line} {end}".strip() + "\n" for line, end in rows)
            sentences = self.read_sentences(CONLL, **layout)
            self.assertEqual(self.written(sentences, labels), expected + "\n")

    def test_all_lines_have_the_same_columns(self):
        for text, labels, expected in (
            ("-DOCSTART-\n\na\tX  O\n", [["O"]], "-DOCSTART- O O O\n\na X O O\n\n"),
            ("a\nb\n", [["O", "X"]], "a O\nb X\n\n"),
        ):
            self.assertEqual(self.written(self.read_sentences(text), labels), expected)

    def test_lines_at_the_end_of_files(self):
        texts = {"1.txt": "a O\n\n", "2.txt": "b O\n"}
        paths = [self.write(n, f"-DOCSTART- O\n\n{text}") for n, text in texts.items()]
        sentences = read_sentences(paths, Layout())
        first = "-DOCSTART- O O\n\na O X\n\n"
        both = f"{first}-DOCSTART- O O\n\nb O Y\n\n"
        self.assertEqual(self.written(sentences, [["X"], ["Y"]]), both)
        self.assertEqual(self.written(sentences[:1], [["X"]]), first)


NUM_LABELS = 5


def echo(batches, total):
    """A model that says of token n the label n % 5, with p = 6 / 10."""
    for batch in batches:
        batch = {name: np.asarray(value) for name, value in batch.items()}
        is_said = batch["input_ids"][:, :, None] % NUM_LABELS == np.arange(NUM_LABELS)
        yield batch, {"logits": np.where(is_said, np.log(6.0), 0.0).astype(np.float32)}


def windowed_words(number, seed=0):
    """Windows of random lengths; and the token that each word begins with."""
    generator = np.random.default_rng(seed)
    found, tokens = [], []
    for _ in range(number):
        ids = generator.integers(5, 99, generator.integers(3, 12))
        places = np.flatnonzero(generator.random(len(ids)) < 0.5)
        found.append(
            SentenceFeatures(ids.tolist(), places, len(tokens) + np.arange(len(places)))
        )
        tokens += ids[places].tolist()
    return found, np.array(tokens)


class PredictWordsTest(tf.test.TestCase):
    def test_each_word_has_the_label_of_its_first_token(self):
        features, tokens = windowed_words(37)
        labels = tokens % NUM_LABELS
        labels[1::3] = (labels[1::3] + 1) % NUM_LABELS
        labels[2::3] = NO_LABEL
        losses = np.zeros(len(tokens))
        losses[0::3], losses[1::3] = -np.log(0.6), -np.log(0.1)
        for batch_size, num_lengths in ((4, 3), (4, None), (64, 12), (1, 1)):
            sizes = {"batch_size": batch_size, "num_lengths": num_lengths}
            batching = Batching(max_seq_length=12, **sizes)
            found = predict_words(features, labels, echo, batching)
            self.assertAllEqual(found.label_ids, tokens % NUM_LABELS)
            self.assertAllClose(found.losses, losses)

    def test_scores_that_are_not_finite(self):
        def diverged(batches, total):
            for batch, outputs in echo(batches, total):
                yield batch, {"logits": outputs["logits"] * np.nan}

        features, tokens = windowed_words(3)
        batching = Batching(batch_size=4, max_seq_length=12, num_lengths=None)
        with self.assertRaisesRegex(DivergedError, "lower `learning_rate`"):
            predict_words(features, tokens % NUM_LABELS, diverged, batching)


GOLD = [["B-A", "I-A", "O"], ["O", "B-B"]]
SAID = [["B-A", "I-A", "O"], ["I-B", "I-B"]]


class ScoresTest(tf.test.TestCase):
    def test_entities_by_hand(self):
        # By the default reading I-B I-B is an entity, and a wrong one.
        scores = entity_scores(GOLD, SAID, "iob2")
        expected = {"strict_precision": 1.0, "strict_recall": 0.5, "strict_f1": 2 / 3}
        expected |= {"precision": 0.5, "recall": 0.5, "f1": 0.5}
        self.assertEqual(scores, expected)
        names = ["loss", "accuracy", *expected]
        self.assertEqual(metric_names("iob2"), names)
        self.assertEqual(metric_names("none"), ["loss", "accuracy"])
        self.assertNotIn("strict_f1", metric_names("iob1"))

    def test_f1_of_types_by_hand(self):
        # Of A 2 / 3, of B 0, of C, which is only predicted, 0.
        golds = [["B-A", "I-A", "O", "B-A"], ["B-B", "O"]]
        said = [["B-A", "I-A", "O", "O"], ["B-C", "O"]]
        self.assertAllClose(f1_macro(golds, said, "iob2"), 2 / 9)
        self.assertEqual(f1_macro([["O"]], [["O"]], "iob2"), 0.0)
        # Of DT 2 / 3, of NN 4 / 5, of VB 0.
        golds, said = [["DT", "NN"], ["NN", "VB"]], [["DT", "NN"], ["NN", "NN"]]
        said.append(["DT"])
        golds.append(["VB"])
        self.assertAllClose(f1_macro(golds, said, "none"), (2 / 3 + 4 / 5) / 3)


# IOB1: B stands where an entity is right behind one of its type. Read as IOB2 it has a
# B here and there, and keeps them.
