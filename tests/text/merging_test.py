"""Merging, beside an implementation that counts all pairs before each merge."""

import random
from collections import Counter
from itertools import pairwise

import tensorflow as tf

from bert_tf.text.merging import merge_pieces


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
            self.assertEqual(
                merge_pieces(words, alphabet, limit, min_frequency=min_frequency),
                wanted,
                msg=f"{words} {alphabet} {limit} {min_frequency}",
            )
            num_pieces += len(wanted)
        self.assertGreater(num_pieces, 1000)

    def test_long_runs(self):
        words = {"x" + "a" * length: 40 - length for length in range(1, 30)}
        alphabet = alphabet_of("xa")
        wanted = plain_merges(words, alphabet, 1000, 1)
        self.assertEqual(merge_pieces(words, alphabet, 1000), wanted)
        # All of the words are one piece in the end.
        self.assertContainsSubset(words, {*wanted, *alphabet})

    def test_runs_of_one_piece(self):
        # From the left, in steps of two: (##a ##a) (##a ##a) ##a.
        self.assertEqual(
            merge_pieces({"aaaaaa": 5}, alphabet_of("a"), 10),
            # Then ##aa ##a, ##aa ##aa and a ##aa stand there once a word, in the order
            # of their spelling; then ##aa ##aaa and a ##aa.
            ["##aa", "##aaa", "##aaaaa", "aaaaaa"],
        )

    def test_words_that_take_no_part(self):
        words = {"ab" * 101: 9, "az": 9, "za": 9, "a": 9, "ab": 1}
        alphabet = ["a", "z", "##b", "##a"]
        self.assertEqual(merge_pieces(words, alphabet, 10), ["za", "ab"])
        self.assertEqual(merge_pieces({"zz": 1}, alphabet, 10), [])
        self.assertEqual(merge_pieces({}, alphabet, 10), [])
        self.assertEqual(merge_pieces(words, alphabet, 0), [])

    def test_a_limit_beyond_all_memory(self):
        self.assertEqual(merge_pieces({"ab": 1}, alphabet_of("ab"), 10**15), ["ab"])


if __name__ == "__main__":
    tf.test.main()
