import collections.abc
import inspect
import lzma
import random
import subprocess
from collections import Counter
from itertools import pairwise

import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.text.learning import (
    WordCounts,
    count_words,
    learn_vocabulary,
    merge_pieces,
)
from bert_tf.text.sources import make_chunks
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.processes import run_python
from tests.script_case import FolderCase


class WordCountsTest(tf.test.TestCase):
    def test_words_are_the_tokenizers(self):
        counts = WordCounts()
        counts.add_lines(["Né né,\tne\x0bx", "n\u2028中e\u0301"], do_lower_case=True)
        words = {"ne": 2, ",": 1, "nex": 1, "n": 1, "中": 1, "e": 1}
        self.assertEqual(counts.words, words)
        self.assertEqual(counts.num_occurrences, 7)
        self.assertEqual(counts.characters(), {"n": 4, "e": 4, ",": 1, "x": 1, "中": 1})

    def test_the_rarest_words_are_forgotten(self):
        counts = WordCounts(max_words=6)
        counts.add_lines(["a a a a b b b c c d e f"], False)
        self.assertLen(counts.words, 6)
        self.assertEqual((counts.num_forgotten, counts.max_error), (0, 0))
        counts.add_lines(["g"], False)
        # At most three are left: d, e, f and g go, and that is enough.
        self.assertEqual(counts.words, {"a": 4, "b": 3, "c": 2})
        self.assertEqual((counts.num_forgotten, counts.max_error), (4, 1))

        counts.add_lines(["c g g h h i i"], False)
        self.assertEqual(counts.words, {"a": 4, "b": 3, "c": 3, "g": 2, "h": 2, "i": 2})
        other = WordCounts(max_words=3)
        other.add_lines(["j a a x y"], False)
        # j, x and y: one word less would be enough, but none is rarer than another.
        self.assertEqual(other.words, {"a": 2})
        counts.add(other)
        self.assertLen(counts.words, 6)
        self.assertEqual((counts.num_forgotten, counts.max_error), (7, 2))
        last = WordCounts()
        last.add_lines(["b c k"], False)
        counts.add(last)
        # k goes, then g, h and i with it.
        self.assertEqual(counts.words, {"a": 6, "b": 4, "c": 4})
        self.assertEqual((counts.num_forgotten, counts.max_error), (14, 4))
        # What was counted is still the text.
        self.assertEqual(counts.num_occurrences, 28)
        characters = Counter("aaaabbbccdef" + "g" + "cgghhii" + "jaaxy" + "bck")
        self.assertEqual(counts.characters(), characters)


class CountWordsTest(FolderCase):
    def test_any_number_of_workers_and_chunks(self):
        text = "".join(
            f"Word{number % 7} and {number}.\n" + "\n" * (number % 3 == 0)
            for number in range(400)
        )
        paths = [
            self.write("plain.txt", text.encode()),
            self.write("packed.txt.xz", lzma.compress(b"and then, AND")),
        ]
        wanted = {f"word{rest}": 400 // 7 + (rest < 1) for rest in range(7)}
        wanted |= {str(number): 1 for number in range(400)}
        wanted |= {"and": 402, "then": 1, ".": 400, ",": 1}
        for chunk_bytes, num_workers in ((1 << 20, 1), (700, 1), (700, 2)):
            chunks = make_chunks(paths, split_sentences=False, chunk_bytes=chunk_bytes)
            options = {"do_lower_case": True, "num_workers": num_workers}
            counts, dropped = count_words(chunks, **options)
            self.assertEqual(counts.words, wanted)
            self.assertEqual(dropped, {})

    def test_forgetting_does_not_depend_on_workers(self):
        lines = [f"common word{n} word{n // 2}\n\n" for n in range(3000)]
        path = self.write("many.txt", "".join(lines).encode())
        chunks = make_chunks([path], split_sentences=False, chunk_bytes=5000)
        options = {"do_lower_case": True, "max_words": 500}
        one, two = (
            count_words(chunks, num_workers=number, **options)[0] for number in (1, 2)
        )
        self.assertEqual(one.words, two.words)
        self.assertEqual(one.words["common"], 3000)
        self.assertEqual(one.num_forgotten, two.num_forgotten)
        self.assertGreater(one.num_forgotten, 0)
        self.assertLessEqual(len(one.words), 500)
        self.assertEqual(one.num_occurrences, 9000)


def plain_merges(words, alphabet, limit, min_frequency):
    """The definition, with no thought for speed."""
    spellings = {}
    for word in words:
        spelling = (word[0], *(f"##{char}" for char in word[1:]))
        if 1 < len(word) <= 200 and set(spelling) <= set(alphabet):
            spellings[word] = spelling
    pieces = []
    while len(pieces) < limit:
        counts = Counter()
        for word, spelling in spellings.items():
            for pair in pairwise(spelling):
                counts[pair] += words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < min_frequency:
            break
        piece = best[0] + best[1][2:]
        assert piece not in pieces
        pieces.append(piece)
        for word, spelling in spellings.items():
            merged = []
            for symbol in spelling:
                # Never merges a piece that was just made: it has another spelling.
                if merged and (merged[-1], symbol) == best:
                    merged[-1] = piece
                else:
                    merged.append(symbol)
            spellings[word] = tuple(merged)
    return pieces


def alphabet_of(chars):
    return [*chars, *(f"##{char}" for char in chars)]


class MergePiecesTest(tf.test.TestCase):
    def test_like_the_definition(self):
        rng = random.Random(5)
        num_pieces = 0
        for trial in range(150):
            chars = "ab中é\U0001f600"[: rng.choice((1, 2, 3, 5))]
            words = {
                "".join(rng.choices(chars, k=rng.choice((1, 2, 3, 6, 12)))): (
                    rng.choice((1, 1, 2, 3, 50, 10**12))
                )
                for _ in range(rng.choice((1, 3, 20, 60)))
            }
            alphabet = alphabet_of(chars)
            if not trial % 3:
                alphabet.remove(rng.choice(alphabet))
            limit, min_frequency = rng.choice((1, 7, 200)), rng.choice((1, 2, 4))
            wanted = plain_merges(words, alphabet, limit, min_frequency)
            found = merge_pieces(words, alphabet, limit, min_frequency=min_frequency)
            message = f"{words} {alphabet} {limit} {min_frequency}"
            self.assertEqual(found, wanted, message)
            num_pieces += len(wanted)
        self.assertGreater(num_pieces, 1000)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# English that each Python has.
PROSE = (inspect.getsource(subprocess) + inspect.getsource(collections.abc)).split("\n")

LEARN_AND_PRINT = """
import inspect, subprocess, collections.abc
from bert_tf.text.learning import learn_vocabulary
prose = inspect.getsource(subprocess) + inspect.getsource(collections.abc)
print(learn_vocabulary(prose.split("\\n"), vocab_size=700).sha256)
"""


class LearnVocabularyTest(tf.test.TestCase):
    def test_by_hand(self):
        lines = ["hug " * 10, "PUG " * 5, "pun " * 12, "bun " * 4, "hugs " * 5]
        # How often pieces stand side by side: ##u ##g 20, p ##u 17, ##u ##n 16,
        # h ##u 15, ##g ##s 5, b ##u 4. Merge ##ug; then p ##u is 12, and ##un has 16;
        # then h ##ug 15; p ##un 12; hug ##s and p ##ug have 5, in the order of their
        # spelling; b ##un 4.
        pieces = ["##ug", "##un", "hug", "pun", "hugs", "pug", "bun"]
        # u 36, g 20, p 17, n 16, h 15, s 5, b 4
        characters = [*"bghnpsu", *(f"##{char}" for char in "bghnpsu")]
        everything = [*SPECIAL, *characters, *pieces]
        for size in range(19, 27):
            learned = learn_vocabulary(lines, vocab_size=size)
            self.assertEqual(list(learned), everything[:size])
        with self.assertRaisesRegex(InputError, "at most 26, .* Received: 27"):
            learn_vocabulary(lines, vocab_size=27)
        most = learn_vocabulary(lines, vocab_size=27, fewer_tokens=True)
        self.assertLen(most, 26)
        # Where not all characters fit, the most frequent ones do.
        fitting = list(learn_vocabulary(lines, vocab_size=10))
        self.assertEqual(fitting, [*SPECIAL, "g", "p", "u", "##g", "##u"])
        # A pair that stands there less often than wanted is none.
        with self.assertRaisesRegex(InputError, "at most 25,"):
            learn_vocabulary(lines, vocab_size=26, min_frequency=5)

    def test_order_and_unused_places(self):
        learned = learn_vocabulary(["Ab, ab 中"], vocab_size=14, num_unused=2)
        expected = [
            "[PAD]",
            "[unused0]",
            "[unused1]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
        ]
        # Punctuation and ideographs do not go on with a word.
        expected += [",", "a", "b", "中", "##a", "##b", "ab"]
        self.assertEqual(list(learned), expected)
        cased = learn_vocabulary(["Ab ab"], vocab_size=11, do_lower_case=False)
        self.assertEqual(cased.tokens[5:], ("A", "a", "b", "##A", "##a", "##b"))

    def test_exact_size_and_no_unknown_words(self):
        for do_lower_case in (True, False):
            options = {"do_lower_case": do_lower_case, "character_coverage": 1.0}
            learned = learn_vocabulary(PROSE, vocab_size=900, **options)
            self.assertLen(learned, 900)
            self.assertLen(set(learned), 900)
            learned.require_special_tokens("learned")
            tokenizer = WordPieceTokenizer(learned, do_lower_case=do_lower_case)
            ids = [token_id for line in PROSE for token_id in tokenizer.encode(line)]
            self.assertNotIn(learned.unk_id, ids)
            # Frequent words are one token.
            self.assertLen(tokenizer.encode("the process returns"), 3)

    def test_same_in_every_process(self):
        # String hashes, and with them the order of sets, differ between processes.
        one, two = (
            run_python("-c", LEARN_AND_PRINT, PYTHONHASHSEED=seed) for seed in "12"
        )
        self.assertEqual((one.returncode, two.returncode), (0, 0))
        self.assertEqual(one.stdout, two.stdout)

    def test_what_is_wrong(self):
        with self.assertRaisesRegex(InputError, "must have words"):
            learn_vocabulary([" \n", ""], vocab_size=100)
        with self.assertRaisesRegex(InputError, "must exceed the 8 .* Received: 8"):
            learn_vocabulary(["a b"], vocab_size=8, num_unused=3)
