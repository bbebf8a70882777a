import gzip
import os
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.tasks.feature_extraction import feature_records as line_features
from bert_tf.tasks.feature_extraction.feature_records import (
    FeatureInput,
    FeatureReader,
    FeatureSettings,
    Line,
    count_lines,
    parse_line,
    read_lines,
)
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.script_case import FolderCase

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


class LinesTest(FolderCase):
    def write(self, content, name="in.txt"):
        packed = gzip.compress(content) if name.endswith(".gz") else content
        return super().write(name, packed)

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
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        for path in (pipe, "nowhere", self.get_temp_dir()):
            with self.assertRaisesRegex(InputError, f"an existing file.*: {path}"):
                count_lines(path)


class ReaderTest(tf.test.TestCase):
    def test_tokens(self):
        found = read("Unaffable, Café")
        names = ["[CLS]", "un", "##aff", "##able", ",", "cafe", "[SEP]"]
        self.assertEqual(found.names, names)
        self.assertEqual((found.spans, found.num_vectors), (None, 7))
        for text, length, ids, segment_ids, is_cut in (
            ("Unaffable, Café", 16, [2, 5, 6, 7, 9, 8, 3], [0] * 7, False),
            ("a b ||| c", 16, [2, 12, 13, 3, 14, 3], [0, 0, 0, 0, 1, 1], False),
            # A second text of nothing is none.
            ("a ||| \u200b", 16, [2, 12, 3], [0] * 3, False),
            ("\u200b ||| a", 16, [2, 3, 12, 3], [0, 0, 1, 1], False),
            ("", 16, [2, 3], [0, 0], False),
            ("a b c", 5, [2, 12, 13, 14, 3], [0] * 5, False),
            ("a b c a b c", 5, [2, 12, 13, 14, 3], [0] * 5, True),
            # 4 and 3 tokens, room for 4: the longer one, then both in turn.
            (
                *("a b c a ||| c b a", 7, [2, 12, 13, 3, 14, 13, 3]),
                *([0, 0, 0, 0, 1, 1, 1], True),
            ),
        ):
            found = read(text, length)
            self.assertEqual(found[:2], (ids, segment_ids))
            self.assertEqual(found.is_cut, is_cut)
        with self.assertRaisesRegex(InputError, "must be at least 5.*Received: 4"):
            read("a", 4)

    def test_words(self):
        for text, length, names, ids, spans in (
            (
                *("Unaffable, a\t日本", 16, ["Unaffable,", "a", "日本"]),
                *([2, 5, 6, 7, 9, 12, 10, 11, 3], [(1, 5), (5, 6), (6, 8)]),
            ),
            (
                *("a b ||| unaffable c", 16, ["a", "b", "unaffable", "c"]),
                *([2, 12, 13, 3, 5, 6, 7, 14, 3], [(1, 2), (2, 3), (4, 7), (7, 8)]),
            ),
            # A word of nothing is unknown: zero-width and control characters, which
            # Python splits at, too. "bc" is one word, and not in the vocabulary.
            (
                *("a \u200b b\x1cc \x0c\u200b", 16),
                ["a", "\u200b", "b\x1cc", "\x0c\u200b"],
                *([2, 12, 1, 1, 1, 3], [(1, 2), (2, 3), (3, 4), (4, 5)]),
            ),
            # Words whose first piece is cut off have no vector.
            (
                *("a unaffable b", 5, ["a", "unaffable"]),
                *([2, 12, 5, 6, 3], [(1, 2), (2, 4)]),
            ),
            (
                *("a b c ||| unaffable", 6, ["a", "b", "unaffable"]),
                *([2, 12, 13, 3, 5, 3], [(1, 2), (2, 3), (4, 5)]),
            ),
            ("", 16, [], [2, 3], []),
        ):
            found = read(text, length, by_word=True)
            self.assertEqual((found.names, found.ids, found.spans), (names, ids, spans))
            self.assertEqual(found.num_vectors, len(names))
        # The model reads the same as by token.
        for text in ("Unaffable, café ||| 日本 a,b", "a\x0bb c", "x\u2028y é\u00a0a"):
            self.assertEqual(read(text, by_word=True)[:2], read(text)[:2])


LENGTH = 9


def numbered(lengths):
    """Inputs, each of whose ids say which one it is, and where they stand in it."""
    return [
        FeatureInput(
            [100 * number + place + 1 for place in range(length)],
            [0] * length,
            [f"t{place}" for place in range(length)],
        )
        for number, length in enumerate(lengths)
    ]


def echo(batches, total):
    """A model of two vectors a token: its id, and its id's negative, twice each."""
    for batch in batches:
        batch = {name: np.asarray(value) for name, value in batch.items()}
        ids = batch["input_ids"].astype(np.float32)
        vectors = np.stack([ids, -ids], axis=-1)[..., None] * [1, 1]
        yield batch, {"vectors": vectors, "cls": vectors[:, 0]}


class ExtractTest(tf.test.TestCase):
    def extract(self, inputs, predict=echo, values_at_once=1 << 25, **options):
        options = {"batch_size": 3, "max_seq_length": LENGTH, **options}
        with mock.patch.object(line_features, "VALUES_AT_ONCE", values_at_once):
            return list(
                line_features.extract(
                    iter(inputs),
                    predict,
                    FeatureSettings(**options),
                    values_per_token=4,
                    num_inputs=len(inputs),
                )
            )

    def test_features_come_back_in_the_inputs_order(self):
        lengths = [3, 9, 2, 5, 5, 1, 8, 2, 2, 7]
        inputs = numbered(lengths)
        for values_at_once in (1, 60, 1 << 25):
            for num_lengths in (None, 1, 3):
                found = self.extract(
                    inputs, values_at_once=values_at_once, num_lengths=num_lengths
                )
                self.assertEqual([each.input for each in found], inputs)
                for number, (each, length) in enumerate(
                    zip(found, lengths, strict=True)
                ):
                    ids = 100 * number + 1 + np.arange(length)
                    self.assertAllEqual(each.vectors[:, 0, 1], ids)
                    self.assertAllEqual(each.vectors[:, 1, 0], -ids)
                    self.assertAllEqual(
                        each.sentence["cls"], [[ids[0]] * 2, [-ids[0]] * 2]
                    )
        self.assertEqual(self.extract([], None), [])

    def test_memory_does_not_grow_with_the_inputs(self):
        groups, seen = [], []

        def predict(batches, total):
            for batch, outputs in echo(batches, total):
                groups.append(len(batches.groups[0][0]))
                yield batch, outputs

        def inputs():
            for number in range(50):
                yield numbered([5])[0]
                # Nothing is read far ahead.
                self.assertLess(number, (len(groups) + 2) * 3)

        options = FeatureSettings(batch_size=3, max_seq_length=LENGTH)
        found = line_features.extract(inputs(), predict, options, values_per_token=4)
        # 60 values are 15 tokens: a group is closed by the input that reaches them.
        with mock.patch.object(line_features, "VALUES_AT_ONCE", 60):
            for _ in found:
                seen.append(len(groups))
        self.assertEqual(groups, [3] * 16 + [2])
        # Handed on as they come.
        self.assertEqual(seen, [1 + number // 3 for number in range(50)])

    def test_words(self):
        spans = [(1, 2), (2, 5), (6, 8)]  # of 9 positions; [SEP] at 5 and 8
        inputs = [
            numbered([9])[0]._replace(spans=spans, names=["x", "y", "z"]),
            numbered([2])[0]._replace(spans=[], names=[]),
        ]
        # The ids of positions 0 to 8 are 1 to 9.
        for word_vectors, expected in (
            ("first", [2, 3, 7]),
            ("mean", [2, (3 + 4 + 5) / 3, (7 + 8) / 2]),
        ):
            for num_lengths in (None, 1):
                words, nothing = self.extract(
                    inputs, word_vectors=word_vectors, num_lengths=num_lengths
                )
                self.assertAllClose(words.vectors[:, 0, 0], expected)
                self.assertAllClose(words.vectors[:, 1, 1], np.negative(expected))
                self.assertEqual(nothing.vectors.shape, (0, 2, 2))

    def test_a_word_that_ends_where_the_batch_does(self):
        inputs = [numbered([4])[0]._replace(spans=[(0, 1), (1, 4)], names=["x", "y"])]
        (word,) = self.extract(inputs, word_vectors="mean", num_lengths=1)
        self.assertAllClose(word.vectors[:, 0, 0], [1, 3])
