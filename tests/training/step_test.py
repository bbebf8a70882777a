import dataclasses
import sys
import time
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.methods.similarity import BertEmbedder, cosine_similarity
from bert_tf.base.config import MULTI_LABEL, BertConfig
from bert_tf.modeling import heads, objectives
from bert_tf.modeling.encoder import DictInputModel
from bert_tf.modeling.objectives import Loss, Mean, Objective
from bert_tf.optimization.optimizers import create_optimizer
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training import step
from bert_tf.training.step import on_devices
from bert_tf.training.strategy import create_strategy
from bert_tf.training.task import Task
from tests.modeling import examples
from tests.processes import run_python


def linear_model():
    inputs = {"x": keras.Input((3,), name="x")}
    dense = keras.layers.Dense(1, kernel_initializer="zeros")
    return DictInputModel(inputs, {"y": dense(inputs["x"])})


TASK = Task(
    name="toy",
    build_model=linear_model,
    objective=Objective(
        {
            "error": Loss(
                values=lambda batch, outputs: tf.square(outputs["y"] - batch["y"]),
                weights=lambda batch: batch["w"],
                epsilon=0.5,
            ),
            "size": Loss(
                values=lambda _, outputs: tf.square(outputs["y"]),
                weights=lambda batch: tf.ones_like(batch["y"]),
            ),
        },
        {"count": lambda batch, _: Mean(tf.reduce_sum(batch["w"]), 1.0)},
    ),
)


def batches(count):
    rng = np.random.default_rng(1)
    return [
        {
            "x": rng.normal(size=(4, 3)).astype("float32"),
            "y": rng.normal(size=(4, 1)).astype("float32"),
            "w": rng.integers(0, 3, (4, 1)).astype("float32"),
        }
        for _ in range(count)
    ]


def as_dataset(data):
    return tf.data.Dataset.from_tensor_slices(
        {name: np.stack([batch[name] for batch in data]) for name in data[0]}
    )


class NumpyRun:
    """The same steps by hand: loss, gradient, clipping, AdamWeightDecay, schedule."""

    def __init__(self):
        self.w = np.zeros(4)  # kernel and bias
        self.m, self.v = np.zeros(4), np.zeros(4)
        names = ("loss", "error", "size", "count", "gradient_norm")
        self.sums = {name: np.zeros(2) for name in names}
        self.losses = []

    def step(self, number, batch, rate, num_steps, warmup):
        x = np.concatenate([batch["x"], np.ones((4, 1))], axis=1).astype("float64")
        predicted = x @ self.w
        error = predicted - batch["y"][:, 0]
        weights = batch["w"][:, 0]
        error_sum, weight = (weights * error**2).sum(), weights.sum()
        loss = error_sum / (weight + 0.5) + (predicted**2).sum() / 4
        gradient = x.T @ (2 * weights * error / (weight + 0.5) + 2 * predicted / 4)
        norm = np.sqrt((gradient**2).sum())
        if norm > 1:
            gradient = gradient / norm
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        update = self.m / (np.sqrt(self.v) + 1e-6)
        update[:3] += 0.01 * self.w[:3]  # the bias does not decay
        if number < warmup:
            rate = rate * number / warmup
        else:
            rate = rate * (1 - number / num_steps)
        self.w = self.w - rate * update
        for name, value in (
            ("loss", (loss, 1)),
            ("error", (error_sum, weight)),
            ("size", ((predicted**2).sum(), 4)),
            ("count", (weight, 1)),
            ("gradient_norm", (norm, 1)),
        ):
            self.sums[name] += value
        self.losses.append(loss)


def share_of_input():
    """The share of the steps of a wide model that is measured as a wait for input."""
    layers = [keras.layers.Dense(size) for size in (2000, 2000, 1)]
    inputs = {"x": keras.Input((3,), name="x")}
    model = DictInputModel(inputs, {"y": keras.Sequential(layers)(inputs["x"])})
    optimizer = create_optimizer(0.05, 80, 3, global_clipnorm=None)
    optimizer.build(model.trainable_variables)
    strategy = tf.distribute.get_strategy()
    steps = on_devices().training_steps(TASK, model, optimizer, strategy)
    iterator = iter(as_dataset(batches(42)).prefetch(2))
    steps(iterator, 2)
    began = time.perf_counter()
    results = steps(iterator, 40)
    return float(results.input_seconds) / (time.perf_counter() - began)


class TrainingStepsTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_computing_is_no_wait_for_input_of_a_single_thread(self):
        code = "from tests.training.step_test import share_of_input as x; print(x())"
        ran = run_python("-c", code, TF_NUM_INTEROP_THREADS="1")
        self.assertLess(float(ran.stdout), 0.3)

    def test_equals_the_same_steps_by_hand(self):
        data = batches(8)
        model = linear_model()
        optimizer = create_optimizer(0.05, 8, 3, global_clipnorm=None)
        optimizer.build(model.trainable_variables)
        steps = on_devices().training_steps(
            TASK, model, optimizer, tf.distribute.get_strategy()
        )
        iterator = iter(as_dataset(data))
        by_hand = NumpyRun()
        for first, count in ((0, 1), (1, 5), (6, 2)):
            by_hand.sums = {name: np.zeros(2) for name in by_hand.sums}
            for number in range(first, first + count):
                by_hand.step(number, data[number], 0.05, 8, 3)
            results = steps(iterator, tf.constant(count))
            for name, sums in by_hand.sums.items():
                self.assertAllClose(results.sums[name], sums, rtol=1e-5)
            self.assertAllClose(results.losses, by_hand.losses[-count:], rtol=1e-5)
            self.assertBetween(results.input_seconds, 0, 10)
            kernel, bias = model.get_weights()
            self.assertAllClose(
                np.append(kernel[:, 0], bias), by_hand.w, rtol=1e-5, atol=1e-7
            )

    def test_autograph_leaves_the_model_alone(self):
        files = set()  # AutoGraph's copy of a function is in a file of its own

        def values(_, outputs):
            files.add(sys._getframe().f_code.co_filename)
            return tf.square(outputs["y"])

        loss = Loss(values=values, weights=lambda batch: tf.ones_like(batch["y"]))
        task = dataclasses.replace(TASK, objective=Objective({"size": loss}))
        model = linear_model()
        optimizer = create_optimizer(0.05, 8, 3, global_clipnorm=None)
        optimizer.build(model.trainable_variables)
        engine = task, model, optimizer, tf.distribute.get_strategy()
        on_devices().training_steps(*engine)(iter(as_dataset(batches(1))), 1)
        on_devices().evaluation_step(task, model, engine[-1])(batches(1)[0])
        self.assertEqual(files, {__file__})

    def test_evaluation_sums_up_and_does_not_train(self):
        data = batches(1)
        model = linear_model()
        model.set_weights([np.array([[1.0], [2.0], [-1.0]]), np.array([0.5])])
        sums = on_devices().evaluation_step(TASK, model, tf.distribute.get_strategy())(
            data[0]
        )
        predicted = data[0]["x"] @ [1.0, 2.0, -1.0] + 0.5
        error = ((predicted - data[0]["y"][:, 0]) ** 2 * data[0]["w"][:, 0]).sum()
        weight = data[0]["w"].sum()
        total = error / (weight + 0.5) + (predicted**2).sum() / 4
        self.assertAllClose(sums["error"], [error, weight], rtol=1e-5)
        self.assertAllClose(sums["loss"], [total, 1.0], rtol=1e-5)
        self.assertAllEqual(model.get_weights()[1], [0.5])


def embedder_records(config, **sizes):
    records = examples.random_choices(config, choices=2, **sizes)
    return {**records, "label_ids": records["label_ids"].astype("float32")}


# Name -> (config -> model, objective, config -> records); the losses that compare the
# rows of a batch refuse micro-batches.
HEADS = {
    "classifier": (
        lambda config: heads.BertClassifier(config, 2),
        objectives.CLASSIFICATION,
        examples.random_records,
    ),
    "multi_label": (
        lambda config: heads.BertClassifier(config, 3, problem_type=MULTI_LABEL),
        objectives.MULTI_LABEL,
        examples.random_label_sets,
    ),
    "multiple_choice": (
        heads.BertMultipleChoice,
        objectives.CLASSIFICATION,
        examples.random_choices,
    ),
    "span": (heads.BertSpanPredictor, objectives.SPAN, examples.random_records),
    "tagger": (
        lambda config: heads.BertTagger(config, 3),
        objectives.TAGGING,
        examples.random_tags,
    ),
    "embedder": (BertEmbedder, cosine_similarity(1.0), embedder_records),
}


@pytest.mark.jax
class MicroBatchesTest(tf.test.TestCase, parameterized.TestCase):
    def test_batches_of_several_lengths_make_the_same_steps(self):
        self.check("span")

    @parameterized.parameters(*[name for name in HEADS if name != "span"])
    @pytest.mark.slow
    def test_so_they_do_of(self, name):
        self.check(name)

    def check(self, name):
        build_model, objective, records = HEADS[name]
        config = examples.small_config(num_hidden_layers=1)
        data = [
            records(config, batch=4, length=length, seed=length)
            for length in (9, 14, 6)
        ]
        specs = {
            key: tf.TensorSpec([4] + [None] * (x.ndim - 1), x.dtype)
            for key, x in data[0].items()
        }
        dataset = tf.data.Dataset.from_generator(
            lambda: iter(data), output_signature=specs
        )
        found = []
        for micro_batches in (1, 2):
            keras.utils.set_random_seed(1)
            model = build_model(config)
            examples.randomize(model)
            optimizer = create_optimizer(1e-3, 9, 0, global_clipnorm=None)
            optimizer.build(model.trainable_variables)
            strategy = create_strategy()
            steps = on_devices().training_steps(
                Task(name="toy", build_model=linear_model, objective=objective),
                model,
                optimizer,
                strategy,
                accumulation_steps=micro_batches,
            )
            stream = iter(on_devices().global_batches(strategy, lambda _: dataset))
            found.append(steps(stream, len(data)))
        # The losses of later steps are of the weights that the earlier ones made.
        whole, in_parts = found
        self.assertAllClose(in_parts.losses, whole.losses, rtol=1e-4)
        self.assertNotAllClose(whole.losses[1:], whole.losses[:-1], rtol=1e-2)
        for key, sums in whole.sums.items():
            self.assertAllClose(in_parts.sums[key], sums, rtol=1e-4, msg=key)


class RepeatableTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_the_same_steps_give_the_same_bits(self):
        # A large vocabulary, as in reality: whatever adds numbers up in an order that
        # hangs on timing shows here within a few runs.
        config = BertConfig(
            vocab_size=30522,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        rng = np.random.default_rng(0)
        data = [
            {
                "input_ids": rng.integers(0, 30522, (32, 64), "int32"),
                "input_mask": np.ones((32, 64), "int32"),
                "segment_ids": rng.integers(0, 2, (32, 64), "int32"),
                "masked_lm_positions": rng.integers(0, 64, (32, 10), "int32"),
                # Few labels make gradients large enough to be clipped.
                "masked_lm_ids": rng.integers(0, 5, (32, 10), "int32"),
                "masked_lm_weights": np.ones((32, 10), "float32"),
                "next_sentence_labels": np.ones((32, 1), "int32"),
            }
            for _ in range(4)
        ]
        task = pretraining_task(config)
        model = task.build_model()
        optimizer = create_optimizer(
            1e-3, num_train_steps=100, num_warmup_steps=2, global_clipnorm=None
        )
        optimizer.build(model.trainable_variables)
        steps = on_devices().training_steps(
            task, model, optimizer, tf.distribute.get_strategy()
        )
        variables = [*model.trainable_variables, *optimizer.variables]
        start = [np.array(variable) for variable in variables]
        dataset = as_dataset(data)
        results = []
        for _ in range(6):
            for variable, value in zip(variables, start, strict=True):
                variable.assign(value)
            iterator = iter(dataset)
            for _ in data:
                steps(iterator, tf.constant(1))
            results.append([np.array(variable) for variable in variables])
        for result in results[1:]:
            for value, first in zip(result, results[0], strict=True):
                np.testing.assert_array_equal(value, first)


class LossScaleTest(tf.test.TestCase):
    def run_of(self, scale, steps, growth_steps):
        """The scales after each of the steps: "." finite, "x" not."""
        scales = []
        with (
            mock.patch.object(step, "INITIAL_LOSS_SCALE", scale),
            mock.patch.object(step, "GROWTH_STEPS", growth_steps),
        ):
            loss_scale = step.LossScale()
            update = tf.function(loss_scale.update)
            for finite in steps:
                update(tf.constant(finite == "."))
                scales.append(float(loss_scale.scale))
        return scales

    def test_doubled_after_so_many_finite_steps_in_a_row(self):
        self.assertEqual(self.run_of(8.0, ".......", 3), [8, 8, 16, 16, 16, 32, 32])

    def test_halved_at_once_and_counted_anew(self):
        self.assertEqual(self.run_of(8.0, "..x..x...", 3), [8, 8, 4, 4, 4, 2, 2, 2, 4])

    def test_never_below_1_nor_infinite(self):
        self.assertEqual(self.run_of(4.0, "xxxx", 3), [2, 1, 1, 1])
        self.assertEqual(self.run_of(2.0**125, "...", 1), [2.0**126] * 3)
