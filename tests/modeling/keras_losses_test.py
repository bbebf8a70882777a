import os

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import BertClassifier, BertSpanPredictor
from tests.modeling.examples import (
    outputs_of,
    random_records,
    randomize,
    small_config,
)

CONFIG = small_config(num_hidden_layers=1)
LABELS = np.array([2, 0, 1, 1, 0, 2])
ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]
SETS = np.float32([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
# Spellings of a loss, its class, and labels that it is of.
LOSSES = (
    *(
        (spelling, keras.losses.SparseCategoricalCrossentropy, LABELS[:, None])
        for spelling in (
            "sparse_categorical_crossentropy",
            "SparseCategoricalCrossentropy",
            keras.losses.SparseCategoricalCrossentropy,
            keras.losses.sparse_categorical_crossentropy,
            ["sparse_categorical_crossentropy"],
            {"logits": "SparseCategoricalCrossentropy"},
            {"class_name": "SparseCategoricalCrossentropy", "config": {}},
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    ),
    ("CategoricalCrossentropy", keras.losses.CategoricalCrossentropy, ONE_HOT),
    (
        "categorical_focal_crossentropy",
        keras.losses.CategoricalFocalCrossentropy,
        ONE_HOT,
    ),
    ("bce", keras.losses.BinaryCrossentropy, SETS),
    ("BCE", keras.losses.BinaryCrossentropy, SETS),
    ("BinaryFocalCrossentropy", keras.losses.BinaryFocalCrossentropy, SETS),
    (
        keras.losses.binary_focal_crossentropy,
        keras.losses.BinaryFocalCrossentropy,
        SETS,
    ),
)
# Likewise of metrics.
METRICS = (
    (
        "sparse_categorical_crossentropy",
        keras.metrics.SparseCategoricalCrossentropy(from_logits=True),
        LABELS[:, None],
    ),
    (
        keras.metrics.CategoricalCrossentropy,
        keras.metrics.CategoricalCrossentropy(from_logits=True),
        ONE_HOT,
    ),
    ("bce", keras.metrics.BinaryCrossentropy(from_logits=True), SETS),
    (
        keras.losses.binary_focal_crossentropy,
        keras.metrics.MeanMetricWrapper(
            keras.losses.binary_focal_crossentropy, from_logits=True
        ),
        SETS,
    ),
    ("accuracy", keras.metrics.SparseCategoricalAccuracy(), LABELS[:, None]),
    ("AUC", keras.metrics.AUC(from_logits=True), SETS),
    ({"logits": ["auc"]}, keras.metrics.AUC(from_logits=True), SETS),
)


class OfLogitsTest(tf.test.TestCase):
    """Beside one of Keras' own layers on the same pooled outputs."""

    def setUp(self):
        super().setUp()
        records = random_records(CONFIG, batch=6)
        self.models = {
            kind: BertClassifier(CONFIG, 3, problem_type=kind)
            for kind in (None, MULTI_LABEL)
        }
        model = self.models[None]
        randomize(model)
        self.models[MULTI_LABEL].set_weights(model.get_weights())
        self.inputs = {name: records[name] for name in model.input}
        self.pooled = outputs_of(model.encoder, self.inputs)["pooled_output"]
        layer = keras.layers.Dense(3)
        self.plain = keras.Sequential([keras.Input(self.pooled.shape[1:]), layer])
        kernel, bias = model.get_layer("classifier").get_weights()
        layer.set_weights([kernel.T, bias])

    def evaluated(self, labels, loss, **options):
        model = self.models[MULTI_LABEL if labels is SETS else None]
        model.compile("sgd", loss, run_eagerly=True, **options)
        found = model.evaluate(self.inputs, labels, verbose=0, return_dict=True)
        return model, found

    def test_losses(self):
        for spelling, kind, labels in LOSSES:
            model, found = self.evaluated(labels, spelling)
            self.plain.compile("sgd", kind(from_logits=True), run_eagerly=True)
            expected = self.plain.evaluate(self.pooled, labels, verbose=0)
            self.assertAllClose(found["loss"], expected, rtol=1e-4, msg=str(spelling))
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        again = loaded.evaluate(self.inputs, labels, verbose=0)
        self.assertAllClose(again, expected, rtol=1e-4)

    def test_metrics(self):
        for spelling, metric, labels in METRICS:
            for argument in ("metrics", "weighted_metrics"):
                given = spelling if isinstance(spelling, dict) else [spelling]
                loss = "bce" if labels.shape[1] > 1 else LOSSES[0][0]
                _, found = self.evaluated(labels, loss, **{argument: given})
                (value,) = (x for name, x in found.items() if name != "loss")
                metric.reset_state()
                metric.update_state(labels, self.plain(self.pooled))
                expected = metric.result()
                self.assertAllClose(value, expected, rtol=1e-4, msg=str(spelling))

    def test_what_cannot_be_of_logits_is_refused(self):
        model = self.models[None]
        single = BertClassifier(CONFIG, 1)
        line = r"Compile keras.Model\(model.input, keras.ops.softmax\("
        for compiled, options, message in (
            (model, {"loss": "crossentropy"}, r"Write keras.losses.Sparse\w+\(from_l"),
            (
                model,
                {"loss": [keras.losses.CategoricalCrossentropy()]},
                r"Write keras.losses.CategoricalCrossentropy\(from_logits=True\)",
            ),
            (model, {"loss": "kl_divergence"}, line),
            (model, {"loss": "KLD"}, line),
            (model, {"loss": keras.losses.Dice}, line),
            (model, {"metrics": ["precision"]}, line),
            (model, {"metrics": [keras.metrics.Recall()]}, line),
            (model, {"metrics": [keras.metrics.F1Score(threshold=0.5)]}, line),
            (model, {"weighted_metrics": ["AUC"]}, line),
            (single, {"loss": "bce", "metrics": ["accuracy"]}, "keras.ops.sigmoid"),
        ):
            with self.assertRaisesRegex(InputError, message, msg=str(options)):
                compiled.compile("sgd", **options)
        # A number is no logit, unless it is trained as one.
        single.compile("sgd", "mse", metrics=["binary_accuracy"])
        span = BertSpanPredictor(CONFIG)
        span.compile("sgd", {"start_logits": "sparse_categorical_crossentropy"})
        self.assertTrue(span.loss["start_logits"].from_logits)

    def test_the_line_to_write(self):
        model = self.models[None]
        line = keras.Model(model.input, keras.ops.softmax(model.output["logits"]))
        line.compile(
            "sgd",
            "categorical_crossentropy",
            metrics=["AUC", "precision"],
            run_eagerly=True,
        )
        found = line.evaluate(self.inputs, ONE_HOT, verbose=0, return_dict=True)
        probabilities = keras.ops.softmax(self.plain(self.pooled))
        for name, metric in (
            ("AUC", keras.metrics.AUC()),
            ("precision", keras.metrics.Precision()),
        ):
            metric.update_state(ONE_HOT, probabilities)
            self.assertAllClose(found[name], metric.result(), rtol=1e-4)
