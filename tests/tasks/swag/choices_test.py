import gzip
import json
import lzma
import os

import numpy as np
import tensorflow as tf

from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.records.batching import ExampleTable
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.swag.choices import (
    ChoiceExample,
    ChoiceFeaturizer,
    ChoiceLayout,
    read_choices,
)
from bert_tf.tasks.tables import Target
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.tasks.tfds_sets import mocked

HEADER = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,"
    "ending0,ending1,ending2,ending3,label"
)
ROWS = (
    '0,v-1,7,A dog. It,A dog sits.,It,gold,"barks, loudly.",sings.,flies.,reads.,0',
    '1,v-2,8,x,"He said ""go"".",They,gold,"run\naway.",b.,c.,d.,3',
)


class ReadChoicesTest(tf.test.TestCase):
    def write(self, name, *lines, opener=open):
        self.path = os.path.join(self.get_temp_dir(), name)
        content = "".join(f"{line}\n" for line in lines).encode()
        with opener(self.path, "wb") as file:
            file.write(content)

    def read(self, has_labels=True, **names):
        return read_choices(self.path, ChoiceLayout(**names), has_labels=has_labels)

    def assert_refused(self, message, has_labels=True, **names):
        with self.assertRaisesRegex(InputError, message) as caught:
            self.read(has_labels, **names)
        self.assertStartsWith(str(caught.exception), self.path)
        self.assertNotIn("\n", str(caught.exception))

    def test_swags_own_columns(self):
        self.write("val.csv", HEADER, *ROWS)
        examples, target = self.read()
        endings = ("barks, loudly.", "sings.", "flies.", "reads.")
        first = ChoiceExample("A dog sits.", "It", endings, "0", f"{self.path}:2")
        endings = ("run\naway.", "b.", "c.", "d.")
        # The row ends in the line after the one that it begins in.
        second = ChoiceExample('He said "go".', "They", endings, "3", f"{self.path}:4")
        self.assertEqual(examples, [first, second])
        self.assertEqual(target.labels, ("0", "1", "2", "3"))
        self.assertEqual(examples[0].choices[2], "It flies.")
        # As a test set: with the same columns, or without the label's.
        self.assertEqual({e.label for e in self.read(False).examples}, {None})
        self.write("t.csv", *(line.rpartition(",")[0] for line in (HEADER, ROWS[0])))
        self.assertLen(self.read(False).examples, 1)

    def test_packed_files_are_the_same(self):
        for name, opener in (("v.csv.gz", gzip.open), ("v.csv.xz", lzma.open)):
            self.write(name, HEADER, *ROWS, opener=opener)
            self.assertLen(self.read().examples, 2)

    def test_json_lines_of_hugging_face_and_of_hellaswag(self):
        swag = {"sent1": "P.", "sent2": "He", "label": 1}
        swag |= {f"ending{number}": f"e{number}" for number in range(4)}
        hellaswag = {"ctx_a": "P.", "ctx_b": "He", "ctx": "P. He", "label": "1"}
        hellaswag["endings"] = ["e0", "e1", "e2", "e3"]
        for values, name in ((swag, "a.jsonl"), (hellaswag, "b.json"), (swag, "c")):
            self.write(name, json.dumps(values), "", json.dumps(values))
            (first, second), target = self.read()
            self.assertEqual(first[:2], ("P.", "He"))
            self.assertEqual(first.endings, ("e0", "e1", "e2", "e3"))
            self.assertEqual((first.label, second.source), ("1", f"{self.path}:3"))
            self.assertEqual(target.num_outputs, 4)

    def test_nothing_to_go_on_from(self):
        self.write("h.csv", HEADER, "0,,,x,The whole context. he,,gold,a,b,c,d,2")
        ((example,), _) = self.read()
        self.assertEqual(example.start, "")
        self.assertEqual(example.choices, ["a", "b", "c", "d"])
        # An object may leave the field out.
        rows = [{"sent1": "p", "sent2": "s", "endings": ["a", "b"], "label": 0}]
        rows += [{"sent1": "p", "endings": ["a", "b"], "label": 0}]
        self.write("h.jsonl", *map(json.dumps, rows))
        self.assertEqual([e.start for e in self.read().examples], ["s", ""])

    def test_any_columns_and_any_number_of_choices(self):
        self.write("q.tsv", "key\tquestion\tsent2\tx\ty\tz", 'B\tWhy "so?\ts\t1\t2\t3')
        names = {"premise_column": "question", "start_column": ""}
        names |= {"label_column": "key", "labels": ("A", "B", "C")}
        ((example,), target) = self.read(ending_columns=("x", "y", "z"), **names)
        self.assertEqual(example[:4], ('Why "so?', "", ("1", "2", "3"), "B"))
        self.assertEqual(target.encode(example.label, ""), [1])
        ((example,), target) = self.read(
            False, premise_column="question", ending_columns=("y", "x")
        )
        self.assertEqual(example.choices, ["s 2", "s 1"])
        self.assertEqual(target.labels, ("0", "1"))

    def test_missing_columns_are_named(self):
        self.write("q.csv", "question,sent2,ending0,ending1,answer", "q,s,a,b,0")
        question = {"premise_column": "question"}
        for names, message in (
            ({}, "no column 'sent1' .`premise_column`.* 'question', "),
            (question, "no column 'label' .`label_column`"),
            (question | {"ending_columns": ("n",)}, "'n' .`ending_columns`"),
        ):
            self.assert_refused(message, **names)
        for lines, message in (
            (("sent1,label", "q,0"), "no column 'ending0' .`ending_columns`"),
            (("sent1,ending0,ending1,ending3,label", "p,a,b,c,0"), "'ending2' .`end"),
            (("sent1,ending0,label", "q,a,0"), "column 'ending0' must be a list"),
        ):
            self.write("q.csv", *lines)
            self.assert_refused(message)
        self.write("q.jsonl", '{"sent1": "q", "endings": ["a"], "label": 0}')
        self.assert_refused("two endings or more")

    def test_few_malformed_rows_are_left_out_and_many_an_error(self):
        good = json.dumps({"sent1": "p", "endings": ["a", "b"], "label": 1})
        bad = (
            ("{", "one JSON object on one line"),
            ("[1]", "must be a JSON object. Received: list"),
            (
                '{"endings": ["a", "b"], "label": 1}',
                "'sent1' must be text. Received: no",
            ),
            ('{"sent1": 5, "endings": ["a", "b"], "label": 1}', "text. Received: int"),
            ('{"sent1": "p", "endings": ["a", "b", "c"], "label": 1}', "3 endings"),
            ('{"sent1": "p", "endings": ["a", ""], "label": 1}', "an ending is empty"),
            ('{"sent1": "", "endings": ["a", "b"], "label": 1}', "premise or an"),
            (
                '{"sent1": "p", "endings": ["a", "b"], "label": 2}',
                "0, 1. Received: '2'",
            ),
            ('{"sent1": "p", "endings": ["a", "b"], "label": -1}', "Received: '-1'"),
            ('{"sent1": "p", "endings": ["a", "b"]}', "Received: None"),
        )
        for line, reason in bad:
            self.write("f.jsonl", good, line, *[good] * 98)
            with self.assertLogs(level="WARNING") as logs:
                self.assertLen(self.read().examples, 99)
            self.assertRegex(
                logs.output[0], f"left out 1 unusable rows of 100.*line 2.*{reason}"
            )
            self.write("f.jsonl", good, line)
            self.assert_refused(f":2: .*{reason}")
            self.assertLen(self.read(max_unusable_rows=0.5).examples, 1)
        # Of a test set none may be left out; an empty ending can be predicted.
        self.write("f.jsonl", *[good] * 500, bad[2][0])
        self.assert_refused(":501: column 'sent1' must be text", has_labels=False)
        self.write("f.jsonl", good, bad[5][0])
        self.assertLen(self.read(False).examples, 2)
        self.write("v.csv", HEADER, "0,v,7,too,short", *[ROWS[0]] * 99)
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.read().examples, 99)
        self.assertIn("the row has 5 columns, the header 12", logs.output[0])

    def test_blank_rows(self):
        blank = "," * HEADER.count(",")
        self.write("v.csv", blank, HEADER, ROWS[0], blank, ROWS[0], "", blank)
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.read().examples, 2)
        self.assertIn("left out 3 blank rows of 2; the first", logs.output[0])
        # In a test set what follows would have another row's number.
        found = read_choices(self.path, ChoiceLayout(), has_labels=False)
        self.assertEqual(
            [e.premise == "" for e in found.examples], [False, True, False]
        )
        self.assertLen(found.examples[1].endings, 4)
        self.write("v.csv", HEADER, ROWS[0], ROWS[0], blank)
        found = read_choices(self.path, ChoiceLayout(), has_labels=False)
        self.assertLen(found.examples, 2)

    def test_no_examples(self):
        for name, lines, message in (
            ("a.csv", [], "empty"),
            ("a.csv", [HEADER], "no examples"),
            ("a.csv", [",,,", '""'], "the file is empty, or all its cells"),
            ("a.jsonl", ["[", "]"], "the file is empty"),
            ("a.jsonl", ["[", "]]"], ":2: not valid JSON: Extra data"),
            ("a.jsonl", ["{}"], "all its cells"),
        ):
            self.write(name, *lines)
            self.assert_refused(message)
        self.write("a.csv.gz", opener=gzip.open)
        os.remove(self.path)
        with self.assertRaisesRegex(InputError, "No such data file"):
            self.read()

    def test_halves_of_characters(self):
        self.write("f.jsonl", r'{"sent1": "\ud83d p", "endings": ["a", "b"]}')
        self.assertEqual(self.read(False).examples[0].premise, "\ufffd p")
        self.write("v.csv", HEADER, *ROWS)
        with self.assertRaisesRegex(InputError, "Received: 4, and A,B"):
            self.read(labels=("A", "B"))


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e"]
CLS, SEP, A, B, C, D, E = 2, 3, 5, 6, 7, 8, 9
TARGET = Target(kind=SINGLE_LABEL, labels=("x", "y", "z"))
L = 8


def example(premise, start, *endings, label="x"):
    return ChoiceExample(premise, start, endings, label, "file.csv:3")


def featurizer():
    tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
    return ChoiceFeaturizer(tokenizer, max_seq_length=L, target=TARGET)


class FeaturizerTest(tf.test.TestCase):
    def test_a_sequence_for_each_choice(self):
        make = featurizer()
        whole = example("a b", "c", "d", "e e", "", label="z")
        (block,) = make.blocks([whole, example("", "", "a", "b", "c")])
        ids = [
            [CLS, A, B, SEP, C, D, SEP, 0],
            [CLS, A, B, SEP, C, E, E, SEP],
            [CLS, A, B, SEP, C, SEP, 0, 0],
        ]
        segments = [[0] * 4 + [1] * 3 + [0], [0] * 4 + [1] * 4, [0] * 4 + [1, 1, 0, 0]]
        self.assertAllEqual(block["input_ids"][0], ids)
        self.assertAllEqual(block["input_mask"][0], np.sign(ids))
        self.assertAllEqual(block["segment_ids"][0], segments)
        self.assertAllEqual(block["input_ids"][1][0], [CLS, SEP, A, SEP, 0, 0, 0, 0])
        self.assertAllEqual(block["label_ids"], [[2], [0]])
        self.assertAllEqual(block["is_real_example"], [[1], [1]])
        self.assertEqual(make.num_truncated, 0)
        self.assertEqual({value.dtype.name for value in block.values()}, {"int64"})

    def test_the_longer_one_is_cut_by_its_end(self):
        make = featurizer()
        long = example("a a a a", "", "b b", "b b b b", "b")
        (block,) = make.blocks([long, example("a", "b", "b", "c", "d")])
        both, short = [CLS, A, A, A, SEP, B, B, SEP], [CLS, A, A, A, A, SEP, B, SEP]
        self.assertAllEqual(block["input_ids"][0], [both, both, short])
        # Once an example, however many of its choices are cut.
        self.assertEqual(make.num_truncated, 1)


class RecordsTest(tf.test.TestCase):
    def test_batches_are_of_like_length(self):
        # The longest choices have 6, 8 and 5 tokens.
        examples = [
            example("a", "", "b b", "c", "c", label="x"),
            example("a a", "b", "b b", "b", "c", label="z"),
            example("", "", "b", "b b", "", label="y"),
        ]
        spec = RecordSpec.choices(L, TARGET.num_outputs)
        records = ExampleTable(featurizer().blocks(examples), spec)
        self.assertEqual((len(records), records.spec.max_seq_length), (3, L))
        self.assertAllEqual(records.lengths, [6, 8, 5])
        # Of the nine choices.
        self.assertAllClose(
            records.mean_length, (6 + 5 + 5 + 8 + 7 + 7 + 4 + 5 + 2) / 9
        )
        (batch,) = records.dataset(np.array([[2, -1]]), 5)
        ids = [[CLS, SEP, B, SEP, 0], [CLS, SEP, B, B, SEP], [CLS, SEP, 0, 0, 0]]
        self.assertAllEqual(batch["input_ids"], [ids, np.zeros([3, 5])])
        self.assertAllEqual(batch["input_mask"][0], np.sign(ids))
        self.assertAllEqual(batch["label_ids"], [[1], [0]])
        self.assertAllEqual(batch["is_real_example"], [[1], [0]])
        for batch in records.batches(2):
            self.assertEqual(batch["input_ids"].shape, (2, 3, L))
        self.assertAllEqual(batch["rows"], [2, -1])


TFDS_ROWS = (("A dog sits. It", ["barks.", "flies.", "sings.", "reads."], 0),) * 2 + (
    ("Él", ["é", "b", "c", "d"], 3),
)


def hellaswag(*rows):
    """Rows, TFDS_ROWS if none are given, with the set's features."""
    others = {"activity_label": "x", "source_id": "s", "split_type": "t"}
    return [
        {"context": context, "endings": endings, "label": label, **others}
        for context, endings, label in rows or TFDS_ROWS
    ]


class ReadTfdsChoicesTest(tf.test.TestCase):
    def test_hellaswag(self):
        with mocked(hellaswag()):
            rows = TfdsRows("hellaswag", "validation", None)
            examples, target = read_choices(rows, ChoiceLayout(), has_labels=True)
        self.assertLen(examples, 3)
        self.assertEqual(examples[2][:4], ("Él", "", ("é", "b", "c", "d"), "3"))
        self.assertRegex(examples[2].source, r"^tfds:hellaswag/[\d.]+:validation:2$")
        self.assertEqual(target.num_outputs, 4)

    def test_kept_back_labels(self):
        with mocked(hellaswag((*TFDS_ROWS[0][:2], -1))):
            split = (TfdsRows("hellaswag", "test", None), ChoiceLayout())
            examples, _ = read_choices(*split, has_labels=False)
            self.assertIsNone(examples[0].label)
            message = ":test:0: the label must be one of"
            with self.assertRaisesRegex(InputError, message):
                read_choices(*split, has_labels=True)
