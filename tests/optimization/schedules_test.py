import keras
import numpy as np
import tensorflow as tf

from bert_tf.optimization.schedules import WarmupLinearDecay


class WarmupLinearDecayTest(tf.test.TestCase):
    def rates(self, schedule, steps):
        return [float(schedule(tf.constant(step, tf.int64))) for step in steps]

    def test_values(self):
        schedule = WarmupLinearDecay(1.0, num_train_steps=10, num_warmup_steps=4)
        self.assertAllClose(
            self.rates(schedule, range(13)),
            [0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0, 0],
            rtol=1e-6,
            atol=1e-7,
        )

    def test_without_warmup(self):
        schedule = WarmupLinearDecay(2e-5, num_train_steps=4)
        self.assertAllClose(
            self.rates(schedule, range(6)),
            [2e-5, 1.5e-5, 1e-5, 0.5e-5, 0, 0],
            rtol=1e-6,
            atol=0,
        )

    def test_the_papers_pre_training(self):
        # 1,000,000 steps at 1e-4, 10,000 of warmup.
        schedule = WarmupLinearDecay(1e-4, 1_000_000, 10_000)
        self.assertAllClose(
            self.rates(schedule, [0, 1, 5_000, 9_999, 10_000, 500_000, 990_000]),
            [0, 1e-8, 5e-5, 9.999e-5, 9.9e-5, 5e-5, 1e-6],
            rtol=1e-5,
            atol=0,
        )

    def test_float32_as_the_original_computes(self):
        # TF1's polynomial_decay and the original's warmup, each operation in float32.
        f = np.float32
        schedule = WarmupLinearDecay(3e-5, 977, 97)
        steps = np.arange(1100)
        progress = np.minimum(steps, 977).astype(f) / f(977)
        decayed = f(3e-5) * (f(1) - progress)
        warm = (steps < 97).astype(f)
        warming = f(3e-5) * (steps.astype(f) / f(97))
        expected = (f(1) - warm) * decayed + warm * warming
        self.assertEqual(expected.dtype, f)
        self.assertAllEqual(schedule(tf.constant(steps, tf.int64)), expected)

    def test_warmup_longer_than_training(self):
        schedule = WarmupLinearDecay(1.0, num_train_steps=2, num_warmup_steps=4)
        self.assertAllClose(self.rates(schedule, range(5)), [0, 0.25, 0.5, 0.75, 0])

    def test_serialised_and_back(self):
        schedule = WarmupLinearDecay(1e-4, 100, 10)
        config = keras.optimizers.schedules.serialize(schedule)
        restored = keras.optimizers.schedules.deserialize(config)
        self.assertIsInstance(restored, WarmupLinearDecay)
        self.assertEqual(
            restored.get_config(),
            {"learning_rate": 1e-4, "num_train_steps": 100, "num_warmup_steps": 10},
        )

    def test_numbers_of_steps(self):
        with self.assertRaisesRegex(ValueError, "`num_train_steps`.*0"):
            WarmupLinearDecay(1e-4, 0)
        with self.assertRaisesRegex(ValueError, "`num_warmup_steps`.*-1"):
            WarmupLinearDecay(1e-4, 10, -1)


if __name__ == "__main__":
    tf.test.main()
