"""Masking: equal to a plain procedure on strings, given the same random draws."""

import random

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.instances import masking
from bert_tf.instances.masking import mask, mask_rows, masking_of, random_stream
from bert_tf.instances.settings import PIECE, SPAN, WORD
from bert_tf.text.vocabulary import Vocabulary
from tests.instances import plain_pretraining

WORDS = [f"w{number}" for number in range(30)]
PIECES = [f"##p{number}" for number in range(15)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *PIECES]
VOCABULARY = Vocabulary(TOKENS)


def random_sequence(rng):
    """[CLS] A [SEP] B [SEP], with words of many pieces, cut anywhere."""
    num_tokens = rng.randint(4, 60)
    share = rng.choice([0.1, 0.4, 0.8])
    tokens = [
        rng.choice(PIECES if rng.random() < share else WORDS) for _ in range(num_tokens)
    ]
    tokens[0] = tokens[rng.randint(1, num_tokens - 1)] = "[CLS]"
    tokens[rng.randint(1, num_tokens - 1)] = tokens[-1] = "[SEP]"
    return tokens


def masked(tokens, how, stream):
    """The tokens shown, the positions and the labels."""
    ids = np.array([TOKENS.index(token) for token in tokens], np.int32)
    positions, labels = np.zeros([2, len(ids)], np.int32)
    count = mask(ids, how, stream, positions, labels)
    shown = [TOKENS[number] for number in ids]
    wanted = [TOKENS[number] for number in labels[:count]]
    return shown, positions[:count].tolist(), wanted


class MaskTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(PIECE, WORD, SPAN)
    def test_against_a_plain_procedure(self, unit):
        rng = random.Random(0)
        for seed in range(300):
            tokens = random_sequence(rng)
            settings = {
                "masked_lm_prob": rng.choice([0.01, 0.15, 0.5, 1.0]),
                "max_predictions_per_seq": rng.randint(1, 30),
            }
            rates = {"mask_rate": 0.8, "random_rate": 0.1}
            if unit == SPAN:
                rates = {"mask_rate": 0.5, "random_rate": 0.375}
            plain = (
                plain_pretraining.mask_spans if unit == SPAN else plain_pretraining.mask
            )
            expected = plain(
                tokens,
                TOKENS,
                {**settings, **rates, "do_whole_word_mask": unit == WORD},
                random.Random(seed),
            )
            how = masking_of(VOCABULARY, unit=unit, **settings, **rates)
            self.assertEqual(masked(tokens, how, random_stream(seed)), expected)

    def test_the_shares_of_what_is_chosen(self):
        tokens = ["[CLS]", *["w0"] * 1000, "[SEP]"]
        for mask_rate, random_rate in ((0.8, 0.1), (0.5, 0.25), (1.0, 0.0), (0.0, 0.9)):
            how = masking_of(
                VOCABULARY,
                unit=PIECE,
                masked_lm_prob=1.0,
                max_predictions_per_seq=1000,
                mask_rate=mask_rate,
                random_rate=random_rate,
            )
            shown, positions, labels = masked(tokens, how, random_stream(1))
            self.assertEqual(positions, list(range(1, 1001)))
            self.assertEqual(labels, ["w0"] * 1000)
            # A random token is [MASK] or the same once in 50 each.
            for token, share in (
                ("[MASK]", mask_rate + random_rate / 50),
                ("w0", 1 - mask_rate - random_rate + random_rate / 50),
            ):
                self.assertAllClose(shown.count(token) / 1000, share, atol=0.05)

    def test_lengths_of_spans(self):
        stream = random_stream(3)
        lengths = [masking._span_length(stream) for _ in range(40_000)]
        # 0.2 x 0.8 ** (n - 1), divided by the 0.8926 that are at most 10.
        expected = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470]
        expected += [0.0376, 0.0301]
        found = np.bincount(lengths, minlength=11) / len(lengths)
        self.assertLen(found, 11)
        self.assertAllClose(found[1:], expected, atol=0.008)
        self.assertAllClose(np.mean(lengths), 3.8, atol=0.05)


class MaskRowsTest(tf.test.TestCase):
    def rows(self, owners, num_slots=6, numbers=(0,), **settings):
        ids = np.where(np.array(owners) > 0, 10, 0).astype(np.int32)
        how = masking_of(
            VOCABULARY,
            unit=PIECE,
            **{"masked_lm_prob": 0.5, "max_predictions_per_seq": 2, **settings},
        )
        positions, labels, weights = slots = tuple(
            np.zeros([len(ids), num_slots], dtype)
            for dtype in (np.int32, np.int32, np.float32)
        )
        numbers = np.array(numbers, np.uint64)
        mask_rows(
            ids,
            np.array(owners, np.int32),
            how,
            np.uint64(7),
            np.ones_like(numbers),
            numbers,
            slots,
        )
        return positions, labels, weights

    def test_each_sequence_of_a_row_has_its_own(self):
        positions, labels, weights = self.rows([[1] * 6 + [2] * 3 + [3] + [0] * 2])
        # Halves of 6, 3 and 1 tokens, rounded to even, at least one and at most two.
        self.assertAllEqual(weights, [[1, 1, 1, 1, 1, 0]])
        self.assertAllEqual(labels, [[10] * 5 + [0]])
        owners = np.digitize(positions[0, :5], [6, 9])
        self.assertAllEqual(owners, [0, 0, 1, 1, 2])
        self.assertAllEqual(np.diff(positions[0, :5]) > 0, [True] * 4)
        self.assertEqual(positions[0, 5], 0)

    def test_a_row_without_room_for_all(self):
        positions, _, weights = self.rows([[1] * 6 + [2] * 6], num_slots=3)
        self.assertAllEqual(weights, [[1, 1, 1]])
        self.assertAllEqual(positions[0] >= 6, [False, False, True])

    def test_other_records_have_other_masks(self):
        settings = {"max_predictions_per_seq": 6, "num_slots": 6}
        positions, _, _ = self.rows([[1] * 12] * 50, numbers=range(50), **settings)
        self.assertGreater(len(np.unique(positions, axis=0)), 45)
        again, _, _ = self.rows([[1] * 12], numbers=[17], **settings)
        self.assertAllEqual(again[0], positions[17])


SEEDS = (0, 1, 12345, -7, 2**31 - 1, 2**200 + 3)


class RandomStreamTest(tf.test.TestCase):
    def test_below(self):
        for seed in SEEDS:
            stream, expected = masking.random_stream(seed), random.Random(seed)
            for limit in [*range(1, 300), 2**16, 2**31, 2**32 - 1]:
                self.assertEqual(
                    masking.random_below(stream, limit), expected.randrange(limit)
                )

    def test_shuffle(self):
        for seed in SEEDS:
            stream, expected = masking.random_stream(seed), random.Random(seed)
            for length in (0, 1, 2, 3, 17, 1000):
                values, wanted = np.arange(length), list(range(length))
                masking.shuffle(stream, values)
                expected.shuffle(wanted)
                self.assertEqual(values.tolist(), wanted)


ALL = (1 << 64) - 1


def splitmix(state):
    """The next state and number of the generator."""
    state = (state + 0x9E3779B97F4A7C15) & ALL
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ALL
    return state, z ^ (z >> 31)


def restarted(*key):
    stream = np.zeros(masking.STREAM_WORDS, np.uint32)
    masking.restart(stream, tuple(np.uint64(number) for number in key))
    return stream


class RestartTest(tf.test.TestCase):
    def test_its_words_are_those_of_another_generator(self):
        for key in ((0, 0, 0), (12345, 1, 77), (ALL, 3, (5 << 40) + 1)):
            state = 0
            for number in key:
                _, state = splitmix(state ^ number)
            words = []
            for _ in range(312):
                state, bits = splitmix(state)
                words += [bits & 0xFFFFFFFF, bits >> 32]
            self.assertEqual(restarted(*key).tolist(), [*words, 624])

    def test_seeds_epochs_and_records_share_nothing(self):
        seen = {
            masking.random(restarted(seed, epoch, record))
            for seed in range(3)
            for epoch in range(20)
            for record in range(50)
        }
        self.assertLen(seen, 3 * 20 * 50)
