import functools
import random
import unicodedata

import numpy as np
import tensorflow as tf

from bert_tf.addons.serving.graph_tokenizer import GraphTokenizer
from bert_tf.base.errors import InputError
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def both(words, do_lower_case=True, **options):
    """The graph's tokenizer, and Python's."""
    vocabulary = Vocabulary([*SPECIAL, *words])
    options = {"do_lower_case": do_lower_case, **options}
    return (
        GraphTokenizer(vocabulary, **options),
        WordPieceTokenizer(vocabulary, **options),
    )


@functools.cache
def knowing_characters(do_lower_case):
    """Both, with a vocabulary in which few differences could hide behind [UNK]."""
    left_out = [*range(0x3400, 0xA000), *range(0xAC00, 0xD800)]
    characters = [
        chr(code_point)
        for code_point in sorted({*range(0x20000)} - {*left_out})
        if unicodedata.category(chr(code_point)) not in ("Cn", "Co", "Cs")
    ]
    characters = [c for c in characters if c == c.strip()]
    return both([*characters, "中", *("##" + c for c in characters)], do_lower_case)


def nonsense(seed, lines, characters):
    rng = random.Random(seed)
    everything = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    stops = (0x80, 0x250, 0x600, 0x3100, 0x10000, 0x20000)
    pieces = ("", " ", "a", "É", "the", "Σ", "中", "\u0301", "\u302e", ".")
    for _ in range(lines):
        text = ""
        while len(text) < characters:
            stop = rng.choice((*stops, len(everything)))
            text += chr(everything[rng.randrange(min(stop, len(everything)))])
            text += rng.choice(pieces)
        yield text


def byte_places(text, places):
    """Places in bytes, for those in characters."""
    return [len(text[:place].encode("utf-8")) for place in places]


class GraphTokenizerTest(tf.test.TestCase):
    def assert_same(self, graph, python, texts):
        found = graph.encode(tf.constant(texts)).to_list()
        encoding = graph.encode_with_offsets(tf.constant(texts))
        parts = zip(*(part.to_list() for part in encoding), strict=True)
        for text, ids, part in zip(texts, found, parts, strict=True):
            expected = python.encode_with_offsets(text)
            starts = [start for start, _ in expected.offsets]
            ends = [end for _, end in expected.offsets]
            self.assertEqual(ids, expected.ids, repr(text))
            self.assertEqual(part[0], expected.ids, repr(text))
            self.assertEqual(part[1], starts, repr(text))
            self.assertEqual(part[2], ends, repr(text))
            self.assertEqual(part[3], byte_places(text, starts), repr(text))
            self.assertEqual(part[4], byte_places(text, ends), repr(text))

    def test_no_text_empty_texts_and_only_what_vanishes(self):
        graph, python = both(["a"])
        self.assertEqual(graph.encode(tf.zeros([0], tf.string)).to_list(), [])
        nothing = graph.encode_with_offsets(tf.zeros([0], tf.string))
        self.assertEqual([part.to_list() for part in nothing], [[]] * 5)
        self.assert_same(graph, python, [""])
        # The accent comes to stand before the mark, and so before all characters.
        self.assert_same(graph, python, ["\u302e\u0591"])
        texts = ["", " ", "\n\t", "\u0301", "\u200b", "\0", "\ufffd", "a", "\u3000a "]
        self.assert_same(graph, python, texts)

    def test_all_of_unicode_each_character_alone_and_in_words(self):
        # The planes that are left out hold ideographs, private use or nothing.
        planes = (0, 1, 2, 14, 16)
        points = [x for plane in planes for x in range(plane << 16, plane + 1 << 16)]
        characters = [chr(x) for x in points if not 0xD800 <= x < 0xE000]
        starts = range(0, len(characters), 512)
        alone = [" ".join(characters[i : i + 512]) for i in starts]
        within = ["a".join(characters[i : i + 32]) for i in range(0, 0x20000, 32)]
        for lower in (True, False):
            graph, python = knowing_characters(lower)
            for texts in (alone, within):
                found = graph.encode(tf.constant(texts)).to_list()
                for text, ids in zip(texts, found, strict=True):
                    self.assertEqual(ids, python.encode(text), repr(text))

    def test_nonsense_equals_python(self):
        for lower in (True, False):
            graph, python = knowing_characters(lower)
            self.assert_same(graph, python, list(nonsense(1, 300, 80)))

    def test_final_sigma_looks_past_what_is_ignored(self):
        letters = ["ο", "δ", "σ", "ς", "a", ".", "'", "中", "[", "]"]
        graph, python = both([*letters, *("##" + c for c in letters)])
        self.assertEqual(
            graph.encode(["ΟΔΟΣ", "Σ", "ΣΑΣ"]).to_list()[:2], [[5, *(16, 15, 18)], [7]]
        )
        texts = ["ΟΔΟΣ", "ΟΔΟΣ ΟΔΟΣ", "Σ", "ΣΣ", "ΟΣΟ", "ΟΣ.", "ΟΣ.Ο", "Ο'Σ", "ΟΣ'"]
        texts += ["Ο\u0301Σ\u0301", "Ο\u200dΣ\u200dΟ", "中Σ", "ΟΣ中Ο", "Ο中Σ", "ΟΣ\nΟ"]
        texts += ["ΟΣ\u0345", "ʰΣ", "ⅠΣ", "\u0345Σ", "[Σ]", "ΟΣ[", "Ο\u00adΣ"]
        self.assert_same(graph, python, texts)

    def test_marks_stay_in_canonical_order_and_accents_go(self):
        # U+302E (class 224) and U+1B44 (9) stay; U+0301 (230) and U+0591 (220) go;
        # U+0B56 (class 0) goes too, and keeps those on its sides apart.
        marks = ["\u302e", "\u1b44", "\u0301", "\u0591", "\u0b56", "\u0f71", "\u0344"]
        known = ["a", "e", "o", "=", "中", "\u302e", "\u1b44"]
        graph, python = both([*known, *("##" + c for c in known)])
        expected = [[python.vocabulary.ids[t] for t in ("a", "##\u1b44", "##\u302e")]]
        self.assertEqual(graph.encode(["a\u302e\u1b44"]).to_list(), expected)
        rng = random.Random(3)
        pool = [*marks, *marks, "a", "é", "≠", "中", "ộ"]
        texts = ["".join(rng.choices(pool, k=9)) for _ in range(500)]
        self.assert_same(graph, python, texts)

    def test_a_word_has_two_hundred_characters(self):
        # Four bytes each: tensorflow-text counts bytes.
        graph, python = both(["a", "##a", "𐐀", "##𐐀", "𐐨", "##𐐨"])
        texts = ["a" * 200, "a" * 201, "𐐀" * 200, "𐐀" * 201, "á" * 200 + " a"]
        texts += ["a" * 5000, "a" * 200 + "," + "a" * 200]
        self.assertEqual(
            [len(ids) for ids in graph.encode(texts).to_list()[:4]], [200, 1, 200, 1]
        )
        self.assert_same(graph, python, texts)

    def test_special_tokens_in_the_text_where_they_are_asked_for(self):
        words = ["[", "]", "mask", "cls", "a", "σ", "ς", "##ς"]
        texts = ["[MASK]", "a[MASK]a", "[mask]", "[MASK", "[MASK][CLS]", "[[MASK]]"]
        texts += ["[MA\u200bSK]", "[MASK]\u0301", "ΣΣ[MASK]Σ", "[UNK] [PAD]", "[MAS"]
        texts += ["x [UNK]x", "[M", "ASK]", "[MASK]中", "[ MASK]", "\u0301[SEP]\n"]
        for recognized, lower, ids in (
            (True, True, [9, 4, 2]),
            (True, False, [9, 4, 2]),
            (False, True, [9, 5, 7, 6, 5, 8, 6]),
        ):
            graph, python = both(words, lower, recognize_special_tokens=recognized)
            self.assert_same(graph, python, texts)
            found = graph.encode(["a[MASK] [CLS]", "[mask]"]).to_list()
            self.assertEqual(found, [ids, [5, 7, 6]])

    def test_bytes_that_are_not_utf_8_are_pythons_replacements(self):
        graph, python = both(["a", "b", "##b", "é"], do_lower_case=False)
        texts = [b"a\xffb", b"\xe2\x82", b"a\xf0\x9f\x98 b", b"\xed\xa0\x80b", b"\xc3"]
        texts += [b"\xf4\x90\x80\x80b", b"\xe2\x28\xa1", b"\xef\xbb\xbfa", b"\xc3\xa9"]
        texts += [b"\xc0\xafa"]
        rng = np.random.default_rng(4)
        # Mostly bytes that begin, or go on with, a longer character.
        pool = np.r_[np.arange(0x7E, 0x100), 0x20, 0x61, 0x62].astype(np.uint8)
        texts += [rng.choice(pool, 12).tobytes() for _ in range(1000)]
        encoding = graph.encode_with_offsets(tf.constant(texts))
        parts = zip(*(part.to_list() for part in encoding), strict=True)
        for text, (ids, starts, ends, _, byte_ends) in zip(texts, parts, strict=True):
            expected = python.encode_with_offsets(text.decode("utf-8", "replace"))
            self.assertEqual(ids, expected.ids, text)
            offsets = list(zip(starts, ends, strict=True))
            self.assertEqual(offsets, expected.offsets, text)
            self.assertAllLessEqual(np.array([*byte_ends, 0]), len(text))
        self.assertEqual(encoding.byte_starts.to_list()[0], [0, 2])
        self.assertEqual(encoding.byte_ends.to_list()[0], [1, 3])

    def test_odd_vocabularies(self):
        # A token twice has its last id; empty ones, and those that no word can be.
        tokens = ["a", "b", "a", "", "##", "##b", "\0", "##\0", "a\0", "a\u200b", "c d"]
        tokens += ["#", "x" * 300, "##" + "y" * 201, "###"]
        graph, python = both(tokens)
        texts = ["a", "ab", "##", "#b", "c d", "x" * 300, "abb"]
        self.assertEqual(graph.encode(["ab"]).to_list(), [[7, 10]])
        self.assert_same(graph, python, texts)
        with self.assertRaisesRegex(ValueError, r"must have \[UNK\]"):
            GraphTokenizer(Vocabulary(["a"]))
        with self.assertRaisesRegex(InputError, "does not fit.*256"):
            GraphTokenizer(Vocabulary(["[UNK]", "ก" * 100]))
