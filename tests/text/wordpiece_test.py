import itertools
import pathlib
import random
import unicodedata
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.text import wordpiece
from bert_tf.text.normalization import split_words
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.text.plain_tokenizer import plain_pieces, plain_tokens, plain_words

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer_of(words: str, do_lower_case: bool = True, **options):
    vocabulary = Vocabulary([*SPECIAL, *words.split(" ")])
    return WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case, **options)


class CallTest(tf.test.TestCase):
    """Ids: a 5, b 6, ##c 7, d 8."""

    def setUp(self):
        super().setUp()
        self.tokenizer = tokenizer_of("a b ##c d", recognize_special_tokens=True)

    def assert_inputs(self, inputs, ids, mask, segments):
        for name, expected in (
            ("input_ids", ids),
            ("input_mask", mask),
            ("segment_ids", segments),
        ):
            self.assertAllEqual(inputs[name], expected, name)
            self.assertEqual(np.asarray(inputs[name]).dtype, np.int32)
        self.assertLen(inputs, 3)

    def test_texts_and_pairs_are_padded_to_the_longest(self):
        self.assert_inputs(
            self.tokenizer(["A bc", "[MASK]"]),
            [[2, 5, 6, 7, 3], [2, 4, 3, 0, 0]],
            [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
            np.zeros([2, 5]),
        )
        self.assert_inputs(
            self.tokenizer(("a", "a b"), ["d d", None]),
            [[2, 5, 3, 8, 8, 3], [2, 5, 6, 3, 0, 0]],
            [[1] * 6, [1, 1, 1, 1, 0, 0]],
            [[0, 0, 0, 1, 1, 1], [0] * 6],
        )

    def test_one_text_a_fixed_length_and_tensors(self):
        options = {"max_length": 7, "padding": "max_length", "return_tensors": "tf"}
        inputs = self.tokenizer("a", "d", **options)
        self.assertIsInstance(inputs["input_ids"], tf.Tensor)
        expected = [2, 5, 3, 8, 3, 0, 0], [1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0, 0]
        self.assert_inputs(inputs, *([row] for row in expected))

    def test_what_is_too_long_is_cut_if_that_is_asked_for(self):
        with self.assertRaisesRegex(InputError, "Text 1 .* has 8 tokens .* 7. trunc"):
            self.tokenizer(["a", "a b a"], [None, "d d"], max_length=7)
        # The longer text gives way, at equal lengths the second one.
        self.assert_inputs(
            self.tokenizer("a b a a", "d d", max_length=6, truncation=True),
            [[2, 5, 6, 3, 8, 3]],
            [[1] * 6],
            [[0, 0, 0, 0, 1, 1]],
        )

    def test_what_is_no_text_is_refused(self):
        for arguments, message in (
            ((["a", float("nan")],), "must be strings. Received: nan"),
            ((["a", None],), "must be strings. Received: None"),
            (([],), "at least one text.* 0 and 0"),
            (({"text": "a"},), "a list of strings. Received: {'text': 'a'}"),
            ((None,), "a list of strings. Received: None"),
            (("a", 3), "a list of strings. Received: 3"),
            ((["a", "b"], ["a"]), "as many second texts.* 2 and 1"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.tokenizer(*arguments)
        for options in ({"padding": True}, {"return_tensors": "pt"}, {"max_length": 4}):
            with self.assertRaisesRegex(ValueError, next(iter(options))):
                self.tokenizer("a", **options)

    def test_decode(self):
        ids = self.tokenizer(["a bc [MASK]", "d"])["input_ids"]
        self.assertEqual(self.tokenizer.decode(ids[0]), "a bc [MASK]")
        self.assertEqual(self.tokenizer.decode(tf.constant(ids[1])), "d")
        with self.assertRaisesRegex(ValueError, r"in \[0, 9\). Received: 9"):
            self.tokenizer.decode([9])


class WordPieceTokenizerTest(tf.test.TestCase):
    def test_greedy_longest_match_first(self):
        tokenizer = tokenizer_of("un una ##aff ##affa ##able ##b ##le a , runs run ##s")
        # "una" is longer than "un", and then nothing begins with "ff".
        self.assertEqual(tokenizer.tokenize("unaffable"), ["[UNK]"])
        self.assertEqual(tokenizer.tokenize("Runs, run a"), ["runs", ",", "run", "a"])
        self.assertEqual(tokenizer.tokenize("runss"), ["runs", "##s"])
        self.assertEqual(tokenizer.encode("runss ,"), [14, 16, 13])
        # A piece that goes on with a word does not begin one.
        self.assertEqual(tokenizer.tokenize("le"), ["[UNK]"])
        self.assertEqual(tokenizer.tokenize(""), [])
        self.assertEqual(tokenizer.tokenize(" \n"), [])

    def test_words_over_200_characters(self):
        tokenizer = tokenizer_of("x ##x b")
        self.assertEqual(tokenizer.tokenize("x" * 200), ["x"] + ["##x"] * 199)
        self.assertEqual(tokenizer.tokenize("x" * 201 + " b"), ["[UNK]", "b"])
        # Counted after normalisation: accents and controls do not count.
        self.assertLen(tokenizer.tokenize("x\u0301\u200b" * 200), 200)
        found = tokenizer.encode_with_offsets("b " + "x" * 201 + "b,")
        self.assertEqual(found[:2], ([7, 1, 1], ["b", "[UNK]", "[UNK]"]))
        self.assertEqual(found[2], [(0, 1), (2, 204), (204, 205)])

    def test_special_tokens_are_ordinary_text(self):
        words = "[ ] mask a unk"
        plain = tokenizer_of(words)
        self.assertEqual(plain.tokenize("a[MASK]"), ["a", "[", "mask", "]"])
        special = tokenizer_of(words, recognize_special_tokens=True)
        self.assertEqual(
            special.tokenize("[MASK]a [MASK].[mask] \x0b[UNK][UNK"),
            ["[MASK]", "a", "[MASK]", "[UNK]", "[", "mask", "]", "[UNK]", "[", "unk"],
        )
        # No special token comes of removing a control character.
        self.assertEqual(special.tokenize("[MA\x1cSK]"), ["[", "mask", "]"])
        encoding = special.encode_with_offsets("A [MASK]a")
        self.assertEqual(encoding.ids, [8, 4, 8])
        self.assertEqual(encoding.offsets, [(0, 1), (2, 8), (8, 9)])
        self.assertEqual(special.encode("A [MASK]a"), encoding.ids)

    def test_offsets(self):
        tokenizer = tokenizer_of("cafe ##s 中 i ##x ss \u1112 ##\u1161 ##\u11ab `")
        for text, tokens, offsets in (
            (" Cafés", ["cafe", "##s"], [(1, 5), (5, 6)]),
            # A removed accent belongs to the letter that it stood on.
            ("cafe\u0301s", ["cafe", "##s"], [(0, 5), (5, 6)]),
            ("cafe\u0301", ["cafe"], [(0, 5)]),
            ("\u0301cafe", ["cafe"], [(1, 5)]),
            ("ca\u200bfe\u200b s", ["cafe", "[UNK]"], [(0, 5), (7, 8)]),
            ("中中", ["中", "中"], [(0, 1), (1, 2)]),
            ("İx", ["i", "##x"], [(0, 1), (1, 2)]),
            # One syllable, three letters.
            ("한", ["\u1112", "##\u1161", "##\u11ab"], [(0, 1), (0, 1), (0, 1)]),
            ("cafe\u1fefcafe", ["cafe", "`", "cafe"], [(0, 4), (4, 5), (5, 9)]),
            ("i zzé! x", ["i", *["[UNK]"] * 3], [(0, 1), (2, 5), (5, 6), (7, 8)]),
            ("", [], []),
        ):
            with self.subTest(ascii(text)):
                encoding = tokenizer.encode_with_offsets(text)
                self.assertEqual(encoding.tokens, tokens)
                self.assertEqual(encoding.offsets, offsets)

    def test_ids_and_tokens(self):
        tokenizer = tokenizer_of("a b a")
        self.assertEqual(tokenizer.convert_tokens_to_ids(["b", "a"]), [6, 7])
        self.assertEqual(tokenizer.convert_ids_to_tokens([5, 6, 7]), ["a", "b", "a"])
        self.assertEqual(tokenizer.encode("a b"), [7, 6])
        with self.assertRaisesRegex(ValueError, "'c'"):
            tokenizer.convert_tokens_to_ids(["a", "c"])
        for wrong in (8, -1):
            with self.assertRaisesRegex(ValueError, rf"in \[0, 8\).*{wrong}"):
                tokenizer.convert_ids_to_tokens([0, wrong])

    def test_needs_the_unknown_token(self):
        with self.assertRaisesRegex(ValueError, r"\[UNK\]"):
            WordPieceTokenizer(Vocabulary(["[PAD]", "a"]))

    def test_a_path_stands_for_its_vocabulary(self):
        folder = pathlib.Path(self.get_temp_dir())
        (folder / "vocab.txt").write_text("[UNK]\na\n##b\n")
        for path in (folder / "vocab.txt", str(folder / "vocab.txt")):
            self.assertEqual(WordPieceTokenizer(path).encode("ab a c"), [1, 2, 1, 0])
        with self.assertRaisesRegex(InputError, "other.txt"):
            WordPieceTokenizer(folder / "other.txt")

    def test_caches_are_bounded(self):
        tokenizer = tokenizer_of("a ##1")
        with (
            self.subTest("entries"),
            mock.patch.object(wordpiece, "_CACHE_ENTRIES", 10),
        ):
            for number in range(100):
                text = f"a{'1' * number} a"
                self.assertLen(tokenizer.encode(text), number + 2)
                tokenizer.encode_with_offsets(text)
            for cache in (tokenizer._of_run, tokenizer._of_word, tokenizer._aligned):
                self.assertBetween(len(cache), 1, 10)
                self.assertLess(max(map(len, cache)), 65)
        tokenizer.clear_caches()
        self.assertEmpty(tokenizer._of_run)


class SameAsPlainTest(tf.test.TestCase):
    """The fast tokenizer against the plain one."""

    def _check(self, text: str, do_lower_case: bool) -> None:
        # Every second word is in the vocabulary whole, the others in pieces or not.
        all_words = plain_words(text, do_lower_case)
        words = sorted(set(all_words))
        tokens = dict.fromkeys([*SPECIAL, *words[::2]])
        for word in words[1::6]:
            cut = len(word) // 2
            tokens.update(dict.fromkeys([word[:cut], "##" + word[cut:]]))
        # A file cannot hold lone surrogates: words with them are [UNK].
        vocabulary = Vocabulary([t for t in tokens if t.isascii() or _is_utf8(t)])
        tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)
        expected = plain_pieces(all_words, set(vocabulary.tokens))
        self.assertEqual(tokenizer.tokenize(text), expected, ascii(text))
        self.assertEqual(split_words(text, do_lower_case), all_words, ascii(text))

    def _check_code_points(self, code_points: Sequence[int], context: str) -> None:
        step = 512
        for first in range(0, len(code_points), step):
            chars = map(chr, code_points[first : first + step])
            text = " ".join(context.replace("?", char) for char in chars)
            for do_lower_case in (True, False):
                self._check(text, do_lower_case)

    def test_code_points_of_the_planes_with_rules(self):
        # Within a word, alone, and where it decides the form of a sigma.
        self._check_code_points(range(0x3100), "a?B ? Σ?")
        self._check_code_points(range(0x3100, 0x20000, 31), "a?B ? Σ?")

    @pytest.mark.slow
    def test_each_code_point_of_the_planes_with_rules(self):
        self._check_code_points(range(0x20000), "a?B ? Σ?")
        self._check_code_points(range(0xE0000, 0xE1000), "a?B ? Σ?")

    def test_code_points_of_the_other_planes(self):
        others = [*range(0x20000, 0xE0000), *range(0xF0000, 0x110000)]
        # Nothing is removed there, nothing splits, and nothing changes its case ...
        for code_point in others:
            char = chr(code_point)
            category = unicodedata.category(char)
            self.assertIn(category, ("Lo", "Cn", "Co"))
            self.assertEqual(char.lower(), char)
        # ... so that a sample does, with all the borders and all that decompose.
        borders = [
            range(border - 2, border + 3)
            for border in (0x20002, 0x2A6DF, 0x2A700, 0x2B740, 0x2B820, 0x2CEAF)
        ]
        sample = itertools.chain(*borders, range(0x2F7FE, 0x2FA22), others[::97])
        self._check_code_points(sorted(set(sample)), "a?B")

    def test_random_strings(self):
        rng = random.Random(20181011)
        interesting = (
            "aAbBéÉ ΣσςΑİıßﬁ \t\n\r\x0b\x1c\x85\u00a0\u2028\u200d\ufffd\u0301\u0327"
            "\u0345.,$^[]#中文豈한글カ\u037e\u1fef\U0001d15e\U00020000\U0001f600"
        )
        for _ in range(2000):
            kind = rng.random()
            length = rng.randrange(1, 40)
            if kind < 0.6:
                chars = rng.choices(interesting, k=length)
            else:
                stop = rng.choice([0x250, 0x3000, 0x20000, 0x110000])
                chars = [chr(rng.randrange(stop)) for _ in range(length)]
            text = "".join(chars)
            for do_lower_case in (True, False):
                self._check(text, do_lower_case)
                self._check_offsets(text, do_lower_case)

    def _check_offsets(self, text: str, do_lower_case: bool) -> None:
        words = plain_words(text, do_lower_case)
        pieces = {p for w in words for p in (w[:2], "##" + w[2:4], "##" + w[4:])}
        vocabulary = Vocabulary([*SPECIAL, *filter(_is_utf8, sorted(pieces - {""}))])
        tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)
        encoding = tokenizer.encode_with_offsets(text)
        self.assertEqual(encoding.ids, tokenizer.encode(text), ascii(text))
        self.assertEqual(
            encoding.tokens, plain_tokens(text, set(vocabulary.tokens), do_lower_case)
        )
        previous = 0
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            self.assertBetween(start, previous, end - 1)
            self.assertLessEqual(end, len(text))
            previous = start
            # What the token covers, normalised alone, is the token, but for sigma's
            # form and for the parts of characters that decompose to several.
            covered = "".join(plain_words(text[start:end], do_lower_case))
            piece = token.removeprefix("##").replace("ς", "σ")
            if token != "[UNK]":
                self.assertIn(piece, covered.replace("ς", "σ"), ascii(text))


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
