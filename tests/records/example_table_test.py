import os

import numpy as np
import tensorflow as tf

from bert_tf.records.example_table import ROWS, EvaluationBatches, ExampleTable
from bert_tf.records.pipeline import InputShard
from bert_tf.records.schema import Feature, RecordSchema
from bert_tf.records.shards import ShardWriter

SCHEMA = RecordSchema(
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
        path = os.path.join(self.get_temp_dir(), "records")
        with ShardWriter([path]) as writer:
            for number, ids in enumerate(IDS):
                padding = [0] * (6 - len(ids))
                record = {
                    "input_ids": ids + padding,
                    "input_mask": [1] * len(ids) + padding,
                    "label_ids": [number + 0.5, -1.0],
                }
                writer.write([SCHEMA.serialize(record)])
        self.table = ExampleTable.read(path, SCHEMA)

    def test_lengths_and_columns(self):
        self.assertLen(self.table, 3)
        self.assertAllEqual(self.table.lengths, [2, 6, 3])
        self.assertAllEqual(
            self.table.column("label_ids"), [[0.5, -1], [1.5, -1], [2.5, -1]]
        )

    def assert_batches(self, first, second):
        self.assertAllEqual(first["input_ids"], [[13, 14, 15, 0], [5, 6, 0, 0]])
        self.assertAllEqual(first["input_mask"], [[1, 1, 1, 0], [1, 1, 0, 0]])
        self.assertAllEqual(first["label_ids"], [[2.5, -1], [0.5, -1]])
        self.assertAllEqual(second["input_ids"], [[5, 6, 0, 0], [0] * 4])
        self.assertAllEqual(second["label_ids"], [[0.5, -1], [0, 0]])

    def test_batches_of_any_records_and_length(self):
        rows = np.array([[2, 0], [0, -1]])
        dataset = self.table.batches(rows, 4)
        self.assertEqual(dataset.element_spec["input_ids"].shape, (2, 4))
        batches = list(dataset.as_numpy_iterator())
        self.assert_batches(*batches)
        real = [batch["is_real_example"].tolist() for batch in batches]
        self.assertEqual(real, [[[1], [1]], [[1], [0]]])

    def test_records_that_lie_in_no_file(self):
        block = {
            "input_ids": np.array([[9, 8, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0]]),
            "input_mask": np.array([[1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]),
            "label_ids": np.array([[0.5, 1.5], [2.5, 3.5]]),
        }
        table = ExampleTable([block, block], SCHEMA)
        self.assertAllEqual(table.lengths, [2, 1, 2, 1])
        batch = table.padded(np.array([3, 0]), 2)
        self.assertAllEqual(batch["input_ids"], [[7, 0], [9, 8]])
        self.assertAllEqual(batch["label_ids"], [[2.5, 3.5], [0.5, 1.5]])
        self.assertEqual(batch["input_ids"].dtype, tf.int32)
        self.assertEqual(batch["label_ids"].dtype, tf.float32)

    def test_batches_for_evaluation(self):
        rows = np.array([[2, 0], [0, -1], [1, 1]])
        batches = EvaluationBatches(self.table, rows, np.array([4, 4, 6]))
        self.assertLen(batches, 3)
        self.assertEqual(batches.element_spec["input_ids"].shape.as_list(), [2, None])
        self.assertEqual(batches.element_spec["input_ids"].dtype, tf.int32)
        *two, third = batches
        self.assert_batches(*two)
        self.assertAllEqual([b[ROWS] for b in (*two, third)], rows)
        self.assertAllEqual(third["input_ids"], [[7, 8, 9, 10, 11, 12]] * 2)
        self.assertEqual(third["label_ids"].dtype, tf.float32)

    def test_a_workers_rows_a_replica_at_a_time(self):
        rows = np.array([[0, 1, 2, -1], [2, 1, 0, 0]])
        shard = InputShard(worker=1, num_workers=2, num_replicas=2)
        there = [
            batch["input_ids"].tolist()
            for batch in self.table.batches(rows, 6, shard=shard).as_numpy_iterator()
        ]
        first, third = [*IDS[0], 0, 0, 0, 0], [*IDS[2], 0, 0, 0]
        self.assertEqual(there, [[third], [[0] * 6], [first], [first]])


if __name__ == "__main__":
    tf.test.main()
