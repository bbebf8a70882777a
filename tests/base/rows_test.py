"""Tables in every format have the same rows."""

import gzip
import json

import pyarrow
from pyarrow import parquet

from bert_tf.base.errors import InputError
from bert_tf.base.rows import field
from bert_tf.tasks.tables import TableSplit
from tests.script_case import FolderCase

ROWS = [
    {"text": 'one, "two"\nthree', "stars": 5, "tags": ["a", "b"], "body": {"t": "B"}},
    {"text": "Ärger", "stars": 10, "tags": [], "body": {"t": "C"}},
]


class TableFormatsTest(FolderCase):
    def read(self, path, **columns):
        found = TableSplit(**{"text_a": "text", "label": "stars", **columns}).read(path)
        return [one[:3] for one in found]

    def test_the_same_rows_in_every_format(self):
        lines = "".join(f"{json.dumps(row)}\n" for row in ROWS)
        paths = [
            self.write("rows.jsonl", lines),
            self.write("rows.ndjson", "\ufeff" + lines.replace("\n", "\r\n")),
            self.write("rows.json", json.dumps(ROWS, indent=2)),
            self.write("rows.jsonl.gz", gzip.compress(lines.encode())),
            self.path("rows.parquet"),
        ]
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), paths[-1])
        table = 'text\tstars\tbody.t\none, "two" three\t5\tB\nÄrger\t10\tC\n'
        expected = self.read(self.write("rows.tsv", table), text_b="body.t")
        self.assertEqual([one[1:] for one in expected], [("B", "5"), ("C", "10")])
        for path in paths:
            found = self.read(path, text_b="body.t")
            found = [(one[0].replace("\n", " "), *one[1:]) for one in found]
            self.assertEqual(found, expected, path)
            tags = self.read(path, label="tags", separator=";")
            self.assertEqual([label for *_, label in tags], ["a;b", ""])

    def test_fields_that_some_rows_lack(self):
        path = self.write(
            "rows.jsonl", '{"text": "A", "l": true}\n\n{"l": null, "text": "B"}\n'
        )
        self.assertEqual(
            self.read(path, label="l"), [("A", None, "true"), ("B", None, "")]
        )

    def test_what_is_no_table(self):
        damaged = self.write("rows.parquet", b"PAR1 and no more")
        for path, message in (
            (
                self.write("a.jsonl", '{"text": "A", "stars": 1}\n["B"]\n'),
                "a.jsonl:2: it must be a JSON object. Received: list.* \\(1 of 2 rows",
            ),
            (self.write("b.jsonl", '{"text": "A"\n'), "b.jsonl:1: it must be one JSON"),
            (
                self.write("c.json", '[{"text": "A", "stars": 1}, 5]'),
                "c.json:2: it must be a JSON object. Received: int",
            ),
            (self.write("d.jsonl", ""), "d.jsonl: the file is empty"),
            (damaged, "rows.parquet: not a Parquet file, or a damaged one: "),
            (self.path("none.parquet"), "No such data file"),
            (
                self.write("e.jsonl", '{"t": "A"}\n'),
                "Columns: 't'. Files",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.read(path)

    def test_a_field_within_another(self):
        row = {"a": {"b": {"c": 1}, "b.d": 2}, "a.e": 3, "f": None}
        for name, value in (
            ("a.b.c", 1),
            ("a.b.d", 2),
            ("a.e", 3),
            ("a.x", None),
            ("f.g", None),
        ):
            self.assertEqual(field(row, name), value, name)
