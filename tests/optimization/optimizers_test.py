import re

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.methods.lamb import Lamb
from bert_tf.addons.methods.muon import Muon
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.optimization.optimizers import (
    AdamWeightDecay,
    WarmupSchedule,
    clip_scale,
    create_optimizer,
    dense_gradient,
)
from tests.modeling.examples import small_config


class ClipScaleTest(tf.test.TestCase):
    def clipped(self, gradients):
        scale, _ = clip_scale(gradients, 1.0)
        return [dense_gradient(g) * scale for g in gradients if g is not None]

    def test_small_gradients_stay(self):
        gradients = [tf.constant([0.3, 0.4]), None, tf.zeros([2])]
        first, last = self.clipped(gradients)
        self.assertAllEqual(first, [np.float32(0.3), np.float32(0.4)])
        self.assertAllEqual(last, [0.0, 0.0])
        self.assertAllEqual(self.clipped([tf.zeros([2])])[0], [0.0, 0.0])

    def test_as_tensorflows(self):
        rng = np.random.default_rng(0)
        for scale in (1e-3, 0.2, 1.0, 1e4):
            gradients = [
                tf.constant(rng.normal(0.0, scale, shape), tf.float32)
                for shape in ((7,), (3, 4), (2, 2, 2))
            ]
            expected, norm = tf.clip_by_global_norm(gradients, 1.0)
            self.assertAllClose(clip_scale(gradients, 1.0)[1], norm)
            for a, b in zip(self.clipped(gradients), expected, strict=True):
                self.assertAllClose(a, b, rtol=1e-6, atol=0)

    def test_what_is_not_finite_becomes_nan_everywhere(self):
        for bad in (np.inf, -np.inf, np.nan):
            clipped = self.clipped([tf.constant([1.0]), tf.constant([bad, 2.0])])
            self.assertAllEqual(np.isnan(np.concatenate(clipped)), [True] * 3)

    def test_rows_looked_up_twice_are_summed_first(self):
        rows = tf.IndexedSlices(
            values=tf.constant([[1.0, 0.0], [0.0, 4.0], [2.0, 0.0]]),
            indices=tf.constant([1, 0, 1]),
            dense_shape=tf.constant([3, 2]),
        )
        self.assertAllEqual(dense_gradient(rows), [[0, 4], [3, 0], [0, 0]])
        self.assertAllClose(self.clipped([rows])[0], [[0, 0.8], [0.6, 0], [0, 0]])


def named_variable(name, values):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def built(optimizer, *variables):
    optimizer.build(list(variables))
    return optimizer


class ScaleTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_the_gradients_are_multiplied(self, traced):
        w, b = named_variable("kernel", [1.0, 2.0]), named_variable("bias", [3.0])
        optimizer = built(AdamWeightDecay(0.1), w, b)
        apply = optimizer.apply
        if traced:
            apply = tf.function(apply)
        gradients = [tf.constant([3.0, 4.0]), tf.constant([12.0])]
        scale, norm = clip_scale(gradients, 1.0)
        self.assertAllClose(norm, 13.0)
        self.assertAllClose(scale, 1 / 13)
        apply(gradients, scale=scale)
        self.assertAllClose(optimizer.moments(w)[0], [0.3 / 13, 0.4 / 13])
        self.assertAllClose(optimizer.moments(b)[0], [1.2 / 13])
        # v = 0.001 * 9 / 169, whatever the scale: m / sqrt(v) = 0.1 / sqrt(0.001).
        self.assertAllClose(w, [1 - 0.31723, 2 - 0.31822], atol=1e-4)

    def test_clipping_twice_is_refused(self):
        w = named_variable("kernel", [1.0])
        optimizer = built(AdamWeightDecay(0.1, global_clipnorm=1.0), w)
        with self.assertRaisesRegex(ValueError, "global_clipnorm=None"):
            optimizer.apply([tf.constant([1.0])], scale=tf.constant(0.5))


class SkipNonfiniteTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_step_of_nan_scale_changes_nothing(self):
        w, b = named_variable("kernel", [1.0, 2.0]), named_variable("bias", [3.0])
        optimizer = built(AdamWeightDecay(0.1, skip_nonfinite=True), w, b)
        one = tf.constant(1.0)
        optimizer.apply([tf.constant([1.0, 2.0]), tf.constant([3.0])], scale=one)
        before = [np.array(v) for v in (w, b, *optimizer.variables[2:])]
        self.assertLen(before, 6)
        gradients = [tf.constant([np.inf, 4.0]), tf.constant([12.0])]
        optimizer.apply(gradients, scale=clip_scale(gradients, 1.0)[0])
        for variable, value in zip(
            (w, b, *optimizer.variables[2:]), before, strict=True
        ):
            self.assertAllEqual(variable, value)
        optimizer.apply([tf.constant([1.0, 2.0]), tf.constant([3.0])], scale=one)
        self.assertNotAllClose(w, before[0])
        self.assertTrue(np.isfinite(np.array(w)).all())

    def test_it_needs_a_scale(self):
        w = named_variable("kernel", [1.0])
        optimizer = built(AdamWeightDecay(0.1, skip_nonfinite=True), w)
        with self.assertRaisesRegex(ValueError, "`scale` must be given"):
            optimizer.apply([tf.constant([1.0])])


def numpy_adamw(weight, gradients, rates, *, decay, bias_correction):
    """Float64, number by number: Kingma and Ba's algorithm 1 with BERT's changes."""
    result = np.array(weight, np.float64)
    for index in np.ndindex(result.shape):
        m = v = 0.0
        for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
            g = float(gradient[index])
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g * g
            m_hat = m / (1 - 0.9 ** (step + 1)) if bias_correction else m
            v_hat = v / (1 - 0.999 ** (step + 1)) if bias_correction else v
            update = m_hat / (v_hat**0.5 + 1e-6)
            result[index] -= rate * (update + decay * result[index])
    return result


class UpdateTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (False, False, 0.01), (False, True, 0.1), (True, True, 0.01), (True, False, 0.0)
    )
    def test_seven_steps_against_a_loop(self, bias_correction, traced, decay):
        rng = np.random.default_rng(0)
        values = {
            "kernel": rng.normal(size=(3, 4)),
            "gamma_of_LayerNorm": rng.normal(size=5),
            "word_embeddings": rng.normal(size=(6, 2)),
        }
        variables = [named_variable(*item) for item in values.items()]
        gradients = [
            [rng.normal(size=v.shape) * 10.0 ** -(step % 4) for v in values.values()]
            for step in range(7)
        ]
        optimizer = AdamWeightDecay(
            WarmupSchedule(0.5, 10, 3),
            weight_decay_rate=decay,
            bias_correction=bias_correction,
        )
        optimizer.build(variables)
        apply = tf.function(optimizer.apply) if traced else optimizer.apply
        for step in gradients:
            apply([tf.constant(g, tf.float32) for g in step])
        # 0.5 * step / 3, then 0.5 * (1 - step / 10).
        rates = [0.0, 0.5 / 3, 1.0 / 3, 0.35, 0.3, 0.25, 0.2]
        for i, (name, value) in enumerate(values.items()):
            expected = numpy_adamw(
                value,
                [step[i] for step in gradients],
                rates,
                decay=0.0 if "LayerNorm" in name else decay,
                bias_correction=bias_correction,
            )
            self.assertAllClose(variables[i], expected, rtol=1e-5, atol=1e-6)

    def test_rows_that_were_not_looked_up_move_too(self):
        table = named_variable("word_embeddings", np.ones((4, 2)))
        dense_table = named_variable("word_embeddings", np.ones((4, 2)))
        sparse, dense = AdamWeightDecay(0.1), AdamWeightDecay(0.1)
        sparse.build([table])
        dense.build([dense_table])
        for ids in ([1, 1, 3], [3, 3, 3], [0, 2, 1]):
            with tf.GradientTape() as tape:
                rows = keras.ops.take(table, tf.constant(ids), axis=0)
                loss = tf.reduce_sum(rows * [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            gradient = tape.gradient(loss, table.value)
            self.assertIsInstance(gradient, tf.IndexedSlices)
            sparse.apply([gradient])
            summed = np.zeros((4, 2), np.float32)
            for row, values in zip(ids, [[1, 2], [3, 4], [5, 6]], strict=True):
                summed[row] += values
            dense.apply([tf.constant(summed)])
            self.assertAllClose(table, dense_table, rtol=1e-6)
        self.assertNotAllClose(table[0], [1.0, 1.0])


class WeightDecayTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = BertPretrainer(small_config())

    def decayed(self, **options):
        optimizer = AdamWeightDecay(0.1, **options)
        optimizer.build(self.model.trainable_variables)
        return {v.path for v in optimizer.decayed_variables}

    def test_all_but_layer_norms_and_biases(self):
        paths = {v.path for v in self.model.trainable_variables}
        last = {path: re.search("[^/]*$", path).group() for path in paths}
        expected = {
            path
            for path in paths
            if last[path] not in ("gamma", "beta", "bias", "output_bias")
        }
        decayed = self.decayed()
        self.assertSameElements(decayed, expected)
        # By number: 3 tables; per layer 4 + 2 kernels; pooler; transform; the next
        # sentence's weights.
        self.assertLen(decayed, 3 + 2 * 6 + 3)
        self.assertContainsSubset(
            [
                "bert/embeddings/word_embeddings",
                "bert/embeddings/position_embeddings",
                "bert/embeddings/token_type_embeddings",
                "cls/seq_relationship/output_weights",
            ],
            decayed,
        )

    def test_other_exclusions(self):
        everything = self.decayed(exclude_from_weight_decay=())
        self.assertLen(everything, len(self.model.trainable_variables))
        without = self.decayed(exclude_from_weight_decay=("embeddings$", "layer_0/"))
        self.assertNotIn("bert/embeddings/word_embeddings", without)
        self.assertIn("bert/embeddings/LayerNorm/gamma", without)
        self.assertFalse([path for path in without if "layer_0" in path])
        flags = self.decayed(exclude_from_weight_decay=("layer_0/", "(?i)EMBEDDINGS$"))
        self.assertEqual(flags, without)

    def test_the_variables_that_decay_do(self):
        optimizer = AdamWeightDecay(0.5, weight_decay_rate=0.2)
        optimizer.build(self.model.trainable_variables)
        before = [v.numpy() for v in self.model.trainable_variables]
        optimizer.apply([tf.zeros(v.shape) for v in self.model.trainable_variables])
        decayed = {v.path for v in optimizer.decayed_variables}
        for variable, values in zip(
            self.model.trainable_variables, before, strict=True
        ):
            factor = 0.9 if variable.path in decayed else 1.0
            self.assertAllClose(variable, factor * values, rtol=1e-6)

    def test_keras_own_decay_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`weight_decay_rate`.*0.1"):
            AdamWeightDecay(0.1, weight_decay=0.1)


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

    @parameterized.parameters(
        ("adamw", AdamWeightDecay, {"bias_correction": True}),
        ("lamb", Lamb, {"layerwise_decay": 0.9}),
        ("muon", Muon, {"skip_nonfinite": True}),
    )
    def test_serialised_and_back(self, name, kind, options):
        options = {**options, "exclude_from_weight_decay": ["x"]}
        optimizer = create_optimizer(0.1, 10, 2, optimizer=name, **options)
        restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        self.assertIsInstance(restored, kind)
        config = restored.get_config()
        self.assertEqual(config, optimizer.get_config())
        options |= {"weight_decay_rate": 0.01, "epsilon": 1e-6, "global_clipnorm": 1.0}
        self.assertEqual({key: config[key] for key in options}, options)
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
        options = {
            "weight_decay_rate": 0.1,
            "layerwise_decay": 0.9,
            "skip_nonfinite": True,
            "global_clipnorm": None,
        }
        for name in ("adamw", "lamb", "muon"):
            config = create_optimizer(
                1.0, 10, 0, optimizer=name, **options
            ).get_config()
            self.assertEqual({key: config[key] for key in options}, options)

    def test_unknown_names(self):
        with self.assertRaisesRegex(ValueError, "adamw, lamb, muon.*optimizer=sgd"):
            create_optimizer(1.0, 10, 0, optimizer="sgd")
