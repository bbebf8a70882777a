import gzip
from collections import Counter

from bert_tf.addons.corpora.encodings import find_encoding
from bert_tf.base.errors import InputError
from bert_tf.text.documents import read_chunk
from bert_tf.text.sources import make_chunks
from tests.script_case import FolderCase

FRENCH = (
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.\n"
    "Ils sont doués de raison et de conscience et doivent agir les uns envers les\n"
    "autres dans un esprit de fraternité.\n\nChacun peut se prévaloir de tous les\n"
    "droits sans distinction aucune, notamment de couleur ou de langue.\n"
)
RUSSIAN = (
    "Все люди рождаются свободными и равными в своем достоинстве и правах.\n"
    "Они наделены разумом и совестью.\n"
)
JAPANESE = (
    "すべての人間は、生まれながらにして自由である。\n尊厳と権利とについて平等。\n"
)


class EncodingsTest(FolderCase):
    def texts(self, path, **kwargs):
        dropped = Counter()
        chunks = make_chunks([path], chunk_bytes=50, **kwargs)
        lines = [line.text for chunk in chunks for line in read_chunk(chunk, dropped)]
        return "".join(f"{line}\n" for line in lines)

    def test_files_in_other_encodings_read_as_utf8(self):
        for text, encoding in (
            (FRENCH, "cp1252"),
            (RUSSIAN, "cp1251"),
            (RUSSIAN, "koi8-r"),
            (JAPANESE, "cp932"),
            (JAPANESE, "euc_jp"),
            (FRENCH, "utf-16"),
            (FRENCH, "utf-16-le"),
            (RUSSIAN, "utf-32"),
            (RUSSIAN, "utf-8"),
            (FRENCH, "utf-8-sig"),
        ):
            path = self.write("text.txt", text.encode(encoding))
            with self.subTest(encoding=encoding):
                for given in ("auto", encoding):
                    read = self.texts(path, encoding=given)
                    self.assertEqual(read.removeprefix("\ufeff"), text)

    def test_packed_and_rare_characters_far_down(self):
        text = "The cat sat.\n" * 200_000 + FRENCH
        path = self.write("text.txt.gz", gzip.compress(text.encode("cp1252"), 1))
        self.assertEqual(find_encoding(path), "cp1252")
        self.assertEqual(self.texts(path, encoding="auto"), text)

    def test_formats_are_recognized_in_any_encoding(self):
        text = '<doc id="1" title="T">\nT\n\nÉgaux.\n</doc>\n'
        path = self.write("wiki_00", text.encode("utf-16"))
        self.assertEqual(self.texts(path, encoding="auto"), "\nÉgaux.\n\n")

    def test_one_line_per_encoding(self):
        paths = [
            self.write(f"{number}.txt", text.encode(encoding))
            for number, (text, encoding) in enumerate(
                [(FRENCH, "cp1252"), (RUSSIAN, "utf-8"), (FRENCH, "cp1252")]
            )
        ]
        with self.assertLogs("absl", "INFO") as logs:
            make_chunks(paths, encoding="auto")
        said = [record.getMessage() for record in logs.records]
        self.assertEqual(
            said,
            [
                f"`encoding=auto`: 2 of 3 files are cp1252: {paths[0]}, {paths[2]}",
                f"`encoding=auto`: 1 of 3 files are utf-8: {paths[1]}",
            ],
        )

    def test_a_damaged_utf8_file_is_not_read_as_another_encoding(self):
        content = FRENCH.encode() * 3 + b"na\xefve\n"
        path = self.write("text.txt", content)
        message = r"text.txt:19: not UTF-8 \(byte 0xef\). Most of the file is: remove"
        with self.assertRaisesRegex(InputError, message):
            self.texts(path, encoding="auto")

    def test_what_is_not_in_the_encoding_names_the_line(self):
        for content, encoding, line in (
            ("a\nb\nc\u0141\n".encode("utf-16")[:-1], "utf-16", 3),
            ("a\nb\n".encode("utf-16-be") + b"\xd8\0\0a", "utf-16-be", 3),
            (b"a\nb\x81\n", "cp1252", 2),
            (b"a\nb\n", "utf-16", ""),
            ("a\nü\n".encode(), "ascii", 2),
            ("ア\n".encode("cp932") + b"\x81\n", "cp932", 2),
        ):
            path = self.write("text.txt", content)
            place = f"text.txt:{line}" if line else "text.txt"
            message = f"{place}: not text in `encoding={encoding}`: "
            with self.assertRaisesRegex(InputError, message):
                self.texts(path, encoding=encoding)

    def test_no_encoding(self):
        path = self.write("text.txt", bytes(range(256)) * 8)
        with self.assertRaisesRegex(InputError, "text.txt: no encoding fits it; give"):
            self.texts(path, encoding="auto")
        for name in ("base64", "klingon", "undefined"):
            with self.assertRaisesRegex(InputError, f"`encoding={name}` must be utf-8"):
                self.texts(path, encoding=name)
