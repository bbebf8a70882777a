from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.modeling.heads import BertPretrainer
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    log_softmax,
    one_of,
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)


def sum_of_squares(outputs):
    return tf.add_n(
        [tf.reduce_sum(tf.square(x - 0.1)) for x in tf.nest.flatten(outputs)]
    )


class PretrainerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {"hidden_act": "gelu"},
        {"hidden_act": "relu", "layer_norm_eps": 0.5},
        # The head's own, as KerasHub's has them, and so that it shows.
        {"masked_lm_hidden_act": "gelu_erf", "masked_lm_layer_norm_eps": 1e-5},
        {"masked_lm_hidden_act": "tanh"},
        {"masked_lm_layer_norm_eps": 0.5},
        {"layer_norm_eps": 0.5, "masked_lm_layer_norm_eps": 1e-12},
    )
    def test_logits_against_numpy(self, **overrides):
        config = small_config(**overrides)
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


if __name__ == "__main__":
    tf.test.main()
