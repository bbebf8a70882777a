from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import run_ner
from bert_tf.conversion.names import HEADS, TAGGING
from bert_tf.conversion.tokenizer_files import TrainedWords
from bert_tf.errors import DivergedError, InputError
from bert_tf.records.batching import Batching
from bert_tf.tasks import finetuning
from bert_tf.tasks.tagging import words
from bert_tf.tasks.tagging.sentences import Layout, Sentence, read_sentences
from bert_tf.tasks.tagging.words import (
    SentenceFeatures,
    SentenceFeaturizer,
    WordPredictions,
    digest,
    find_file_schemes,
    find_labels,
    label_ids,
    predict_words,
    trained_words,
    write_predictions,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.script_case import FolderCase, ScriptCase
from tests.tasks.tagging.sentences_test import CONLL

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = [*SPECIAL, "a", "b", "c", "##d", "東", "京"]
UNK, CLS, SEP, A, B, C, D, TO, KYO = 1, 2, 3, 5, 6, 7, 8, 9, 10


def sentence(text, document=0):
    return Sentence.of_words(text.split(" "), None, document=document, source="f:1")


def features(sentences, **options):
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    options = {"max_seq_length": 8, **options}
    return [
        (one.ids, one.places.tolist(), one.words.tolist())
        for one in SentenceFeaturizer(tokenizer, **options)(sentences)
    ]


class FeaturesTest(tf.test.TestCase):
    def test_the_first_piece_of_each_word(self):
        # Accents go, an ideograph is a token, and a soft hyphen alone is [UNK].
        found = features([sentence("add Ád 東京 \xad b"), sentence("c")])
        # The first sentence has 9 tokens, of which 6 fit: the second window ends with
        # it, and has more context of its last three words.
        expected = [
            ([CLS, A, D, D, A, D, TO, SEP], [1, 4], [0, 1]),
            ([CLS, A, D, TO, KYO, UNK, B, SEP], [3, 5, 6], [2, 3, 4]),
            ([CLS, C, SEP], [1], [5]),
        ]
        self.assertEqual(found, expected)

    def test_a_document_is_one_text(self):
        sentences = [sentence("a b"), sentence("c"), sentence("b", document=1)]
        self.assertEqual(
            features(sentences, document_context=True),
            [([CLS, A, B, C, SEP], [1, 2, 3], [0, 1, 2]), ([CLS, B, SEP], [1], [3])],
        )
        self.assertLen(features(sentences), 3)

    def test_every_word_is_in_one_window(self):
        generator = np.random.default_rng(3)
        sentences = [
            sentence(" ".join(generator.choice(["a", "bddd", "c" + 20 * "d"], number)))
            for number in generator.integers(1, 30, 40)
        ]
        for options in ({}, {"doc_stride": 1}, {"document_context": True}):
            found = features(sentences, **options)
            words = [word for _, _, some in found for word in some]
            self.assertEqual(words, list(range(sum(len(s.words) for s in sentences))))
            for ids, places, _ in found:
                self.assertLessEqual(len(ids), 8)
                # Where a word begins, no piece goes on.
                self.assertNotIn(D, [ids[place] for place in places])

    def test_words_that_are_longer_than_those_in_training_are_counted(self):
        sentences = [sentence("a addddddddd b"), sentence("bddddddddd")]
        options = {"max_seq_length": 20, "longest_word": 3}
        with self.assertLogs("absl", "WARNING") as logs:
            features(sentences, **options)
        self.assertLen(logs.output, 1)
        self.assertRegex(logs.output[0], r"2 of 4 words .* 8 pieces \(up to 10; the l")
        with self.assertNoLogs("absl", "WARNING"):
            features(sentences, max_seq_length=20)
            features(sentences, max_seq_length=20, longest_word=5)
        with self.assertLogs("absl", "WARNING") as logs:
            features(sentences)
        self.assertRegex(logs.output[0], r"2 of 4 words .* 6 pieces \(up to 10\)")

    def test_what_the_words_of_a_training_set_are_like(self):
        tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
        for texts, expected in (
            (["a add"], (3, True)),
            (["東 京 a", "東 東京"], (2, True)),
            (["東京 東 a", "東京東 京東"], (3, False)),
        ):
            found = trained_words(map(sentence, texts), tokenizer)
            self.assertEqual((found.longest, found.splits_cjk), expected)

    def test_the_digest_tells_sentences_apart(self):
        rows = [
            [sentence("a b")],
            [sentence("a"), sentence("b")],
            [sentence("a b", document=1)],
            [Sentence.of_words(["a", "b"], ["x", "y"], document=0, source="")],
        ]
        self.assertLen({digest(one) for one in rows}, 4)


FEATURES = [
    SentenceFeatures([2, 7, 8, 3], np.array([1]), np.array([0])),
    SentenceFeatures([2, 7, 8, 9, 10, 3], np.array([1, 2, 4]), np.array([1, 2, 3])),
]
# The second word's label is one that the model does not have.
LABELS = np.array([4, words.NO_LABEL, 0, 5])


class TaskTest(tf.test.TestCase):
    def test_records_by_hand(self):
        (block,) = words.blocks(FEATURES, LABELS, 7)
        for name, rows in (
            ("input_ids", [[2, 7, 8, 3, 0, 0, 0], [2, 7, 8, 9, 10, 3, 0]]),
            ("input_mask", [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]),
            ("segment_ids", [[0] * 7, [0] * 7]),
            ("label_ids", [[0, 4, 0, 0, 0, 0, 0], [0, 0, 0, 0, 5, 0, 0]]),
            ("label_weights", [[0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0, 0]]),
        ):
            self.assertAllEqual(block[name], rows)
        schema = words.schema(7)
        parsed = schema.parse(tf.constant(schema.serialize_block(block)))
        self.assertAllEqual(parsed["label_ids"], block["label_ids"])


def labelled(labels):
    labels = labels.split()
    return Sentence.of_words(["w"] * len(labels), labels, document=0, source="f:1")


def source(labels, head=TAGGING):
    return SimpleNamespace(
        path="ckpt",
        labels=tuple(labels.split()),
        weights={row.original: None for row in HEADS[head].weights},
    )


def find(train, file_scheme="iob2", *, recorded=None, source=None, **options):
    flag_values = {
        "output_dir": "nowhere",
        "labels": None,
        "init_head": True,
        **options,
    }
    found = find_labels(
        SimpleNamespace(**flag_values),
        None if train is None else [labelled(train)],
        file_scheme,
        recorded=recorded,
        source=source,
    )
    return " ".join(found.names), found.scheme


class LabelsTest(tf.test.TestCase):
    def test_labels_to_train_on(self):
        given = ["B-A", "I-A", "O", "B-B"]
        there = {"source": source("B-A O I-A I-C B-C")}
        other = source("yes no", head="classifier")
        for arguments, options, expected in (
            # Those of the sentences.
            (("O I-A",), {}, ("O B-A I-A", "iob2")),
            (("O I-A", "iob1"), {}, ("O B-A I-A", "iob2")),
            (("O U-A", "bilou"), {}, ("O B-A I-A L-A U-A", "bilou")),
            (("vb nn", "none"), {}, ("nn vb", "none")),
            (("O S-A", "iobes"), {}, ("O B-A I-A E-A S-A", "iobes")),
            # Those given. They name the files' numbers, which the model has in another
            # scheme; what they lack is found when words are numbered.
            (("O B-A",), {"labels": given}, (" ".join(given), "iob2")),
            (("O I-A", "iob1"), {"labels": ["O", "I-A"]}, ("O B-A I-A", "iob2")),
            (("O B-C", "iob1"), {"labels": given}, (" ".join(given), "iob2")),
            # A trained head's; a classifier's are something else.
            (("O B-A",), there, ("B-A O I-A I-C B-C", "iob2")),
            (("O B-X",), there | {"init_head": False}, ("O B-X I-X", "iob2")),
            (("O B-A",), {"source": other}, ("O B-A I-A", "iob2")),
        ):
            self.assertEqual(find(*arguments, **options), expected)
        for labels, options, message in (
            ("O B-A", {"labels": ["O", "B-A", "O"]}, "each label must be there once"),
            ("O B-X", there, "ckpt has a head.*`init_head=false`"),
            ("O B-A", there | {"labels": ["O", "B-A"]}, "the labels here are O, B-A"),
        ):
            with self.assertRaisesRegex(InputError, message):
                find(labels, **options)

    def test_without_training(self):
        for options, expected in (
            ({"recorded": ["O", "S-A"], "labels": ["x"]}, ("O S-A", "iobes")),
            ({"labels": ["nn", "vb"]}, ("nn vb", "none")),
            ({"source": source("O I-A")}, ("O I-A", "iob2")),
        ):
            self.assertEqual(find(None, **options), expected)
        with self.assertRaisesRegex(InputError, "give `labels`"):
            find(None)
        with self.assertRaisesRegex(InputError, "labels are of no scheme: B-A, L-A, E"):
            find(None, labels=["B-A", "L-A", "E-A"])

    def test_the_schemes_of_the_files(self):
        unlabelled = Sentence.of_words(["w"], None, document=0, source="")
        splits = {"train": [labelled("O I-A I-B")], "dev": [labelled("O U-A")]}
        splits["test"] = test = [unlabelled]
        for given, scheme, expected in (
            (splits, "auto", {"train": "iob1", "dev": "bilou", "test": "iob1"}),
            (splits, "iob2", dict.fromkeys(splits, "iob2")),
            ({"test": test}, "auto", {"test": "none"}),
        ):
            self.assertEqual(find_file_schemes(given, scheme), expected)
        mixed = splits | {"dev": [labelled("O B-A E-A U-B B-C")]}
        message = "begin like B-A, E-A, U-B together. .* `tag_scheme`"
        with self.assertRaisesRegex(InputError, message):
            find_file_schemes(mixed, "auto")
        self.assertEqual(find_file_schemes(mixed, "iobes")["dev"], "iobes")

    def test_the_numbers_of_labels(self):
        sentences = [labelled("O I-A"), labelled("B-X")]
        golds = [["O", "B-A"], ["B-X"]]  # as the model spells them

        def ids(golds, must_be_known=False):
            return label_ids(
                "dev", sentences, golds, ["O", "B-A"], must_be_known=must_be_known
            ).tolist()

        with self.assertLogs(logging.get_absl_logger(), "WARNING") as logs:
            self.assertEqual(ids(golds), [0, 1, -1])
        self.assertIn("dev: 1 of 3 words have labels", logs.output[0])
        self.assertEqual(ids([]), [-1, -1, -1])
        with self.assertRaisesRegex(InputError, "f:1: the label 'B-X' is none of"):
            ids(golds, must_be_known=True)


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
        labels[2::3] = words.NO_LABEL
        losses = np.zeros(len(tokens))
        losses[0::3], losses[1::3] = -np.log(0.6), -np.log(0.1)
        for batch_size, max_lengths in ((4, 3), (4, None), (64, 12), (1, 1)):
            sizes = {"batch_size": batch_size, "max_lengths": max_lengths}
            batching = Batching(max_seq_length=12, **sizes)
            found = predict_words(features, labels, echo, batching)
            self.assertAllEqual(found.label_ids, tokens % NUM_LABELS)
            self.assertAllClose(found.losses, losses)

    def test_scores_that_are_not_finite(self):
        def diverged(batches, total):
            for batch, outputs in echo(batches, total):
                yield batch, {"logits": outputs["logits"] * np.nan}

        features, tokens = windowed_words(3)
        batching = Batching(batch_size=4, max_seq_length=12, max_lengths=None)
        with self.assertRaisesRegex(DivergedError, "lower `learning_rate`"):
            predict_words(features, tokens % NUM_LABELS, diverged, batching)


GOLD = [["B-A", "I-A", "O"], ["O", "B-B"]]
SAID = [["B-A", "I-A", "O"], ["I-B", "I-B"]]


class ScoresTest(tf.test.TestCase):
    def test_entities_by_hand(self):
        # By the default reading I-B I-B is an entity, and a wrong one.
        scores = words.entity_scores(GOLD, SAID, "iob2")
        expected = {"strict_precision": 1.0, "strict_recall": 0.5, "strict_f1": 2 / 3}
        expected |= {"precision": 0.5, "recall": 0.5, "f1": 0.5}
        self.assertEqual(scores, expected)
        names = ["loss", "accuracy", *expected]
        self.assertEqual(words.metric_names("iob2"), names)
        self.assertEqual(words.metric_names("none"), ["loss", "accuracy"])
        self.assertNotIn("strict_f1", words.metric_names("iob1"))

    def test_f1_of_types_by_hand(self):
        # Of A 2 / 3, of B 0, of C, which is only predicted, 0.
        golds = [["B-A", "I-A", "O", "B-A"], ["B-B", "O"]]
        said = [["B-A", "I-A", "O", "O"], ["B-C", "O"]]
        self.assertAllClose(words.f1_macro(golds, said, "iob2"), 2 / 9)
        self.assertEqual(words.f1_macro([["O"]], [["O"]], "iob2"), 0.0)
        # Of DT 2 / 3, of NN 4 / 5, of VB 0.
        golds, said = [["DT", "NN"], ["NN", "VB"]], [["DT", "NN"], ["NN", "NN"]]
        said.append(["DT"])
        golds.append(["VB"])
        self.assertAllClose(words.f1_macro(golds, said, "none"), (2 / 3 + 4 / 5) / 3)


# IOB1: B stands where an entity is right behind one of its type. Read as IOB2 it has a
# B here and there, and keeps them.
TRAIN = "ann I-PER\nlee I-PER\nann B-PER\n\nand O\nann I-PER\n"


class WordsTest(ScriptCase):
    script = run_ner
    tokens = (*SPECIAL, "ann", "lee", "and")

    def words(self, *arguments, text=TRAIN):
        path = self.write("train.txt", text)
        files = {"train_file": path, "dev_file": path}
        options = self.flags(*arguments, max_seq_length=6, **files)
        found = finetuning.files_of(options, options.output_dir)
        return words.TaggingTask(options, found, None)

    def test_labels_are_of_the_scheme_that_the_files_are_read_in(self):
        # 0 is O, 1 B-PER and 2 I-PER.
        for arguments, expected in (
            ([], [[1, 2, 1], [0, 1, 0]]),
            (["--tag_scheme=iob2"], [[2, 2, 1], [0, 2, 0]]),
        ):
            (batch,) = self.words("--do_train", *arguments).records("train").batches(2)
            self.assertAllEqual(batch["label_ids"][:, 1:4], expected)

    def test_other_spellings_of_labels(self):
        found = self.words("--do_train", text="ann b-per\nlee i-per\nand 0\n")
        self.assertEqual(found.labels, ("O", "B-per", "I-per"))
        self.assertEqual(found.scheme, "iob2")
        # A model that was trained on them as they are written keeps them.
        asked = "--do_eval", "--labels=0,b-per,i-per"
        found = self.words(*asked, text="ann b-per\nlee i-per\nand 0\n")
        self.assertEqual(found.splits["dev"][0].labels, ("b-per", "i-per", "0"))

    def test_what_the_training_words_were_like_is_read_beside_the_labels(self):
        text = "ann I-PER\n東京 O\n"
        found = self.words("--do_train", text=text)
        self.assertEqual(found.trained, TrainedWords(longest=2, splits_cjk=False))
        asked = "--do_eval", "--labels=O,I-PER"
        self.assertEqual(self.words(*asked, text=text).trained, TrainedWords())
        found.prepare(self.path("run"))
        self.assertEqual(self.words(*asked, text=text).trained, found.trained)
        self.assertEqual(self.words(*asked, text=text).featurizer.longest_word, 2)

    def test_sentences_that_are_no_columns(self):
        text = "ann and lee\nlee and ann\n"
        with self.assertRaisesRegex(InputError, "train.txt:1: the model has none of"):
            self.words("--do_eval", "--labels=O,B-PER,I-PER", text=text)

    def test_a_loss_over_no_words_is_absent(self):
        found = self.words("--do_eval", "--labels=O,B-PER,I-PER")
        found._label_ids["dev"][:] = words.NO_LABEL
        predictions = WordPredictions(np.zeros(5, np.int64), np.zeros(5))
        self.assertNotIn("loss", found.score("dev", predictions))

    def test_scores_are_those_of_what_is_written(self):
        """An entity without a B is right in IOB1, and is written so."""
        found = self.words("--do_eval", "--labels=O,B-PER,I-PER")
        self.assertEqual(found.scheme, "iob2")
        # I I B, O I: the same entities as in the file; strictly read one is none.
        predictions = WordPredictions(np.array([2, 2, 1, 0, 2]), np.zeros(5))
        results = found.score("dev", predictions)
        self.assertEqual(
            [results[name] for name in ("accuracy", "majority", "f1")],
            [1.0, 3 / 5, 1.0],
        )
        self.assertLess(results["strict_f1"], 1.0)
        self.assertNotIn("f1_macro", results)
        asked = "--do_eval", "--labels=O,B-PER,I-PER", "--best_metric=f1_macro"
        self.assertEqual(self.words(*asked).score("dev", predictions)["f1_macro"], 1.0)
        expected = [["I-PER", "I-PER", "B-PER"], ["O", "I-PER"]]
        self.assertEqual(found.predicted_labels("dev", predictions), expected)
        self.assertIn("accuracy: 100.00%", found.report("dev", predictions))
