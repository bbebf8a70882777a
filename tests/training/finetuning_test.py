import os

import tensorflow as tf

from bert_tf.records.schema import INT64, Feature, RecordSchema
from bert_tf.training.finetuning import RecordSet

SCHEMA = RecordSchema([Feature("ids", INT64, (2,))])


class RecordSetTest(tf.test.TestCase):
    def test_workers_write_the_same_file_at_the_same_time(self):
        path = os.path.join(self.get_temp_dir(), "train.tf_record")

        def write(features):
            return RecordSet.write(
                path, SCHEMA, features, {"ids": [0, 0]}, is_alone=False
            )

        def while_another_writes():
            yield {"ids": [1, 2]}
            write([{"ids": [1, 2]}, {"ids": [3, 4]}])
            yield {"ids": [3, 4]}

        records = write(while_another_writes())
        self.assertEqual(records.num_examples, 2)
        (batch,) = records.batches(3)
        self.assertAllEqual(batch["ids"], [[1, 2], [3, 4], [0, 0]])
        self.assertEqual(os.listdir(self.get_temp_dir()), ["train.tf_record"])


if __name__ == "__main__":
    tf.test.main()
