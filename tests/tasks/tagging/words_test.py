from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import run_ner
from bert_tf.base.errors import InputError
from bert_tf.conversion.names import HEADS, TAGGING
from bert_tf.conversion.tokenizer_files import TrainedWords
from bert_tf.tasks import finetuning
from bert_tf.tasks.tagging import words
from bert_tf.tasks.tagging.sentence_windows import NO_LABEL
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.word_predictions import WordPredictions
from bert_tf.tasks.tagging.words import find_file_schemes, find_labels, label_ids
from tests.script_case import ScriptCase

TRAIN = "ann I-PER\nlee I-PER\nann B-PER\n\nand O\nann I-PER\n"


class WordsTest(ScriptCase):
    script = run_ner
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "lee", "and")

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
        found._label_ids["dev"][:] = NO_LABEL
        predictions = WordPredictions(np.zeros(5, np.int64), *np.zeros((2, 5)))
        self.assertNotIn("loss", found.score("dev", predictions))

    def test_scores_are_those_of_what_is_written(self):
        """An entity without a B is right in IOB1, and is written so."""
        found = self.words("--do_eval", "--labels=O,B-PER,I-PER")
        self.assertEqual(found.scheme, "iob2")
        # I I B, O I: the same entities as in the file; strictly read one is none.
        predictions = WordPredictions(np.array([2, 2, 1, 0, 2]), *np.zeros((2, 5)))
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

    def test_the_digest_tells_sentences_apart(self):
        def sentence(words, labels=None, document=0):
            return Sentence.of_words(words, labels, document=document, source="")

        rows = [
            [sentence(["a", "b"])],
            [sentence(["a"]), sentence(["b"])],
            [sentence(["a", "b"], document=1)],
            [sentence(["a", "b"], ["x", "y"])],
        ]
        self.assertLen({words.digest(one) for one in rows}, 4)


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
            # And new ones next to all of them.
            (("O B-A",), {"source": source("O I-A")}, ("O B-A I-A", "iob2")),
            (("O B-A",), {"source": other}, ("O B-A I-A", "iob2")),
        ):
            self.assertEqual(find(*arguments, **options), expected)
        for labels, options, message in (
            ("O B-A", {"labels": ["O", "B-A", "O"]}, "each label must occur once"),
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
        with self.assertRaisesRegex(InputError, "labels follow no scheme: B-A, L-A, E"):
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
