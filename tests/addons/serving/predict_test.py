import codecs
import csv
import gzip
import io
import json
import os
import sys
from unittest import mock

import numpy as np
import pyarrow
import sklearn.metrics
from absl.testing import parameterized
from pyarrow import parquet

import bert_tf
from bert_tf import run_swag
from bert_tf.addons.corpora import annotations
from bert_tf.addons.serving import predict
from bert_tf.base import cli
from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion.tokenizer_files import write_labels
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.tasks.swag.multiple_choice_options import ChoiceOptions
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

WORDS = [f"w{number}" for number in range(20)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["w1 w2", 'w3, "w4"', "w5\nw6 w7", "w8 w9 w10 w11 w12 w13 w14"]


class PredictTest(FolderCase, parameterized.TestCase):
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

    def test_scores_where_the_table_has_labels(self):
        labels = ["no", "some", "yes"]
        self.checkpoint(BertClassifier(toy.CONFIG, 3), labels, label_column="said")
        texts = [f"w{number} w{number + 1}" for number in range(12)]
        said = [labels[number % 3] for number in range(11)] + ["other"]
        table = self.write(
            "t.csv", self.csv_of([["text", "said"], *zip(texts, said, strict=True)])
        )
        with self.assertLogs(level="INFO") as logs:
            self.predict(
                input_file=table,
                text_a_column="text",
                output_file=self.path("out.csv"),
            )
        with open(self.path("out.csv"), newline="") as file:
            found = [row["prediction"] for row in csv.DictReader(file)][:11]
        accuracy = sklearn.metrics.accuracy_score(said[:11], found)
        f1 = sklearn.metrics.f1_score(
            said[:11], found, labels=labels, average="macro", zero_division=0
        )
        (line,) = [one for one in logs.output if "Scores on" in one]
        self.assertIn(f"Scores on 11 rows, by 'said': accuracy {accuracy:.4f}", line)
        self.assertIn(f"f1_macro {f1:.4f}", line)
        self.assertIn("1 rows have no such label", line)
        more = {"label_column": "said", "label_separator": ";"}
        several = BertClassifier(toy.CONFIG, 3, problem_type=MULTI_LABEL)
        self.checkpoint(several, labels, MULTI_LABEL, **more)
        said = [labels[: number % 4] for number in range(12)]
        rows = zip(texts, map(";".join, said), strict=True)
        table = self.write("t.csv", self.csv_of([["text", "said"], *rows]))
        with self.assertLogs(level="INFO") as logs:
            printed = self.predict(
                input_file=table,
                text_a_column="text",
                output_file=self.path("out.jsonl"),
            )
        found = [json.loads(line)["prediction"] for line in printed.splitlines()]
        exact = np.mean([a == b for a, b in zip(found, said, strict=True)])
        (line,) = [one for one in logs.output if "Scores on" in one]
        self.assertIn(f"exact_match {exact:.4f}", line)

    def test_rows_without_a_number_have_no_part_in_the_scores(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 1), label_column="said")
        said = [0.5, None, float("nan"), 2.0, "", -1.0]
        rows = [{"text": f"w{n} w3", "said": x} for n, x in enumerate(said)]
        table = self.write("t.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
        output = self.path("out.jsonl")
        with self.assertLogs(level="INFO") as logs:
            written = self.predict(
                input_file=table, text_a_column="text", output_file=output
            )
        found = [json.loads(line)["prediction"] for line in written.splitlines()]
        error = np.mean([(found[n] - said[n]) ** 2 for n in (0, 3, 5)])
        (line,) = [one for one in logs.output if "Scores on" in one]
        self.assertIn("Scores on 3 rows", line)
        self.assertIn(f"mean_squared_error {error:.4f}. 3 rows", line)

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
        self.assertStartsWith(found, "\ufeff")  # as in the input
        read = list(csv.DictReader(io.StringIO(found[1:], newline="")))
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
            self.assertRegex(logs.output[0], r"2 of 4 rows have no text.* line [12]\.")
            self.assertRegex(logs.output[1], "left out [12] blank rows of 4")

    def test_unusable_rows_keep_their_places(self):
        folder = self.checkpoint(
            BertClassifier(toy.CONFIG, 1, problem_type="regression")
        )
        (expected,) = bert_tf.load(folder).predict(["w1 w2"])
        good = '{"i": 0, "x": "w1 w2"}\n'
        bad = ['{"i": 1, "x": null}\n', '{"i": 2\n', "[3]\n", '{"i": 4}\n']
        rows = [bad[1], good, *bad, good, ""]
        options = {"text_a_column": "x", "output_file": self.path("out.jsonl")}
        path = self.write("a.jsonl", "".join(rows))
        with self.assertLogs("absl", "WARNING") as logs:
            found = self.predict(input_file=path, **options, max_unusable_rows=5)
        values = [json.loads(line) for line in found.splitlines()]
        none = {"x": None, "prediction": None}
        self.assertEqual(values[0], {"i": None, **none})
        self.assertEqual(values[2], {"i": 1, **none})
        self.assertEqual(values[4], values[0])
        self.assertEqual(values[5], {"i": 4, **none})
        predicted = [value["prediction"] for value in values]
        self.assertEqual([n for n in range(7) if predicted[n] is not None], [1, 6])
        self.assertAllClose(predicted[6], expected.label)
        self.assertIn(
            f"{path}: no prediction for 5 unusable rows of 7; the first one is line 1:"
            " it must be one JSON object on one line: ",
            logs.output[0],
        )
        # By the share of all rows, which are read before the first is predicted.
        with self.assertRaisesRegex(InputError, r"a.jsonl:1: .*\(5 of 7 .* most 4 may"):
            self.predict(input_file=path, **options, max_unusable_rows=0.6)
        with self.assertRaisesRegex(InputError, "_rows=1.5` must be below 1, or a wh"):
            predict.PredictOptions(checkpoint="c", max_unusable_rows=1.5)
        path = self.write("a.csv", "i,x\n0\n1,w1 w2,w3\n2,w1 w2\n\n")
        stdin = io.TextIOWrapper(io.BytesIO(self.read("a.csv").encode()))
        options["output_file"] = self.path("out.csv")
        table = self.predict(input_file=path, **options, max_unusable_rows=0.7)
        lines = table.splitlines()
        self.assertEqual(lines[:3], ["i,x,prediction", "0,,", "1,w1 w2,"])
        self.assertAllClose(float(lines[3].split(",")[2]), expected.label)
        # Of standard input the number is known at its end: the output is there.
        with (
            mock.patch.object(sys, "stdin", stdin),
            self.assertRaisesRegex(
                InputError, r"standard input:2: .*\(2 of 3 rows can"
            ),
        ):
            self.predict(input_format="csv", **options)
        self.assertEqual(self.read("out.csv"), table)

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

    @parameterized.parameters(
        ("in.csv", ";", "utf-8", "\r\n"),
        ("in.csv", ";", "utf-8-sig", "\n"),
        ("in.csv", ";", "cp1252", "\r\n"),
        ("in.csv", ",", "utf-16", "\r\n"),
        ("in.csv", ",", "utf-8", "\r"),
        ("in.csv", "|", "utf-8", "\n"),
        ("in.tsv", "\t", "cp1252", "\r\n"),
        ("in.csv.gz", "\t", "utf-8-sig", "\r\n"),
    )
    def test_the_output_is_written_like_the_input(self, name, sign, encoding, end):
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("n\xf6", "ja"))
        cells = ["w1 \xfc", f"w2{sign}w3", "w4\nw5", "w6\rw7", 'w6 "w7"']
        if name == "in.tsv":
            cells = ["w1 \xfc", "w2;w3", "w4, w5", '"w6']
        rows = [["text", "n\xba"], *([cell, "1,5"] for cell in cells)]
        text = "".join(f"{sign.join(row)}{end}" for row in rows)
        if name != "in.tsv":
            file = io.StringIO(newline="")
            how = {"delimiter": sign, "lineterminator": end}
            csv.writer(file, quoting=csv.QUOTE_ALL, **how).writerows(rows)
            text = file.getvalue()
        content = text.encode(encoding)
        path = self.write(name, gzip.compress(content) if ".gz" in name else content)
        given = {"delimiter": sign} if sign == "|" else {}
        output = self.path(f"out{name[2:6]}")
        cli.run_script(
            predict,
            checkpoint=self.path("run"),
            input_file=path,
            output_file=output,
            text_a_column="text",
            **given,
        )
        with open(output, "rb") as file:
            written = file.read()
        self.assertEqual(written.startswith(codecs.BOM_UTF8), encoding == "utf-8-sig")
        decoded = written.decode(encoding)
        self.assertEndsWith(decoded, end)
        found = [line.split("\t") for line in decoded.split(end)[:-1]]
        if name != "in.tsv":
            found = list(csv.reader(io.StringIO(decoded, newline=""), delimiter=sign))
        self.assertEqual([row[:2] for row in found], rows)
        self.assertEqual(found[0][2:], ["prediction", "p_n\xf6", "p_ja"])
        header = decoded.removeprefix("\ufeff").split(end)[0]
        self.assertEqual(header, sign.join(["text", "n\xba", *found[0][2:]]))
        for row in found[1:]:
            self.assertIn(row[2], ("n\xf6", "ja"))
            self.assertAllClose(float(row[3]) + float(row[4]), 1.0)

    def test_labels_that_the_encoding_lacks(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("\u597d", "ja"))
        path = self.write("in.csv", "text;n\r\nw1 \xfc;1\r\n".encode("cp1252"))
        with self.assertLogs(level="WARNING") as logs:
            found = self.predict(
                input_file=path, text_a_column="text", output_file=self.path("o.csv")
            )
        self.assertIn("A label is not in cp1252: UTF-8 is written.", logs.output[-1])
        self.assertStartsWith(found, "\ufefftext;n;prediction;p_\u597d;p_ja\r\n")
        self.assertIn("w1 \xfc;1;", found)

    def test_standard_output_is_written_like_the_input(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("no", "ja"))
        stdin = io.TextIOWrapper(io.BytesIO("text;n\r\nw1 \xfc;1\r\n".encode("cp1252")))
        stdout = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with mock.patch.multiple(sys, stdin=stdin, stdout=stdout):
            cli.run_script(
                predict,
                checkpoint=self.path("run"),
                input_format="csv",
                text_a_column="text",
            )
        lines = stdout.buffer.getvalue().split(b"\r\n")
        self.assertEqual(lines[0], b"text;n;prediction;p_no;p_ja")
        self.assertStartsWith(lines[1].decode("cp1252"), "w1 \xfc;1;")

    def test_a_threshold_for_several_labels(self):
        folder = self.checkpoint(
            BertClassifier(toy.CONFIG, 3, problem_type=MULTI_LABEL),
            labels=("a", "b", "c"),
            kind=MULTI_LABEL,
        )
        path = self.write("in.csv", "text\n" + "".join(f"{w} w3\n" for w in WORDS))
        found = bert_tf.load(folder).predict([f"{w} w3" for w in WORDS])
        middle = float(np.median([one.probabilities["b"] for one in found]))
        for threshold in (0.5, middle + 1e-6):
            given = {} if threshold == 0.5 else {"threshold": threshold}
            with self.assertLogs(level="INFO") as logs:
                written = self.predict(
                    input_file=path, output_file=self.path("o.csv"), **given
                )
            said = f"a probability over {threshold:g} are predicted (`threshold`)."
            self.assertTrue(any(said in line for line in logs.output), logs.output)
            rows = csv.DictReader(io.StringIO(written))
            for row, one in zip(rows, found, strict=True):
                likely = [n for n, p in one.probabilities.items() if p > threshold]
                self.assertEqual(row["prediction"], ",".join(likely))
        with self.assertRaisesRegex(InputError, "`min_probability` is for one label"):
            self.predict(input_file=path, min_probability=0.5)

    def test_unsure_answers_are_left_out_and_counted(self):
        labels = {"labels": ("a", "b", "c"), "label_column": "label"}
        folder = self.checkpoint(BertClassifier(toy.CONFIG, 3), **labels)
        found = bert_tf.load(folder).predict([f"{w} w3" for w in WORDS])
        sure = [max(one.probabilities.values()) for one in found]
        least = float(np.median(sure)) + 1e-6
        rows = "".join(f"{w} w3,a\n" for w in WORDS)
        path = self.write("in.csv", f"text,label\n{rows}")
        for name in ("o.csv", "o.jsonl"):
            with self.assertLogs(level="INFO") as logs:
                written = self.predict(
                    input_file=path,
                    output_file=self.path(name),
                    min_probability=least,
                    text_a_column="text",
                )
            count = sum(value < least for value in sure)
            said = "\n".join(logs.output)
            self.assertIn(f"{count} answers are left out", said)
            self.assertIn(f"Scores on {len(WORDS) - count} rows", said)
            if name == "o.csv":
                predicted = [*csv.DictReader(io.StringIO(written))]
            else:
                predicted = [*map(json.loads, written.splitlines())]
            for row, one, value in zip(predicted, found, sure, strict=True):
                left_out = "" if name == "o.csv" else None
                wanted = one.label if value >= least else left_out
                self.assertEqual(row["prediction"], wanted)

    def test_one_warning_of_all_texts_that_were_cut(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("no", "yes"))
        texts = ["w1 w2", "w1 " * 20] * 5
        path = self.write("in.csv", "text\n" + "".join(f"{text}\n" for text in texts))
        with (
            mock.patch.object(predict, "_ROWS_AT_ONCE", 3),
            self.assertLogs(level="WARNING") as logs,
        ):
            self.predict(input_file=path, output_file=self.path("o.csv"))
        said = [line for line in logs.output if "cut" in line]
        self.assertLen(said, 1)
        self.assertIn("5 of 10 texts have more than 8 tokens", said[0])

    def test_a_column_prediction_is_refused_before_the_model_is_opened(self):
        path = self.write("in.jsonl", '{"text": "w1", "prediction": "no"}\n')
        message = "in.jsonl:1: the input has a column 'prediction' already: rename it"
        with self.assertRaisesRegex(InputError, message):
            predict.run(predict.PredictOptions(checkpoint="nowhere", input_file=path))

    def test_words(self):
        folder = self.checkpoint(
            BertTagger(toy.CONFIG, 3), labels=("B-LOC", "B-PER", "I-PER")
        )
        text = "w1  w2 w3 " + " ".join(WORDS)
        path = self.write("in.txt", f"{text}\n\nw4\n")
        lines = self.predict(input_file=path).splitlines()
        (expected, _) = bert_tf.load(folder).tag([text, "w4"])
        self.assertEqual(lines[2], ",,")
        words, labels = map(" ".join, (expected.words, expected.labels))
        self.assertEqual(lines[1], f"{text},{words},{labels}")
        found = self.predict(input_file=path, output_file=self.path("out.jsonl"))
        first, blank, _ = map(json.loads, found.splitlines())
        self.assertEqual((blank["words"], blank["entities"]), ([], []))
        places = [(0, 2), (4, 6), (7, 9)]
        self.assertEqual([(w["start"], w["end"]) for w in first["words"][:3]], places)
        self.assertEqual([w["text"] for w in first["words"]], text.split())
        self.assertEqual([w["label"] for w in first["words"]], [*expected.labels])
        self.assertNotEmpty(first["entities"])
        # What run_ner reads, which checks each span's text.
        (again, *_) = annotations.read_texts(self.path("out.jsonl"))
        self.assertEqual(
            again.spans, [(*one.characters, one.type) for one in expected.entities]
        )

    def test_questions(self):
        folder = self.checkpoint(
            BertSpanPredictor(toy.CONFIG),
            question_column="asks",
            version_2_with_negative=True,
            max_query_length=3,
        )
        contexts = ["w1  w2 w3.", "w4 w5", " ", "w9 w8 w7 w6 w5 w4 w3 w2 w1 w0"]
        asked = ["w6", "", "w8", "w9 w2"]
        rows = [
            {"id": number, "asks": question, "context": context}
            for number, (question, context) in enumerate(
                zip(3 * asked, 3 * contexts, strict=True)
            )
        ]
        path = self.write("in.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
        with self.assertLogs("absl", "WARNING") as logs:
            found = self.predict(input_file=path, output_file=self.path("out.jsonl"))
        message = "in.jsonl: 6 of 12 rows have no question or no text.* line 2"
        self.assertRegex(logs.output[-1], message)
        model = bert_tf.load(folder)
        for line, row in zip(found.splitlines(), rows, strict=True):
            one = json.loads(line)
            self.assertEqual(one | row, one)
            if not (row["asks"].strip() and row["context"].strip()):
                self.assertEqual((one["prediction"], one["start"]), ("", None))
                continue
            # One question after the other, by the command's way.
            ((best, *_),) = model._answerer([row["asks"]], row["context"])
            self.assertAllClose(one["probability"], best.probability, atol=1e-5)
            self.assertEqual((one["start"], one["end"]), best.span or (None, None))
            if best.span:
                text = row["context"][one["start"] : one["end"]]
                self.assertEqual((one["prediction"], text), (best.text, text))
        table = self.predict(
            input_file=self.write("in.csv", "q,c\nw6,w1  w2 w3.\nw6,\n"),
            question_column="q",
            context_column="c",
        )
        lines = table.splitlines()
        self.assertEqual(lines[0], "q,c,prediction,start,end,probability")
        self.assertEqual(lines[2], "w6,,,,,")
        self.assertEqual(
            lines[1].split(",")[2], json.loads(found.split("\n")[0])["prediction"]
        )

    def test_choices(self):
        folder = self.checkpoint(BertMultipleChoice(toy.CONFIG))
        flags = {"max_seq_length": 12, "labels": ["A", "B", "C"]}
        self.write(f"{folder}/flags.json", flags)
        rows = [
            {"sent1": "w1 w2", "sent2": "w3", "ending0": f"w{n}", "ending1": "w4 w5"}
            | {"ending2": f"w7 w{n} w{n + 1} w9 w1 w2 w4"}
            for n in range(5)
        ]
        header = [*rows[0]]
        path = self.write(
            "in.csv", self.csv_of([header, *(row.values() for row in rows)])
        )
        found = self.predict(input_file=path, output_file=self.path("out.csv"))
        run_swag.run(
            ChoiceOptions(
                do_predict=True,
                test_file=path,
                init_checkpoint=folder,
                output_dir=self.path("other"),
                max_seq_length=12,
                labels=("A", "B", "C"),
            )
        )
        expected = csv.DictReader(
            self.read("other", "swag_predictions.csv").splitlines()
        )
        for row, one, given in zip(
            csv.DictReader(found.splitlines()), expected, rows, strict=True
        ):
            self.assertEqual({name: row[name] for name in header}, given)
            self.assertEqual(row["prediction"], one["prediction"])
            for name in ("p_A", "p_B", "p_C"):
                self.assertAllClose(float(row[name]), float(one[name]), atol=1e-5)
        lines = [
            {"ctx": "w1 w2", "endings": ["w3 w4", "w5"]},
            {},
            {"ctx": "w1 w2", "endings": ["w3 w5", "w4"]},
        ]
        path = self.write("in.jsonl", "".join(f"{json.dumps(row)}\n" for row in lines))
        first, empty, last = map(json.loads, self.predict(input_file=path).splitlines())
        self.assertEqual([*first["probabilities"]], ["0", "1"])
        self.assertAllClose(empty["probabilities"], {"0": 0.5, "1": 0.5})
        (chosen,) = bert_tf.load(folder).choose("w1 w2", ["w3 w5", "w4"])
        self.assertAllClose(last["probabilities"], chosen.probabilities, atol=1e-5)
        lines[2]["endings"].append("w6")
        path = self.write(
            "more.jsonl", "".join(f"{json.dumps(row)}\n" for row in lines)
        )
        with self.assertRaisesRegex(InputError, ":3: there are 3 endings; the first r"):
            self.predict(input_file=path)

    def test_what_cannot_be_predicted(self):
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("no", "yes"))
        for name, content, options, message in (
            ("a.csv", "a,b\nx,y\n", {}, "Give `text_a_column`.*columns are 'a', 'b'"),
            ("b.csv", "a\nx\n", {"text_a_column": "c"}, "b.csv:2: no column 'c'"),
            (
                "c.csv",
                "a,b\nx,y\nz\n",
                {"text_a_column": "a"},
                "c.csv:3: the row has 1",
            ),
            ("d.csv", "", {}, "d.csv: the file is empty"),
            ("e.csv", "a\n", {}, "e.csv: there are no texts"),
            (
                "f.csv",
                "a,prediction\nx,1\n",
                {"text_a_column": "a"},
                "f.csv:2: .*rename",
            ),
            ("g.jsonl", "[1]\n", {}, "g.jsonl:1: it must be a JSON object"),
            ("h.jsonl", '{"a": 3}\n', {}, "h.jsonl:1: 'a' must be a text. Received: 3"),
            ("i.txt", b"w1\n\xff\n", {}, "i.txt:2: not UTF-8 .byte 0xff.. Convert"),
            (
                "k.xlsx",
                b"PK\x03\x04\xff",
                {},
                "k.xlsx: a ZIP archive.*or its table as CSV",
            ),
            (
                "n.csv",
                "<!DOCTYPE html>\n<p>\n",
                {},
                "n.csv: an HTML page.*table as CSV",
            ),
            ("j.txt", "w1\n", {"start_column": "b"}, "`start_column` has no effect"),
            ("l.txt", "w1\n", {"threshold": 0.2}, "`threshold` is for several labels"),
            ("m.csv", "a,b;c\nd,e;f\n", {}, "commas or semicolons .*`delimiter=,`"),
        ):
            path = self.write(name, content)
            with self.assertRaisesRegex(InputError, message):
                self.predict(input_file=path, **options, output_file=self.path("out"))
            # Nothing is left half written.
            self.assertNotIn("out", [p.split(".")[0] for p in os.listdir(self.path())])
        flags = {"text_a_column": "review"}
        self.checkpoint(BertClassifier(toy.CONFIG, 2), labels=("no", "yes"), **flags)
        for line, kind in (("review,stars", "csv"), ("id\treview", "tsv")):
            path = self.write("l.txt", f"{line}\nw1,w2\n")
            with self.assertRaisesRegex(InputError, f"l.txt:1: .*input_format={kind}"):
                self.predict(input_file=path)
        with self.assertRaisesRegex(InputError, "is a folder: name a file in it"):
            self.predict(input_file=path, output_file=self.path("run"))
        # A folder that lacks is made.
        path = self.write("m.csv", "review\nw1\n")
        self.predict(input_file=path, output_file=self.path("new", "out.csv"))
        self.checkpoint(BertPretrainer(toy.CONFIG))
        with self.assertRaisesRegex(InputError, "For \\[MASK\\] use bert_tf.fill_mask"):
            self.predict(input_file=self.write("k.txt", "w1\n"))
