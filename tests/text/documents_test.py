import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import pickle
import tarfile
from collections import Counter
from unittest import mock

import pyarrow
import tensorflow as tf
from pyarrow import parquet

from bert_tf.base.errors import InputError
from bert_tf.text.documents import RETURNS, drop, dropped_lines, read_chunk
from bert_tf.text.sources import find_sources, make_chunks
from tests.script_case import FolderCase


class ReaderTestCase(FolderCase):
    name = "text.txt"

    def write(self, name, content=b"a\n"):
        return super().write(name, content)

    def chunks(self, paths, **kwargs):
        """The lines of each chunk, and the counts of what is dropped."""
        dropped = Counter()
        chunks = pickle.loads(pickle.dumps(make_chunks(paths, **kwargs)))
        return [list(read_chunk(chunk, dropped)) for chunk in chunks], dropped

    def read(self, content, **kwargs):
        """A text's sentences by line, [] for an end of a document; what is dropped."""
        chunks, dropped = self.chunks([self.write(self.name, content)], **kwargs)
        return [list(x.sentences) for lines in chunks for x in lines], dropped


class JsonLinesTest(ReaderTestCase):
    name = "c.jsonl"

    def test_objects_are_documents_and_their_lines_paragraphs(self):
        content = (
            '{"text": "One. Two.\\r\\n\\n  Three \\u00e4.\\n"}\r\n'
            "\n"
            ' {"id": 1, "text": "Vier.\u2028 Five."} \n'
            '{"text": ""}\n'
            '{"text": "Six"}'
        )
        expected = [
            [],
            *(["One.", "Two."], ["Three ä."], []),
            *(["Vier.", "Five."], []),
            *(["Six"], []),
        ]
        for chunk_bytes in range(1, len(content.encode()) + 2):
            lines, dropped = self.read(content, chunk_bytes=chunk_bytes)
            self.assertEqual(lines, expected)
            self.assertEqual(dropped, {"documents without text": 1})
        self.assertEqual(self.read("\ufeff" + content)[0], expected)

    def test_titles_that_begin_the_text(self):
        content = "".join(
            json.dumps({"title": title, "text": text}) + "\n"
            for title, text in (("T", "T\n\nTea.\nT"), ("T", "Tea.\nT"), ("", "Tea"))
        )
        lines, dropped = self.read(content)
        self.assertEqual(
            lines, [[], ["Tea."], ["T"], [], ["Tea."], ["T"], [], ["Tea"], []]
        )
        counts = {"title lines": 1, "characters of title lines": 1}
        self.assertEqual(dropped, counts)

    def test_a_field_within_another(self):
        content = (
            '{"body": {"text": "One.", "title": "T"}, "text": "no"}\n'
            '{"body.text": "Two.", "body": {"text": "no"}}\n'
        )
        lines, _ = self.read(content, text_field="body.text")
        self.assertEqual(lines, [[], ["One."], [], ["Two."], []])
        for content in ('{"body": {"txt": "a"}}', '{"body": "a"}'):
            with self.assertRaisesRegex(
                InputError, r"no field 'body.text'; .*: body\.$"
            ):
                self.read(content, text_field="body.text")

    def test_halves_of_characters(self):
        content = '{"text": "a\\ud83d\\ude00b \\ud83dc \\uDE00"}\n{"text": "\\\\ud83d"}'
        lines, dropped = self.read(content)
        self.assertEqual(
            lines, [[], ["a\U0001f600b \ufffdc \ufffd"], [], ["\\ud83d"], []]
        )
        self.assertEqual(dropped, {"halves of surrogate pairs": 2})
        self.assertEqual(self.read('{"text": "\\uDE00"}')[0], [[], ["\ufffd"], []])

    def test_an_array_of_objects(self):
        values = [{"text": "a. b\nc", "title": "a. b"}, {"text": None}, {"text": "é"}]
        as_lines = self.read("\n".join(map(json.dumps, values)))
        for indent in (None, 2):
            content = "\ufeff\n " + json.dumps(values, indent=indent)
            self.assertEqual(self.read(content, chunk_bytes=1), as_lines)
        self.assertEqual(self.read("[]"), ([[]], {}))
        for content, message in (
            ('[{"text": "a"}, 3]', "c.jsonl:2: .* JSON object. Received: int"),
            ('[{"text": "a"}, {"n": 1}]', "c.jsonl:2: it has no field 'text'"),
            ('[{"text": "a"}, {"text": "b"}', "c.jsonl"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.read(content)

    def test_a_document_whose_text_is_null(self):
        for line in ('{"body": {"text": null}}', '{"body": null}'):
            _, dropped = self.read(line, text_field="body.text")
            self.assertEqual(dropped, {"documents without text": 1})
        lines, dropped = self.read('{"text": "a"}\n{"text": null}\n{"text": "b"}')
        self.assertEqual(lines, [[], ["a"], [], ["b"], []])
        self.assertEqual(dropped, {"documents without text": 1})

    def test_errors_name_file_and_line(self):
        good = '{"text": "a"}\n'
        for line, reason in (
            ('{"text": "a"', "one JSON object on one line"),
            ("{", "one JSON object on one line"),
            ('{"text": "a"}{"text": "b"}', "one JSON object on one line"),
            ("plain text", "one JSON object on one line"),
            ('[{"text": "a"}]', "must be a JSON object. Received: list"),
            ('{"txt": "a", "n": 1}', "no field 'text'; `text_field` .*: txt, n"),
            ('{"text": 3}', "field 'text' must be text. Received: int"),
            ("[" * 100_000, "c.jsonl:6"),
            ('{"text": "a", "n": ' + "1" * 5000 + "}", "c.jsonl:6"),
        ):
            content = good * 3 + "\n" + good + line + "\n" + good
            for chunk_bytes in (1, 10, 1 << 20):
                with self.assertRaisesRegex(InputError, reason) as raised:
                    self.read(content, chunk_bytes=chunk_bytes)
                self.assertIn("c.jsonl:6: ", str(raised.exception))


class ParquetTest(ReaderTestCase):
    name = "c.parquet"

    def write_rows(self, rows, **kwargs):
        path = self.path(self.name)
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, **kwargs)
        return path

    def test_rows_are_documents_whatever_the_groups(self):
        rows = [
            {"body": {"text": f"One {number}. Two.\n\nThree"}, "text": "no"}
            for number in range(10)
        ]
        rows[4]["body"]["text"] = None
        expected = [[]]
        for number in [*range(4), *range(5, 10)]:
            expected += [[f"One {number}.", "Two."], ["Three"], []]
        for size in (1, 3, 100):
            path = self.write_rows(rows, row_group_size=size)
            for chunk_bytes in (1, 100, 1 << 20):
                chunks, dropped = self.chunks(
                    [path], text_field="body.text", chunk_bytes=chunk_bytes
                )
                read = [list(x.sentences) for lines in chunks for x in lines]
                self.assertEqual(read, expected)
                self.assertEqual(dropped, {"documents without text": 1})
        self.assertLen(make_chunks([path], chunk_bytes=1, encoding="auto"), 1)
        path = self.write_rows(rows, row_group_size=3)
        self.assertLen(make_chunks([path], chunk_bytes=1), 4)
        empty = self.write_rows([{"text": ""}])
        self.assertEqual(self.chunks([empty])[0], [[((), "")]])

    def test_errors_name_file_and_row(self):
        path = self.write_rows([{"n": 1, "a": {"b": "x"}}] * 5, row_group_size=2)
        for name, message in (
            ("text", "c.parquet: it has no column 'text'; `text_field` .*: n, a.b.$"),
            ("a", "c.parquet: it has no column 'a'"),
            ("n", "c.parquet:1: its field 'n' must be text. Received: int"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.chunks([path], text_field=name)
        path = self.write(self.name, b"no Parquet")
        with self.assertRaisesRegex(InputError, "c.parquet: not a Parquet file"):
            self.chunks([path])
        path = self.write_rows([{"text": "a " * 9000, "n": 1}])
        content = bytearray(pathlib.Path(path).read_bytes())
        content[40:60] = b"\xff" * 20
        path = self.write(self.name, bytes(content))
        with self.assertRaisesRegex(InputError, "c.parquet: .*damaged one: [^.]+"):
            self.chunks([path])
        texts = pyarrow.array([b"ab", b"caf\xe9", b"cd"]).view(pyarrow.string())
        for table, message in (
            ({"text": [["a"]]}, "its column 'text' has lists, .*; write its text as"),
            ({"text": [["a"]], "b": ["c"]}, "'text' has lists, .* of its own: b.$"),
            ({"text": texts}, r"c.parquet:2: text that is not UTF-8 \("),
        ):
            parquet.write_table(pyarrow.table(table), path)
            with self.assertRaisesRegex(InputError, message):
                self.chunks([path])

    def test_a_file_without_a_name_of_its_format(self):
        path = self.write_rows([{"text": "a"}])
        self.name = "c.PQ"
        for other in (self.write_rows([{"text": "a"}]), self.path("c")):
            pathlib.Path(other).write_bytes(pathlib.Path(path).read_bytes())
            self.assertEqual(self.chunks([other]), self.chunks([path]))


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

NASTY = {
    "empty": "",
    "one line": "a",
    "windows": "a\r\nb\r\n\r\nc\r\n \r\n\r\nd",
    "blank around": "\n\n\na\n\n\n\nb\n\n\n",
    "blank alone": "\n \n\t\n",
    "no blank": "a\nb\nc\nd\ne\nf\n",
    "wide blanks": "a\n\u00a0\u3000\nb\n\x85\n\u2028\u2029\nc\u00a0\n",
    "wide characters": "ä\U0001f600\n\n\U0001f600\n語\n\n\u00a0語\u00a0\n\n",
    "other line ends": "a\x0bb\x0cc\x1cd\u2028e\rf\n\ng",
    "control": "\x00\n\n\x01\nb\n\ufeff\n",
    "nothing but blanks inside": "a\n\n" + "\n" * 9 + " \n" * 9 + "b",
}


def plain_lines(content):
    """The whole text at once: what Python's own split says that its lines are."""
    lines = content.decode("utf-8").split("\n")
    if lines[-1] == "":
        del lines[-1]
    return [line.replace("\r", "").strip() for line in lines]


class PlainTextTest(ReaderTestCase):
    def test_each_line_once_whatever_the_chunks(self):
        for name, text in NASTY.items():
            content = text.encode()
            path = self.write("text.txt", content)
            expected = plain_lines(content)
            for chunk_bytes in range(1, len(content) + 2):
                chunks, dropped = self.chunks([path], chunk_bytes=chunk_bytes)
                with self.subTest(name, chunk_bytes=chunk_bytes):
                    read = [line for lines in chunks for line in lines]
                    self.assertEqual([line.text for line in read], expected)
                    sentences = [[text] if text else [] for text in expected]
                    self.assertEqual([[*line.sentences] for line in read], sentences)
                    joined = {RETURNS: 1} if "e\rf" in text else {}
                    self.assertEqual(dropped, joined)

    def test_lines_that_end_at_carriage_returns_alone_are_refused(self):
        for name, text in (("a.txt", "a b\rc d\r\re f\r"), ("a.jsonl", "{}\r{}")):
            path = self.write(name, text.encode())
            with self.assertRaisesRegex(InputError, f"{name}: its lines end at carr"):
                self.chunks([path])

    def test_carriage_returns_and_line_ends_as_tensorflows_reader_has_them(self):
        content = b"a\rb\n\rc\r\r\n\xe2\x80\xa8d\x0b\n"
        path = self.write(self.name, content)
        with tf.io.gfile.GFile(path, "r") as reader:
            expected = [line.strip() for line in reader]
        self.assertEqual(expected, ["ab", "c", "d"])
        self.assertEqual(self.read(content)[0], [[line] for line in expected])

    def test_blocks_longer_and_shorter_than_lines(self):
        lines = ["x" * 3_000_000, "", "ä" * 700_000, *["y" * 99] * 20_000, "", "z"]
        content = "\n".join(lines).encode()
        path = self.write("text.txt", content)
        for chunk_bytes in (1 << 20, 1_000_003, len(content)):
            chunks, _ = self.chunks([path], chunk_bytes=chunk_bytes)
            read = [line for chunk in chunks for line in chunk]
            self.assertEqual([line.text for line in read], lines)

    def test_packed_files(self):
        content = "\n".join(f"line {i}\n" * (i % 3) for i in range(20_000)).encode()
        expected = [[line] if line else [] for line in plain_lines(content)]
        for suffix, pack in PACKERS.items():
            half = len(content) // 2
            # Parallel packers write several streams, some pad them.
            packed = pack(content[:half]) + bytes(8) + pack(content[half:])
            path = self.write("text.txt" + suffix, packed)
            chunks, _ = self.chunks([path], chunk_bytes=100)
            self.assertLen(chunks, 1)
            self.assertEqual([list(line.sentences) for line in chunks[0]], expected)

    def test_zstandard(self):
        content = "\n".join(f"line {i}\n" * (i % 3) for i in range(20_000)).encode()
        half = len(content) // 2
        packed = b"".join(
            pyarrow.compress(part, "zstd", asbytes=True)
            for part in (content[:half], content[half:])
        )
        path = self.write("text.txt.zst", packed)
        chunks, _ = self.chunks([path], chunk_bytes=100)
        self.assertLen(chunks, 1)
        self.assertEqual([x.text for x in chunks[0]], plain_lines(content))
        for damaged, reason in (
            (b"", "ends too early"),
            (packed[:-1], "ends too early"),
            (packed[: len(packed) // 2 + 9], "ends too early"),
            (content, "damaged, or not a .zst file"),
            (packed + b"more", "damaged"),
        ):
            path = self.write("text.txt.zst", damaged)
            with self.assertRaisesRegex(InputError, f"text.txt.zst: .*{reason}"):
                self.chunks([path])
        # A frame with a window of 2^31 bytes, of one raw block (RFC 8878, section 3.1).
        block = (len(b"a\n") << 3 | 1).to_bytes(3, "little") + b"a\n"
        frame = bytes.fromhex("28b52ffd00") + bytes([(31 - 10) << 3]) + block
        path = self.write("text.txt.zst", frame)
        with self.assertRaisesRegex(InputError, "longer window .* zstd -d --long=31"):
            self.chunks([path])

    def test_damaged_packed_files_name_the_file(self):
        content = os.urandom(5000).hex().encode()
        for suffix, pack in PACKERS.items():
            packed = pack(content)
            half = len(packed) // 2
            spoiled = packed[:half] + bytes(20) + packed[half + 20 :]
            for damaged, reason in (
                (b"", "ends too early"),
                (packed[:-1], "ends too early"),
                (packed[:half], "ends too early"),
                (spoiled, "damaged"),
                (content, "damaged, or not"),
                (packed + b"more", "ends too early|damaged"),
                (packed + spoiled, "damaged"),
                (packed + packed[:half], "ends too early"),
            ):
                path = self.write("text.txt" + suffix, damaged)
                message = f"text.txt{suffix}: .*{reason}"
                with self.assertRaisesRegex(InputError, message):
                    self.chunks([path])

    def test_not_utf8_names_file_and_line_from_any_chunk(self):
        content = b"a\n\n" * 50 + b"Bl\xe4tter\n\n" + b"b\n\n" * 50
        for suffix, pack in {"": bytes, **PACKERS}.items():
            path = self.write("text.txt" + suffix, pack(content))
            for chunk_bytes in (1, 7, 100, 1000):
                options = {"chunk_bytes": chunk_bytes, "input_format": "text"}
                message = rf"text.txt{suffix}:101: not UTF-8 \(byte 0xe4\)"
                with self.assertRaisesRegex(InputError, message):
                    self.chunks([path], **options)

    def test_remote_files_read_alike(self):
        content = "a\n\nä\nb\n\n\nc".encode()
        path = "ram://readers_test/text.txt"
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        for chunk_bytes in range(1, len(content) + 1):
            chunks, _ = self.chunks([path], chunk_bytes=chunk_bytes)
            texts = [line.text for lines in chunks for line in lines]
            self.assertEqual(texts, ["a", "", "ä", "b", "", "", "c"])


class OneStreamTest(ReaderTestCase):
    def test_documents_of_other_formats_end_those_of_text_before_them(self):
        paths = [
            self.write("a.txt", "a\nb"),
            self.write("b.jsonl", '{"text": "Cc. Dd."}\n{"text": " \\n"}\n'),
            self.write("c.txt", "e"),
            self.write("d", '<doc id="1" title="T">\nT\n\nf\n</doc>\n'),
            self.write("e.txt", "g"),
        ]
        expected = [["a"], ["b"], [], ["Cc.", "Dd."], [], ["e"], [], ["f"], [], ["g"]]
        for chunk_bytes in (1, 7, 1 << 20):
            chunks, dropped = self.chunks(paths, chunk_bytes=chunk_bytes)
            read = [list(line.sentences) for lines in chunks for line in lines]
            self.assertEqual(read, expected)
            counts = {"title lines": 1, "characters of title lines": 1}
            self.assertEqual(dropped, counts | {"documents without text": 1})


WIKI = '<doc id="1" url="u" title="T">\nT\n</doc>\n'


class FindSourcesTest(ReaderTestCase):
    def find(self, *patterns):
        joined = ",".join(self.path(pattern) for pattern in patterns)
        return [os.path.relpath(p, self.path()) for p in find_sources(joined, "input")]

    def test_files_globs_and_folders_in_the_order_given(self):
        for name in ("b.txt", "a.txt", "w/AB/wiki_00", "w/AA/wiki_01", "w/AA/wiki_00"):
            self.write(name)
        for name in ("w/.hidden", "w/_SUCCESS", "w/.git/c", "w/_old/wiki_00"):
            self.write(name)
        wiki = ["w/AA/wiki_00", "w/AA/wiki_01", "w/AB/wiki_00"]
        self.assertEqual(self.find("b.txt", "a.txt"), ["b.txt", "a.txt"])
        self.assertEqual(self.find("*.txt", "w"), ["a.txt", "b.txt", *wiki])
        self.assertEqual(self.find("w/A*"), wiki)
        self.write("a, [b]/c, d.txt")
        self.assertEqual(self.find("a, [b]/*", "b.txt"), ["a, [b]/c, d.txt", "b.txt"])
        self.assertEqual(self.find("w/_*"), ["w/_SUCCESS", "w/_old/wiki_00"])
        self.assertEqual(self.find("a.txt", "a.txt"), ["a.txt", "a.txt"])

    def test_links_to_folders_are_followed_but_not_in_circles(self):
        self.write("real/a")
        os.makedirs(self.path("top"))
        for name, target in (("top/x", "real"), ("top/y", "top"), ("real/z", "top")):
            link = self.path(name)
            os.symlink(self.path(target), link)
            self.addCleanup(os.remove, link)
        self.assertEqual(self.find("top"), ["top/x/a"])
        refused = mock.patch("os.scandir", side_effect=PermissionError("closed"))
        with refused, self.assertRaisesRegex(PermissionError, "closed"):
            self.find("top")

    def test_remote_folders(self):
        for name in ("B/b", "A/a", "A/_b", ".c/c"):
            self.write(name)
        remote = "file://" + self.path()
        found = find_sources(remote, "input")
        self.assertEqual(found, [remote + "/A/a", remote + "/B/b"])
        self.assertEqual(find_sources(remote + "/A/*", "input")[-1], remote + "/A/a")

    def test_nothing_there(self):
        os.makedirs(self.path("empty"))
        for pattern, message in (
            ("nowhere", "`input`: no file matches .*nowhere"),
            (self.path("empty"), "`input`: there is no file in .*empty"),
            ("", "`input`: no file matches ''"),
        ):
            with self.assertRaisesRegex(InputError, message):
                find_sources(pattern, "input")


class MakeChunksTest(ReaderTestCase):
    def format_of(self, name, content, **kwargs):
        return make_chunks([self.write(name, content)], **kwargs)[0].source.input_format

    def test_formats_by_name_and_first_line(self):
        for name, content, expected in (
            ("a.txt", "a\n", "text"),
            ("a.txt", "", "text"),
            ("a.txt", "\n\n", "text"),
            ("a", WIKI, "wikiextractor"),
            ("a.txt", "\n\n" + WIKI, "wikiextractor"),
            ("a", "\ufeff" + WIKI, "wikiextractor"),
            ("a.gz", gzip.compress(WIKI.encode()), "wikiextractor"),
            ("a", "<doc >\n", "text"),
            ("a", "<doctor id=\n", "text"),
            ("a", "<doc \nid=", "text"),
            ("a", '{"text": "a"}\n', "jsonl"),
            *(("a", text, "text") for text in ('{"text": \n', "{}\n", "PAR1 is\n")),
            ("a.JSONL", WIKI, "jsonl"),
            ("a.jsonl", WIKI, "jsonl"),
            ("a.json", "", "jsonl"),
            ("a.ndjson.gz", b"not read", "jsonl"),
            ("a.jsonl.txt", "", "text"),
        ):
            self.assertEqual(self.format_of(name, content), expected, (name, content))
        self.assertEqual(self.format_of("a.jsonl", WIKI, input_format="text"), "text")

    def archive(self):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as file:
            file.add(self.write("b.txt", "a\n"), "b.txt")
        return content.getvalue()

    def test_what_is_no_plain_text(self):
        page = "\ufeff\n<!doctype HTML>\n<p>a\n"
        for content, message in (
            (page, "a.txt: an HTML page, which is not read. Save its text .*"),
            ('<?xml version="1.0"?>\n<html lang="en">\n', "a.txt: an HTML page"),
            ("{\\rtf1\\ansi a}", "a.txt: an RTF file, .*`input_format=text` reads it"),
            (gzip.compress(b"a\n"), "a.txt: a file that gzip has compressed, without"),
            (self.archive(), "a.txt: a tar archive, which is not read"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.format_of("a.txt", content)
        for name, content in (("a.csv", "id,text\n"), ("a.tsv", "a\tb\n")):
            with self.assertRaisesRegex(InputError, f"{name}: a table, .*`text_field`"):
                self.format_of(name, content)
            self.assertEqual(self.format_of(name, content, input_format="text"), "text")
        self.assertEqual(self.format_of("a.csv", "a sentence\nb, c\n"), "text")
        # A tar archive has a zero byte there.
        self.assertEqual(self.format_of("a.txt", "x" * 256 + "mustard is nice"), "text")
        self.assertEqual(self.format_of("a.txt", page, input_format="text"), "text")
        self.assertEqual(self.format_of("a.txt", "<htmlx>\n{rtf}\n"), "text")

    def test_the_field_of_files_without_fields(self):
        paths = [self.write("a.txt", "a\n"), self.write("b.jsonl", '{"b": "c"}\n')]
        chunks = make_chunks(paths, text_field="b")
        lines = [list(x.sentences) for c in chunks for x in read_chunk(c, Counter())]
        self.assertEqual(lines, [["a"], [], ["c"], []])

    def test_who_is_split(self):
        paths = [self.write("a.txt"), self.write("b.jsonl"), self.write("c", WIKI)]

        def languages(**kwargs):
            return [chunk.language for chunk in make_chunks(paths, **kwargs)]

        self.assertEqual(languages(), ["", "en", "en"])
        self.assertEqual(languages(language="de"), ["", "de", "de"])
        self.assertEqual(languages(split_sentences=True), ["en"] * 3)
        self.assertEqual(languages(split_sentences=False), [""] * 3)

    def test_a_pipe(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        with self.assertRaisesRegex(InputError, "is a pipe or a device.*/pipe"):
            make_chunks([pipe])


class DroppedTest(tf.test.TestCase):
    def test_a_line_for_each_reason(self):
        dropped = Counter()
        drop(dropped, "title lines", characters=1200)
        drop(dropped, "title lines", characters=34)
        drop(dropped, "repeated documents", 2, tokens=7)
        drop(dropped, "documents without text")
        drop(dropped, "list items", 0)
        merged = Counter()
        merged.update(dict(dropped))
        self.assertEqual(
            dropped_lines(merged),
            [
                "Dropped 1: documents without text",
                "Dropped 2 (7 tokens): repeated documents",
                "Dropped 2 (1,234 characters): title lines",
            ],
        )
