import gzip
import json
import lzma
import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks.choices import ChoiceExample, ColumnNames
from bert_tf.tasks.swag import read_choices

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
        return read_choices(self.path, ColumnNames(**names), has_labels=has_labels)

    def assert_refused(self, message, has_labels=True, **names):
        with self.assertRaisesRegex(InputError, message) as caught:
            self.read(has_labels, **names)
        self.assertStartsWith(str(caught.exception), self.path)
        self.assertNotIn("\n", str(caught.exception))

    def test_swags_own_columns(self):
        self.write("val.csv", HEADER, *ROWS)
        examples, target = self.read()
        self.assertEqual(
            examples,
            [
                ChoiceExample(
                    premise="A dog sits.",
                    start="It",
                    endings=("barks, loudly.", "sings.", "flies.", "reads."),
                    label="0",
                    source=f"{self.path}:2",
                ),
                ChoiceExample(
                    premise='He said "go".',
                    start="They",
                    endings=("run\naway.", "b.", "c.", "d."),
                    label="3",
                    # The row ends in the line after the one that it begins in.
                    source=f"{self.path}:4",
                ),
            ],
        )
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
        hellaswag = {
            "ctx_a": "P.",
            "ctx_b": "He",
            "ctx": "P. He",
            "endings": ["e0", "e1", "e2", "e3"],
            "label": "1",
        }
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
        ((example,), target) = self.read(
            premise="question",
            start="",
            endings=("x", "y", "z"),
            label="key",
            labels=("A", "B", "C"),
        )
        self.assertEqual(example[:4], ('Why "so?', "", ("1", "2", "3"), "B"))
        self.assertEqual(target.encode(example.label, ""), [1])
        ((example,), target) = self.read(False, premise="question", endings=("y", "x"))
        self.assertEqual(example.choices, ["s 2", "s 1"])
        self.assertEqual(target.labels, ("0", "1"))

    def test_missing_columns_are_named(self):
        self.write("q.csv", "question,sent2,ending0,ending1,answer", "q,s,a,b,0")
        self.assert_refused("no column for a premise .*_column.*: 'question', ")
        self.assert_refused("no column for 'label'; --label_column", premise="question")
        self.assert_refused(
            "'nowhere'; --ending_columns", premise="question", endings=("nowhere",)
        )
        self.write("q.csv", "sent1,label", "q,0")
        self.assert_refused("no column for endings .*--ending_columns")
        self.write("q.csv", "sent1,ending0,label", "q,a,0")
        self.assert_refused("column 'ending0' must be a list")
        self.write("q.jsonl", '{"sent1": "q", "endings": ["a"], "label": 0}')
        self.assert_refused("two endings or more")

    def test_few_malformed_rows_are_left_out_and_many_an_error(self):
        good = json.dumps({"sent1": "p", "endings": ["a", "b"], "label": 1})
        bad = (
            ("{", "one JSON object on one line"),
            ("[1]", "must be a JSON object. Found: list"),
            ('{"endings": ["a", "b"], "label": 1}', "'sent1' is missing"),
            ('{"sent1": 5, "endings": ["a", "b"], "label": 1}', "text. Found: int"),
            ('{"sent1": "p", "endings": ["a", "b", "c"], "label": 1}', "3 endings"),
            ('{"sent1": "p", "endings": ["a", ""], "label": 1}', "ending 1 is empty"),
            ('{"sent1": "", "endings": ["a", "b"], "label": 1}', "premise is empty"),
            ('{"sent1": "p", "endings": ["a", "b"], "label": 2}', "0, 1. Found: '2'"),
            ('{"sent1": "p", "endings": ["a", "b"], "label": -1}', "no label"),
            ('{"sent1": "p", "endings": ["a", "b"]}', "no label"),
        )
        for line, reason in bad:
            self.write("f.jsonl", good, line, *[good] * 98)
            with self.assertLogs(level="WARNING") as logs:
                self.assertLen(self.read().examples, 99)
            self.assertRegex(
                logs.output[0], f"left out 1 of 100 rows.*line 2.*{reason}"
            )
            self.write("f.jsonl", good, line)
            self.assert_refused(f":2: .*{reason}")
        # Of a test set none may be left out; an empty ending can be predicted.
        self.write("f.jsonl", *[good] * 500, bad[2][0])
        self.assert_refused(":501: column 'sent1' is missing", has_labels=False)
        self.write("f.jsonl", good, bad[5][0])
        self.assertLen(self.read(False).examples, 2)

    def test_rows_of_another_width(self):
        self.write("v.csv", HEADER, "0,v,7,too,short", *[ROWS[0]] * 99)
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.read().examples, 99)
        self.assertIn("the row has 5 columns, the header 12", logs.output[0])

    def test_blank_rows(self):
        blank = "," * HEADER.count(",")
        self.write("v.csv", blank, HEADER, ROWS[0], blank, ROWS[0], "", blank)
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.read().examples, 2)
        self.assertIn("left out 2 blank rows: lines 4, 7", logs.output[0])
        # In a test set what follows would have another row's number.
        with self.assertRaisesRegex(InputError, ":4: the row is blank"):
            read_choices(self.path, ColumnNames(), has_labels=False)
        self.write("v.csv", HEADER, ROWS[0], ROWS[0], blank)
        found = read_choices(self.path, ColumnNames(), has_labels=False)
        self.assertLen(found.examples, 2)

    def test_endings_that_are_not_counted_through(self):
        self.write("v.csv", "sent1,ending0,ending1,ending3,label", "p,a,b,c,0")
        self.assert_refused("3 columns of endings, but none is ending2")

    def test_no_examples(self):
        for name, lines, message in (
            ("a.csv", [], "empty"),
            ("a.csv", [HEADER], "no examples"),
            ("a.csv", [",,,", '""'], "all its cells are empty"),
            ("a.jsonl", ["[", "]"], "must be JSON lines"),
            ("a.jsonl", ["{}"], ":1: the object is empty"),
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

    def test_labels_for_each_ending(self):
        self.write("v.csv", HEADER, *ROWS)
        with self.assertRaisesRegex(InputError, "--labels=A,B: .* has 4 endings"):
            self.read(labels=("A", "B"))


if __name__ == "__main__":
    tf.test.main()
