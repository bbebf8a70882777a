import functools
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras.losses import SparseCategoricalCrossentropy

from bert_tf.base.config import (
    CLASSIFIER_DROPOUT,
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
)
from bert_tf.base.errors import InputError
from bert_tf.modeling.fused import without_fusion
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
    WindowAttention,
)
from bert_tf.modeling.weight_names import weights_by_name
from tests.modeling import numpy_bert
from tests.modeling.examples import (
    gradients_of,
    log_softmax,
    one_of,
    outputs_of,
    random_choices,
    random_label_sets,
    random_records,
    random_tags,
    randomize,
    relative_error,
    small_config,
)

# Name -> model, its records, and the scope of its head's weights.
HEADS = {
    "classifier": (lambda config: BertClassifier(config, 3), random_records, ""),
    "choice": (BertMultipleChoice, random_choices, "cls/multiple_choice/"),
    "span": (BertSpanPredictor, random_records, "cls/squad/"),
    "tagger": (lambda config: BertTagger(config, 3), random_tags, "cls/tagging/"),
}
# Further models, for what `evaluate` reports.
OTHERS = {
    "regression": (lambda config: BertClassifier(config, 1), random_records),
    "numbers": (
        lambda config: BertClassifier(config, 2, problem_type=REGRESSION),
        functools.partial(random_label_sets, num_labels=2),
    ),
    "label sets": (
        lambda config: BertClassifier(config, 3, problem_type=MULTI_LABEL),
        functools.partial(random_label_sets, num_labels=3),
    ),
    "pretrainer": (BertPretrainer, random_records),
}


class EveryHeadTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("classifier", "span", "tagger")
    def test_logits_against_numpy(self, name):
        build, records_of, scope = HEADS[name]
        config = small_config()
        model = build(config)
        weights = randomize(model)
        records = records_of(config)
        outputs = np.stack([*outputs_of(model, records).values()], axis=-1)
        for row in range(4):
            states, _ = numpy_bert.sequence_outputs(
                weights, config, one_of(records, row)
            )
            if name == "classifier":
                pooled = numpy_bert.pooled_output(weights, states[-1])
                expected = numpy_bert.output_logits(weights, scope, pooled)
            else:
                expected = numpy_bert.token_logits(weights, scope, states[-1])
            actual = outputs[row].reshape(expected.shape)
            self.assertLess(relative_error(actual, expected), 1e-5)

    @parameterized.parameters(*HEADS)
    def test_initial_weights_do_not_follow_the_config(self, name):
        build, _, scope = HEADS[name]
        config = small_config(
            hidden_size=512,
            num_attention_heads=2,
            num_hidden_layers=1,
            initializer_range=0.5,
        )
        weights = weights_by_name(build(config))
        # Two deviations are cut off: 0.8796 of one is left.
        kernel = weights[f"{scope}output_weights"].numpy()
        self.assertEqual(kernel.shape[1], 512)
        self.assertAllClose(kernel.std(), 0.02 * 0.8796, rtol=0.15)
        self.assertAllEqual(weights[f"{scope}output_bias"].numpy(), [0.0] * len(kernel))

    @parameterized.parameters(*HEADS)
    def test_dropout_before_the_logits_alone(self, name):
        build, records_of, _ = HEADS[name]
        config = small_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = build(config)
        randomize(model)
        records = records_of(config)
        (key, expected), *_ = outputs_of(model, records).items()
        with without_fusion():
            drawn = [model(records, training=True)[key] for _ in range(4)]
        if name == "span":
            self.assertAllClose(drawn[0], expected, rtol=1e-4, atol=1e-5)
        else:
            self.assertEqual(model.get_layer("dropout").rate, CLASSIFIER_DROPOUT)
            self.assertNotAllClose(drawn, [expected] * 4)

    @parameterized.parameters(*HEADS, *OTHERS)
    def test_evaluate_reports_the_objective(self, name):
        build, records_of = (HEADS | OTHERS)[name][:2]
        config = small_config()
        model = build(config)
        randomize(model)
        records = records_of(config, batch=5)
        if name not in ("tagger", "pretrainer"):
            records["is_real_example"] = np.array([[1], [1], [0], [1], [0]])
        if name == "regression":
            records["label_ids"] = np.float32(records["label_ids"])
        model.compile(optimizer="sgd", run_eagerly=True)
        logs = model.evaluate(records, batch_size=5, verbose=0, return_dict=True)
        means = model.objective.means(records, outputs_of(model, records))
        expected = {key: float(mean.value()) for key, mean in means.items()}
        expected["loss"] = sum(expected[key] for key in model.objective.losses)
        self.assertAllClose(logs, expected, rtol=1e-5)


class ClassifierTest(tf.test.TestCase):
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
        for loss in (None, SparseCategoricalCrossentropy(from_logits=True)):
            metrics = None if loss is None else ["accuracy"]
            model.compile("sgd", loss, metrics=metrics, run_eagerly=True)
            for y in (labels, labels.tolist(), labels[:, None]):
                found = model.evaluate(inputs, y, verbose=0, return_dict=True)
                self.assertAllClose(found["loss"], expected.mean(), rtol=1e-5)
                self.assertAllClose(found["accuracy"], right.mean())
        model.compile("sgd", run_eagerly=True)
        found = model.evaluate(
            inputs, labels, sample_weight=weights, verbose=0, return_dict=True
        )
        self.assertAllClose(found["loss"], expected @ weights / 4, rtol=1e-5)
        for held_out in ((inputs, labels), [inputs, labels.tolist(), weights]):
            with without_fusion():
                history = model.fit(inputs, labels, verbose=0, validation_data=held_out)
            self.assertLess(history.history["val_loss"][0], expected.mean())

    def test_weights_count_as_in_keras(self):
        """As in a layer of Keras' own on the encoder's outputs, with Keras' loss."""
        config = small_config(
            num_hidden_layers=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        model = BertClassifier(config, 3, dropout=0.0)
        randomize(model)
        records = random_records(config, batch=6)
        inputs = {name: records[name] for name in model.input}
        pooled = outputs_of(model.encoder, inputs)["pooled_output"]
        layer = keras.layers.Dense(3)
        plain = keras.Sequential([keras.Input(pooled.shape[1:]), layer])
        kernel, bias = model.get_layer("classifier").get_weights()
        layer.set_weights([kernel.T, bias])
        plain.compile(
            "sgd",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("weighted")],
        )
        model.encoder.trainable = False
        model.compile(
            "sgd",
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("weighted")],
            run_eagerly=True,
        )
        labels = np.array([2, 0, 1, 1, 0, 0])
        weights = np.array([50.0, 0.0, 1.0, 2.0, 0.5, 3.0])
        found, expected = (
            one.evaluate(
                x,
                labels,
                sample_weight=weights,
                batch_size=4,
                verbose=0,
                return_dict=True,
            )
            for one, x in ((model, inputs), (plain, pooled))
        )
        for key, value in expected.items():
            self.assertAllClose(found[key], value, rtol=1e-5, msg=key)
        # With batches of one, a weight that is divided out again would do nothing.
        for options in (
            {"class_weight": {0: 50.0, 2: 0.1}},
            {"sample_weight": weights},
        ):
            for batch_size in (1, 4):
                for one, x in ((model, inputs), (plain, pooled)):
                    one.fit(
                        x,
                        labels,
                        batch_size=batch_size,
                        shuffle=False,
                        verbose=0,
                        **options,
                    )
                actual = model.get_layer("classifier").get_weights()
                kernel, bias = layer.get_weights()
                self.assertAllClose(actual, [kernel.T, bias], rtol=1e-4, atol=1e-4)

    def test_weights_of_every_head(self):
        """An example that counts twice is as one that is there twice."""
        config = small_config(num_hidden_layers=1)
        for name, (build, make) in {
            **{name: parts[:2] for name, parts in HEADS.items()},
            **OTHERS,
        }.items():
            model = build(config)
            randomize(model)
            records = make(config, batch=4)
            if name == "regression":
                records["label_ids"] = np.float32(records["label_ids"])
            outputs = model(records, training=False)
            twice = {key: np.repeat(x, [1, 2, 1, 1], 0) for key, x in records.items()}
            once, weighted = (
                [
                    loss(records, outputs, sample_weight=weights).total
                    for loss in model.objective.losses.values()
                ]
                for weights in (None, np.array([1.0, 2.0, 1.0, 1.0]))
            )
            repeated = model.objective.means(twice, model(twice, training=False))
            expected = [repeated[key].total for key in model.objective.losses]
            self.assertAllClose(weighted, expected, rtol=1e-4, msg=name)
            self.assertNotAllClose(weighted, once, rtol=1e-3)

    def test_labels_of_arrays_and_then_of_a_data_set(self):
        config = small_config(num_hidden_layers=1)
        records = random_records(config)
        model = BertClassifier(config, 2)
        model.compile("sgd")
        x = {name: records[name] for name in model.input}
        labels = records["label_ids"][:, 0]
        one = model.evaluate(x, labels, verbose=0)
        data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(4)
        self.assertAllClose(model.evaluate(data, verbose=0), one, rtol=1e-5)
        with self.assertRaisesRegex(InputError, r"np.argmax\(y, axis=-1\)"):
            model.fit(x, np.eye(2, dtype="float32")[labels], verbose=0)

    @pytest.mark.slow
    def test_labels_of_every_rank_from_every_source(self):
        """Whichever comes first, and in whichever order."""
        config = small_config(num_hidden_layers=1)
        records = random_records(config, batch=4)
        model = BertClassifier(config, 3)
        randomize(model)
        x = {name: records[name] for name in model.input}
        labels = np.array([2, 0, 1, 1])
        log_p = log_softmax(outputs_of(model, records)["logits"])
        expected = -log_p[np.arange(4), labels].mean()
        batches = [slice(0, 2), slice(2, 4)]

        class Batches(keras.utils.PyDataset):
            def __init__(self, y):
                super().__init__()
                self.y = y

            def __len__(self):
                return len(batches)

            def __getitem__(self, number):
                rows = batches[number]
                return {name: a[rows] for name, a in x.items()}, self.y[rows]

        sources = (
            lambda y: {"x": x, "y": y, "batch_size": 2},
            lambda y: {"x": x, "y": y.tolist(), "batch_size": 4},
            lambda y: {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(2)},
            lambda y: {"x": (Batches(y)[number] for number in range(2))},
            lambda y: {"x": Batches(y)},
        )
        ranks = (labels, labels[:, None])
        for loss in (None, SparseCategoricalCrossentropy(from_logits=True)):
            metrics = None if loss is None else ["accuracy"]
            for first in range(len(sources)):
                order = ranks if first % 2 else ranks[::-1]
                # Steps are traced anew.
                model.compile(keras.optimizers.SGD(0.0), loss, metrics=metrics)
                for source in (*sources[first:], *sources[:first]):
                    for y in order:
                        model.fit(**source(y), verbose=0)
                        found = model.evaluate(**source(y), verbose=0)
                        self.assertAllClose(found[0], expected, rtol=1e-4)
                    given = {k: v for k, v in source(y).items() if k != "y"}
                    logits = model.predict(**given, verbose=0)["logits"]
                    self.assertAllClose(log_softmax(logits), log_p, rtol=1e-4)

    def test_labels_of_a_wrong_shape(self):
        config = small_config(num_hidden_layers=1)
        one_hot = np.eye(3, dtype="float32")
        classes = np.array([2, 0, 1, 1])
        tags = random_tags(config, batch=4)
        choices = random_choices(config, batch=4)
        spans = random_records(config, batch=4)
        num_choices = choices["input_ids"].shape[1]
        several = BertClassifier(config, 3, problem_type=MULTI_LABEL)
        numbers = BertClassifier(config, 2, problem_type=REGRESSION)
        are_classes = r"np.argmax\(y, axis=-1\) for labels that are one-hot"
        for model, records, y, message in (
            (several, spans, classes, r"Write np.eye\(3\)\[np.ravel\(y\)\] "),
            (several, spans, classes[:, None], r"Write np.eye\(3\)\[np.ravel\(y\)\] "),
            (several, spans, one_hot[classes][:, :2], r"Write num_labels=2 for"),
            (BertClassifier(config, 1), spans, np.ones([4, 2]), "num_labels=2 for"),
            (numbers, spans, np.ones(4), "are 2 numbers for .* Write num_labels=1"),
            (BertClassifier(config, 3), spans, one_hot[classes], are_classes),
            (BertTagger(config, 3), tags, one_hot[tags["label_ids"]], are_classes),
            (
                BertMultipleChoice(config),
                choices,
                np.eye(num_choices)[choices["label_ids"][:, 0]],
                are_classes,
            ),
        ):
            model.compile("sgd")
            x = {k: v for k, v in records.items() if k not in ("label_ids",)}
            with self.subTest(model.name, shape=y.shape):
                with self.assertRaisesRegex(InputError, message):
                    model.fit(x, y, verbose=0)
                if model in (several, numbers):  # each is traced
                    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
                    with self.assertRaisesRegex(InputError, message):
                        model.fit(data, verbose=0)
        model = BertSpanPredictor(config)
        model.compile("sgd")
        length = spans["input_ids"].shape[1]
        wrong = np.eye(length)[spans["start_positions"][:, 0]]
        with self.assertRaisesRegex(InputError, are_classes):
            model.fit({**spans, "start_positions": wrong}, verbose=0)

    def test_labels_that_are_missing(self):
        config = small_config(num_hidden_layers=1)
        tags = random_tags(config)
        inputs = {k: tags[k] for k in ("input_ids", "input_mask", "segment_ids")}
        tagger = BertTagger(config, 3)
        for model, y, missing in (
            (tagger, tags["label_ids"], "label_weights is missing"),
            (tagger, None, "label_ids, label_weights is missing"),
            (BertClassifier(config, 3), None, "label_ids is missing"),
            (BertSpanPredictor(config), None, "end_positions is missing"),
        ):
            model.compile("sgd", run_eagerly=True)
            with self.assertRaisesRegex(InputError, missing):
                model.fit(inputs, y, verbose=0)
        with self.assertRaisesRegex(InputError, "Give `sample_weight`"):
            tagger.fit(inputs, tags["label_ids"], class_weight={0: 2.0})

    def test_inputs_under_other_names(self):
        model = BertClassifier(small_config(num_hidden_layers=1), 3)
        ones = np.ones([1, 4], np.int32)
        names = ("input_ids", "attention_mask", "token_type_ids")
        with self.assertRaisesRegex(InputError, "`attention_mask` is `input_mask`"):
            model(dict.fromkeys(names, ones))

    def test_targets_of_a_tagger(self):
        config = small_config()
        model = BertTagger(config, 3, dropout=0.25)
        self.assertEqual(model.get_layer("dropout").rate, 0.25)
        randomize(model)
        records = random_records(config, batch=4)
        inputs = {name: records[name] for name in model.input}
        labels = np.ones_like(inputs["input_ids"])
        log_p = log_softmax(outputs_of(model, records)["logits"])[..., 1]
        weights = np.zeros(labels.shape, np.float32)
        weights[:, 1:3] = 1.0
        model.compile("sgd", run_eagerly=True)
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
        held_out = ({**inputs, "input_ids": inputs["input_ids"] + vocab}, labels)
        with self.assertRaisesRegex(InputError, "`input_ids` must be in"):
            model.fit(inputs, labels, verbose=0, validation_data=held_out)
        for y in ([0, 1, 2, 3], [0, -1, 2, 0]):
            for right, held_out in ((y, None), (labels, (inputs, y))):
                with self.assertRaisesRegex(InputError, r"`y` must be in \[0, 3\)"):
                    model.fit(inputs, right, verbose=0, validation_data=held_out)
        for y in ([0.5, 1.0, 2.0, 0.0], ["a", "b", "c", "a"]):
            with self.assertRaisesRegex(InputError, "must be the numbers of the cl"):
                model.fit(inputs, y, verbose=0)

    def test_labels_and_problem_types(self):
        for num_labels, options in ((0, {}), (1, {"problem_type": SINGLE_LABEL})):
            with self.assertRaisesRegex(ValueError, "`num_labels` must be positive"):
                BertClassifier(small_config(), num_labels, **options)
        with self.assertRaisesRegex(ValueError, "`num_labels` must be positive.*0"):
            BertTagger(small_config(), 0)
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


class PretrainerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {"hidden_act": "gelu"},
        {"hidden_act": "relu", "layer_norm_eps": 0.5},
        # The head's own, as KerasHub's has them, and so that it shows.
        {"masked_lm_hidden_act": "gelu_erf", "masked_lm_layer_norm_eps": 1e-5},
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
        traces = []

        def gradients(inputs):
            traces.append(1)
            return gradients_of(model, inputs)[1]

        signature = {key: tf.TensorSpec([None, None], tf.int32) for key in model.input}
        run = tf.function(gradients, input_signature=[signature], autograph=False)
        for length in (6, 9):
            records = random_records(config, length=length)
            inputs = {key: tf.constant(records[key]) for key in model.input}
            with without_fusion():
                apart = gradients(inputs)
            for actual, expected in zip(run(inputs), apart, strict=True):
                self.assertAllClose(actual, expected, rtol=1e-3, atol=1e-4)
        self.assertLen(traces, 3)  # one, and two without tf.function

    def test_metrics_are_means_over_all_batches(self):
        config = small_config()
        model = BertPretrainer(config)
        randomize(model)
        records = random_records(config, batch=6)
        model.compile(optimizer="sgd", run_eagerly=True)
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

    def test_targets_and_a_compiled_loss_are_keras_own(self):
        config = small_config()
        model = BertPretrainer(config)
        records = random_records(config)
        model.compile(
            optimizer="sgd",
            run_eagerly=True,
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


class WindowAttentionTest(tf.test.TestCase):
    def test_by_hand(self):
        layer = WindowAttention()
        pooled = np.array([[1.0, 0], [0, 1], [5, 7], [2, 4], [9, 9], [9, 9]])
        # Of the first text two windows, of the second one. A window has no [CLS]
        # where it is not there; the third text is a batch's padding.
        mask = np.array([[[1, 1], [1, 0]], [[0, 0], [1, 1]], [[0, 0], [0, 0]]])
        mean = layer(pooled, mask)
        self.assertAllClose(mean, [[0.5, 0.5], [2, 4], [9, 9]])
        # u . p = log 3 and 0: the weights are 3/4 and 1/4.
        layer.query.assign([np.log(3.0), 0.0])
        self.assertAllClose(layer(pooled, mask), [[0.75, 0.25], [2, 4], [9, 9]])
