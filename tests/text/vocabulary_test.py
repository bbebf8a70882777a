import hashlib
import pathlib

from bert_tf.base.errors import InputError
from bert_tf.text.vocabulary import Vocabulary
from tests.script_case import FolderCase

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class VocabularyTest(FolderCase):
    def test_a_duplicate_keeps_its_last_id_and_its_first_place(self):
        vocabulary = Vocabulary(["[PAD]", "a", "b", "a"])
        self.assertLen(vocabulary, 4)
        self.assertEqual(dict(vocabulary.ids), {"[PAD]": 0, "a": 3, "b": 2})
        self.assertEqual(vocabulary.word_ids, (0, 3, 2))
        pieces = Vocabulary(["##s", "a", "##s", "##", "#t"])
        self.assertEqual(pieces.continuation_ids, [2, 3])

    def test_reads_lines_as_the_original_does(self):
        # Stripped of any white space, \r too; U+2028, U+0085 and \x0b end no line; a
        # blank line counts; the last line may lack its end.
        content = "[PAD]\r\n a\t\n\nb\u2028c\nd\u0085e\x0bf\n\u3000g"
        # Those at the end are an editor's: no model has a row for them.
        for end in ("", "\n", "\n\n", "\r\n \t\n"):
            path = self.write("v.txt", (content + end).encode())
            self.assertEqual(
                Vocabulary.from_file(path).tokens,
                ("[PAD]", "a", "", "b\u2028c", "d\u0085e\x0bf", "g"),
            )

    def test_save_and_load(self):
        path = self.path("v.txt")
        vocabulary = Vocabulary([*SPECIAL, "é", "", "##字"])
        vocabulary.save(path)
        content = pathlib.Path(path).read_bytes()
        self.assertEqual(
            content.decode("utf-8"), "\n".join([*SPECIAL, "é", "", "##字"]) + "\n"
        )
        self.assertEqual(vocabulary.sha256, hashlib.sha256(content).hexdigest())
        self.assertEqual(Vocabulary.from_file(path), vocabulary)

    def test_tokens_that_a_file_cannot_hold(self):
        for token in (" a", "a\n", "a\nb", "\u2028", "\ud800"):
            with self.assertRaises(ValueError):
                Vocabulary(["[PAD]", token])

    def test_upper_case(self):
        special = ["[PAD]", "[UNK]", "[CLS]", "<S>", "[unused1]", "A1"]
        lower = [f"w{number}" for number in range(194)]
        self.assertFalse(Vocabulary([*special, *lower]).has_upper_case)
        # Two of 202 are fewer than one in a hundred, three of 203 are more.
        self.assertFalse(Vocabulary([*special, *lower, "A", "##É"]).has_upper_case)
        self.assertTrue(Vocabulary([*special, *lower, "A", "##É", "Ж"]).has_upper_case)

    def test_missing_special_tokens(self):
        vocabulary = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "a"])
        with self.assertRaisesRegex(InputError, r"^words\.txt: .*: \[SEP\], \[MASK\]$"):
            vocabulary.require_special_tokens("words.txt")
        with self.assertRaisesRegex(ValueError, r"must have \[MASK\]"):
            _ = vocabulary.mask_id
        Vocabulary(SPECIAL[1:]).require_special_tokens("no [PAD] is no error")

    def test_a_token_that_is_there_twice_is_a_warning(self):
        tokens = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
        with self.assertNoLogs("absl", "WARNING"):
            Vocabulary(tokens).require_special_tokens("v.txt")
        with self.assertLogs("absl", "WARNING") as logs:
            Vocabulary([*tokens, "b", "a"]).require_special_tokens("v.txt")
        self.assertRegex(
            logs.output[0],
            r"v.txt: 2 duplicate tokens \(the last line wins\), for example 'a' in"
            " lines 5 and 8.$",
        )

    def test_files_that_are_none(self):
        with self.assertRaisesRegex(InputError, "No such vocabulary file: /no/such"):
            Vocabulary.from_file("/no/such")
        with self.assertRaisesRegex(InputError, "one token per line"):
            Vocabulary.from_file(self.write("v.txt", b""))
        with self.assertRaisesRegex(InputError, "one token per line"):
            Vocabulary.from_file(self.write("v.txt", b"\n \n"))
        path = self.write("v.txt", "[PAD]\n[UNK]\ncafé\n".encode("latin-1"))
        with self.assertRaisesRegex(InputError, rf"{path}:3: not UTF-8"):
            Vocabulary.from_file(path)
