"""What is chosen: by hand, and against plain loops over one sequence at a time."""

import numpy as np
import tensorflow as tf

from bert_tf.records import masking_units
from bert_tf.records.masking_units import Sequences
from bert_tf.records.noise import RecordNoise

# Kinds of tokens: [CLS] or [SEP], first piece of a word, a further piece, padding.
SPECIAL, FIRST, MORE, PAD = "S", "w", "+", "."


def sequences(rows, limits, max_limit=None):
    """Sequences from strings of one letter a token."""
    kinds = np.array([list(row) for row in rows])
    return Sequences(
        is_candidate=tf.constant((kinds == FIRST) | (kinds == MORE)),
        is_separator=tf.constant(kinds == SPECIAL),
        is_continuation=tf.constant(kinds == MORE),
        limits=tf.constant(limits, tf.int32)[:, None],
        max_limit=max_limit or max(limits),
    )


class ScriptedNoise:
    """Noise that says what it is told: an order, and the words of each span."""

    def __init__(self, order, num_words=()):
        self._order = order
        self._num_words = num_words

    def order(self, length):
        # The number named first has the most noise.
        noise = np.zeros((1, length), np.int64)
        for rank, number in enumerate(self._order):
            noise[0, number] = 1000 - rank
        return tf.constant(noise)

    def uniform(self, purpose, numbers):
        # In the middle of the interval that means so many words: 0.2 0.8**(n - 1).
        cut = 1 - 0.8**10
        values = np.zeros(numbers.shape, np.float32)
        for number, words in enumerate(self._num_words):
            below, above = 1 - 0.8 ** (words - 1), 1 - 0.8**words
            values[0, number] = (below + above) / 2 / cut
        return tf.constant(values)


def positions(choice):
    return [np.flatnonzero(row).tolist() for row in choice.is_chosen.numpy()]


class ChoosePiecesTest(tf.test.TestCase):
    def test_those_with_the_most_noise(self):
        noise = ScriptedNoise([0, 4, 2, 1, 5])
        choice = masking_units.choose_pieces(noise, sequences(["Sw+Sw+S."], [2]))
        self.assertEqual(positions(choice), [[2, 4]])

    def test_fewer_tokens_than_wanted(self):
        choice = masking_units.choose_pieces(
            ScriptedNoise([1, 2]), sequences(["Sw+S"], [9])
        )
        self.assertEqual(positions(choice), [[1, 2]])
        choice = masking_units.choose_pieces(
            ScriptedNoise([1, 2]), sequences(["SSS."], [1])
        )
        self.assertEqual(positions(choice), [[]])


class ChooseWordsTest(tf.test.TestCase):
    def choose(self, row, limit, order):
        choice = masking_units.choose_words(
            ScriptedNoise(order), sequences([row], [limit])
        )
        return positions(choice)[0]

    def test_a_long_word_is_passed_over_and_a_shorter_one_follows(self):
        # Words by number: 0 at 1-3, 1 at 4, 2 at 5-6, 3 at 8, 4 at 9-10.
        row = "Sw++ww+Sww+S"
        # 0 (3 tokens) fits; 2 does not fit in the one that is left; 1 does.
        self.assertEqual(self.choose(row, 4, [0, 2, 1, 3, 4]), [1, 2, 3, 4])
        # 2 and 4 are 4 tokens: 0 is passed over, nothing is left.
        self.assertEqual(self.choose(row, 4, [2, 0, 4, 1, 3]), [5, 6, 9, 10])
        # Passed over twice: 0 at two left, 4 at one left; 3 fits.
        self.assertEqual(self.choose(row, 4, [2, 0, 1, 4, 3]), [4, 5, 6, 8])

    def test_words_that_are_all_too_long(self):
        self.assertEqual(self.choose("Sw+Sw++S", 1, [0, 1]), [])

    def test_a_piece_joins_the_word_before_it_even_over_a_separator(self):
        # Words: 0 at 1, 1 at 2 and 4 and 5, 2 at 6.
        row = "SwwS++wS"
        self.assertEqual(self.choose(row, 3, [1, 0, 2]), [2, 4, 5])
        # One that begins the sequence is a word of its own: 0 at 1-2, 1 at 3.
        self.assertEqual(self.choose("S++wS", 2, [0, 1]), [1, 2])

    def test_against_a_loop_over_each_sequence(self):
        rows, limits = random_rows(200, length=40)
        noise = record_noise(200)
        choice = masking_units.choose_words(noise, sequences(rows, limits))
        order = noise.order(40).numpy()
        for row, kinds in enumerate(rows):
            words = []
            for position, kind in enumerate(kinds):
                if kind == FIRST or (kind == MORE and not words):
                    words.append([position])
                elif kind == MORE:
                    words[-1].append(position)
            chosen = []
            for number in sorted(range(len(words)), key=lambda n: -order[row, n]):
                if len(chosen) + len(words[number]) <= limits[row]:
                    chosen += words[number]
            self.assertEqual(positions(choice)[row], sorted(chosen), kinds)


class ChooseSpansTest(tf.test.TestCase):
    def choose(self, row, limit, order, num_words):
        choice = masking_units.choose_spans(
            ScriptedNoise(order, num_words), sequences([row], [limit])
        )
        chosen = positions(choice)[0]
        return chosen, choice.groups.numpy()[0][chosen].tolist()

    def test_spans_of_whole_words(self):
        # Words by number, [CLS] and [SEP] among them: 1 at 1-2, 2 at 3, 3 at 4-6,
        # 5 at 8, 6 at 9.
        row = "Sw+ww++SwwS"
        words = [1, 2, 1, 1, 1, 1, 1, 1]
        # A span of two words, then one of one: two groups.
        self.assertEqual(
            self.choose(row, 4, [1, 5, 2, 3, 6], words), ([1, 2, 3, 8], [1, 1, 1, 5])
        )

    def test_a_span_ends_before_what_it_must_not_have(self):
        row = "Sw+ww++SwwS"
        # Before the word with which there would be too many: 1 and 2 are three tokens,
        # and the one that is left goes to 5.
        self.assertEqual(
            self.choose(row, 4, [1, 5, 2, 3, 6], [1] + [9] * 9),
            ([1, 2, 3, 8], [1, 1, 1, 5]),
        )
        # Before [SEP], though 9 words were drawn.
        self.assertEqual(
            self.choose(row, 9, [3, 6, 5, 1, 2], [9] * 5 + [1, 9]),
            ([1, 2, 3, 4, 5, 6, 8, 9], [1, 1, 1, 3, 3, 3, 5, 6]),
        )
        # Before a word that is taken: 2 is, when 1 draws three words.
        self.assertEqual(
            self.choose(row, 4, [2, 1, 5, 6, 3], [1, 3, 1, 1, 1, 1]),
            ([1, 2, 3, 8], [1, 1, 2, 5]),
        )

    def test_a_first_word_that_is_too_long_is_passed_over(self):
        self.assertEqual(
            self.choose("Sw+ww++SwwS", 2, [3, 2, 1, 5, 6], [1] * 9), ([3, 8], [2, 5])
        )

    def test_a_piece_after_a_separator_is_a_word_of_its_own(self):
        # A word at 1, one at 3-4.
        self.assertEqual(
            self.choose("SwS++S", 3, [1, 3], [9] * 6), ([1, 3, 4], [1, 3, 3])
        )

    def test_against_a_loop_over_each_sequence(self):
        rows, limits = random_rows(200, length=40)
        noise = record_noise(200)
        choice = masking_units.choose_spans(noise, sequences(rows, limits))
        order = noise.order(40).numpy()
        lengths = noise.uniform(1, tf.range(40)[None]).numpy()
        shares = np.cumsum(0.2 * 0.8 ** np.arange(10)) / (1 - 0.8**10)
        for row, kinds in enumerate(rows):
            words = []
            for position, kind in enumerate(kinds):
                if kind == MORE and kinds[position - 1] in (FIRST, MORE):
                    words[-1].append(position)
                elif kind != PAD:
                    words.append([position])
            taken, left = set(), limits[row]
            for first in sorted(range(len(words)), key=lambda n: -order[row, n]):
                num_words = 1 + np.searchsorted(shares, lengths[row, first], "right")
                for number in range(first, min(first + num_words, len(words))):
                    word = words[number]
                    is_special = kinds[word[0]] == SPECIAL
                    if is_special or number in taken or len(word) > left:
                        break
                    taken.add(number)
                    left -= len(word)
            expected = sorted(p for number in taken for p in words[number])
            self.assertEqual(positions(choice)[row], expected, kinds)

    def test_lengths_are_geometric_up_to_ten(self):
        # One span in each of 4,000 sequences of 200 words of one piece.
        count = 4000
        rows = ["S" + FIRST * 60 + "S"] * count
        limits = [10] * count
        choice = masking_units.choose_spans(
            record_noise(count), sequences(rows, limits)
        )
        order = record_noise(count).order(62).numpy()
        order[:, [0, 61]] = -1
        first = order.argmax(axis=1)
        # Spans that begin where [SEP] is less than ten words away may be cut.
        inside = np.flatnonzero(first <= 51)
        groups = choice.groups.numpy()[inside]
        chosen = choice.is_chosen.numpy()[inside]
        sizes = (chosen & (groups == first[inside, None])).sum(axis=1)
        counts = np.bincount(sizes, minlength=11)
        self.assertLen(counts, 11)
        expected = len(inside) * 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)
        chi_square = ((counts[1:] - expected) ** 2 / expected).sum()
        # Nine degrees of freedom: exceeded once in 10,000 times.
        self.assertLess(chi_square, 33.7)
        self.assertAllClose(sizes.mean(), 3.8, atol=0.15)


def record_noise(count):
    return RecordNoise(5, tf.ones([count], tf.int64), tf.range(count, dtype=tf.int64))


def random_rows(count, length):
    """Sequences with words of up to five pieces, cut anywhere, and limits."""
    rng = np.random.default_rng(0)
    rows, limits = [], []
    for _ in range(count):
        num_tokens = rng.integers(4, length + 1)
        share = rng.choice([0.1, 0.4, 0.8])
        kinds = np.where(rng.random(num_tokens) < share, MORE, FIRST)
        kinds[[0, rng.integers(1, num_tokens), num_tokens - 1]] = SPECIAL
        rows.append("".join(kinds) + PAD * (length - num_tokens))
        limits.append(int(rng.integers(1, 12)))
    return rows, limits


if __name__ == "__main__":
    tf.test.main()
