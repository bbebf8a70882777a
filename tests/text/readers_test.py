"""Plain text: every line once for every size of chunk; all formats as one stream."""

import bz2
import gzip
import lzma
import os
import pickle
import tempfile
from collections import Counter

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.text.readers import read_chunk
from bert_tf.text.sources import make_chunks

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


class ReaderTestCase(tf.test.TestCase):
    def write(self, name, content):
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def read(self, paths, **kwargs):
        dropped = Counter()
        chunks = pickle.loads(pickle.dumps(make_chunks(paths, **kwargs)))
        return [list(read_chunk(chunk, dropped)) for chunk in chunks], dropped

    def sentences(self, paths, **kwargs):
        """Sentences of all chunks, in one list; [] for an end of a document."""
        chunks, _ = self.read(paths, **kwargs)
        return [list(line.sentences) for lines in chunks for line in lines]


class PlainTextTest(ReaderTestCase):
    def test_each_line_once_whatever_the_chunks(self):
        for name, text in NASTY.items():
            content = text.encode()
            path = self.write("text.txt", content)
            expected = plain_lines(content)
            for chunk_bytes in range(1, len(content) + 2):
                chunks, dropped = self.read([path], chunk_bytes=chunk_bytes)
                with self.subTest(name, chunk_bytes=chunk_bytes):
                    read = [line for lines in chunks for line in lines]
                    self.assertEqual([line.text for line in read], expected)
                    self.assertEqual(
                        [list(line.sentences) for line in read],
                        [[text] if text else [] for text in expected],
                    )
                    self.assertEqual(sum(line.num_bytes for line in read), len(content))
                    self.assertEqual(dropped, {})

    def test_chunks_begin_with_documents_and_end_with_ends(self):
        for name, text in NASTY.items():
            path = self.write("text.txt", text)
            num_lines = len(plain_lines(text.encode()))
            for chunk_bytes in range(1, len(text.encode()) + 2):
                chunks, _ = self.read([path], chunk_bytes=chunk_bytes)
                seen = 0
                for lines in chunks:
                    seen += len(lines)
                    if lines and seen < num_lines:
                        with self.subTest(name, chunk_bytes=chunk_bytes):
                            self.assertEmpty(lines[-1].sentences)

    def test_documents_stay_whole_and_where_they_begin(self):
        path = self.write("text.txt", "a\nb\n\nc\nd\n\ne\n")
        chunks, _ = self.read([path], chunk_bytes=4)
        # The bytes 0-3, 4-7 and 8-11: a begins at 0, c at 5, and e at 10.
        self.assertEqual(
            [[line.text for line in lines] for lines in chunks],
            [["a", "b", ""], ["c", "d", ""], ["e"]],
        )

    def test_lines_of_wide_spaces_are_borders_too(self):
        path = self.write("text.txt", "a\n\u00a0\nb\n")
        chunks, _ = self.read([path], chunk_bytes=2)
        self.assertEqual(
            [[line.text for line in lines] for lines in chunks],
            [["a", ""], ["b"], [], []],
        )

    def test_the_end_of_a_file_ends_no_document(self):
        paths = [self.write("a.txt", "\n\na\nb"), self.write("b.txt", "c\n")]
        expected = [[], [], ["a"], ["b"], ["c"]]
        self.assertEqual(self.sentences(paths), expected)
        self.assertEqual(self.sentences(paths, whole_files=True), expected)

    def test_carriage_returns_and_line_ends_as_tensorflows_reader_has_them(self):
        content = b"a\rb\n\rc\r\r\n\xe2\x80\xa8d\x0b\n"
        path = self.write("text.txt", content)
        with tf.io.gfile.GFile(path, "r") as reader:
            expected = [line.strip() for line in reader]
        self.assertEqual(expected, ["ab", "c", "d"])
        self.assertEqual(self.sentences([path]), [[line] for line in expected])

    def test_blocks_longer_and_shorter_than_lines(self):
        lines = ["x" * 3_000_000, "", "ä" * 700_000, *["y" * 99] * 20_000, "", "z"]
        content = "\n".join(lines).encode()
        path = self.write("text.txt", content)
        for chunk_bytes in (1 << 20, 1_000_003, len(content)):
            chunks, _ = self.read([path], chunk_bytes=chunk_bytes)
            read = [line for chunk in chunks for line in chunk]
            self.assertEqual([line.text for line in read], lines)
            self.assertEqual(sum(line.num_bytes for line in read), len(content))

    def test_packed_files(self):
        content = "\n".join(f"line {i}\n" * (i % 3) for i in range(20_000)).encode()
        expected = [[line] if line else [] for line in plain_lines(content)]
        for suffix, pack in PACKERS.items():
            half = len(content) // 2
            # Parallel packers write several streams, some pad them.
            packed = pack(content[:half]) + bytes(8) + pack(content[half:])
            path = self.write("text.txt" + suffix, packed)
            chunks, _ = self.read([path], chunk_bytes=100)
            self.assertLen(chunks, 1)
            self.assertEqual([list(line.sentences) for line in chunks[0]], expected)
            self.assertEqual(sum(line.num_bytes for line in chunks[0]), len(packed))

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
                with self.assertRaisesRegex(
                    InputError, f"text.txt{suffix}: .*{reason}"
                ):
                    self.read([path])

    def test_not_utf8_names_file_and_line_from_any_chunk(self):
        content = b"a\n\n" * 50 + b"Bl\xe4tter\n\n" + b"b\n\n" * 50
        for suffix, pack in {"": bytes, **PACKERS}.items():
            path = self.write("text.txt" + suffix, pack(content))
            for chunk_bytes in (1, 7, 100, 1000):
                with self.assertRaisesRegex(
                    InputError, rf"text.txt{suffix}:101: not UTF-8 \(byte 0xe4\)"
                ):
                    self.read([path], chunk_bytes=chunk_bytes, input_format="text")

    def test_a_character_cut_at_the_end_of_the_file(self):
        path = self.write("text.txt", b"a\nb\xe2\x80")
        with self.assertRaisesRegex(InputError, r"text.txt:2: not UTF-8 \(byte 0xe2\)"):
            self.read([path])

    def test_remote_files_read_alike(self):
        content = "a\n\nä\nb\n\n\nc".encode()
        path = "ram://readers_test/text.txt"
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        for chunk_bytes in range(1, len(content) + 1):
            self.assertEqual(
                self.sentences([path], chunk_bytes=chunk_bytes),
                [["a"], [], ["ä"], ["b"], [], [], ["c"]],
            )

    def test_lines_are_split_when_asked(self):
        path = self.write("text.txt", "One. Two.\n\nMr. Smith went.\n")
        self.assertEqual(
            self.sentences([path], split_sentences=True),
            [["One.", "Two."], [], ["Mr. Smith went."]],
        )


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
            self.assertEqual(self.sentences(paths, chunk_bytes=chunk_bytes), expected)
            dropped = self.read(paths, chunk_bytes=chunk_bytes)[1]
            self.assertEqual(dropped, {"documents without text": 1, "title lines": 1})


if __name__ == "__main__":
    tf.test.main()
