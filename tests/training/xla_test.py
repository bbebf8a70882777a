"""What a TPU asks of every task's steps, as far as it shows without one.

A TPU compiles a replica's part of a step as a whole, by XLA: shapes must be known
beforehand, and nothing may call back to Python. Here XLA compiles the same part for the
CPU. The builds of TensorFlow for TPUs lack that compiler, but they know what theirs
takes: there each operation is looked up.
"""

import dataclasses
import os
import unittest
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from tensorflow.python.framework import kernels

import bert_tf
from bert_tf.base.config import BertConfig
from bert_tf.instances.settings import FULL_SENTENCES
from bert_tf.modeling.fused import without_fusion, xla_compiles_for_the_cpu
from bert_tf.modeling.heads import BertMultipleChoice, BertSpanPredictor, BertTagger
from bert_tf.modeling.objectives import CLASSIFICATION, SPAN, TAGGING
from bert_tf.records import pipeline
from bert_tf.records.batching import ROWS, EvaluationBatches
from bert_tf.records.pretraining_input import PretrainingRecords
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks import finetuning
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Target
from bert_tf.training import run_folder
from bert_tf.training.evaluation import Predictor
from bert_tf.training.step import computing_in, on_devices
from bert_tf.training.task import Task
from tests.modeling.examples import random_choices, random_records, random_tags
from tests.records import unmasked
from tests.training import toy, toy_examples

BATCH = 4
NUM_STEPS = 3
LABELS = ("a", "b", "c")


def config(dropout=0.0):
    return dataclasses.replace(
        toy.CONFIG, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )


# Folder -> (batches to train on, batches to evaluate on), read as the scripts do.


def masked_records(folder):
    path = toy.write_records(os.path.join(folder, "masked"))
    records = PretrainingRecords(
        path, max_seq_length=toy.L, max_predictions_per_seq=toy.P
    )
    return of_pretraining(records)


def unmasked_records(folder):
    path = unmasked.write_set(os.path.join(folder, "unmasked"), pairs=FULL_SENTENCES)
    return of_pretraining(PretrainingRecords(path))


def of_pretraining(records):
    records.check_model(BertConfig(vocab_size=toy.V))
    return (
        records.training_dataset(BATCH, seed=3),
        records.evaluation_dataset(BATCH, repeat=True),
    )


def packed_records(folder):
    spec = RecordSpec.pretraining(toy.L, toy.P, 3)
    path = os.path.join(folder, "packed")
    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(10):
            writer.write(
                spec.serialize(
                    {
                        "input_ids": [*rng.integers(5, toy.V, 10), 0, 0],
                        "input_mask": [1] * 10 + [0, 0],
                        "segment_ids": [0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0],
                        "sequence_ids": [1] * 4 + [2] * 6 + [0, 0],
                        "cls_positions": [0, 4, 0],
                        "next_sentence_labels": [number % 2, 1, 0],
                        "next_sentence_weights": [1.0, 1.0, 0.0],
                        "masked_lm_positions": [1, 6],
                        "masked_lm_ids": rng.integers(5, toy.V, 2),
                        "masked_lm_weights": [1.0, 1.0],
                    }
                )
            )
    return (
        pipeline.training_dataset([path], [12], spec, batch_size=BATCH, seed=3),
        pipeline.evaluation_dataset([path], spec, batch_size=BATCH, repeat=True),
    )


def first_batches(batches, count):
    """The first ones; of fine-tuning's few batches all."""
    is_few = isinstance(batches, EvaluationBatches)
    return batches if is_few else batches.take(count)


def examples(target):
    """As fine-tuning reads, with its last batch filled up."""
    records = toy_examples.prepare(target)
    options = toy_examples.options(train_batch_size=BATCH, num_train_epochs=(2.0,))
    plan = finetuning.training_plan(
        toy.task(),
        records,
        options,
        data=run_folder.RunData("examples", "0"),
        best_metric="loss",
        num_lengths=1,
    )
    (phase,) = plan["phases"]
    return phase.streams[0](0, pipeline.ALL_ROWS), records.batches(BATCH, 1)


def classification_case(target, **options):
    """A target's task and batches."""
    return (
        lambda config: toy_examples.engine_task(config, target, "toy", **options),
        lambda _: examples(target),
    )


def head_case(build_model, objective, random):
    """A head that no script trains, and batches of `tests.modeling.examples`."""

    def batches(_):
        records = random(toy.CONFIG, batch=10, length=toy.L)
        dataset = tf.data.Dataset.from_tensor_slices(records).repeat()
        return [dataset.batch(BATCH, drop_remainder=True)] * 2

    return (
        lambda config: Task(
            name="toy", build_model=lambda: build_model(config), objective=objective
        ),
        batches,
    )


# Name -> (config -> task, folder -> its batches). A new task is one line.
CASES = {
    "pretraining": (pretraining_task, masked_records),
    "masked_lm": (
        lambda config: pretraining_task(config, next_sentence=False),
        unmasked_records,
    ),
    "packed": (lambda config: pretraining_task(config, packed=True), packed_records),
    "classification": classification_case(Target(kind=SINGLE_LABEL, labels=LABELS)),
    "regression": classification_case(Target(kind=REGRESSION)),
    "multi_label": classification_case(Target(kind=MULTI_LABEL, labels=LABELS)),
    "lora": classification_case(Target(kind=REGRESSION), lora_rank=2),
    "adapters": classification_case(
        Target(kind=REGRESSION), adapter_size=3, layer_mixture=True
    ),
    "span": head_case(BertSpanPredictor, SPAN, random_records),
    "multiple_choice": head_case(BertMultipleChoice, CLASSIFICATION, random_choices),
    "tagging": head_case(lambda config: BertTagger(config, 3), TAGGING, random_tags),
}
# The slow tests compile the others, whose heads and records are like one of these.
FAST = ("pretraining", "classification")
# How the steps of pre-training may be made on a TPU.
OPTIONS = {
    "dropout": {"dropout": 0.1},
    "micro_batches": {"accumulation_steps": 2},
    "bfloat16": {"precision": "bfloat16"},
    "lamb": {"optimizer": "lamb"},
}


class CompilingStrategy:
    """One device, whose part of a step is one function, as a TPU's is.

    Attributes:
        functions: those parts.
    """

    def __init__(self, jit_compile):
        self._strategy = tf.distribute.get_strategy()
        self._jit_compile = jit_compile
        self._parts = {}  # a loop may trace its body twice
        self.functions = []

    @tf.autograph.experimental.do_not_convert
    def run(self, function, args=()):
        if function not in self._parts:
            part = tf.function(function, jit_compile=self._jit_compile, autograph=False)
            self._parts[function] = part
            self.functions.append(part.get_concrete_function(*args))
        return self._parts[function](*args)

    def __getattr__(self, name):
        return getattr(self._strategy, name)


def taken_for_a_tpu():
    """The engine takes any strategy for a TPU's."""
    return mock.patch("bert_tf.training.tensorflow_step.is_tpu", lambda strategy: True)


def train(task, dataset, strategy, precision="float32", optimizer="adamw", **options):
    """The losses of some steps, and the model that they make."""
    keras.utils.set_random_seed(1)
    with computing_in(precision):
        model = task.build_model()
    for layer in model.layers:
        # A classifier's own; Keras' random numbers are others under XLA.
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    optimizer = bert_tf.create_optimizer(
        0.01, 10, 1, optimizer=optimizer, global_clipnorm=None
    )
    optimizer.build(model.trainable_variables)
    steps = on_devices().training_steps(task, model, optimizer, strategy, **options)
    results = steps(iter(dataset), tf.constant(NUM_STEPS))
    return results.losses, model


class StepsTestCase(tf.test.TestCase, parameterized.TestCase):
    def case(self, name, dropout=0.0):
        task, batches = CASES[name]
        return task(config(dropout)), *batches(self.get_temp_dir())

    def functions_of(self, name, jit_compile):
        """All that a TPU would compile for a task."""
        task, training, held_out = self.case(name)
        strategy = CompilingStrategy(jit_compile)
        with taken_for_a_tpu():
            _, model = train(task, training, strategy)
            on_devices().evaluation_step(task, model, strategy)(next(iter(held_out)))
            predictor = Predictor(
                task.name, on_devices().prediction_step(model, strategy), strategy
            )
            list(predictor.run(first_batches(held_out, 1), total_batches=1))
        self.assertLen(strategy.functions, 3)
        return strategy.functions


class InputTest(StepsTestCase):
    @parameterized.parameters(*CASES)
    def test_batches_are_static(self, name):
        _, training, held_out = self.case(name)
        first = dict(next(iter(held_out)))
        first.pop(ROWS, None)
        self.assertEqual(
            training.element_spec,
            {name: tf.TensorSpec(x.shape, x.dtype) for name, x in first.items()},
        )
        # Else tf.distribute leaves the batch's size open where there are several hosts.
        self.assertEqual(training.cardinality(), tf.data.INFINITE_CARDINALITY)
        for spec in training.element_spec.values():
            self.assertEqual(spec.shape.as_list()[0], BATCH)
            self.assertTrue(spec.shape.is_fully_defined(), spec)
            self.assertIn(spec.dtype, (tf.int32, tf.float32))


class CompiledTest(StepsTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not xla_compiles_for_the_cpu():
            raise unittest.SkipTest("this TensorFlow has no XLA compiler for CPUs")

    @parameterized.parameters(*FAST)
    def test_steps_equal_those_that_are_not_compiled(self, name):
        self.check_steps(name)

    # The mark below: what makes tests of one would lose it.
    @parameterized.parameters(name for name in CASES if name not in FAST)
    @pytest.mark.slow
    def test_steps_of_variants_equal_those_that_are_not_compiled(self, name):
        self.check_steps(name)

    def check_steps(self, name):
        task, training, held_out = self.case(name)
        plain, compiled = tf.distribute.get_strategy(), CompilingStrategy(True)
        with without_fusion():
            losses, _ = train(task, training, plain)
        with taken_for_a_tpu():
            compiled_losses, model = train(task, training, compiled)
        self.assertAllClose(compiled_losses, losses, rtol=1e-5, atol=0)
        self.assertNotAllClose(losses[1:], losses[:-1], rtol=1e-3)

        # Evaluation and prediction, with the weights that training has made.
        batches = list(first_batches(held_out, 3))
        with without_fusion():
            step = on_devices().evaluation_step(
                task, model, tf.distribute.get_strategy()
            )
            sums = [step(batch) for batch in batches]
            outputs = [model(batch, training=False) for batch in batches]
        with taken_for_a_tpu():
            step = on_devices().evaluation_step(task, model, compiled)
            compiled_sums = [step(batch) for batch in batches]
            predictor = Predictor(
                task.name, on_devices().prediction_step(model, compiled), compiled
            )
            predictions = list(
                predictor.run(first_batches(held_out, 3), total_batches=3)
            )
        for ours, theirs in zip(compiled_sums, sums, strict=True):
            self.assertAllClose(ours, theirs, rtol=1e-5, atol=1e-6)
        for (_, ours), theirs in zip(predictions, outputs, strict=True):
            self.assertAllClose(ours, theirs, rtol=1e-4, atol=1e-5)

        # What was compiled: whole batches in, no Python on the way.
        self.assertLen(compiled.functions, 3)
        for function in compiled.functions:
            inputs, _ = function.structured_input_signature
            for spec in tf.nest.flatten(inputs):
                self.assertTrue(spec.shape.is_fully_defined(), spec)
                self.assertIn(spec.dtype, (tf.int32, tf.float32), spec)
            for output in tf.nest.flatten(function.structured_outputs):
                self.assertTrue(output.shape.is_fully_defined(), output)
            self.assertEmpty([op for op in ops_of(function) if "PyFunc" in op])

    @parameterized.parameters(*OPTIONS)
    @pytest.mark.slow
    def test_options_of_training(self, name):
        options = dict(OPTIONS[name])
        task, training, _ = self.case("pretraining", options.pop("dropout", 0.0))
        with taken_for_a_tpu():
            losses, _ = train(task, training, CompilingStrategy(True), **options)
        self.assertTrue(np.isfinite(losses).all())
        with without_fusion():
            plain, _ = train(task, training, tf.distribute.get_strategy(), **options)
        self.assertAllClose(losses, plain, rtol=1e-2 if name == "bfloat16" else 1e-5)

    def test_finds_what_a_tpu_cannot_do(self):
        def to_python(x):
            return tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), [2])

        function = tf.function(to_python).get_concrete_function(tf.zeros([2]))
        self.assertLen([op for op in ops_of(function) if "PyFunc" in op], 1)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            CompilingStrategy(True).run(to_python, (tf.zeros([2]),))


class TpuKernelsTest(StepsTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # This compiles a function, or tries to, which makes XLA's kernels known.
        if xla_compiles_for_the_cpu():
            raise unittest.SkipTest("this TensorFlow knows no kernels for TPUs")

    @parameterized.parameters(*CASES)
    def test_every_operation_has_one(self, name):
        for function in self.functions_of(name, jit_compile=False):
            self.assertEmpty(without_tpu_kernel(function))

    def test_finds_one_that_has_none(self):
        def to_python(x):
            return tf.numpy_function(np.sin, [x], tf.float32)

        function = tf.function(to_python).get_concrete_function(tf.zeros([2]))
        self.assertEqual(without_tpu_kernel(function), {"PyFunc"})
        # Of a number that it does not take.
        function = tf.function(tf.linalg.matmul).get_concrete_function(
            *[tf.zeros([2, 2], tf.complex128)] * 2
        )
        self.assertIn("MatMul", without_tpu_kernel(function))


def nodes_of(function):
    graph = function.graph.as_graph_def()
    yield from graph.node
    for nested in graph.library.function:
        yield from nested.node_def


def ops_of(function):
    return sorted({node.op for node in nodes_of(function)})


# They stand for a function's arguments, or call another one.
NO_COMPUTATION = {"Placeholder", "PartitionedCall", "StatefulPartitionedCall"}


def without_tpu_kernel(function):
    return {
        node.op
        for node in nodes_of(function)
        if node.op not in NO_COMPUTATION and not has_tpu_kernel(node)
    }


def has_tpu_kernel(node):
    return any(
        kernel.device_type == "XLA_TPU_JIT"
        and all(
            set(types_of(node.attr[constraint.name]))
            <= set(constraint.allowed_values.list.type)
            for constraint in kernel.constraint
        )
        for kernel in kernels.get_registered_kernels_for_op(node.op).kernel
    )


def types_of(attribute):
    return attribute.list.type or [attribute.type]
