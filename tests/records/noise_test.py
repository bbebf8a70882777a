"""The noise, against SplitMix64 as its authors run it: a state that takes steps."""

import numpy as np
import tensorflow as tf

from bert_tf.records.noise import Purpose, RecordNoise

GAMMA = 0x9E3779B97F4A7C15
ALL = (1 << 64) - 1


def next_number(state):
    """The next state and number of the generator."""
    state = (state + GAMMA) & ALL
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ALL
    return state, z ^ (z >> 31)


def numbers_of_stream(seed, count):
    numbers = []
    for _ in range(count):
        seed, number = next_number(seed)
        numbers.append(number)
    return numbers


def noise(seed, pairs):
    epochs, records = np.array(pairs, np.int64).T
    return RecordNoise(seed, tf.constant(epochs), tf.constant(records))


class RecordNoiseTest(tf.test.TestCase):
    def test_the_stepping_generator_gives_the_published_numbers(self):
        # As listed for the seed 1234567 on rosettacode.org.
        self.assertEqual(
            numbers_of_stream(1234567, 5),
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423,
                4593380528125082431,
                16408922859458223821,
            ],
        )

    def test_a_records_numbers_are_those_of_its_own_stream(self):
        pairs = [(1, 0), (1, 1), (2, 0), (3, (5 << 40) + 77)]
        numbers = tf.constant([[0, 1, 2, 500]])
        bits = noise(12345, pairs).bits(Purpose.SPAN_LENGTH, numbers).numpy()
        for row, (epoch, record) in enumerate(pairs):
            _, key = next_number(12345)
            for part in (epoch, record):
                _, key = next_number(key ^ part)
            # Purposes are 2**32 steps apart.
            begin = key + int(Purpose.SPAN_LENGTH) * (1 << 32) * GAMMA
            stream = numbers_of_stream(begin & ALL, 501)
            self.assertEqual(
                bits[row].tolist(), [stream[number] for number in (0, 1, 2, 500)]
            )

    def test_seeds_epochs_records_purposes_and_numbers_share_nothing(self):
        pairs = [(epoch, record) for epoch in range(20) for record in range(50)]
        numbers = tf.range(10)[None]
        seen = set()
        for seed in (0, 1, 2):
            for purpose in Purpose:
                bits = noise(seed, pairs).bits(purpose, numbers).numpy()
                seen.update(bits.ravel().tolist())
        self.assertLen(seen, 3 * 4 * 1000 * 10)

    def test_neighbours_are_not_correlated(self):
        # Correlations of 100,000 pairs are normal with a deviation of 0.0032.
        pairs = [(1, record) for record in range(1000)]
        values = noise(7, pairs).uniform(Purpose.TREATMENT, tf.range(100)[None])
        other_purpose = noise(7, pairs).uniform(
            Purpose.SPAN_LENGTH, tf.range(100)[None]
        )
        other_epoch = noise(7, [(2, record) for _, record in pairs]).uniform(
            Purpose.TREATMENT, tf.range(100)[None]
        )
        values = values.numpy()
        for other in (
            other_purpose.numpy(),
            other_epoch.numpy(),
            np.roll(values, 1, axis=0),
            np.roll(values, 1, axis=1),
        ):
            correlation = np.corrcoef(values.ravel(), other.ravel())[0, 1]
            self.assertLess(abs(correlation), 4 * 0.0032)

    def test_uniform_and_below_are_uniform(self):
        records = noise(3, [(1, record) for record in range(1000)])
        numbers = tf.range(100)[None]
        values = records.uniform(Purpose.TREATMENT, numbers).numpy()
        self.assertEqual(values.dtype, np.float32)
        self.assertGreaterEqual(values.min(), 0.0)
        self.assertLess(values.max(), 1.0)
        choices = records.below(Purpose.RANDOM_TOKEN, numbers, 7).numpy()
        for counts in (
            np.histogram(values, bins=7, range=(0.0, 1.0))[0],
            np.bincount(choices.ravel(), minlength=7),
        ):
            self.assertLen(counts, 7)
            expected = 100_000 / 7
            chi_square = ((counts - expected) ** 2 / expected).sum()
            # Six degrees of freedom: exceeded once in 10,000 times.
            self.assertLess(chi_square, 27.9)

    def test_orders_are_not_negative_and_differ(self):
        order = noise(3, [(1, record) for record in range(300)]).order(50).numpy()
        self.assertEqual(order.dtype, np.int64)
        self.assertGreaterEqual(order.min(), 0)
        self.assertLen(np.unique(order), 300 * 50)


if __name__ == "__main__":
    tf.test.main()
