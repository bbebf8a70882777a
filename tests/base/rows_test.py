"""Tables in every format have the same rows, whoever reads them."""

import bz2
import contextlib
import csv
import gzip
import io
import itertools
import json
import lzma
import random
import sys
import tracemalloc
import types
from collections import Counter
from unittest import mock

import pyarrow
from absl.testing import parameterized
from pyarrow import parquet

from bert_tf.addons.methods.embeddings import read_texts
from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.addons.serving import predict
from bert_tf.base import rows, unpacking
from bert_tf.base.errors import InputError
from bert_tf.tasks.squad.reading import Columns, read_file
from bert_tf.tasks.swag.choices import ChoiceLayout, read_choices
from bert_tf.tasks.tables import TableSplit
from bert_tf.tasks.tagging.sentences import Layout, read_sentences
from bert_tf.text import sources
from tests.script_case import FolderCase


def read(path, content, size, **options):
    """Names of columns, and rows, of a content that is read in pieces of some bytes."""

    def read_pieces(path):
        for start in range(0, len(content), size):
            yield content[start : start + size]

    with file_of(read_pieces):
        names, found = rows.read(path, **options)
        return names, list(found)


def pieces(text, size):
    content = text.encode()
    return (content[at : at + size] for at in range(0, len(content), size))


@contextlib.contextmanager
def file_of(read_pieces):
    """Any path is that of a file with these pieces."""
    with (
        mock.patch.object(unpacking, "read_pieces", read_pieces),
        mock.patch("bert_tf.base.files.exists", return_value=True),
    ):
        yield


class NonsenseTest(parameterized.TestCase):
    """Generated nonsense, against readers that are not ours."""

    def cells(self, draw, characters, most=4):
        return [
            "".join(draw.choices(characters, k=draw.randrange(6)))
            for _ in range(draw.randrange(1, most))
        ]

    @parameterized.parameters(*range(40))
    def test_csv(self, seed):
        draw = random.Random(seed)
        end = draw.choice(["\n", "\r\n", "\r"])
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
        for _ in range(draw.randrange(1, 20)):
            writer.writerow(self.cells(draw, 'ab,;"\n\r\t ü\u2028語'))
            text.write(end * draw.choice([0, 0, 0, 1, 2]))
        content = text.getvalue().rstrip(end) + end * draw.randrange(2)
        expected = csv.reader(io.StringIO(content, newline=""))
        expected = [(expected.line_num, cells) for cells in expected]
        mark = "\ufeff" * draw.randrange(2)
        _, found = read(
            "x.csv",
            (mark + content).encode(),
            draw.randrange(1, 9),
            has_header=False,
        )
        self.assertEqual(
            [(row.number, list(row.values)) for row in found],
            [(number, cells if any(cells) else []) for number, cells in expected],
        )

    @parameterized.parameters(*range(20))
    def test_tsv(self, seed):
        draw = random.Random(seed)
        lines = ["a\tb"]
        lines += ["\t".join(self.cells(draw, 'ab,"\v ü\u2028語')) for _ in range(20)]
        content = "".join(line + draw.choice(["\n", "\r\n"]) for line in lines)
        expected = [line.split("\t") for line in lines]
        names, found = read("x.tsv", content.encode(), draw.randrange(1, 9))
        self.assertEqual(names, ["a", "b"])
        self.assertEqual([row.number for row in found], [*range(2, 22)])
        for row, cells in zip(found, expected[1:], strict=True):
            self.assertEqual(list(row.values), cells if any(cells) else [])
            self.assertEqual(bool(row.problem), any(cells) and len(cells) != 2)
            named = dict(zip("ab", cells, strict=False)) if any(cells) else {}
            self.assertEqual(row.cells, named)

    @parameterized.parameters(*range(20))
    def test_json(self, seed):
        draw = random.Random(seed)
        values = [
            {
                "a": draw.choice([None, 1, 0.5, True, "x\n\u2028語", ["a", 1]]),
                **({"b": {"c": draw.choice("xyz")}} if draw.randrange(2) else {}),
            }
            for _ in range(draw.randrange(1, 20))
        ]
        ascii_only = bool(draw.randrange(2))
        whole = json.dumps(
            values, indent=draw.choice([None, 1]), ensure_ascii=ascii_only
        )
        end = draw.choice(["\n", "\r\n"])
        lines = end.join(json.dumps(value, ensure_ascii=ascii_only) for value in values)
        for content in (whole, lines, f"\n \n{whole}", lines + end, f"\ufeff{lines}"):
            names, found = read("x.json", content.encode(), draw.randrange(1, 99))
            self.assertEqual([row.cells for row in found], values)
            self.assertEqual([row.number for row in found], [*range(1, len(found) + 1)])
            self.assertEqual(names[0], "a")
            self.assertEqual("b.c" in names, any("b" in value for value in values))

    @parameterized.parameters(*range(20))
    def test_damaged_arrays(self, seed):
        draw = random.Random(seed)
        values = [
            draw.choice([{"a": "]\n,"}, 12345, -1.5e3, "x[", [1, [2]], None, {}])
            for _ in range(draw.randrange(5))
        ]
        whole = json.dumps([{}, *values], indent=draw.choice([None, 1]))
        for _ in range(60):
            place = draw.randrange(whole.index("{") + 1, len(whole) + 1)
            content = whole[:place] + draw.choice(["", *',[]"x1']) + whole[place + 1 :]
            size = draw.randrange(1, 99)
            with file_of(lambda path, text=content, size=size: pieces(text, size)):
                found = rows.FORMATS[rows.JSONL].read("x.json", "file")
                try:
                    expected = json.loads(content)
                except json.JSONDecodeError as error:
                    with self.assertRaisesRegex(InputError, r"x.json:(\d+): not") as c:
                        list(found)
                    line = int(str(c.exception).split(":")[1])
                    self.assertBetween(line, 1, content.count("\n") + 1)
                    if error.msg not in ("Extra data", "Expecting value"):
                        self.assertEqual(line, error.lineno, content)
                else:
                    self.assertEqual([*found], [*enumerate(expected, start=1)])


# Cells without line ends and tabs, which no format changes.
TABLE = [
    {
        "question": "Who, then?",
        "context": 'A "man" sat.',
        "answer": '"man"',
        "sent1": "ü, b",
        "sent2": "'c",
        "ending0": "d e",
        "ending1": '"f',
        "label": "0",
    },
    {
        "question": "What?",
        "context": "語 it is",
        "answer": "it",
        "sent1": '"',
        "sent2": "",
        "ending0": "g,",
        "ending1": "h",
        "label": "1",
    },
]
OBJECTS = [
    {
        "tokens": ["a,", '"b"'],
        "ner_tags": ["O", "B-X"],
        "body": {"text": "ü one.\ntwo"},
    },
    {"tokens": ["語"], "ner_tags": ["O"], "body": {"text": '"three"'}},
]


def csv_of(table, **dialect):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, table[0], **dialect)
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def tsv_of(table):
    return "".join(
        "\t".join(cells) + "\n" for cells in ([*table[0]], *map(dict.values, table))
    )


def lines_of(table):
    return "".join(json.dumps(row) + "\n" for row in table)


def zstd(content):
    return pyarrow.compress(content, "zstd", asbytes=True)


TEXTS = {".csv": csv_of, ".tsv": tsv_of}
JSON = {".jsonl": lines_of, ".ndjson": lines_of, ".json": json.dumps}
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def predicted(path):
    options = types.SimpleNamespace(input_file=path, max_unusable_rows=0)
    kind = rows.format_of(path, rows.TEXT)
    _, found = predict._opened_rows(options, kind, rows.Dialect())
    return [dict(row.cells) for row in found]


def classified(path):
    split = TableSplit(text_a="sent1", text_b="sent2", label="label")
    return [one[:3] for one in split.read(path)]


def chosen(path):
    found = read_choices(path, ChoiceLayout(), has_labels=True)
    return [one[:4] for one in found.examples]


def embedded(path):
    options = EmbeddingOptions(
        output_dir="out",
        do_train=True,
        train_file=path,
        text_columns=("context", "ending0"),
        score_column="label",
    )
    return [one[:2] for one in read_texts(path, options).examples]


def asked(path):
    found = read_file(path, columns=Columns())
    return [(one.text, one.context, one.answers) for one in found]


def tagged(path):
    found = read_sentences([path], Layout())
    return [(one.words, one.labels) for one in found]


def documents_of(path):
    (chunk,) = sources.make_chunks([path], text_field="body.text")
    read = chunk.source.documents(chunk.start, chunk.stop, Counter())
    return list(read)


READERS = {
    classified: [("ü, b", "'c", "0"), ('"', "", "1")],
    chosen: [("ü, b", "'c", ("d e", '"f'), "0"), ('"', "", ("g,", "h"), "1")],
    embedded: [(('A "man" sat.', "d e"), 0.0), (("語 it is", "g,"), 1.0)],
    asked: [
        ("Who, then?", 'A "man" sat.', (('"man"', 2),)),
        ("What?", "語 it is", (("it", 2),)),
    ],
    predicted: TABLE,
}
OF_OBJECTS = {
    tagged: [(("a,", '"b"'), ("O", "B-X")), (("語",), ("O",))],
    documents_of: [["ü one.", "two"], ['"three"']],
}


GERMAN = 'text;note\r\nGr\xfc\xdfe;3,5\r\n"sch\xf6n;\nja";4\r\n'
FRENCH = (
    "l\u2019\xe9t\xe9 \xe0 Nice, c\u2019est \xab cr\xe9\xe9 \xbb \u2013 5 \u20ac\u2026"
)


class DialectTest(FolderCase, parameterized.TestCase):
    """Tables as programs write them elsewhere."""

    def read(self, content, name="t.csv", delimiter=None):
        if isinstance(content, str):
            content = content.encode()
        dialect = rows.Dialect(delimiter)
        names, found = rows.read(self.write(name, content), dialect=dialect)
        return [names, *(list(row.values) for row in found)], dialect

    @parameterized.parameters(
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8-sig"),
        ("cp1252", "cp1252"),
        ("utf-16", "utf-16"),
    )
    def test_excel_in_germany(self, encoding, found_encoding):
        cells = [["text", "note"], ["Gr\xfc\xdfe", "3,5"], ["sch\xf6n;\nja", "4"]]
        for name, pack in (("t.csv", bytes), ("t.csv.gz", gzip.compress)):
            with self.assertLogs(level="WARNING") as logs:
                found, dialect = self.read(pack(GERMAN.encode(encoding)), name)
            self.assertEqual(found, cells)
            self.assertEqual(dialect, rows.Dialect(";", True, found_encoding, "\r\n"))
            said = "\n".join(logs.output)
            self.assertIn(f"{name}: semicolons between its columns.", said)
            self.assertEqual("read as Windows-1252" in said, encoding == "cp1252")
            self.assertEqual("read as UTF-16" in said, encoding == "utf-16")
        tabs = "text\tnote\r\nGr\xfc\xdfe\t3,5\r\n".encode(encoding)
        for name in ("t.tsv", "t.txt"):
            found, dialect = self.read(tabs, name)
            self.assertEqual(found, cells[:2])
            self.assertEqual(dialect.encoding, found_encoding)

    @parameterized.parameters(
        ("text\na; b\nc\nd;e;f\n", [["text"], ["a; b"], ["c"], ["d;e;f"]]),
        ('text\n"a, b"\n', [["text"], ["a, b"]]),
        ("t,l\na; b,x\nc; d,y\n", [["t", "l"], ["a; b", "x"], ["c; d", "y"]]),
        ('"t;u","l"\n"a;b","x"\n', [["t;u", "l"], ["a;b", "x"]]),
        ("t|l\na|b\n", [["t|l"], ["a|b"]]),
        ("t;l\na, b;x\n\n;\nc;y\n", [["t", "l"], ["a, b", "x"], [], [], ["c", "y"]]),
        ("t\tl\na, b\tx\n", [["t", "l"], ["a, b", "x"]]),
        ('\ufeff"t";"l"\n"a";"x"\n', [["t", "l"], ["a", "x"]]),
        ('"\ufefft";l\na;x\n', [["t", "l"], ["a", "x"]]),
        ("t;l\ra;x\rb;y\r", [["t", "l"], ["a", "x"], ["b", "y"]]),
        ('"t, u;v";l\na, b;x\n', [["t, u;v", "l"], ["a, b", "x"]]),
        ("\n\tl\na, b\tx\n", [["", "l"], ["a, b", "x"]]),
    )
    def test_the_sign_between_cells(self, content, expected):
        self.assertEqual(self.read(content)[0], expected)

    def test_rows_without_a_header(self):
        for content, expected in (
            ("a; b\nc\nd; e; f\n", [["a; b"], ["c"], ["d; e; f"]]),
            ("a, b;x\nc;y\n", [["a, b", "x"], ["c", "y"]]),
        ):
            path = self.write("x.csv", content)
            _, found = rows.read(path, has_header=False)
            self.assertEqual([list(row.values) for row in found], expected)

    @parameterized.parameters((",", ";"), (",", "\t"), (";", "\t"))
    def test_what_may_be_either_is_refused(self, *signs):
        content = "t{}l{}m\na\nb\nc\n".format(*signs)
        with self.assertRaisesRegex(InputError, "may be between .* `delimiter=,` or"):
            self.read(content)
        names = [self.read(content, delimiter=sign)[0][0] for sign in signs]
        self.assertEqual(
            ["|".join(each) for each in names],
            [content.split("\n")[0].replace(sign, "|") for sign in signs],
        )

    @parameterized.parameters(
        ("t.csv", "|"),
        ("t.txt", ";"),
        ("t.tsv", ","),
        ("t.csv", "\t"),
        ("t.csv", "tab"),
    )
    def test_a_sign_that_is_given(self, name, given):
        sign = "\t" if given == "tab" else given
        content = f't{sign}l\n"a{sign}b"{sign}x\n'
        found, _ = self.read(content, name, delimiter=given)
        self.assertEqual(found, [["t", "l"], [f"a{sign}b", "x"]])

    @parameterized.parameters(
        ("t.csv", "ab"), ("t.csv", '"'), ("t.csv", "x"), ("t.csv", ""), ("t.jsonl", ";")
    )
    def test_what_is_no_sign(self, name, given):
        with self.assertRaisesRegex(
            InputError, f"`delimiter={given}` must be one sign"
        ):
            self.read("a;b\n", name, delimiter=given)

    @parameterized.parameters(
        ("\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "cp1251"),
        ("by\u0142o \u017ale, za\u017c\xf3\u0142\u0107", "cp1250"),
        ("\xe7ok g\xfczel de\u011fil, iyi \u015fey", "cp1254"),
        ("Gr\xfc\xdfe \xe4\xf6\xfc", "cp850"),
        ("Gr\xfc\xdfe aus K\xf6ln", "mac_roman"),
        ("\u4f60\u597d", "gbk"),
    )
    def test_other_encodings_are_refused_and_not_guessed(self, text, encoding):
        for name in ("t.csv", "t.tsv"):
            with self.assertRaisesRegex(InputError, f"{name}:2: not UTF-8.*Convert"):
                self.read(f"t\n{text}\n".encode(encoding), name)

    def test_western_text(self):
        found, dialect = self.read(f't\n"{FRENCH}"\n'.encode("cp1252"))
        self.assertEqual(found, [["t"], [FRENCH]])
        # A character in the middle of a long file, which was ASCII; or was UTF-8.
        ascii_ = "t,l\n" + "a,x\n" * 300_000
        found, dialect = self.read((ascii_ + "sch\xf6n,y\n").encode("cp1252"))
        self.assertEqual((found[-1], dialect.encoding), (["sch\xf6n", "y"], "cp1252"))
        mixed = ascii_.replace("a", "\xe4", 1).encode() + b"sch\xf6n,y\n"
        with self.assertRaisesRegex(InputError, "t.csv:300002: not UTF-8.*iconv"):
            self.read(mixed)
        with self.assertRaisesRegex(InputError, "x.jsonl:1: not UTF-8"):
            self.read('{"t": "sch\xf6n"}'.encode("cp1252"), "x.jsonl")

    def test_standard_input_is_read_as_it_comes(self):
        parts = [b"t;l\r\n", b"sch\xf6n;x\r\n", b"b;y\r\n"]
        stdin, dialect = mock.Mock(), rows.Dialect()
        stdin.buffer.read1.side_effect = [*parts, AssertionError("read too early")]
        with mock.patch.object(sys, "stdin", stdin):
            names, found = rows.read("-", "csv", dialect=dialect)
            first, second = itertools.islice(found, 2)
        self.assertEqual((names, first.values), (["t", "l"], ["sch\xf6n", "x"]))
        self.assertEqual(second.cells, {"t": "b", "l": "y"})
        self.assertEqual(dialect, rows.Dialect(";", True, "cp1252", "\r\n"))

    @parameterized.parameters(
        ("1", 1.0),
        (" -2.5 ", -2.5),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("1_0", None),
        ("\u0661", None),
        ("nan", None),
        ("infinity", None),
        ("1,5", None),
        ("", None),
    )
    def test_numbers_have_decimal_digits(self, text, expected):
        if expected is not None:
            self.assertEqual(rows.number(text), expected)
            return
        with self.assertRaisesRegex(ValueError, "not a number"):
            rows.number(text)


class EveryCommandTest(FolderCase, parameterized.TestCase):
    def check(self, reader, expected, table, formats):
        for ending, write in formats.items():
            for suffix, pack in PACKED.items():
                path = self.write(f"x{ending}{suffix}", pack(write(table).encode()))
                self.assertEqual(reader(path), expected, path)
        for ending in (".parquet", ".pq"):
            path = self.path(f"x{ending}")
            parquet.write_table(pyarrow.Table.from_pylist(table), path)
            self.assertEqual(reader(path), expected, path)

    @parameterized.parameters(*READERS)
    def test_the_same_rows_as_excel_writes_them_elsewhere(self, reader):
        table = csv_of(TABLE, delimiter=";")
        path = self.write("x.csv", "\ufeff" + table)
        self.assertEqual(reader(path), READERS[reader], path)

    @parameterized.parameters(*READERS)
    def test_the_same_rows_in_every_format(self, reader):
        self.check(reader, READERS[reader], TABLE, TEXTS | JSON)

    @parameterized.parameters(*OF_OBJECTS)
    def test_the_same_objects_in_every_format(self, reader):
        formats = dict(JSON)
        if reader is documents_of:
            del formats[".json"]  # read in chunks of lines, which an array has not
        self.check(reader, OF_OBJECTS[reader], OBJECTS, formats)

    def test_standard_input(self):
        for kind, content in (("csv", csv_of(TABLE)), ("jsonl", lines_of(TABLE))):
            stdin = io.TextIOWrapper(io.BytesIO(content.encode()))
            with mock.patch.object(sys, "stdin", stdin):
                names, found = rows.read("-", kind)
                self.assertEqual([row.cells for row in found], TABLE)
            self.assertEqual(names, [*TABLE[0]])


class RowsTest(FolderCase, parameterized.TestCase):
    def classified(self, path, **columns):
        found = TableSplit(**{"text_a": "text", "label": "stars", **columns}).read(path)
        return [one[:3] for one in found]

    def test_fields_that_some_rows_lack(self):
        path = self.write(
            "rows.jsonl", '{"text": "A", "l": true}\n\n{"l": null, "text": "B"}\n'
        )
        self.assertEqual(
            self.classified(path, label="l"), [("A", None, "true"), ("B", None, "")]
        )

    def test_what_is_no_table(self):
        for path, message in (
            (
                self.write("a.jsonl", '{"text": "A", "stars": 1}\n["B"]\n'),
                r"a.jsonl:2: it must be a JSON object. Received: list.* \(1 of 2 rows",
            ),
            (self.write("b.jsonl", '{"text": "A"\n'), "b.jsonl:1: it must be one JSON"),
            (
                self.write("c.json", '[{"text": "A", "stars": 1}, 5]'),
                "c.json:2: it must be a JSON object. Received: int",
            ),
            (self.write("d.jsonl", ""), "d.jsonl: the file is empty"),
            (self.write("f.csv", ",,\n,\n"), "f.csv: the file is empty, or all its c"),
            (
                self.write("rows.parquet", b"PAR1 and no more"),
                "rows.parquet: not a Parquet file, or a damaged one: ",
            ),
            (self.path("none.parquet"), "No such data file"),
            (self.path("none.csv"), "No such data file"),
            (self.write("e.jsonl", '{"t": "A"}\n'), "only column is 't'.* Files"),
            (
                self.write("g.tsv", "text\tstars\rA\t1\rB\t2\r"),
                "g.tsv: its lines end at carriage returns alone",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.classified(path)

    def test_a_field_within_another(self):
        row = {"a": {"b": {"c": 1}, "b.d": 2}, "a.e": 3, "f": None}
        for name, value, is_there in (
            ("a.b.c", 1, True),
            ("a.b.d", 2, True),
            ("a.e", 3, True),
            ("a.x", None, False),
            ("f.g", None, True),
        ):
            self.assertEqual(rows.field(row, name), value, name)
            self.assertEqual(rows.has_field(row, name), is_there, name)

    def test_parts_of_cells_as_text(self):
        for value, text in (
            (None, ""),
            ("a", "a"),
            (["a", 1, None], "a;1;"),
            (2.0, "2.0"),
            ({"a": True}, '{"a": true}'),
        ):
            self.assertEqual(rows.as_text(value, ";"), text)

    @parameterized.parameters("x.csv", "x.tsv", "x.jsonl", "x.txt", "x.unknown")
    def test_an_endless_file_is_read_row_by_row(self, path):
        line = {"x.jsonl": b'{"a": "b"}\n'}.get(path, b"a,b\n")
        kind = rows.TEXT if path == "x.txt" else ""
        with file_of(lambda path: itertools.repeat(line)):
            _, found = rows.read(path, kind)
            self.assertLen(list(itertools.islice(found, 3000)), 3000)
            if not kind:
                column = rows.read(path)[0][0]
                TableSplit(text_a=column).check(path)

    @parameterized.parameters("x.csv", "x.tsv", "x.jsonl", "x.json", "x.parquet")
    def test_rows_are_not_kept(self, name):
        table = [{"a": f"{number:0600d}", "b": "c"} for number in range(30_000)]
        write = (TEXTS | JSON).get(name[1:])
        if write:
            path = self.write(name, write(table))
        else:
            path = self.path(name)
            parquet.write_table(pyarrow.Table.from_pylist(table), path)
        left_out = rows.LeftOutRows(path)
        tracemalloc.start()
        try:
            _, found = rows.read(path)
            kept = sum(1 for _ in left_out.count(found, keeps_blank=False))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertEqual(kept, 30_000)
        # The texts alone have 18 million bytes; a piece of a file is a million.
        self.assertLess(peak, 12_000_000)
