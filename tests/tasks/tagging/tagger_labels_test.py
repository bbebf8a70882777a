from types import SimpleNamespace

import tensorflow as tf
from absl import logging

from bert_tf.base.errors import InputError
from bert_tf.conversion.names import HEADS, TAGGING
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.tagger_labels import (
    find_file_schemes,
    find_labels,
    label_ids,
)


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
