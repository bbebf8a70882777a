import os
import warnings
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.compilation import xla_compiles_for_the_cpu
from bert_tf.config import CLASSIFIER_DROPOUT
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.names import weights_by_name
from bert_tf.optimization.recipe import create_optimizer
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)

# name -> a function of (config, **options) to the model. A new head needs only its line
# here to go through the conformance test.
MODELS = {
    "encoder": BertEncoder,
    "pretrainer": BertPretrainer,
    "pretrainer_masked_lm_only": lambda config, **options: BertPretrainer(
        config, next_sentence=False, **options
    ),
    "classifier": lambda config, **options: BertClassifier(config, 3, **options),
    "regression": lambda config, **options: BertClassifier(config, 1, **options),
}


def sum_of_squares(outputs):
    return tf.add_n(
        [tf.reduce_sum(tf.square(x - 0.1)) for x in tf.nest.flatten(outputs)]
    )


class ConformanceTest(tf.test.TestCase, parameterized.TestCase):
    """What every model must do: saved, compiled, in half precision, any batch."""

    def setUp(self):
        super().setUp()
        self.config = small_config(num_hidden_layers=1)
        self.records = random_records(self.config)
        self.tensors = tf.nest.map_structure(tf.constant, self.records)

    @parameterized.parameters(*MODELS)
    def test_keras_file(self, name):
        model = MODELS[name](self.config)
        randomize(model)
        path = os.path.join(self.get_temp_dir(), f"{name}.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertIs(type(loaded), type(model))
        expected = outputs_of(model, self.records)
        for key, values in outputs_of(loaded, self.records).items():
            self.assertAllEqual(values, expected[key])

    @parameterized.parameters(*MODELS)
    def test_compiled_by_xla(self, name):
        if not xla_compiles_for_the_cpu():
            self.skipTest("this TensorFlow has no XLA compiler for CPUs")
        model = MODELS[name](self.config)
        randomize(model)
        # Without labels: the names of the model's inputs, and nothing else.
        inputs = {key: self.tensors[key] for key in model.input}
        compiled = tf.function(model, jit_compile=True)(inputs, training=False)
        for key, values in model(inputs, training=False).items():
            self.assertAllClose(compiled[key], values, rtol=1e-4, atol=1e-5)

    @parameterized.parameters(*MODELS)
    def test_mixed_precision(self, name):
        exact = MODELS[name](self.config)
        randomize(exact)
        model = MODELS[name](self.config, dtype="mixed_bfloat16")
        model.set_weights(exact.get_weights())
        self.assertAllEqual({w.dtype for w in model.weights}, {"float32"})
        with tf.GradientTape() as tape:
            outputs = model(self.tensors, training=True)
            loss = sum_of_squares([tf.cast(x, tf.float32) for x in outputs.values()])
        for gradient in tape.gradient(loss, [w.value for w in model.weights]):
            self.assertTrue(np.isfinite(tf.convert_to_tensor(gradient)).all())
        expected = exact(self.tensors, training=False)
        for key, values in model(self.tensors, training=False).items():
            if name != "encoder":
                self.assertEqual(values.dtype, tf.float32)
            error = tf.cast(values, tf.float32) - expected[key]
            # bfloat16 has 8 bits.
            self.assertLess(tf.norm(error) / tf.norm(expected[key]), 0.05, msg=key)
        restored = type(model).from_config(model.get_config())
        self.assertEqual(restored(self.tensors)[key].dtype, values.dtype)
        self.assertEqual(
            restored.get_layer(index=-1).dtype_policy.name, "mixed_bfloat16"
        )

    @parameterized.parameters(*MODELS)
    def test_any_batch_and_length_in_one_trace(self, name):
        model = MODELS[name](self.config)
        randomize(model)
        traces = []
        signature = {
            key: tf.TensorSpec([None] * self.tensors[key].ndim, tf.int32)
            for key in model.input
        }

        @tf.function(input_signature=[signature])
        def run(inputs):
            traces.append(1)
            return model(inputs, training=False)

        whole = model(self.tensors, training=False)
        for rows in (slice(0, 1), slice(1, 4)):
            part = run({key: self.tensors[key][rows] for key in model.input})
            for key, values in part.items():
                self.assertAllClose(values, whole[key][rows], rtol=1e-5, atol=1e-5)
        shorter = random_records(self.config, length=6)
        run({key: tf.constant(shorter[key]) for key in model.input})
        self.assertLen(traces, 1)

    @parameterized.parameters(*MODELS)
    def test_gradients_reach_every_weight(self, name):
        model = MODELS[name](self.config)
        weights = randomize(model)
        variables = weights_by_name(model)
        self.assertSameElements(
            [id(v) for v in variables.values()],
            [id(v) for v in model.trainable_variables],
        )
        with tf.GradientTape() as tape:
            loss = sum_of_squares(model(self.tensors, training=False))
        gradients = tape.gradient(loss, {k: v.value for k, v in variables.items()})
        for key, gradient in gradients.items():
            self.assertIsNotNone(gradient, msg=key)
            # A key's bias adds one number to all scores of a query: softmax ignores it.
            if not key.endswith("/key/bias"):
                largest = tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient)))
                self.assertGreater(largest, 1e-5, msg=key)
        self.assertLen(weights, len(gradients))

    @parameterized.parameters(*(name for name in MODELS if name != "encoder"))
    def test_fit_on_records(self, name):
        model = MODELS[name](self.config)
        model.compile(optimizer=create_optimizer(5e-3, 1000, 0))
        with warnings.catch_warnings():
            # Keras warns of dicts that do not match a model's inputs.
            warnings.simplefilter("error", UserWarning)
            dataset = tf.data.Dataset.from_tensors(self.records).repeat(25)
            losses = model.fit(dataset, epochs=2, shuffle=False, verbose=0).history[
                "loss"
            ]
            outputs = model.predict(self.records, verbose=0)
        self.assertLess(losses[1], 0.7 * losses[0])
        self.assertAllEqual({len(values) for values in outputs.values()}, {4})


class PretrainerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("gelu", "relu")
    def test_logits_against_numpy(self, hidden_act):
        config = small_config(hidden_act=hidden_act)
        model = BertPretrainer(config)
        weights = randomize(model)
        records = random_records(config)
        outputs = outputs_of(model, records)
        for row in range(4):
            record = one_of(records, row)
            states, _ = numpy_bert.sequence_outputs(weights, config, record)
            expected = numpy_bert.masked_lm_logits(
                weights, config, states[-1], record["masked_lm_positions"]
            )
            self.assertLess(
                relative_error(outputs["masked_lm_logits"][row], expected), 1e-5
            )
            expected = numpy_bert.output_logits(
                weights,
                "cls/seq_relationship/",
                numpy_bert.pooled_output(weights, states[-1]),
            )
            self.assertLess(
                relative_error(outputs["next_sentence_logits"][row], expected), 1e-5
            )

    def test_trains_on_any_length_in_one_trace(self):
        # As good as no dropout, and yet the pieces that drop out run.
        config = small_config(
            num_hidden_layers=1,
            hidden_dropout_prob=1e-9,
            attention_probs_dropout_prob=1e-9,
        )
        model = BertPretrainer(config)
        randomize(model)
        weights = [weight.value for weight in model.trainable_variables]
        traces = []

        def gradients(inputs):
            traces.append(1)
            with tf.GradientTape() as tape:
                loss = sum_of_squares(model(inputs, training=True))
            return [
                tf.convert_to_tensor(gradient)
                for gradient in tape.gradient(loss, weights)
            ]

        signature = {key: tf.TensorSpec([None, None], tf.int32) for key in model.input}
        run = tf.function(gradients, input_signature=[signature])
        for length in (6, 9):
            records = random_records(config, length=length)
            inputs = {key: tf.constant(records[key]) for key in model.input}
            for actual, expected in zip(run(inputs), gradients(inputs), strict=True):
                self.assertAllClose(actual, expected, rtol=1e-3, atol=1e-4)
        self.assertLen(traces, 3)  # one, and two without tf.function

    def test_evaluate_reports_the_records_losses_and_accuracies(self):
        config = small_config()
        model = BertPretrainer(config)
        randomize(model)
        records = random_records(config, batch=6)
        model.compile(optimizer="sgd")
        actual = model.evaluate(records, batch_size=6, verbose=0, return_dict=True)

        outputs = outputs_of(model, records)
        log_p = log_softmax(outputs["masked_lm_logits"])
        weights, ids = records["masked_lm_weights"], records["masked_lm_ids"]
        negative = -np.take_along_axis(log_p, ids[..., None], axis=-1)[..., 0]
        masked_lm_loss = (weights * negative).sum() / (weights.sum() + 1e-5)
        right = outputs["masked_lm_logits"].argmax(-1) == ids
        log_p = log_softmax(outputs["next_sentence_logits"])
        labels = records["next_sentence_labels"][:, 0]
        next_sentence_loss = -log_p[np.arange(6), labels].mean()
        expected = {
            "loss": masked_lm_loss + next_sentence_loss,
            "masked_lm_loss": masked_lm_loss,
            "masked_lm_accuracy": (weights * right).sum() / weights.sum(),
            "next_sentence_loss": next_sentence_loss,
            "next_sentence_accuracy": (log_p.argmax(-1) == labels).mean(),
        }
        self.assertAllClose(actual, expected, rtol=1e-5)

    def test_metrics_are_means_over_all_batches(self):
        config = small_config()
        model = BertPretrainer(config)
        randomize(model)
        records = random_records(config, batch=6)
        model.compile(optimizer="sgd")
        whole = model.evaluate(records, batch_size=6, verbose=0, return_dict=True)
        parts = model.evaluate(records, batch_size=4, verbose=0, return_dict=True)
        for name in set(whole) - {"loss"}:
            self.assertAllClose(parts[name], whole[name], rtol=1e-4)

    def test_each_of_two_replicas_has_half_the_loss(self):
        # Keras adds the gradients of the replicas up.
        config = small_config()
        model = BertPretrainer(config)
        model.compile(optimizer="sgd")
        records = random_records(config)
        outputs = model(records, training=False)
        whole = model.compute_loss(x=records, y_pred=outputs)
        two = mock.Mock(num_replicas_in_sync=2)
        with mock.patch.object(tf.distribute, "get_strategy", return_value=two):
            half = model.compute_loss(x=records, y_pred=outputs)
        self.assertAllClose(half, whole / 2.0)

    def test_the_decoder_is_the_table_of_words(self):
        model = BertPretrainer(small_config())
        shapes = [tuple(w.shape) for w in model.weights]
        self.assertEqual(shapes.count((53, 24)), 1)

    def test_targets_and_a_compiled_loss_are_keras_own(self):
        config = small_config()
        model = BertPretrainer(config)
        records = random_records(config)
        model.compile(
            optimizer="sgd",
            loss={
                "masked_lm_logits": keras.losses.SparseCategoricalCrossentropy(
                    from_logits=True
                )
            },
        )
        targets = {"masked_lm_logits": records["masked_lm_ids"]}
        logs = model.evaluate(records, targets, verbose=0, return_dict=True)
        log_p = log_softmax(outputs_of(model, records)["masked_lm_logits"])
        expected = -np.take_along_axis(
            log_p, records["masked_lm_ids"][..., None], axis=-1
        ).mean()
        self.assertAllClose(logs, {"loss": expected}, rtol=1e-5)


class ClassifierTest(tf.test.TestCase):
    def test_logits_against_numpy(self):
        config = small_config()
        model = BertClassifier(config, 3)
        weights = randomize(model)
        records = random_records(config)
        logits = outputs_of(model, records)["logits"]
        for row in range(4):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            expected = numpy_bert.output_logits(
                weights, "", numpy_bert.pooled_output(weights, states[-1])
            )
            self.assertLess(relative_error(logits[row], expected), 1e-5)

    def test_initial_weights_do_not_follow_the_config(self):
        config = small_config(
            hidden_size=512, num_attention_heads=2, initializer_range=0.5
        )
        weights = weights_by_name(BertClassifier(config, 8))
        values = weights["output_weights"].numpy()
        self.assertEqual(values.shape, (8, 512))
        self.assertAllClose(values.std(), 0.02 * 0.8796, rtol=0.05)
        self.assertAllEqual(weights["output_bias"].numpy(), np.zeros(8))

    def test_dropout_of_the_pooled_output(self):
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = small_config(**none)
        records = random_records(config)
        model = BertClassifier(config, 3)
        self.assertEqual(model.get_layer("dropout").rate, CLASSIFIER_DROPOUT)
        with_none = BertClassifier(config, 3, dropout=0.0)
        randomize(model)
        with_none.set_weights(model.get_weights())
        expected = with_none(records, training=True)["logits"]
        self.assertAllClose(
            model(records, training=False)["logits"], expected, atol=1e-5
        )
        self.assertNotAllClose(
            tf.concat([model(records, training=True)["logits"] for _ in range(4)], 0),
            tf.tile(expected, (4, 1)),
        )

    def test_evaluate_leaves_out_what_only_fills_up_the_batch(self):
        config = small_config()
        model = BertClassifier(config, 2)
        randomize(model)
        records = random_records(config, batch=5)
        records["is_real_example"] = np.array([[1], [1], [0], [1], [0]])
        model.compile(optimizer="sgd")
        logs = model.evaluate(records, batch_size=5, verbose=0, return_dict=True)
        real = np.array([0, 1, 3])
        log_p = log_softmax(outputs_of(model, records)["logits"])
        labels = records["label_ids"][:, 0]
        loss = -log_p[real, labels[real]].mean()
        self.assertAllClose(
            logs,
            {
                "loss": loss,
                "cross_entropy": loss,
                "accuracy": (log_p.argmax(-1) == labels)[real].mean(),
            },
            rtol=1e-5,
        )

    def test_regression_minimises_the_squared_error(self):
        config = small_config()
        model = BertClassifier(config, 1)
        randomize(model)
        records = random_records(config)
        records["label_ids"] = np.array([[0.5], [2.0], [-1.0], [4.5]], np.float32)
        model.compile(optimizer="sgd")
        logs = model.evaluate(records, verbose=0, return_dict=True)
        logits = outputs_of(model, records)["logits"]
        expected = np.mean((logits - records["label_ids"]) ** 2)
        self.assertAllClose(
            logs, {"loss": expected, "mean_squared_error": expected}, rtol=1e-5
        )

    def test_number_of_labels(self):
        with self.assertRaisesRegex(ValueError, "`num_labels` must be positive.*0"):
            BertClassifier(small_config(), 0)


def log_softmax(x):
    x = x.astype(np.float64)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


if __name__ == "__main__":
    tf.test.main()
