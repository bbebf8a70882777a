"""Files that TensorFlow reads, and whose checksums it accepts."""

import os

import tensorflow as tf

from bert_tf.records.tfrecord_files import masked_checksum, write_records


class WriteRecordsTest(tf.test.TestCase):
    def test_tensorflow_writes_the_same_bytes(self):
        records = [b"", b"a", b"12345" * 1000, bytes(range(256))]
        ours, theirs = (os.path.join(self.get_temp_dir(), name) for name in "ab")
        with open(ours, "wb") as file:
            write_records(file, records[:1])
            write_records(file, records[1:])
        with tf.io.TFRecordWriter(theirs) as writer:
            for record in records:
                writer.write(record)
        with open(ours, "rb") as one, open(theirs, "rb") as other:
            self.assertEqual(one.read(), other.read())
        self.assertEqual(
            [record.numpy() for record in tf.data.TFRecordDataset(ours)], records
        )

    def test_the_checksum_of_a_known_string(self):
        # CRC-32C of "123456789" is 0xE3069283 (RFC 3720, B.4 uses the same code):
        # rotated right by 15 bits 0x2507C60D, plus 0xA282EAD8 is 0xC78AB0E5.
        self.assertEqual(masked_checksum(b"123456789").hex(), "e5b08ac7")


if __name__ == "__main__":
    tf.test.main()
