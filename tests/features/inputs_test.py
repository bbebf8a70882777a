import gzip
import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.features.inputs import (
    FeatureReader,
    Line,
    count_lines,
    kept_of_pair,
    parse_line,
    read_lines,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("un", "##aff", "##able", "cafe", ",", "日", "本", "a", "b", "c"),
]


def tokenizer():
    return WordPieceTokenizer(Vocabulary(TOKENS))


def read(text, max_seq_length=16, by_word=False):
    reader = FeatureReader(tokenizer(), max_seq_length=max_seq_length, by_word=by_word)
    (found,) = reader([parse_line(text)])
    return found


class LinesTest(tf.test.TestCase):
    def write(self, content, name="in.txt"):
        path = os.path.join(self.get_temp_dir(), name)
        packed = gzip.compress(content) if name.endswith(".gz") else content
        with open(path, "wb") as file:
            file.write(packed)
        return path

    def test_one_text_or_two(self):
        for text, line in (
            (" a b\r\n", Line("a b")),
            ("a ||| b", Line("a", "b")),
            ("a ||| b ||| c", Line("a ||| b", "c")),
            ("a|||b", Line("a|||b")),
            ("a ||| ", Line("a |||")),
            ("||| b", Line("||| b")),
            ("a  |||  b", Line("a ", " b")),
            ("", Line("")),
        ):
            self.assertEqual(parse_line(text), line)

    def test_files(self):
        content = "a ||| b\n\n é\x0bx\r\nc".encode()
        lines = [Line("a", "b"), Line(""), Line("é\x0bx"), Line("c")]
        for name in ("in.txt", "in.txt.gz"):
            path = self.write(content, name)
            self.assertEqual(list(read_lines(path)), lines)
            self.assertEqual(count_lines(path), 4)

    def test_faults_are_named(self):
        path = self.write(b"a\nb\n\xff\n")
        with self.assertRaisesRegex(InputError, r"in.txt:3: not UTF-8"):
            count_lines(path)
        # A mark at the beginning is of no word.
        path = self.write(b"\xef\xbb\xbfa b\n")
        self.assertEqual(list(read_lines(path)), [Line("a b")])
        pipe = os.path.join(self.get_temp_dir(), "pipe")
        os.mkfifo(pipe)
        with self.assertRaisesRegex(InputError, "pipe. Save it to a file"):
            count_lines(pipe)
        with self.assertRaisesRegex(InputError, "No such input file: nowhere"):
            count_lines("nowhere")
        with self.assertRaisesRegex(InputError, "is a folder"):
            list(read_lines(self.get_temp_dir()))


class TokensTest(tf.test.TestCase):
    def test_a_text(self):
        found = read("Unaffable, Café")
        self.assertEqual(
            found.names, ["[CLS]", "un", "##aff", "##able", ",", "cafe", "[SEP]"]
        )
        self.assertEqual(found.ids, [2, 5, 6, 7, 9, 8, 3])
        self.assertEqual(found.segment_ids, [0] * 7)
        self.assertIsNone(found.spans)
        self.assertEqual(found.num_vectors, 7)

    def test_a_pair(self):
        found = read("a b ||| c")
        self.assertEqual(found.ids, [2, 12, 13, 3, 14, 3])
        self.assertEqual(found.segment_ids, [0, 0, 0, 0, 1, 1])

    def test_a_second_text_of_nothing_is_none(self):
        self.assertEqual(read("a ||| \u200b").ids, [2, 12, 3])
        self.assertEqual(read("\u200b ||| a").ids, [2, 3, 12, 3])
        self.assertEqual(read("").ids, [2, 3])

    def test_what_is_too_long_is_cut(self):
        found = read("a b c a b c", 5)
        self.assertEqual((found.ids, found.is_cut), ([2, 12, 13, 14, 3], True))
        # 4 and 3 tokens, room for 4: the longer one, then both in turn.
        found = read("a b c a ||| c b a", 7)
        self.assertEqual(found.ids, [2, 12, 13, 3, 14, 13, 3])
        self.assertEqual(found.segment_ids, [0, 0, 0, 0, 1, 1, 1])
        self.assertFalse(read("a b c", 5).is_cut)

    def test_pairs_are_cut_a_token_at_a_time(self):
        for a in range(12):
            for b in range(12):
                for room in range(2, 12):
                    lengths = [a, b]
                    while sum(lengths) > room:
                        lengths[0 if lengths[0] > lengths[1] else 1] -= 1
                    self.assertEqual(kept_of_pair(a, b, room), tuple(lengths))

    def test_there_must_be_room(self):
        with self.assertRaisesRegex(InputError, "must be at least 5.*Received: 4"):
            read("a", 4)


class WordsTest(tf.test.TestCase):
    def test_words_are_what_stands_between_white_space(self):
        found = read("Unaffable, a\t日本", by_word=True)
        self.assertEqual(found.names, ["Unaffable,", "a", "日本"])
        self.assertEqual(found.ids, [2, 5, 6, 7, 9, 12, 10, 11, 3])
        self.assertEqual(found.spans, [(1, 5), (5, 6), (6, 8)])
        self.assertEqual(found.num_vectors, 3)

    def test_words_of_a_pair(self):
        found = read("a b ||| unaffable c", by_word=True)
        self.assertEqual(found.names, ["a", "b", "unaffable", "c"])
        self.assertEqual(found.spans, [(1, 2), (2, 3), (4, 7), (7, 8)])

    def test_a_word_of_nothing_is_unknown(self):
        # Zero-width and control characters, which Python splits at, too.
        found = read("a \u200b b\x1cc \x0c\u200b", by_word=True)
        self.assertEqual(found.names, ["a", "\u200b", "b\x1cc", "\x0c\u200b"])
        # "bc" is one word, and not in the vocabulary.
        self.assertEqual(found.ids, [2, 12, 1, 1, 1, 3])

    def test_the_model_reads_the_same_as_by_token(self):
        for text in ("Unaffable, café ||| 日本 a,b", "a\x0bb c", "x\u2028y é\u00a0a"):
            self.assertEqual(read(text, by_word=True)[:2], read(text)[:2])

    def test_words_whose_first_piece_is_cut_off_have_no_vector(self):
        found = read("a unaffable b", 5, by_word=True)
        self.assertEqual(found.ids, [2, 12, 5, 6, 3])
        self.assertEqual(found.names, ["a", "unaffable"])
        self.assertEqual(found.spans, [(1, 2), (2, 4)])
        found = read("a b c ||| unaffable", 6, by_word=True)
        self.assertEqual(found.ids, [2, 12, 13, 3, 5, 3])
        self.assertEqual(found.spans, [(1, 2), (2, 3), (4, 5)])

    def test_an_empty_line(self):
        found = read("", by_word=True)
        self.assertEqual((found.ids, found.spans), ([2, 3], []))
        self.assertEqual(found.num_vectors, 0)


if __name__ == "__main__":
    tf.test.main()
