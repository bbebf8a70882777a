import tensorflow as tf
from absl import flags

from bert_tf import cli, finetuning_flags


def parse(*arguments):
    return cli.parse(finetuning_flags.define_long_text, arguments)


class LongTextTest(tf.test.TestCase):
    def test_cut_by_default(self):
        values = parse()
        self.assertEqual((values.long_text, values.doc_stride), ("truncate", None))

    def test_windows(self):
        values = parse("--long_text=window", "--doc_stride=64")
        self.assertEqual((values.long_text, values.doc_stride), ("window", 64))

    def test_a_stride_without_windows(self):
        with self.assertRaisesRegex(
            flags.IllegalFlagValueError, "--doc_stride is for --long_text=window"
        ):
            parse("--doc_stride=64")


if __name__ == "__main__":
    tf.test.main()
