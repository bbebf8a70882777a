from types import SimpleNamespace

import tensorflow as tf
from absl import logging

from bert_tf.conversion.names import HEADS, TAGGING
from bert_tf.errors import InputError
from bert_tf.finetuning.tagging_labels import (
    find_file_schemes,
    find_labels,
    label_ids,
    respelt_unless,
    shown,
)
from bert_tf.tagging.sentences import Sentence


def sentence(labels):
    labels = labels.split()
    return Sentence.of_words(["w"] * len(labels), labels, document=0, source="f:1")


def source(labels, head=TAGGING):
    return SimpleNamespace(
        path="ckpt",
        labels=tuple(labels.split()),
        weights={row.original: None for row in HEADS[head]},
    )


def find(train, file_scheme="iob2", *, recorded=None, source=None, **options):
    flag_values = {"labels": None, "model_scheme": "auto", "init_head": True, **options}
    found = find_labels(
        SimpleNamespace(**flag_values),
        None if train is None else [sentence(train)],
        file_scheme,
        recorded=recorded,
        source=source,
    )
    return " ".join(found.names), found.scheme


class LabelsTest(tf.test.TestCase):
    def test_labels_of_the_sentences(self):
        self.assertEqual(find("O I-A"), ("O B-A I-A", "iob2"))
        self.assertEqual(find("O I-A", "iob1"), ("O B-A I-A", "iob2"))
        self.assertEqual(find("O U-A", "bilou"), ("O B-A I-A L-A U-A", "bilou"))
        self.assertEqual(find("vb nn", "none"), ("nn vb", "none"))
        self.assertEqual(
            find("O B-A", model_scheme="iobes"), ("O B-A I-A E-A S-A", "iobes")
        )
        # There is nothing to spell.
        self.assertEqual(find("vb", "none", model_scheme="iobes"), ("vb", "none"))

    def test_labels_that_are_given(self):
        given = ["B-A", "I-A", "O", "B-B"]
        self.assertEqual(find("O B-A", labels=given), (" ".join(given), "iob2"))
        # They name the files' numbers, which the model has in another scheme.
        self.assertEqual(
            find("O B-A", labels=given, model_scheme="iobes"),
            ("O B-A I-A E-A S-A", "iobes"),
        )
        with self.assertRaisesRegex(InputError, "--labels: O must be there once"):
            find("O B-A", labels=["O", "B-A", "O"])
        # What they lack is found when words are numbered.
        self.assertEqual(find("O B-C", "iob1", labels=given)[0], " ".join(given))

    def test_a_trained_head_goes_on_with_its_labels(self):
        trained = source("B-A O I-A I-C B-C")
        self.assertEqual(find("O B-A", source=trained)[0], "B-A O I-A I-C B-C")
        self.assertEqual(find("O B-X", source=trained, init_head=False)[0], "O B-X I-X")
        with self.assertRaisesRegex(InputError, "ckpt has a head.*--init_head=false"):
            find("O B-X", source=trained)
        with self.assertRaisesRegex(InputError, "the labels here are O, B-A"):
            find("O B-A", source=trained, labels=["O", "B-A"])
        # A classifier's labels are something else.
        other = source("yes no", head="classifier")
        self.assertEqual(find("O B-A", source=other)[0], "O B-A I-A")

    def test_without_training(self):
        self.assertEqual(
            find(None, recorded=["O", "S-A"], labels=["x"]), ("O S-A", "iobes")
        )
        self.assertEqual(find(None, labels=["nn", "vb"]), ("nn vb", "none"))
        self.assertEqual(find(None, source=source("O I-A")), ("O I-A", "iob2"))
        self.assertEqual(
            find(None, labels=["O", "I-A"], model_scheme="iob1"), ("O I-A", "iob1")
        )
        with self.assertRaisesRegex(InputError, "give --labels"):
            find(None)

    def test_the_schemes_of_the_files(self):
        unlabelled = Sentence.of_words(["w"], None, document=0, source="")
        splits = {
            "train": [sentence("O I-A I-B")],
            "dev": [sentence("O U-A")],
            "test": [unlabelled],
        }
        self.assertEqual(
            find_file_schemes(splits, "auto"),
            {"train": "iob1", "dev": "bilou", "test": "iob1"},
        )
        self.assertEqual(
            find_file_schemes(splits, "iob2"), dict.fromkeys(splits, "iob2")
        )
        self.assertEqual(
            find_file_schemes({"test": [unlabelled]}, "auto"), {"test": "none"}
        )

    def test_a_label_that_keeps_the_others_from_being_entities_is_named(self):
        rows = [sentence("O B-A I-A B-A I-A"), sentence("B_A"), sentence("B-A O")]
        with self.assertLogs(logging.get_absl_logger(), "WARNING") as log:
            found = find_file_schemes({"dev": rows}, "auto")
        self.assertEqual(found, {"dev": "none"})
        (line,) = log.output
        self.assertIn("dev: 5 labels spell entities, but not 'B_A' (1 times", line)
        self.assertIn("f:1), so there is no entity F1. Mend", line)
        splits = {"train": [sentence("B-A O")], "dev": rows}
        with self.assertLogs(logging.get_absl_logger(), "WARNING") as log:
            found = find_file_schemes(splits, "auto")
        self.assertEqual(found, {"train": "iob2", "dev": "iob2"})
        self.assertIn("f:1). Mend", log.output[0])
        # Parts of speech are no such labels, whatever two of them look like.
        with self.assertNoLogs(logging.get_absl_logger(), "WARNING"):
            find_file_schemes({"dev": [sentence("nn vb B-A")]}, "auto")
            find_file_schemes({"dev": [sentence("O O")]}, "auto")

    def test_labels_stay_as_they_are_where_the_scheme_does(self):
        labels = ["O", "I-A", "B-A"]
        for scheme, wanted, expected in (
            ("iob2", "iob2", labels),
            ("none", "iob2", labels),
            ("iob2", "none", labels),
            ("iob1", "iob2", ["O", "B-A", "B-A"]),
        ):
            self.assertEqual(respelt_unless(labels, scheme, wanted), expected)

    def test_the_numbers_of_labels(self):
        sentences = [sentence("O I-A"), sentence("B-X")]
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

    def test_shown(self):
        self.assertEqual(shown("ab"), "a, b")
        self.assertEqual(shown("abcdefg"), "a, b, c, d, e and 2 more")


if __name__ == "__main__":
    tf.test.main()
