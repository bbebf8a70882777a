import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.training.strategy import create_strategy


class StrategyTest(tf.test.TestCase):
    def test_the_default_is_the_machines(self):
        self.assertIs(create_strategy(), tf.distribute.get_strategy())

    def test_no_tpu_is_one_line(self):
        with self.assertRaisesRegex(InputError, "no TPU answers .*--tpu_name=local"):
            create_strategy(use_tpu=True, tpu_name="local")


if __name__ == "__main__":
    tf.test.main()
