import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records.record_counts import count_records


class CountRecordsTest(tf.test.TestCase):
    def write(self, name, count):
        path = os.path.join(self.get_temp_dir(), name)
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(count):
                writer.write(b"r" * (10 * number))
        return path

    def test_counts(self):
        for count in (0, 1, 5):
            self.assertEqual(count_records(self.write("r", count)), count)

    def test_a_file_that_breaks_off_is_named(self):
        path = self.write("r", 3)
        with open(path, "rb") as file:
            content = file.read()
        for length in (len(content) - 1, len(content) - 30):
            with open(path, "wb") as file:
                file.write(content[:length])
            with self.assertRaisesRegex(InputError, "breaks off in record 3"):
                count_records(path)

    def test_a_text_file_is_named(self):
        path = os.path.join(self.get_temp_dir(), "text.txt")
        with open(path, "w") as file:
            file.write("not a record file at all\n" * 9)
        with self.assertRaisesRegex(InputError, "not a whole TFRecord file"):
            count_records(path)


if __name__ == "__main__":
    tf.test.main()
