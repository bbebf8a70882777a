"""Texts with spans, as each tool writes them."""

import gzip
import importlib.util
import json
import unittest

from bert_tf.addons.corpora.annotations import read_texts
from bert_tf.base.errors import InputError
from bert_tf.tasks.tagging.sentences import Layout, read_sentences
from tests.script_case import FolderCase

TEXT = "EU's top man, Mr. O'Neil (Rome)."
SPANS = [[0, 2, "ORG"], [18, 24, "PER"], [26, 30, "LOC"]]
DICTS = [{"start": a, "end": b, "label": c} for a, b, c in SPANS]
STUDIO = {
    "data": {"text": TEXT, "id": "7"},
    "annotations": [
        {"was_cancelled": True, "result": []},
        {
            "result": [
                {"type": "relation", "from_id": "1"},
                {"type": "choices", "value": {"choices": ["good"]}},
                *(
                    {
                        "type": "labels",
                        "value": {
                            "start": a,
                            "end": b,
                            "text": TEXT[a:b],
                            "labels": [c],
                        },
                    }
                    for a, b, c in reversed(SPANS)
                ),
            ]
        },
    ],
}
# As the tools' own documentation shows them.
TOOLS = {
    "doccano": {"id": 1, "text": TEXT, "label": SPANS},
    "doccano with relations": {
        "text": TEXT,
        "relations": [],
        "entities": [
            {"id": 1, "label": c, "start_offset": a, "end_offset": b}
            for a, b, c in SPANS
        ],
    },
    "Prodigy": {
        "text": TEXT,
        "tokens": [{"text": "EU", "start": 0, "end": 2, "id": 0}],
        "spans": [{**one, "token_start": 0} for one in DICTS],
        "answer": "accept",
    },
    "Label Studio": STUDIO,
    "Label Studio's JSON_MIN": {
        "text": TEXT,
        "label": [{"start": a, "end": b, "labels": [c]} for a, b, c in SPANS],
    },
    "spaCy": [TEXT, {"entities": SPANS}],
    "spaCy's to_json": {"text": TEXT, "ents": DICTS, "tokens": [{"id": 0}]},
}
WORDS = (
    *("EU", "'", "s", "top", "man", ",", "Mr", "."),
    *("O", "'", "Neil", "(", "Rome", ")", "."),
)
LABELS = ("B-ORG", *"OOOOOOO", "B-PER", "I-PER", "I-PER", "O", "B-LOC", "O", "O")


class AnnotationsTest(FolderCase):
    def sentences(self, *values, name="x.jsonl", **layout):
        path = self.write(name, "".join(f"{json.dumps(one)}\n" for one in values))
        return read_sentences([path], Layout(**layout))

    def test_every_tool(self):
        for tool, value in TOOLS.items():
            lines = "\n".join(map(json.dumps, [value, value]))
            contents = {
                "x.jsonl": lines,
                "x.json": json.dumps([value, value]),
                "y.json": json.dumps([value, value], indent=2),
            }
            for name, content in contents.items():
                path = self.write(name, content)
                with self.subTest(tool=tool, name=name):
                    one, other = read_sentences([path], Layout())
                    self.assertEqual(one.words, WORDS)
                    self.assertEqual(one.labels, LABELS)
                    self.assertEqual(one.text, TEXT)
                    found = tuple(TEXT[start:end] for start, end in one.spans)
                    self.assertEqual(found, one.words)
                    self.assertEqual(other.document, one.document + 1)
        with gzip.open(self.path("x.jsonl.gz"), "wt") as file:
            file.write(json.dumps(TOOLS["doccano"]))
        (one,) = read_sentences([self.path("x.jsonl.gz")], Layout())
        self.assertEqual(one.labels, LABELS)

    @unittest.skipUnless(importlib.util.find_spec("icu4py"), "the extra `segmenter`")
    def test_words_without_spaces(self):
        value = {"text": "ภาษาไทยเป็นภาษา", "label": [[4, 7, "NAME"]]}
        (one,) = self.sentences(value, segmenter="icu")
        self.assertEqual(one.words, ("ภาษา", "ไทย", "เป็น", "ภาษา"))
        self.assertEqual(one.labels, ("O", "B-NAME", "O", "O"))

    def test_places_are_lines_or_entries(self):
        bad = {"text": "a b", "label": [[0, 2.5, "X"]]}
        for name, content, where in (
            (
                "x.jsonl",
                f"{json.dumps(TOOLS['doccano'])}\n\n{json.dumps(bad)}",
                ":3: not",
            ),
            ("x.json", json.dumps([bad]), ":1: not"),
        ):
            with self.assertRaisesRegex(InputError, f"{name}{where} a span with one"):
                [*read_texts(self.write(name, content))]

    def test_what_is_refused(self):
        def spans(*found):
            return {"text": "New York is big", "label": found}

        for value, message in (
            (spans([0, 8, "A"], [4, 8, "B"]), r"'New York' \(0 to 8, A\) and 'York'"),
            (spans([0, 20, "A"]), "0 to 20 .A. has no text; the text has 15"),
            (spans([3, 4, "A"]), "has no text"),
            (spans([0, 1, ["A", "B"]]), "not a span with one label"),
            (spans("good"), "not a span with one label"),
            ({"text": "a", "label": "good"}, "must be a list"),
            ({"text": 3, "label": []}, "'text' must be a text"),
            (
                {
                    "text": "a",
                    "spans": [{"start": 0, "end": 1, "label": "X", "text": "b"}],
                },
                "is 'a', not 'b': offsets must be in characters",
            ),
            ({"text": "a b"}, "it has no spans"),
            (["a"], "must be an object"),
            (spans([0, 2, "A"], [2, 3, "B"]), "the word 'New' is in two spans"),
        ):
            with self.subTest(value=value), self.assertRaisesRegex(InputError, message):
                self.sentences(value, format="spans")

    def test_spans_within_words_and_at_blanks(self):
        value = {
            "text": "Newyorkers of Berlin ",
            "label": [[0, 7, "A B"], [13, 21, "C"]],
        }
        with self.assertLogs(level="WARNING") as logs:
            (one,) = self.sentences(value)
        self.assertIn("1 of 2 spans end within a word", logs.output[0])
        self.assertIn("x.jsonl:1: 'Newyork'", logs.output[0])
        self.assertEqual(one.labels, ("B-A_B", "O", "B-C"))
        with self.assertRaisesRegex(
            InputError, "x.jsonl:1: 'Newyork' .* within a word"
        ):
            self.sentences(value, widens_spans=False)
        # The same span of two annotators is one.
        value["label"] = [[13, 20, "C"]] * 2
        self.assertEqual(self.sentences(value)[0].labels[2], "B-C")

    def test_what_was_rejected_and_other_fields(self):
        values = [{**TOOLS["Prodigy"], "answer": a} for a in ("reject", "accept")]
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.sentences(*values), 1)
        self.assertIn("left out 1 texts", logs.output[0])
        value = {"body": "a b", "marks": [[2, 3, "X"]]}
        layout = {"word_column": "body", "label_column": "marks", "format": "spans"}
        (one,) = self.sentences(value, **layout)
        self.assertEqual(one.labels, ("O", "B-X"))

    def test_of_a_test_set(self):
        path = self.write("x.jsonl", json.dumps({"text": "a b."}))
        (one,) = read_sentences([path], Layout(), has_labels=None)
        self.assertIsNone(one.labels)
        self.assertEqual(one.words, ("a", "b", "."))
        # Ideographs are words, and characters beyond 16 bits count as one.
        value = {"text": "\U0001f600 在北京。", "label": [[3, 5, "LOC"]]}
        (one,) = self.sentences(value)
        self.assertEqual(one.words, ("\U0001f600", "在", "北", "京", "。"))
        self.assertEqual(one.labels, ("O", "O", "B-LOC", "I-LOC", "O"))

    def test_plain_texts(self):
        path = self.write("x.txt", "A man's\n\n  b 东京.\n")
        for layout, words in (
            ({}, [("A", "man's"), ("b", "东", "京", ".")]),
            (
                {"splits_punctuation": True},
                [("A", "man", "'", "s"), ("b", "东", "京", ".")],
            ),
            ({"splits_cjk": False}, [("A", "man's"), ("b", "东京.")]),
        ):
            layout = Layout(format="text", **layout)
            found = read_sentences([path], layout, has_labels=None)
            self.assertEqual([one.words for one in found], words)
            self.assertEqual([one.source for one in found], [f"{path}:1", f"{path}:3"])
        with self.assertRaisesRegex(InputError, "no labels, which `train_file`"):
            read_sentences([path], layout)
