import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.optimization.adamw import AdamWeightDecay
from bert_tf.optimization.lamb import Lamb
from bert_tf.optimization.recipe import create_optimizer


def named_variable(name, values):
    return keras.Variable(np.asarray(values, np.float32), name=name)


class CreateOptimizerTest(tf.test.TestCase, parameterized.TestCase):
    def test_first_step_of_warmup_moves_nothing(self):
        w = named_variable("kernel", [1.0, 2.0])
        optimizer = create_optimizer(0.1, 10, 2)
        optimizer.build([w])
        optimizer.apply([tf.constant([3.0, 4.0])])
        self.assertAllEqual(w, [1.0, 2.0])
        # The gradient is clipped to [0.6, 0.8] before it enters the moments.
        self.assertAllClose(optimizer.moments(w)[0], [0.06, 0.08], rtol=1e-6)
        optimizer.apply([tf.constant([3.0, 4.0])])
        self.assertNotAllClose(w, [1.0, 2.0])

    def test_no_clipping_where_the_caller_clips(self):
        w = named_variable("kernel", [1.0, 2.0])
        optimizer = create_optimizer(0.1, 10, 0, global_clipnorm=None)
        optimizer.build([w])
        optimizer.apply([tf.constant([3.0, 4.0])])
        self.assertAllClose(optimizer.moments(w)[0], [0.3, 0.4], rtol=1e-6)

    def test_serialised_and_back(self):
        optimizer = create_optimizer(
            0.1, 10, 2, bias_correction=True, exclude_from_weight_decay=["x"]
        )
        config = optimizer.get_config()
        restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        self.assertIsInstance(restored, AdamWeightDecay)
        self.assertEqual(restored.get_config(), config)
        self.assertEqual(config["weight_decay_rate"], 0.01)
        self.assertEqual(config["epsilon"], 1e-6)
        self.assertTrue(config["bias_correction"])
        self.assertEqual(config["global_clipnorm"], 1.0)
        self.assertEqual(config["exclude_from_weight_decay"], ["x"])
        restored.iterations.assign(1)
        self.assertAllClose(restored.learning_rate, 0.05)

    @parameterized.parameters(
        # Step 6 of 10, of which 2 warm up.
        ({}, 0.4),
        ({"learning_rate_schedule": "constant"}, 1.0),
        ({"learning_rate_schedule": "polynomial", "power": 2.0}, 0.16),
        ({"learning_rate_schedule": "cosine", "decay_from": "warmup"}, 0.5),
        ({"end_learning_rate": 0.5}, 0.7),
    )
    def test_schedules(self, options, rate):
        for name, kind in (("adamw", AdamWeightDecay), ("lamb", Lamb)):
            optimizer = create_optimizer(1.0, 10, 2, optimizer=name, **options)
            self.assertIsInstance(optimizer, kind)
            optimizer.iterations.assign(6)
            self.assertAllClose(optimizer.learning_rate, rate)

    def test_options_reach_the_optimizer(self):
        for name in ("adamw", "lamb"):
            optimizer = create_optimizer(
                1.0,
                10,
                0,
                optimizer=name,
                weight_decay_rate=0.1,
                layerwise_decay=0.9,
                skip_nonfinite=True,
                global_clipnorm=None,
            )
            config = optimizer.get_config()
            self.assertEqual(
                (
                    config["weight_decay_rate"],
                    config["layerwise_decay"],
                    config["skip_nonfinite"],
                    config["global_clipnorm"],
                ),
                (0.1, 0.9, True, None),
            )

    def test_unknown_names(self):
        with self.assertRaisesRegex(ValueError, "`optimizer` .*adamw, lamb.*sgd"):
            create_optimizer(1.0, 10, 0, optimizer="sgd")
        with self.assertRaisesRegex(ValueError, "`shape` .*linear, cosine.*cubic"):
            create_optimizer(1.0, 10, 0, learning_rate_schedule="cubic")


if __name__ == "__main__":
    tf.test.main()
