import itertools

import numpy as np
import tensorflow as tf

from bert_tf.records.length_plan import PADDING, LengthPlan, static_lengths


def padded_tokens(lengths, buckets):
    return sum(min(b for b in buckets if b >= length) for length in lengths)


class StaticLengthsTest(tf.test.TestCase):
    def test_by_hand(self):
        # 3, 3, 3 and 9, 10: cutting between 3 and 9 leaves 1 token of padding.
        self.assertEqual(static_lengths([3, 10, 3, 9, 3], 2), (3, 10))
        self.assertEqual(static_lengths([3, 10, 3, 9, 3], 1), (10,))
        self.assertEqual(static_lengths([3, 10, 3, 9, 3], 3), (3, 9, 10))
        self.assertEqual(static_lengths([5, 5], 4), (5,))

    def test_no_other_lengths_leave_less_padding(self):
        rng = np.random.default_rng(3)
        for number in range(30):
            lengths = rng.integers(1, 12, rng.integers(1, 25))
            count = 1 + number % 5
            found = static_lengths(lengths, count)
            self.assertLessEqual(len(found), count)
            distinct = sorted(set(lengths.tolist()))
            best = min(
                padded_tokens(lengths, [*chosen, distinct[-1]])
                for size in range(min(count, len(distinct)))
                for chosen in itertools.combinations(distinct[:-1], size)
            )
            self.assertEqual(padded_tokens(lengths, found), best)

    def test_refuses_nothing(self):
        for lengths, count in (([], 2), ([3], 0), ([0], 1)):
            with self.assertRaisesRegex(ValueError, "must be positive"):
                static_lengths(lengths, count)


class LengthPlanTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.lengths = np.random.default_rng(1).integers(2, 40, 103)
        self.buckets = static_lengths(self.lengths, 4)

    def plan(self, seed=7, batch_size=8):
        return LengthPlan(self.lengths, batch_size, self.buckets, seed)

    def test_an_epoch_has_every_example_once_and_one_batch_that_is_not_full(self):
        for seed in (7, None):
            plan = self.plan(seed)
            rows, buckets = plan.epoch(2)
            self.assertEqual(rows.shape, (13, 8))
            self.assertEqual(plan.batches_per_epoch, 13)
            real = rows[rows != PADDING]
            self.assertAllEqual(np.sort(real), np.arange(103))
            self.assertEqual((rows == PADDING).sum(), 1)
            for row, bucket in zip(rows, buckets, strict=True):
                longest = self.lengths[row[row != PADDING]].max()
                self.assertLessEqual(longest, self.buckets[bucket])

    def test_batches_are_of_like_length(self):
        _, buckets = self.plan().epoch(0)
        padded = np.array(self.buckets)[buckets].sum() * 8
        # At most the leftovers of 3 lengths, 7 examples each, go on to a longer one.
        best = padded_tokens(self.lengths, self.buckets)
        self.assertLessEqual(padded, best + 3 * 7 * 38 + 8 * 40)
        self.assertLess(padded, 0.75 * 103 * 40)

    def test_the_order_is_a_function_of_the_seed_and_the_epoch(self):
        first, again = self.plan().epoch(1), self.plan().epoch(1)
        self.assertAllEqual(first.rows, again.rows)
        self.assertNotAllEqual(first.rows, self.plan().epoch(0).rows)
        self.assertNotAllEqual(first.rows, self.plan(seed=8).epoch(1).rows)

    def test_a_later_start_has_the_same_batches(self):
        whole = self.plan().batches(0, 40)
        self.assertLen(whole.rows, 40)
        self.assertAllEqual(whole.rows[:13], self.plan().epoch(0).rows)
        for start, stop in ((5, 40), (13, 14), (26, 39), (39, 40)):
            part = self.plan().batches(start, stop)
            self.assertAllEqual(part.rows, whole.rows[start:stop])
            self.assertAllEqual(part.buckets, whole.buckets[start:stop])
        self.assertEqual(self.plan().batches(4, 4).rows.shape, (0, 8))

    def test_without_a_seed_the_shortest_come_first(self):
        rows, _ = self.plan(seed=None).epoch(0)
        lengths = self.lengths[rows[rows != PADDING]]
        # In the order of the lengths, but for what the last, longest batch takes up.
        self.assertAllEqual(lengths, np.sort(self.lengths))

    def test_refuses_lengths_that_no_bucket_covers(self):
        with self.assertRaisesRegex(ValueError, "must cover"):
            LengthPlan(np.array([3, 9]), 2, (3, 8), 1)


if __name__ == "__main__":
    tf.test.main()
