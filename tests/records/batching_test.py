import itertools
import os

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.records.batching import (
    PADDING,
    ROWS,
    Batching,
    EvaluationBatches,
    ExampleTable,
    LengthPlan,
    endless_rows,
    predict_groups,
    static_lengths,
)
from bert_tf.records.pipeline import training_dataset
from bert_tf.records.spec import Feature, RecordSpec
from bert_tf.records.writing import ShardWriter
from tests.training.toy_examples import LENGTHS, TARGET, L, blocks, several_lengths


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


SPEC = RecordSpec(
    [
        *(
            Feature(name, "int64", (6,), "max_seq_length")
            for name in ("input_ids", "input_mask")
        ),
        Feature("label_ids", "float32", (2,)),
    ]
)
IDS = [[5, 6], [7, 8, 9, 10, 11, 12], [13, 14, 15]]


class ExampleTableTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        padded = [ids + [0] * (6 - len(ids)) for ids in IDS]
        numbers = np.arange(3)
        block = {
            "input_ids": np.array(padded),
            "input_mask": (np.array(padded) > 0).astype(int),
            "label_ids": np.stack([numbers + 0.5, -np.ones(3)], axis=1),
        }
        self.table = ExampleTable([block], SPEC)

    def test_lengths(self):
        self.assertLen(self.table, 3)
        self.assertAllEqual(self.table.lengths, [2, 6, 3])

    def assert_batches(self, first, second):
        self.assertAllEqual(first["input_ids"], [[13, 14, 15, 0], [5, 6, 0, 0]])
        self.assertAllEqual(first["input_mask"], [[1, 1, 1, 0], [1, 1, 0, 0]])
        self.assertAllEqual(first["label_ids"], [[2.5, -1], [0.5, -1]])
        self.assertAllEqual(second["input_ids"], [[5, 6, 0, 0], [0] * 4])
        self.assertAllEqual(second["label_ids"], [[0.5, -1], [0, 0]])

    def test_batches_of_any_records_and_length(self):
        rows = np.array([[2, 0], [0, -1]])
        dataset = self.table.dataset(rows, 4)
        self.assertEqual(dataset.element_spec["input_ids"].shape, (2, 4))
        batches = list(dataset.as_numpy_iterator())
        self.assert_batches(*batches)
        real = [batch["is_real_example"].tolist() for batch in batches]
        self.assertEqual(real, [[[1], [1]], [[1], [0]]])

    def test_batches_for_evaluation(self):
        rows = np.array([[2, 0], [0, -1], [1, 1]])
        batches = EvaluationBatches(self.table, rows, np.array([4, 4, 6]))
        self.assertLen(batches, 3)
        self.assertEqual(batches.batch_size, 2)
        *two, third = batches
        self.assertEqual(third["input_ids"].dtype, np.int32)
        self.assert_batches(*two)
        self.assertAllEqual([b[ROWS] for b in (*two, third)], rows)
        self.assertAllEqual(third["input_ids"], [[7, 8, 9, 10, 11, 12]] * 2)
        self.assertEqual(third["label_ids"].dtype, tf.float32)

    def test_a_batch_of_all_records(self):
        (whole,) = self.table.batches(3, num_lengths=1)
        self.assertAllEqual(
            whole["input_ids"], [[5, 6, 0, 0, 0, 0], IDS[1], [13, 14, 15, 0, 0, 0]]
        )
        for length in (2, 6, 8):
            expected = [(ids + [0] * length)[:length] for ids in IDS]
            batch = self.table.padded(np.arange(3), length)
            self.assertAllEqual(batch["input_ids"], expected)
            self.assertAllEqual(batch["input_mask"], np.array(expected) > 0)
            self.assertAllEqual(batch["label_ids"], [[0.5, -1], [1.5, -1], [2.5, -1]])
            dtypes = {name: value.dtype for name, value in batch.items()}
            ints = dict.fromkeys(("input_ids", "input_mask", ROWS), np.int32)
            self.assertEqual(dtypes, {**ints, "label_ids": np.float32})


class TableOfWindowsTest(tf.test.TestCase):
    """Records of one to three windows of at most four tokens."""

    texts = ([[1, 2, 3, 4], [3, 4, 5]], [[6, 7]], [[1, 2, 3, 4], [2, 3, 4, 5], [9]])

    def padded(self, windows, count, length):
        """All windows of a text, one number at a time."""
        found = np.zeros((count, length), int)
        for number, ids in enumerate(windows):
            for place, one in enumerate(ids):
                found[number, place] = one
        return found

    def setUp(self):
        super().setUp()
        blocks = []
        for number, some in enumerate((self.texts[:2], self.texts[2:])):
            ids = np.stack([self.padded(one, 2 + number, 4) for one in some])
            blocks.append(
                {
                    "input_ids": ids,
                    "input_mask": (ids > 0).astype(int),
                    "label_ids": np.full((len(some), 2), 7.0 + number),
                }
            )
        features = [
            Feature(name, "int64", (4,), "max_seq_length")
            for name in ("input_ids", "input_mask")
        ]
        spec = RecordSpec([*features, Feature("label_ids", "float32", (2,))])
        self.table = ExampleTable(blocks, spec)

    def test_lengths(self):
        # All windows but a single one count as full.
        self.assertAllEqual(self.table.lengths, [8, 2, 12])
        self.assertEqual(self.table.full_length, 12)
        self.assertAlmostEqual(self.table.mean_length, (7 + 2 + 9) / 3)

    def test_a_batch_has_the_windows_that_its_length_holds(self):
        for length, count, width, rows in (
            (3, 1, 3, [1, 1, -1]),
            (4, 1, 4, [1, 1, -1]),
            (8, 2, 4, [0, 1, -1]),
            (12, 3, 4, [0, 2, 1]),
        ):
            expected = [
                self.padded(() if row < 0 else self.texts[row], count, width)
                for row in rows
            ]
            rows = np.array(rows)
            batch = self.table.padded(rows, length)
            (trained,) = self.table.dataset(rows[None], length)
            for found in (batch, trained):
                self.assertAllEqual(found["input_ids"], expected)
                self.assertAllEqual(found["input_mask"], np.array(expected) > 0)
        self.assertAllEqual(trained["label_ids"], [[7, 7], [8, 8], [7, 7]])


class GroupsTest(tf.test.TestCase):
    def test_outputs_belong_to_their_group_however_far_batches_are_fetched(self):
        spec = RecordSpec([Feature("input_mask", "int64", (4,), "max_seq_length")])
        groups = [
            (
                [f"{number} of {count}" for number in range(count)],
                ExampleTable([{"input_mask": np.ones([count, 4], np.int32)}], spec),
            )
            for count in (5, 3, 4)
        ]

        def as_arrays(batch):
            return {name: np.asarray(values) for name, values in batch.items()}

        def fetch_all(batches, total):
            del total
            yield from [(as_arrays(batch), {}) for batch in batches]

        def one_by_one(batches, total):
            del total
            for batch in batches:
                yield as_arrays(batch), {}

        for predict in (one_by_one, fetch_all):
            found = predict_groups(
                iter(groups),
                predict,
                lambda items, row, *_: items[row],
                Batching(batch_size=2, max_seq_length=4),
                12,
            )
            self.assertEqual(list(found), [(items, items) for items, _ in groups])


class RecordsOfExamplesTest(tf.test.TestCase):
    def of(self, records=None, made_from="a", length=L):
        spec = RecordSpec.classification(
            length, TARGET.label_dtype, TARGET.label_length
        )
        records = blocks() if records is None else records
        return ExampleTable(records, spec, {"examples": made_from})

    def test_what_they_are_made_from(self):
        first = self.of()
        self.assertEqual((len(first), first.spec.max_seq_length), (11, L))
        self.assertEqual(self.of().made_from, first.made_from)
        wide = [
            {
                name: np.pad(value, [(0, 0), (0, 4)]) if value.shape[1] == L else value
                for name, value in block.items()
            }
            for block in blocks()
        ]
        others = (self.of(made_from="b"), self.of(wide, length=16))
        ids = {first.made_from, *(other.made_from for other in others)}
        self.assertLen(ids, 3)

    def test_no_example(self):
        with self.assertRaisesRegex(InputError, "no example"):
            self.of([])

    def test_endless_rows_are_those_of_a_file_of_records(self):
        path = os.path.join(self.get_temp_dir(), "records")
        spec = RecordSpec([Feature("number", "int64", (1,))])
        with ShardWriter([path]) as writer:
            writer.write([spec.serialize({"number": [n]}) for n in range(11)])
        for position in (0, 4, 9, 31):
            dataset = training_dataset(
                *([path], [11], spec),
                batch_size=4,
                seed=7,
                start=position,
                shuffle_buffer=11,
            )
            expected = [batch["number"][:, 0].numpy() for batch in dataset.take(6)]
            self.assertAllEqual(endless_rows(11, 4, 7, position, 6), expected)

    @several_lengths()
    def test_batches_of_all_records(self):
        records = self.of()
        batches = list(records.batches(4))
        self.assertAllEqual(
            [batch["rows"] for batch in batches],
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, -1]],
        )
        self.assertEqual([b["input_ids"].shape[1] for b in batches], [12] * 3)
        batches = list(records.batches(4, num_lengths=2))
        self.assertLen(batches, records.num_batches(4))
        # By length, at equal lengths in their order; the padding comes last.
        self.assertAllEqual(
            [batch["rows"] for batch in batches],
            [[0, 5, 3, 8], [2, 9, 6, 10], [4, 7, 1, -1]],
        )
        lengths = [b["input_ids"].shape[1] for b in batches]
        self.assertLen(set(lengths), 2)
        for batch, length in zip(batches, lengths, strict=True):
            rows = batch["rows"]
            for row, mask in zip(rows, batch["input_mask"], strict=True):
                self.assertEqual(mask.sum(), LENGTHS[row] if row >= 0 else 0)
            self.assertLessEqual(max(LENGTHS[row] for row in rows), length)
            self.assertAllEqual(batch["is_real_example"][:, 0], rows >= 0)
