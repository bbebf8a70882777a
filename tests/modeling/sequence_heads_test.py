import numpy as np
import tensorflow as tf

from bert_tf.config import CLASSIFIER_DROPOUT, MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertClassifier, BertMultipleChoice, BertTagger
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

    def test_targets_beside_the_inputs(self):
        config = small_config()
        model = BertClassifier(config, 3)
        randomize(model)
        records = random_records(config, batch=4)
        inputs = {name: records[name] for name in model.input}
        labels = np.array([2, 0, 1, 1])
        log_p = log_softmax(outputs_of(model, records)["logits"])
        expected = -log_p[np.arange(4), labels]
        right = log_p.argmax(axis=-1) == labels
        weights = np.array([1.0, 0.0, 1.0, 1.0])
        for loss in (None, "sparse_categorical_crossentropy"):
            metrics = None if loss is None else ["accuracy"]
            model.compile("sgd", loss, metrics=metrics)
            for y in (labels, labels.tolist(), labels[:, None]):
                found = model.evaluate(inputs, y, verbose=0, return_dict=True)
                self.assertAllClose(found["loss"], expected.mean(), rtol=1e-5)
                self.assertAllClose(found["accuracy"], right.mean())
        model.compile("sgd")
        found = model.evaluate(
            inputs, labels, sample_weight=weights, verbose=0, return_dict=True
        )
        self.assertAllClose(found["loss"], expected @ weights / 3, rtol=1e-5)
        history = model.fit(inputs, labels, verbose=0, validation_data=(inputs, labels))
        self.assertLess(history.history["val_loss"][0], expected.mean())

    def test_targets_of_a_tagger(self):
        config = small_config()
        model = BertTagger(config, 3)
        randomize(model)
        records = random_records(config, batch=4)
        inputs = {name: records[name] for name in model.input}
        labels = np.ones_like(inputs["input_ids"])
        log_p = log_softmax(outputs_of(model, records)["logits"])[..., 1]
        weights = np.zeros(labels.shape, np.float32)
        weights[:, 1:3] = 1.0
        model.compile("sgd")
        found = model.evaluate(
            inputs, labels, sample_weight=weights, verbose=0, return_dict=True
        )
        self.assertAllClose(found["loss"], -log_p[:, 1:3].mean(), rtol=1e-5)

    def test_what_does_not_fit_the_model_is_refused(self):
        config = small_config()
        model = BertClassifier(config, 3)
        model.compile("sgd")
        records = random_records(config, batch=4)
        inputs = {name: records[name] for name in model.input}
        labels = np.array([2, 0, 1, 1])
        vocab, positions = config.vocab_size, config.max_position_embeddings
        for name, change, message in (
            ("input_ids", vocab, rf"`input_ids` must be in \[0, {vocab}\). Rec"),
            ("input_ids", -vocab, r"Received: -"),
            ("segment_ids", 16, r"`segment_ids` must be in \[0, "),
        ):
            wrong = {**inputs, name: inputs[name] + change}
            for call in (model, model.encoder, model.predict):
                with self.assertRaisesRegex(InputError, message):
                    call(wrong)
            for call in (model.fit, model.evaluate):
                with self.assertRaisesRegex(InputError, message):
                    call(wrong, labels, verbose=0)
        long = {name: np.ones([4, positions + 1], np.int32) for name in inputs}
        long["segment_ids"] *= 0
        batches = tf.data.Dataset.from_tensor_slices(long).batch(2)
        message = f"the model's {positions} positions. Received: {positions + 1} ids"
        for call, given in (
            (model, long),
            (model.predict, long),
            (model.predict, batches),
        ):
            with self.assertRaisesRegex(InputError, message):
                call(given)
        for y in ([0, 1, 2, 3], [0, -1, 2, 0]):
            with self.assertRaisesRegex(InputError, r"`y` must be in \[0, 3\)"):
                model.fit(inputs, y, verbose=0)
        for y in ([0.5, 1.0, 2.0, 0.0], ["a", "b", "c", "a"]):
            with self.assertRaisesRegex(InputError, "must be the numbers of the cl"):
                model.fit(inputs, y, verbose=0)

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
