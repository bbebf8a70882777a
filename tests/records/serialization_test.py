import numpy as np
import tensorflow as tf

from bert_tf.records.serialization import serialize_block


def expected(columns, row):
    example = tf.train.Example()
    for name, column in columns.items():
        feature = example.features.feature[name]
        is_float = column.dtype == np.float32
        values = feature.float_list if is_float else feature.int64_list
        values.value.extend(column[row].tolist())
    return example.SerializeToString(deterministic=True)


class SerializeBlockTest(tf.test.TestCase):
    def assert_same(self, columns):
        records = serialize_block(columns)
        (num_records,) = {len(column) for column in columns.values()}
        self.assertLen(records, num_records)
        for row, record in enumerate(records):
            self.assertEqual(record, expected(columns, row))

    def test_integers_of_every_size(self):
        powers = np.array([2**power for power in range(63)], np.int64)
        self.assert_same({"a": powers[np.newaxis], "b": powers[np.newaxis] - 1})
        self.assert_same({"a": -powers[np.newaxis], "b": ~powers[np.newaxis]})

    def test_floats(self):
        values = np.array(
            [[0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3e38]], np.float32
        )
        self.assert_same({"weights": values})

    def test_random_blocks(self):
        rng = np.random.default_rng(0)
        for _ in range(20):
            num_records = int(rng.integers(1, 5))
            columns = {}
            for number in rng.permutation(5):
                # Names of one byte to more than a varint's first 127.
                name = f"{number}" + "x" * int(rng.integers(0, 200))
                shape = (num_records, int(rng.integers(1, 300)))
                if rng.random() < 0.3:
                    columns[name] = rng.normal(size=shape).astype(np.float32)
                else:
                    numbers = rng.integers(-(2**62), 2**62, shape)
                    columns[name] = numbers >> int(rng.integers(0, 62))
            self.assert_same(columns)
