import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.config import CLASSIFIER_DROPOUT
from bert_tf.modeling.heads import BertSpanPredictor, BertTagger
from bert_tf.modeling.names import weights_by_name
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    log_softmax,
    one_of,
    outputs_of,
    random_records,
    random_tags,
    randomize,
    relative_error,
    small_config,
)

WIDE = {"hidden_size": 512, "num_attention_heads": 2, "initializer_range": 0.5}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class SpanPredictorTest(tf.test.TestCase):
    def test_logits_against_numpy(self):
        config = small_config()
        model = BertSpanPredictor(config)
        weights = randomize(model)
        records = random_records(config)
        outputs = outputs_of(model, records)
        for row in range(4):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            expected = numpy_bert.token_logits(weights, "cls/squad/", states[-1])
            for number, name in enumerate(("start_logits", "end_logits")):
                self.assertLess(
                    relative_error(outputs[name][row], expected[:, number]), 1e-5
                )

    def test_training_drops_nothing_out_after_the_encoder(self):
        config = small_config(**NO_DROPOUT)
        model = BertSpanPredictor(config)
        randomize(model)
        records = random_records(config)
        expected = outputs_of(model, records)
        for name, logits in model(records, training=True).items():
            self.assertAllClose(logits, expected[name], rtol=1e-4, atol=1e-5)

    def test_initial_weights_do_not_follow_the_config(self):
        values = weights_by_name(BertSpanPredictor(small_config(**WIDE)))
        kernel = values["cls/squad/output_weights"].numpy()
        # Two deviations are cut off: 0.8796 of one is left.
        self.assertAllClose(kernel.std(), 0.02 * 0.8796, rtol=0.1)
        self.assertAllEqual(values["cls/squad/output_bias"].numpy(), [0.0, 0.0])

    def test_evaluate_reports_the_loss_and_how_many_spans_are_exact(self):
        config = small_config()
        model = BertSpanPredictor(config)
        randomize(model)
        records = random_records(config, batch=6)
        outputs = outputs_of(model, records)
        likeliest = {name: logits.argmax(1) for name, logits in outputs.items()}
        # Right, only the start, only the end, right, and two that fill the batch up.
        records["start_positions"] = likeliest["start_logits"].copy()[:, None]
        records["end_positions"] = likeliest["end_logits"].copy()[:, None]
        records["start_positions"][2] -= 1
        records["end_positions"][1] -= 1
        for name in ("start_positions", "end_positions"):
            records[name] %= 14
        records["is_real_example"] = np.array([[1]] * 4 + [[0]] * 2)
        model.compile(optimizer="sgd")
        logs = model.evaluate(records, batch_size=6, verbose=0, return_dict=True)
        # The mean of both ends, over four examples: eight numbers, padding among them.
        log_ps = [
            log_softmax(outputs[f"{end}_logits"])[row, records[f"{end}_positions"][row]]
            for end in ("start", "end")
            for row in range(4)
        ]
        self.assertAllClose(
            logs,
            {
                "loss": -np.mean(log_ps),
                "cross_entropy": -np.mean(log_ps),
                "span_accuracy": 0.5,
            },
            rtol=1e-5,
        )


class TaggerTest(tf.test.TestCase, parameterized.TestCase):
    def test_logits_against_numpy(self):
        config = small_config()
        model = BertTagger(config, 5)
        weights = randomize(model)
        records = random_tags(config)
        logits = outputs_of(model, records)["logits"]
        for row in range(4):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            expected = numpy_bert.token_logits(weights, "cls/tagging/", states[-1])
            self.assertLess(relative_error(logits[row], expected), 1e-5)

    def test_initial_weights_do_not_follow_the_config(self):
        values = weights_by_name(BertTagger(small_config(**WIDE), 8))
        kernel = values["cls/tagging/output_weights"].numpy()
        self.assertEqual(kernel.shape, (8, 512))
        self.assertAllClose(kernel.std(), 0.02 * 0.8796, rtol=0.05)

    def test_dropout_of_the_tokens(self):
        config = small_config(**NO_DROPOUT)
        model = BertTagger(config, 24)
        self.assertEqual(model.get_layer("dropout").rate, CLASSIFIER_DROPOUT)
        model = BertTagger(config, 24, dropout=0.25)
        randomize(model)
        # So that the logits are what is left of the tokens' outputs.
        weights = weights_by_name(model)
        weights["cls/tagging/output_weights"].assign(np.eye(24))
        weights["cls/tagging/output_bias"].assign(np.zeros(24))
        records = random_tags(config)
        outputs = outputs_of(model, records)["logits"]
        logits = model(records, training=True)["logits"].numpy()
        kept = logits != 0.0
        self.assertAllClose(logits[kept], outputs[kept] / 0.75, rtol=1e-4, atol=1e-5)
        # 1344 numbers: a standard deviation is 0.012.
        self.assertAllClose(np.mean(kept), 0.75, atol=0.05)

    def test_evaluate_counts_the_first_tokens_of_words(self):
        config = small_config()
        model = BertTagger(config, 3)
        randomize(model)
        records = random_tags(config)
        model.compile(optimizer="sgd")
        logs = model.evaluate(records, verbose=0, return_dict=True)
        log_p = log_softmax(outputs_of(model, records)["logits"])
        words = np.argwhere(records["label_weights"])
        losses = [-log_p[b, s, records["label_ids"][b, s]] for b, s in words]
        right = [log_p[b, s].argmax() == records["label_ids"][b, s] for b, s in words]
        self.assertAllClose(
            logs,
            {
                "loss": np.mean(losses),
                "cross_entropy": np.mean(losses),
                "accuracy": np.mean(right),
            },
            rtol=1e-5,
        )

    def test_number_of_labels(self):
        with self.assertRaisesRegex(ValueError, "`num_labels` must be positive.*0"):
            BertTagger(small_config(), 0)


if __name__ == "__main__":
    tf.test.main()
