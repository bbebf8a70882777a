import numpy as np
import tensorflow as tf

from bert_tf.config import CLASSIFIER_DROPOUT, MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.modeling.heads import BertClassifier, BertMultipleChoice
from bert_tf.modeling.names import weights_by_name
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    log_softmax,
    one_of,
    outputs_of,
    random_choices,
    random_records,
    randomize,
    relative_error,
    small_config,
)


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

    def test_several_labels_are_sigmoids(self):
        config = small_config()
        model = BertClassifier(config, 3, problem_type=MULTI_LABEL)
        randomize(model)
        records = random_records(config)
        labels = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], np.float32)
        records["label_ids"] = labels
        records["is_real_example"] = np.array([[1], [1], [0], [1]])
        model.compile(optimizer="sgd")
        logs = model.evaluate(records, verbose=0, return_dict=True)
        p = 1 / (1 + np.exp(-outputs_of(model, records)["logits"].astype(np.float64)))
        rows = [0, 1, 3]
        loss = -np.log(np.where(labels == 1, p, 1 - p))[rows].mean()
        right = [(np.round(p[row]) == labels[row]).all() for row in rows]
        self.assertAllClose(
            logs,
            {"loss": loss, "cross_entropy": loss, "exact_match": np.mean(right)},
            rtol=1e-5,
        )

    def test_regression_of_several_numbers(self):
        config = small_config()
        model = BertClassifier(config, 2, problem_type=REGRESSION)
        randomize(model)
        records = random_records(config)
        records["label_ids"] = np.arange(8, dtype=np.float32).reshape(4, 2)
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
        with self.assertRaisesRegex(ValueError, "`num_labels` must be at least 2"):
            BertClassifier(small_config(), 1, problem_type=SINGLE_LABEL)

    def test_problem_types(self):
        config = small_config()
        self.assertEqual(BertClassifier(config, 1).problem_type, REGRESSION)
        self.assertEqual(BertClassifier(config, 2).problem_type, SINGLE_LABEL)
        with self.assertRaisesRegex(ValueError, "`problem_type`.*'ranking'"):
            BertClassifier(config, 2, problem_type="ranking")


class MultipleChoiceTest(tf.test.TestCase):
    def check_logits(self, model, config, records):
        """Each choice's beside numpy's, as if it were the only one."""
        weights = randomize(model)
        logits = outputs_of(model, records)["logits"]
        self.assertEqual(logits.shape, records["input_ids"].shape[:2])
        inputs = {name: records[name] for name in model.input}
        expected = np.zeros(logits.shape)
        for row, choice in np.ndindex(*logits.shape):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(one_of(inputs, row), choice)
            )
            pooled = numpy_bert.pooled_output(weights, states[-1])
            (expected[row, choice],) = numpy_bert.output_logits(
                weights, "cls/multiple_choice/", pooled
            )
        self.assertLess(relative_error(logits, expected), 1e-5)

    def test_logits_against_numpy(self):
        config = small_config()
        model = BertMultipleChoice(config)
        # Another number of choices in each batch.
        for choices in (2, 4):
            self.check_logits(model, config, random_choices(config, choices=choices))

    def test_position_ids_and_attention_mask_of_each_choice(self):
        config = small_config()
        model = BertMultipleChoice(
            config, use_position_ids=True, use_attention_mask=True
        )
        records = random_choices(config, batch=2, choices=2, length=6)
        rng = np.random.default_rng(5)
        records["position_ids"] = rng.integers(0, 20, (2, 2, 6))
        # Each token sees itself: of one that sees nothing all scores are about -10000,
        # of which float32 has three digits after the point.
        sees = rng.integers(0, 2, (2, 2, 6, 6))
        records["attention_mask"] = sees | np.eye(6, dtype=int)
        self.check_logits(model, config, records)

    def test_initial_weights_do_not_follow_the_config(self):
        config = small_config(
            hidden_size=512, num_attention_heads=2, initializer_range=0.5
        )
        weights = weights_by_name(BertMultipleChoice(config))
        kernel = weights["cls/multiple_choice/output_weights"].numpy()
        self.assertAllClose(kernel.std(), 0.02 * 0.8796, rtol=0.15)

    def test_dropout_of_the_pooled_output(self):
        config = small_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = BertMultipleChoice(config)
        self.assertEqual(model.get_layer("dropout").rate, CLASSIFIER_DROPOUT)
        randomize(model)
        records = random_choices(config)
        expected = outputs_of(model, records)["logits"]
        logits = [model(records, training=True)["logits"] for _ in range(2)]
        self.assertNotAllClose(logits[0], logits[1])
        without = BertMultipleChoice(config, dropout=0.0)
        without.set_weights(model.get_weights()[: len(without.weights)])
        self.assertAllClose(
            without(records, training=True)["logits"], expected, rtol=1e-4, atol=1e-5
        )

    def test_evaluate_takes_the_softmax_over_the_choices(self):
        config = small_config()
        model = BertMultipleChoice(config)
        randomize(model)
        records = random_choices(config, batch=5)
        records["is_real_example"] = np.array([[1], [1], [0], [1], [0]])
        model.compile(optimizer="sgd")
        logs = model.evaluate(records, batch_size=5, verbose=0, return_dict=True)
        log_p = log_softmax(outputs_of(model, records)["logits"])
        labels = records["label_ids"][:, 0]
        losses = [-log_p[row, labels[row]] for row in (0, 1, 3)]
        right = [log_p[row].argmax() == labels[row] for row in (0, 1, 3)]
        self.assertAllClose(
            logs,
            {
                "loss": np.mean(losses),
                "cross_entropy": np.mean(losses),
                "accuracy": np.mean(right),
            },
            rtol=1e-5,
        )


if __name__ == "__main__":
    tf.test.main()
