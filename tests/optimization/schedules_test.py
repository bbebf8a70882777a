import keras
import numpy as np
import tensorflow as tf

from bert_tf.optimization.schedules import WarmupSchedule


class WarmupScheduleTest(tf.test.TestCase):
    def rates(self, schedule, steps):
        return [float(schedule(tf.constant(step, tf.int64))) for step in steps]

    def test_values(self):
        schedule = WarmupSchedule(1.0, num_train_steps=10, num_warmup_steps=4)
        self.assertAllClose(
            self.rates(schedule, range(13)),
            [0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0, 0],
            rtol=1e-6,
            atol=1e-7,
        )

    def test_float32_as_the_original_computes(self):
        # TF1's polynomial_decay and the original's warmup, each operation in float32.
        f = np.float32
        schedule = WarmupSchedule(3e-5, 977, 97)
        steps = np.arange(1100)
        progress = np.minimum(steps, 977).astype(f) / f(977)
        decayed = f(3e-5) * (f(1) - progress)
        warm = (steps < 97).astype(f)
        warming = f(3e-5) * (steps.astype(f) / f(97))
        expected = (f(1) - warm) * decayed + warm * warming
        self.assertEqual(expected.dtype, f)
        self.assertAllEqual(schedule(tf.constant(steps, tf.int64)), expected)

    def test_other_decays_by_hand(self):
        # r 1, N 8, W 2: p = s / 8, or (s - 2) / 6. From the start, at s = 2, the cosine
        # is (1 + cos(pi / 4)) / 2 and the square (3 / 4)^2; the root at 3 sqrt(2 / 3).
        cosine = [0.853553, 0.691342, 0.5, 0.308658, 0.146447, 0.038060]
        root = [1.0, 0.816497, 0.707107, 0.632456, 0.577350, 0.534522, 0.5, 0.471405]
        square = [0.5625, 0.390625, 0.25, 0.140625, 0.0625, 0.015625]
        rates = {
            ("cosine", "start"): [*cosine, 0.0, 0.0],
            ("cosine", "warmup"): [1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987, 0.0, 0.0],
            ("linear", "warmup"): [1.0, 5 / 6, 4 / 6, 0.5, 2 / 6, 1 / 6, 0.0, 0.0],
            ("polynomial", "start"): [*square, 0.0, 0.0],
            ("constant", "start"): [1.0] * 8,
            # The last quarter of 8 steps: 1 at 6, 1 / 2 at 7.
            ("wsd", "start"): [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0],
            ("inverse_sqrt", "start"): root,
        }
        for (shape, decay_from), expected in rates.items():
            power = 2.0 if shape == "polynomial" else 1.0
            schedule = WarmupSchedule(
                1.0,
                8,
                2,
                shape=shape,
                decay_from=decay_from,
                power=power,
                decay_share=0.25,
            )
            self.assertAllClose(
                schedule(tf.range(10, dtype=tf.int64)),
                [0.0, 0.5, *expected],
                rtol=1e-5,
                atol=1e-6,
                msg=f"{shape} from {decay_from}",
            )

    def test_the_last_rate(self):
        schedule = WarmupSchedule(1.0, 4, 2, end_learning_rate=0.2, decay_from="warmup")
        self.assertAllClose(self.rates(schedule, range(6)), [0, 0.5, 1, 0.6, 0.2, 0.2])
        schedule = WarmupSchedule(1.0, 4, shape="cosine", end_learning_rate=0.2)
        self.assertAllClose(
            self.rates(schedule, range(6)), [1, 0.882843, 0.6, 0.317157, 0.2, 0.2]
        )

    def test_inverse_square_root_without_warmup(self):
        schedule = WarmupSchedule(1.0, 4, shape="inverse_sqrt")
        self.assertAllClose(
            self.rates(schedule, (0, 1, 4, 16, 100)), [1, 1, 0.5, 0.25, 0.1]
        )

    def test_a_warmup_that_takes_all_steps(self):
        for shape in ("linear", "cosine"):
            schedule = WarmupSchedule(1.0, 2, 4, shape=shape, decay_from="warmup")
            rates = self.rates(schedule, range(4))
            self.assertAllClose(rates, [0, 0.25, 0.5, 0.75])

    def test_what_does_not_fit_together(self):
        for options in (
            {"shape": "cubic"},
            {"decay_from": "end"},
            {"shape": "constant", "end_learning_rate": 0.1},
            {"shape": "inverse_sqrt", "decay_from": "warmup"},
            {"power": 2.0},
            {"shape": "polynomial", "power": 0.0},
        ):
            with self.assertRaisesRegex(ValueError, "must .*Received"):
                WarmupSchedule(1e-4, 10, **options)
        with self.assertRaisesRegex(ValueError, "`num_train_steps`.*0"):
            WarmupSchedule(1e-4, 0)
        with self.assertRaisesRegex(ValueError, "`num_warmup_steps`.*-1"):
            WarmupSchedule(1e-4, 10, -1)

    def test_serialised_and_back(self):
        schedule = WarmupSchedule(1e-4, 100, 10)
        config = keras.optimizers.schedules.serialize(schedule)
        restored = keras.optimizers.schedules.deserialize(config)
        self.assertIsInstance(restored, WarmupSchedule)
        self.assertEqual(
            restored.get_config(),
            {
                "learning_rate": 1e-4,
                "num_train_steps": 100,
                "num_warmup_steps": 10,
                "shape": "linear",
                "end_learning_rate": 0.0,
                "power": 1.0,
                "decay_from": "start",
                "decay_share": 0.2,
            },
        )
