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
# Spellings of losses and metrics of probabilities, and labels that they are of.
LOSSES = (
    *(
        (spelling, LABELS[:, None])
        for spelling in (
            "sparse_categorical_crossentropy",
            "SparseCategoricalCrossentropy",
            keras.losses.SparseCategoricalCrossentropy,
            keras.losses.SparseCategoricalCrossentropy(),
            keras.losses.sparse_categorical_crossentropy,
            ["sparse_categorical_crossentropy"],
            {"logits": "SparseCategoricalCrossentropy"},
            {"class_name": "SparseCategoricalCrossentropy", "config": {}},
            "crossentropy",
        )
    ),
    ("CategoricalCrossentropy", ONE_HOT),
    ("categorical_focal_crossentropy", ONE_HOT),
    ("bce", SETS),
    ("BinaryFocalCrossentropy", SETS),
    (keras.losses.binary_focal_crossentropy, SETS),
)
METRICS = (
    ("sparse_categorical_crossentropy", LABELS[:, None]),
    (keras.metrics.CategoricalCrossentropy, ONE_HOT),
    ("bce", SETS),
    (keras.losses.binary_focal_crossentropy, SETS),
    ("AUC", SETS),
    ({"logits": ["auc"]}, SETS),
)


class KerasLossesTest(tf.test.TestCase):
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

    def written(self, model, **options):
        """The object that the refusal of a loss or metric tells to write."""
        with self.assertRaisesRegex(InputError, "of probabilities.*Write ") as caught:
            model.compile("sgd", **options)
        line = str(caught.exception).partition("Write ")[2].removesuffix(".")
        return eval(line, {"keras": keras}), line

    def evaluated(self, model, x, labels, **options):
        model.compile("sgd", run_eagerly=True, **options)
        return model.evaluate(x, labels, verbose=0, return_dict=True)

    def test_the_line_to_write_instead_of_a_loss(self):
        """Beside one of Keras' own layers on the same pooled outputs."""
        for spelling, labels in LOSSES:
            model = self.models[MULTI_LABEL if labels is SETS else None]
            loss, _ = self.written(model, loss=spelling)
            found = self.evaluated(model, self.inputs, labels, loss=loss)
            expected = self.evaluated(self.plain, self.pooled, labels, loss=loss)
            self.assertAllClose(
                found["loss"], expected["loss"], rtol=1e-4, msg=str(spelling)
            )
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = keras.models.load_model(path)
        again = loaded.evaluate(self.inputs, labels, verbose=0)
        self.assertAllClose(again, expected["loss"], rtol=1e-4)

    def test_the_line_to_write_instead_of_a_metric(self):
        loss = keras.losses.MeanSquaredError()
        for spelling, labels in METRICS:
            model = self.models[MULTI_LABEL if labels is SETS else None]
            for argument in ("metrics", "weighted_metrics"):
                given = spelling if isinstance(spelling, dict) else [spelling]
                _, line = self.written(model, loss=loss, **{argument: given})
                values = []
                for one, x in ((model, self.inputs), (self.plain, self.pooled)):
                    metric = eval(line, {"keras": keras})
                    scores = self.evaluated(
                        one, x, labels, loss=loss, **{argument: [metric]}
                    )
                    values += [x for name, x in scores.items() if name != "loss"]
                self.assertLen(values, 2)
                self.assertAllClose(*values, rtol=1e-4, msg=str(spelling))

    def test_what_cannot_be_of_logits_is_refused(self):
        model = self.models[None]
        single = BertClassifier(CONFIG, 1)
        line = r"Compile keras.Model\(model.input, keras.ops.softmax\("
        for compiled, options, message in (
            (model, {"loss": "kl_divergence"}, line),
            (model, {"loss": "KLD"}, line),
            (model, {"loss": keras.losses.Dice}, line),
            (model, {"metrics": ["precision"]}, line),
            (model, {"metrics": [keras.metrics.Recall()]}, line),
            (model, {"metrics": [keras.metrics.F1Score(threshold=0.5)]}, line),
            (model, {"weighted_metrics": ["AUC"]}, line),
            (
                single,
                {
                    "loss": keras.losses.BinaryCrossentropy(from_logits=True),
                    "metrics": ["accuracy"],
                },
                "keras.ops.sigmoid",
            ),
        ):
            with self.assertRaisesRegex(InputError, message, msg=str(options)):
                compiled.compile("sgd", **options)
        # A number is no logit, unless it is trained as one.
        single.compile("sgd", "mse", metrics=["binary_accuracy"])
        span = BertSpanPredictor(CONFIG)
        self.written(span, loss={"start_logits": "sparse_categorical_crossentropy"})

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
