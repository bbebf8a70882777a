import csv
import gzip
import io
import json
import os
import sys
from unittest import mock

import pyarrow
from pyarrow import parquet

import bert_tf
from bert_tf import predict
from bert_tf.base import cli
from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion.tokenizer_files import write_labels
from bert_tf.modeling.heads import BertClassifier, BertPretrainer, BertTagger
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

WORDS = [f"w{number}" for number in range(20)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["w1 w2", 'w3, "w4"', "w5\nw6 w7", "w8 w9 w10 w11 w12 w13 w14"]


class PredictTest(FolderCase):
    def checkpoint(self, model, labels=None, kind=None, **flags):
        """The folder of a run with random weights."""
        randomize(model, 5)
        folder = runs.save(self.path("run"), model, tokens=TOKENS)
        write_labels(folder, labels, kind)
        self.write(f"{folder}/flags.json", {"max_seq_length": 8, **flags})
        return folder

    def predict(self, **options):
        """What is written to output_file, or else printed."""
        options = {"checkpoint": self.path("run"), **options}
        if "output_file" not in options:
            arguments = [f"--{name}={value}" for name, value in options.items()]
            return printed(predict, *arguments)
        cli.run_script(predict, **options)
        with open(options["output_file"], encoding="utf-8", newline="") as file:
            return file.read()

    def csv_of(self, rows):
        out = io.StringIO()
        csv.writer(out).writerows(rows)
        return out.getvalue()

    def test_a_table_keeps_its_columns(self):
        folder = self.checkpoint(
            BertClassifier(toy.CONFIG, 2), labels=("no", "yes"), text_a_column="review"
        )
        rows = [["id", "review"], *([str(i), text] for i, text in enumerate(TEXTS))]
        table = self.csv_of(rows)
        packed = gzip.compress(b"\xef\xbb\xbf" + table.encode())
        found = self.predict(
            input_file=self.write("new.csv.gz", packed),
            output_file=self.path("scored.csv"),
        )
        read = list(csv.DictReader(io.StringIO(found, newline="")))
        expected = bert_tf.load(folder).predict(TEXTS)
        self.assertEqual([*read[0]], ["id", "review", "prediction", "p_no", "p_yes"])
        self.assertEqual([row["review"] for row in read], TEXTS)
        for row, one in zip(read, expected, strict=True):
            self.assertEqual(row["prediction"], one.label)
            self.assertAllClose(float(row["p_yes"]), one.probabilities["yes"])
        # The same in small groups, and in other formats.
        with mock.patch.object(predict, "_ROWS_AT_ONCE", 3):
            again = self.predict(
                input_file=self.path("new.csv.gz"), output_file=self.path("again.jsonl")
            )
        for line, row in zip(again.splitlines(), read, strict=True):
            values = json.loads(line)
            self.assertEqual(values["review"], row["review"])
            self.assertEqual(values["prediction"], row["prediction"])
            self.assertAllClose(
                values["probabilities"]["no"], float(row["p_no"]), atol=1e-5
            )
        tsv = self.predict(
            input_file=self.path("new.csv.gz"), output_file=self.path("again.tsv")
        )
        self.assertEqual(tsv.splitlines()[2].split("\t")[:2], ["1", 'w3, "w4"'])
        self.assertIn("w5\\nw6", tsv)
        shorter = self.predict(
            input_file=self.path("new.csv.gz"),
            output_file=self.path("shorter.csv"),
            max_seq_length=5,
        )
        (*_, last) = csv.DictReader(io.StringIO(shorter, newline=""))
        (expected,) = bert_tf.load(folder, max_length=5).predict(TEXTS[-1:])
        self.assertAllClose(float(last["p_yes"]), expected.probabilities["yes"])
        self.assertNotAllClose(float(last["p_yes"]), float(read[-1]["p_yes"]))

    def test_rows_of_other_formats(self):
        folder = self.checkpoint(
            BertClassifier(toy.CONFIG, 2), labels=("no", "yes"), text_a_column="a.text"
        )
        expected = bert_tf.load(folder).predict(TEXTS)
        rows = [{"id": i, "a": {"text": text}} for i, text in enumerate(TEXTS)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), self.path("new.parquet"))
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        for path in (
            self.path("new.parquet"),
            self.write("new.jsonl", lines),
            self.write("new.json", json.dumps(rows)),
        ):
            found = self.predict(input_file=path, output_file=self.path("scored"))
            for line, row, one in zip(found.splitlines(), rows, expected, strict=True):
                values = json.loads(line)
                self.assertEqual(values | row, values)
                self.assertEqual(values["prediction"], one.label)
        with self.assertRaisesRegex(InputError, "not as Parquet"):
            self.predict(input_file=path, output_file=self.path("scored.parquet"))

    def test_standard_input_and_output(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 1, problem_type="regression"))
        stdin = io.TextIOWrapper(io.BytesIO(b"w1 w2\nw3\n"))
        with mock.patch.object(sys, "stdin", stdin):
            lines = self.predict().splitlines()
        self.assertEqual(lines[0], "text,prediction")
        self.assertEqual([line.split(",")[0] for line in lines[1:]], ["w1 w2", "w3"])
        float(lines[1].split(",")[1])

    def test_a_row_for_each_row_blank_or_not(self):
        folder = self.checkpoint(
            BertClassifier(toy.CONFIG, 1, problem_type="regression")
        )
        expected = bert_tf.load(folder).predict(["", "w1 w2"])
        for name, content, columns in (
            ("a.txt", "\nw1 w2\n \nw1 w2\n\n\n", {}),
            ("a.csv", "i,x\n\n1,w1 w2\n,\n2,w1 w2\n\n\n", {"text_a_column": "x"}),
            ("a.csv", "x\n\nw1 w2\n\nw1 w2\n\n\n", {}),
            ("a.jsonl", '\n{"x": "w1 w2"}\n\n{"x": "w1 w2"}\n\n\n', {}),
        ):
            with self.assertLogs("absl", "WARNING") as logs:
                found = self.predict(
                    input_file=self.write(name, content),
                    output_file=self.path("out.jsonl"),
                    **columns,
                )
            values = [json.loads(line)["prediction"] for line in found.splitlines()]
            self.assertAllClose(values, 2 * [one.label for one in expected])
            self.assertRegex(logs.output[0], "2 blank lines at its end are left out")
            self.assertRegex(logs.output[1], r":[12]: 2 of 4 rows have no text")

    def test_pairs_and_several_labels_as_json_lines(self):
        folder = self.checkpoint(
            BertClassifier(toy.CONFIG, 3, problem_type=MULTI_LABEL),
            labels=("a", "b", "c"),
            kind=MULTI_LABEL,
        )
        rows = [{"x": "w1 w2", "y": "w3", "n": 1}, {"x": "w4", "y": "w5", "n": None}]
        path = self.write("in.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
        found = self.predict(input_file=path, text_a_column="x", text_b_column="y")
        expected = bert_tf.load(folder).predict(["w1 w2", "w4"], ["w3", "w5"])
        for line, row, one in zip(found.splitlines(), rows, expected, strict=True):
            values = json.loads(line)
            self.assertEqual({name: values[name] for name in row}, row)
            self.assertEqual(tuple(values["prediction"]), one.label)
            self.assertAllClose(values["probabilities"], one.probabilities)

    def test_words(self):
        folder = self.checkpoint(
            BertTagger(toy.CONFIG, 3), labels=("O", "B-PER", "I-PER")
        )
        path = self.write("in.txt", "w1 w2 w3\n\nw4\n")
        lines = self.predict(input_file=path).splitlines()
        expected = bert_tf.load(folder).tag(["w1 w2 w3", "w4"])
        self.assertEqual(lines[2], ",,")
        self.assertEqual(lines[1], f"w1 w2 w3,w1 w2 w3,{' '.join(expected[0].labels)}")
        found = self.predict(input_file=path, output_file=self.path("out.jsonl"))
        values = json.loads(found.splitlines()[0])
        self.assertEqual(tuple(values["labels"]), expected[0].labels)
        entities = [one._asdict() for one in expected[0].entities]
        self.assertEqual(values["entities"], json.loads(json.dumps(entities)))

    def test_what_cannot_be_predicted(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("no", "yes"))
        for name, content, options, message in (
            ("a.csv", "a,b\nx,y\n", {}, "Give `text_a_column`.*Columns: 'a', 'b'"),
            ("b.csv", "a\nx\n", {"text_a_column": "c"}, "b.csv:2: no column 'c'"),
            (
                "c.csv",
                "a,b\nx,y\nz\n",
                {"text_a_column": "a"},
                "c.csv:3: the row has 1",
            ),
            ("d.csv", "", {}, "d.csv: it is empty"),
            ("e.csv", "a\n", {}, "e.csv: there are no texts"),
            (
                "f.csv",
                "a,prediction\nx,1\n",
                {"text_a_column": "a"},
                "f.csv:2: .*rename",
            ),
            ("g.jsonl", "[1]\n", {}, "g.jsonl:1: each row must be a JSON object"),
            ("h.jsonl", '{"a": 3}\n', {}, "h.jsonl:1: 'a' must be a text. Found: 3"),
            ("i.txt", b"\xff\n", {}, "i.txt: not UTF-8"),
        ):
            path = self.write(name, content)
            with self.assertRaisesRegex(InputError, message):
                self.predict(input_file=path, **options, output_file=self.path("out"))
            # Nothing is left half written.
            self.assertNotIn("out", [p.split(".")[0] for p in os.listdir(self.path())])
        self.checkpoint(BertPretrainer(toy.CONFIG))
        with self.assertRaisesRegex(InputError, "for \\[MASK\\] bert_tf.fill_mask"):
            self.predict(input_file=self.write("k.txt", "w1\n"))
