import contextlib
import dataclasses
import functools
import os
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.addons.methods.electra import ElectraPretrainer
from bert_tf.addons.methods.similarity import BertEmbedder
from bert_tf.base import keras_backend
from bert_tf.base.config import MULTI_LABEL
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.fused import without_fusion, xla_compiles_for_the_cpu
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.layers import TransformerLayer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.optimization.optimizers import create_optimizer
from tests.golden import random_numbers
from tests.modeling.examples import (
    gradients_of,
    outputs_of,
    random_choices,
    random_label_sets,
    random_records,
    random_tags,
    randomize,
    small_config,
    sum_of_squares,
)

# name -> a function of (config, **options) to the model. A new head needs only its line
# here to go through the conformance test, and one in RECORDS if its own are other ones.
MODELS = {
    "encoder": BertEncoder,
    "pretrainer": BertPretrainer,
    "pretrainer_masked_lm_only": lambda config, **options: BertPretrainer(
        config, next_sentence=False, **options
    ),
    "albert": lambda config, **options: BertPretrainer(
        dataclasses.replace(
            config, num_hidden_layers=2, embedding_size=16, num_hidden_groups=1
        ),
        **options,
    ),
    "untied": lambda config, **options: BertPretrainer(
        dataclasses.replace(
            config, tie_word_embeddings=False, pooler_hidden_act="gelu_erf"
        ),
        **options,
    ),
    "electra": ElectraPretrainer,
    "local": lambda config, **options: BertTagger(
        dataclasses.replace(config, attention_window=3, global_tokens=2), 20, **options
    ),
    "classifier": lambda config, **options: BertClassifier(config, 3, **options),
    "regression": lambda config, **options: BertClassifier(config, 1, **options),
    "multi_label": lambda config, **options: BertClassifier(
        config, 3, problem_type=MULTI_LABEL, **options
    ),
    "mixture": lambda config, **options: BertClassifier(
        config, 3, layer_mixture=True, **options
    ),
    "windows": lambda config, **options: BertClassifier(
        config, 3, window_pooling="attention", **options
    ),
    "lora": lambda config, **options: BertClassifier(config, 3, lora_rank=2, **options),
    "adapters": lambda config, **options: BertClassifier(
        config, 3, adapter_size=4, train_pooler=True, **options
    ),
    "multiple_choice": BertMultipleChoice,
    "embedder": BertEmbedder,
    "span": BertSpanPredictor,
    "tagger": lambda config, **options: BertTagger(config, 20, **options),
}
# Further models, only to be saved: all that an encoder takes and gives, packed rows.
SAVED = {
    "every_option": lambda config: BertEncoder(
        dataclasses.replace(config, hidden_act="gelu_erf", initializer_range=0.1),
        output_hidden_states=True,
        output_attentions=True,
        use_position_ids=True,
        use_attention_mask=True,
    ),
    "packed": lambda config: BertPretrainer(
        dataclasses.replace(config, left_to_right=True), packed=True
    ),
}
RECORDS = {
    "multi_label": functools.partial(random_label_sets, num_labels=3),
    "multiple_choice": random_choices,
    "embedder": random_choices,
    "windows": random_choices,
    "local": lambda config, **sizes: {  # all in the first text, which has global tokens
        **(records := random_tags(config, num_labels=20, **sizes)),
        "segment_ids": 0 * records["segment_ids"],
    },
    "tagger": functools.partial(random_tags, num_labels=20),
    "every_option": lambda config: {
        **random_records(config),
        "position_ids": np.tile(np.arange(14), (4, 1)),
        "attention_mask": np.ones((4, 14, 14), np.int32),
    },
    "packed": lambda config: {
        **random_records(config),
        "sequence_ids": np.ones((4, 14), np.int32),
        "cls_positions": np.zeros((4, 1), np.int32),
    },
}

# Classifiers that differ in their objective alone.
SAME_GRAPH = ("regression", "multi_label")
# They differ from other models in their head's size, or in what the encoder hands over.
FITTED_AS_OTHERS = ("pretrainer_masked_lm_only", *SAME_GRAPH, "mixture")
# Whose encoder keeps and computes again other things than recompute_test's.
OTHER_ENCODERS = (
    "albert",
    "electra",
    "local",
    "mixture",
    "windows",
    "lora",
    "adapters",
)
CONFIG = small_config(num_hidden_layers=1)


@functools.cache
def randomized(name):
    """One of MODELS or SAVED with random weights, which no test may change."""
    model = (MODELS | SAVED)[name](CONFIG)
    randomize(model)
    return model


def records_of(name, config, **sizes):
    """A batch for one of MODELS, as arrays and as tensors."""
    records = RECORDS.get(name, random_records)(config, **sizes)
    return records, {key: tf.constant(value) for key, value in records.items()}


def _all_layers(model):
    return [x for x in model._flatten_layers() if x is not model]


def _flags(model):
    """Of every layer and every weight, in order."""
    return (
        model.trainable,
        [(layer.name, layer.trainable) for layer in _all_layers(model)],
        [(weight.path, weight.trainable) for weight in model.weights],
        [weight.path for weight in model.trainable_variables],
    )


class ConformanceTest(tf.test.TestCase, parameterized.TestCase):
    """What every model must do: saved, compiled, in half precision, any batch, ..."""

    def setUp(self):
        super().setUp()
        if keras_backend.is_jax():
            self.enterContext(random_numbers.of_tensorflow())

    @parameterized.parameters(*MODELS, *SAVED)
    @pytest.mark.jax
    def test_keras_file(self, name):
        records, _ = records_of(name, CONFIG)
        model = randomized(name)
        path = os.path.join(self.get_temp_dir(), f"{name}.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertIs(type(loaded), type(model))
        self.assertEqual(loaded.get_config(), model.get_config())
        self.assertEqual(list(loaded.input), list(model.input))
        paths, expected = ([w.path for w in m.weights] for m in (loaded, model))
        self.assertEqual(paths, expected)
        actual, expected = (outputs_of(m, records) for m in (loaded, model))
        tf.nest.map_structure(self.assertAllEqual, actual, expected)

    @parameterized.parameters(*MODELS, *SAVED)
    def test_clone_and_graph_of_its_layers(self, name):
        """Keras copies, saves and loads a graph layer by layer."""
        records, _ = records_of(name, CONFIG)
        model = randomized(name)
        expected = outputs_of(model, records)
        inputs = {key: records[key] for key in model.input}
        for _ in range(2):
            clone = keras.models.clone_model(model)
            self.assertLen(clone.weights, len(model.weights))
            clone.set_weights(model.get_weights())
            actual = outputs_of(clone, inputs)
            tf.nest.map_structure(self.assertAllEqual, actual, expected)
        graph = keras.Model(model.input, model.output)
        path = os.path.join(self.get_temp_dir(), "graph.keras")
        graph.save(path)
        loaded = keras.models.load_model(path)
        actual = outputs_of(loaded, inputs)
        tf.nest.map_structure(self.assertAllEqual, actual, expected)

    def test_a_layer_of_keras_on_an_encoder(self):
        """Trained, saved by a callback and loaded; a part is frozen."""
        records, _ = records_of("encoder", CONFIG)
        for on_tensor in (True, False):
            encoder = BertEncoder(CONFIG)
            inputs = {key: records[key] for key in encoder.input}
            frozen = encoder if on_tensor is False else encoder.embeddings
            frozen.trainable = False
            outputs = encoder.output if on_tensor else encoder(encoder.input)
            logits = keras.layers.Dense(2)(outputs["pooled_output"])
            model = keras.Model(encoder.input, logits)
            count = len(model.trainable_variables)
            model.compile("sgd", "mse", run_eagerly=True)
            path = os.path.join(self.get_temp_dir(), "idiom.keras")
            model.fit(
                inputs,
                np.ones((4, 2)),
                verbose=0,
                callbacks=[keras.callbacks.ModelCheckpoint(path)],
            )
            loaded = keras.models.load_model(path)
            self.assertLen(loaded.trainable_variables, count)
            actual, expected = (outputs_of(m, inputs) for m in (loaded, model))
            self.assertAllEqual(actual, expected)

    @parameterized.parameters(*MODELS, *SAVED)
    def test_what_is_frozen_stays_so(self, name):
        """In a saved file and in a copy: whole models, layers, parts of them, weights.

        A layer in a frozen model may have been thawed again.
        """
        model = (MODELS | SAVED)[name](CONFIG)
        layers = _all_layers(model)
        layer = next(x for x in layers if isinstance(x, TransformerLayer))
        encoder = getattr(model, "encoder", model)

        def freeze(part, value=False):
            part.trainable = value

        for change in (
            lambda: [
                freeze(x) for x in (layer.attention_output, layer.intermediate.bias)
            ],
            lambda: [freeze(encoder), freeze(layer, True)],
            lambda: freeze(model),
            lambda: freeze(model, True),
        ):
            change()
            expected = _flags(model)
            copied = type(model).from_config(model.get_config())
            self.assertEqual(_flags(copied), expected)
        freeze(encoder)
        freeze(layer, True)
        model.compile("sgd", "mse" if name in ("encoder", "every_option") else None)
        path = os.path.join(self.get_temp_dir(), "frozen.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertEqual(_flags(loaded), _flags(model))
        self.assertLen(loaded.trainable_variables, len(model.trainable_variables))

    # tests/training/xla_test.py compiles every task's steps and predictions.
    @parameterized.parameters(*MODELS)
    @pytest.mark.slow
    def test_compiled_by_xla(self, name):
        if not xla_compiles_for_the_cpu():
            self.skipTest("this TensorFlow has no XLA compiler for CPUs")
        _, tensors = records_of(name, CONFIG)
        model = randomized(name)
        # Without labels: the names of the model's inputs, and nothing else.
        inputs = {key: tensors[key] for key in model.input}
        compiled = tf.function(model, jit_compile=True)(inputs, training=False)
        for key, values in model(inputs, training=False).items():
            self.assertAllClose(compiled[key], values, rtol=1e-4, atol=1e-5)

    @parameterized.parameters(
        name for name in MODELS if name not in (*FITTED_AS_OTHERS, *SAME_GRAPH)
    )
    def test_mixed_precision(self, name):
        _, tensors = records_of(name, CONFIG)
        exact = randomized(name)
        model = MODELS[name](CONFIG, dtype="mixed_bfloat16")
        model.set_weights(exact.get_weights())
        self.assertAllEqual({w.dtype for w in model.weights}, {"float32"})
        # Compiling the pieces takes longer than all else.
        alone = contextlib.nullcontext() if name == "electra" else without_fusion()
        with alone, tf.GradientTape() as tape:
            outputs = model(tensors, training=True)
            loss = sum_of_squares([tf.cast(x, tf.float32) for x in outputs.values()])
        for gradient in tape.gradient(loss, [w.value for w in model.weights]):
            self.assertTrue(np.isfinite(tf.convert_to_tensor(gradient)).all())
        expected = exact(tensors, training=False)
        for key, values in model(tensors, training=False).items():
            if name != "encoder":
                self.assertEqual(values.dtype, tf.float32)
            error = tf.cast(values, tf.float32) - expected[key]
            # bfloat16 has 8 bits.
            self.assertLess(tf.norm(error) / tf.norm(expected[key]), 0.05, msg=key)
        restored = type(model).from_config(model.get_config())
        self.assertEqual(restored(tensors)[key].dtype, values.dtype)
        self.assertEqual(
            restored.get_layer(index=-1).dtype_policy.name, "mixed_bfloat16"
        )

    @parameterized.parameters(*MODELS)
    def test_keras_scales_the_loss_of_float16_alone(self, name):
        optimizers = {
            "mixed_float16": keras.optimizers.LossScaleOptimizer,
            "mixed_bfloat16": keras.optimizers.Adam,
        }
        for policy, kind in optimizers.items():
            model = MODELS[name](CONFIG, dtype=policy)
            model.compile("adam")
            self.assertEqual(type(model.optimizer), kind)
            self.assertEqual({w.dtype for w in model.trainable_variables}, {"float32"})

    @parameterized.parameters(name for name in MODELS if name not in SAME_GRAPH)
    def test_any_batch_and_length_in_one_trace(self, name):
        _, tensors = records_of(name, CONFIG)
        model = randomized(name)
        traces = []
        signature = {
            key: tf.TensorSpec([None] * tensors[key].ndim, tensors[key].dtype)
            for key in model.input
        }

        @tf.function(input_signature=[signature], autograph=False)
        def run(inputs):
            traces.append(1)
            return model(inputs, training=False)

        whole = model(tensors, training=False)
        for rows in (slice(0, 1), slice(1, 4)):
            part = run({key: tensors[key][rows] for key in model.input})
            for key, values in part.items():
                self.assertAllClose(values, whole[key][rows], rtol=1e-5, atol=1e-5)
        _, shorter = records_of(name, CONFIG, length=6)
        run({key: shorter[key] for key in model.input})
        self.assertLen(traces, 1)

    @parameterized.parameters(name for name in MODELS if name not in SAME_GRAPH)
    def test_gradients_reach_every_weight(self, name):
        _, tensors = records_of(name, CONFIG)
        model = randomized(name)
        variables = weights_by_name(model)
        if name in ("lora", "adapters"):
            variables = {k: v for k, v in variables.items() if v.trainable}
        self.assertSameElements(
            [id(v) for v in variables.values()],
            [id(v) for v in model.trainable_variables],
        )
        with tf.GradientTape() as tape:
            loss = sum_of_squares(model(tensors, training=False))
        gradients = tape.gradient(loss, {k: v.value for k, v in variables.items()})
        for key, gradient in gradients.items():
            self.assertIsNotNone(gradient, msg=key)
            # A key's bias adds one number to all scores of a query: softmax ignores it.
            if not key.endswith(("/key/bias", "/key_global/bias")):
                largest = tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))
                self.assertGreater(largest, 1e-5, msg=key)

    @parameterized.parameters(*OTHER_ENCODERS)
    def test_recompute_changes_no_gradient(self, name):
        config = small_config(num_hidden_layers=1, hidden_dropout_prob=0.3)
        _, tensors = records_of(name, config)
        kept, recomputed = (
            MODELS[name](config, recompute=recompute) for recompute in (False, True)
        )
        randomize(kept)
        recomputed.set_weights(kept.get_weights())
        for seed, other in zip(
            kept.non_trainable_variables,
            recomputed.non_trainable_variables,
            strict=True,
        ):
            other.assign(seed)
        gradients = []
        for model in (kept, recomputed):
            # Compiled pieces are recompute_test's.
            with without_fusion():
                gradients.append(gradients_of(model, tensors)[1])
        largest = max(np.abs(gradient).max() for gradient in gradients[0])
        for actual, expected in zip(*reversed(gradients), strict=True):
            self.assertAllClose(actual, expected, rtol=0, atol=1e-6 * largest)

    @parameterized.parameters(
        name for name in MODELS if name not in ("encoder", *FITTED_AS_OTHERS)
    )
    @pytest.mark.jax
    def test_fit_on_records(self, name):
        self.check_fit(name)

    @parameterized.parameters(*FITTED_AS_OTHERS)
    @pytest.mark.slow
    def test_fit_on_records_as_others(self, name):
        self.check_fit(name)

    def check_fit(self, name):
        """Keras' own training, and prediction."""
        records, _ = records_of(name, CONFIG)
        model = MODELS[name](CONFIG)
        # As Keras decides on its own, where the tests do not hold it back.
        as_a_whole = name == "pretrainer" and xla_compiles_for_the_cpu()
        model.compile(
            optimizer=create_optimizer(5e-3, 1000, 0),
            jit_compile=as_a_whole or "auto",
        )
        traces = []
        model.train_step = lambda *data: (
            traces.append(1) or type(model).train_step(model, *data)
        )
        with warnings.catch_warnings():
            # Keras warns of dicts that do not match a model's inputs.
            warnings.simplefilter("error", UserWarning)
            dataset = tf.data.Dataset.from_tensors(records).repeat(25)
            losses = model.fit(dataset, epochs=2, shuffle=False, verbose=0).history[
                "loss"
            ]
            outputs = model.predict(records, verbose=0)
        self.assertLen(traces, 1)
        self.assertLess(losses[1], 0.7 * losses[0])
        self.assertAllEqual({len(values) for values in outputs.values()}, {4})
