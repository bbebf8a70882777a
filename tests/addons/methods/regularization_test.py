"""Regularized training beside numbers by hand, and its runs in parts."""

import dataclasses
import functools
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras import ops

from bert_tf.addons.methods import regularization
from bert_tf.addons.methods.loss_options import LossOptions
from bert_tf.addons.methods.regularization import Regularized, class_weights
from bert_tf.base import keras_backend
from bert_tf.base.config import MULTI_LABEL, SINGLE_LABEL
from bert_tf.base.config import REGRESSION as NUMBERS
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.fused import without_fusion
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.layers import observe
from bert_tf.modeling.objectives import CLASSIFICATION, REGRESSION
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.tasks.finetuning import training_plan
from bert_tf.tasks.tables import Target
from bert_tf.training import loop
from bert_tf.training.run_folder import RunData
from tests.modeling.examples import (
    random_choices,
    random_label_sets,
    random_records,
    random_tags,
    randomize,
)
from tests.training import toy, toy_examples

TARGET = Target(kind=SINGLE_LABEL, labels=("a", "b", "c"))
SMALL = dataclasses.replace(
    toy.CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
LARGE = dataclasses.replace(SMALL, num_hidden_layers=2, hidden_size=12)
WIDE = dataclasses.replace(SMALL, hidden_size=12)


class Line(keras.layers.Layer):
    """A model whose output is the product of its embeddings, [B, 1, 3], and w."""

    def __init__(self):
        super().__init__()
        self.w = self.add_weight(shape=(3,), initializer="zeros")
        self.w.assign([1.0, -2.0, 2.0])

    def call(self, batch, training):
        return {"logits": ops.sum(observe("embeddings", batch["x"]) * self.w, axis=-1)}


class SmoothnessTest(tf.test.TestCase, parameterized.TestCase):
    # The gradient of (n w)^2 by the noise n is along w; its largest number is 2. One
    # step of 0.1 goes 0.1 [1/2, -1, 1], or the other way: n w is 0.45 then, and its
    # square 0.2025. Clipped to 0.06 the noise is [0.05, -0.06, 0.06], and n w 0.29.
    @parameterized.parameters(
        ({}, 0.2025), ({"smart_steps": 2}, 0.81), ({"smart_epsilon": 0.06}, 0.0841)
    )
    def test_ascent(self, options, expected):
        options = {"smart_epsilon": 1.0, "smart_step_size": 0.1, **options}
        options = LossOptions(smart_weight=3.0, **options)
        model = Regularized(Line(), REGRESSION, options)
        batch = {"x": ops.ones((2, 1, 3)), "label_ids": ops.ones((2, 1))}
        outputs = model(batch)
        self.assertAllClose(outputs["logits"], [[1.0], [1.0]])
        means = model.objective.means(batch, outputs)
        self.assertEqual(
            [*means], ["mean_squared_error", "smoothness_mean_squared_error"]
        )
        found = means["smoothness_mean_squared_error"]
        # The noise that it begins with is of 1e-5.
        self.assertAllClose(found.value(), 3.0 * expected, rtol=1e-3)
        self.assertAllClose(found.weight, 2.0)

    def test_both_outputs_have_a_gradient_and_the_noise_has_none(self):
        options = LossOptions(smart_weight=1.0, smart_epsilon=1.0, smart_step_size=0.1)
        model = Regularized(Line(), REGRESSION, options)
        batch = {"x": ops.ones((2, 1, 3)), "label_ids": ops.ones((2, 1))}

        def loss(w):
            with keras.StatelessScope(state_mapping=[(model.model.w, w)]):
                means = model.objective.means(batch, model(batch))
            return means["smoothness_mean_squared_error"].value()

        w = ops.convert_to_tensor(np.array(model.model.w))
        gradient = keras_backend.gradient(loss, w)
        # Of (n w)^2, with n along w as above: 2 (n w) n.
        self.assertAllClose(gradient, 0.9 * np.array([0.05, -0.1, 0.1]), rtol=1e-3)


class MixoutTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.inner = BertClassifier(toy.CONFIG, 3)
        self.model = Regularized(self.inner, CLASSIFICATION, LossOptions(mixout=0.75))
        self.model.begin(20)
        self.initial = {n: np.array(w) for n, w in weights_by_name(self.inner).items()}
        for weight in self.inner.trainable_variables:
            weight.assign_add(ops.ones(weight.shape))

    def test_neurons_with_initial_weights(self):
        mixed = self.model._mixed(np.array([1, 2]))
        names = {
            id(weight): name for name, weight in weights_by_name(self.inner).items()
        }
        mixed = {names[id(weight)]: np.array(value) for weight, value in mixed}
        self.assertCountEqual(mixed, [n for n in self.initial if n.endswith("/kernel")])
        self.assertIn("bert/pooler/dense/kernel", mixed)
        chosen = []
        for name, value in mixed.items():
            # A neuron is at u, or (u + 1 - 0.75 u) / 0.25 = u + 4.
            change = value - self.initial[name]
            self.assertAllClose(change, np.broadcast_to(change[:, :1], change.shape))
            self.assertAllInSet(np.round(change, 4), [0.0, 4.0])
            chosen += [change[:, 0] < 1.0]
        self.assertNotAllEqual(chosen[0], chosen[1])
        # Of 7 kernels of 8 or 16 neurons.
        self.assertAllClose(np.concatenate(chosen).mean(), 0.75, atol=0.15)
        again = [np.array(value) for _, value in self.model._mixed(np.array([1, 3]))]
        self.assertNotAllEqual(again[0], next(iter(mixed.values())))

    def test_the_outputs_are_theirs_without_dropout(self):
        state = self.model._seeds.state.numpy()
        batch = random_records(toy.CONFIG)
        outputs = self.model(batch)["logits"]
        for weight, value in self.model._mixed(state):
            weight.assign(value)
        self.assertAllClose(outputs, self.inner(batch)["logits"], rtol=1e-5, atol=1e-5)


class ProximalTest(tf.test.TestCase):
    def test_average(self):
        inner = BertClassifier(SMALL, 3, dropout=0.0)
        options = LossOptions(smart_proximal_weight=2.0, smart_momentum=0.75)
        model = Regularized(inner, CLASSIFICATION, options)
        model.begin(20)
        initial = [np.array(weight) for weight in inner.trainable_variables]
        batch = random_records(SMALL)
        batch["label_ids"] = np.zeros((len(batch["input_ids"]), 1), np.int32)
        outputs = model(batch)
        found = model.objective.losses["proximal_cross_entropy"](batch, outputs)
        self.assertAllClose(found.value(), 0.0, atol=1e-9)
        for weight in inner.trainable_variables:
            weight.assign_add(ops.ones(weight.shape))
        outputs = model(batch)
        # 0.75 u + 0.25 (u + 1), and again.
        pairs = model._average()
        for (_, copy), value in zip(pairs, initial, strict=True):
            self.assertAllClose(copy, value + 0.25)
        for weight, copy in pairs:
            weight.assign(copy)
        self.assertAllClose(
            outputs["average/logits"], inner(batch)["logits"], rtol=1e-5, atol=1e-5
        )

    def test_a_later_momentum(self):
        inner = BertClassifier(SMALL, 3, dropout=0.0)
        momenta = {"smart_momentum": 0.75, "smart_final_momentum": 0.5}
        options = LossOptions(smart_proximal_weight=2.0, **momenta)
        model = Regularized(inner, CLASSIFICATION, options)
        self.assertIn("early", model.state)
        model.begin(25)
        initial = [np.array(weight) for weight in inner.trainable_variables]
        for weight in inner.trainable_variables:
            weight.assign_add(ops.ones(weight.shape))
        # Of u and u + 1: in 2 steps of 25 a quarter is new, from then on a half.
        for expected in (0.25, 0.4375, 0.71875, 0.859375):
            model(random_records(SMALL))
            for (_, copy), value in zip(model._average(), initial, strict=True):
                self.assertAllClose(copy, value + expected)


class EveryHeadTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(without_fusion())

    @parameterized.parameters(
        (BertSpanPredictor, {}, random_records),
        (BertTagger, {"num_labels": 3}, random_tags),
        (
            BertClassifier,
            {"num_labels": 3, "problem_type": MULTI_LABEL},
            random_label_sets,
        ),
        (BertClassifier, {"num_labels": 3, "problem_type": NUMBERS}, random_label_sets),
        (BertMultipleChoice, {}, random_choices),
        (BertPretrainer, {}, random_records),
    )
    def test_losses_of_its_scores(self, head, arguments, records):
        inner = head(SMALL, **arguments)
        options = LossOptions(smart_weight=1.0, smart_proximal_weight=1.0)
        model = Regularized(inner, inner.objective, options)
        model.begin(20)
        batch = records(SMALL)
        means = model.objective.means(batch, model(batch))
        for name in inner.objective.losses:
            for kind in ("smoothness", "proximal"):
                mean = means[f"{kind}_{name}"]
                self.assertAllClose(mean.weight, means[name].weight)
                # The average is the model: only the head's dropout is a difference.
                self.assertAllInRange(np.array([mean.value()]), -1e-6, 0.1)


class TeacherTest(tf.test.TestCase):
    def model(self, config=LARGE, **options):
        def teacher():
            model = BertClassifier(config, 3, dropout=0.0)
            randomize(model)
            return model

        inner = BertClassifier(SMALL, 3, dropout=0.0)
        randomize(inner, seed=1)
        options = LossOptions(teacher_checkpoint="t", **options)
        return Regularized(inner, CLASSIFICATION, options, make_teacher=teacher)

    def hidden(self, model, batch):
        """The embeddings' and each layer's outputs, in inference."""
        encoder = BertEncoder(model.bert_config, output_hidden_states=True)
        for ours, theirs in zip(encoder.weights, model.encoder.weights, strict=True):
            ours.assign(theirs)
        return [np.array(x) for x in encoder(batch)["hidden_states"]]

    def test_hidden_states_through_a_projection(self):
        model = self.model(distill_hidden=2.0, distill_logits=0.0)
        self.assertEqual(model.state.keys(), {"projection"})
        batch = random_records(SMALL)
        batch["label_ids"] = np.zeros((len(batch["input_ids"]), 1), np.int32)
        outputs = model(batch)
        found = model.objective.losses["teacher_hidden"](batch, outputs)
        # The student's only layer goes with the teacher's second, and last, one.
        ours, theirs = (self.hidden(m, batch) for m in (model.model, model.teacher))
        projection = np.array(model.state["projection"])
        mask = np.array(batch["input_mask"], np.float64)
        expected = 0.0
        for one, other in ((ours[0], theirs[0]), (ours[1], theirs[2])):
            square = np.square(one @ projection - other).mean(axis=-1)
            expected += (square * mask).sum() / mask.sum()
        self.assertAllClose(found.value(), 2.0 * expected, rtol=1e-4)
        self.assertNotIn("teacher_cross_entropy", model.objective.losses)
        trained = {id(weight) for weight in model.trainable_variables}
        of_teacher = {id(weight) for weight in model.teacher.weights}
        self.assertEmpty(trained & of_teacher)
        self.assertIn(id(model.state["projection"]), trained)

    def test_cosine_of_the_last_layers_and_predictions(self):
        config = dataclasses.replace(SMALL, num_hidden_layers=3)
        model = self.model(config, distill_cosine=1.0, distill_temperature=1.0)
        batch = random_records(SMALL)
        batch["label_ids"] = np.zeros((len(batch["input_ids"]), 1), np.int32)
        outputs = model(batch)
        ours, theirs = (self.hidden(m, batch)[-1] for m in (model.model, model.teacher))
        lengths = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
        cosine = (ours * theirs).sum(axis=-1) / lengths
        self.assertAllClose(outputs["cosine"], 1.0 - cosine, rtol=1e-4, atol=1e-5)
        p, q = (tf.nn.softmax(m(batch)["logits"]) for m in (model.teacher, model.model))
        kl = tf.reduce_sum(p * tf.math.log(p / q), axis=-1)
        found = model.objective.losses["teacher_cross_entropy"](batch, outputs)
        self.assertAllClose(found.value(), tf.reduce_mean(kl), rtol=1e-4)

    def test_the_teacher_alone(self):
        model = self.model(distill_labels=0.0)
        self.assertEqual([*model.objective.losses], ["teacher_cross_entropy"])
        self.assertIn("cross_entropy", model.objective.metrics)

    def test_scores_of_attention(self):
        # One head; the second sequence's last token is padding.
        ours = np.array([[[[1.0, 2.0], [3.0, 4.0]]], [[[5.0, 9.0], [7.0, 9.0]]]])
        theirs = np.array([[[[1.0, 4.0], [0.0, 4.0]]], [[[2.0, 0.0], [7.0, 0.0]]]])
        bias = np.array([[[[0.0, 0.0]]], [[[0.0, -1e4]]]])
        ours, theirs, bias = (np.float32(x) for x in (ours, theirs, bias))
        found = regularization._difference_of_scores((ours, bias), (theirs, bias))
        self.assertAllClose(found, [[2.0, 4.5], [9.0, 0.0]])

    def test_what_does_not_fit(self):
        with self.assertRaisesRegex(InputError, "hidden_size must be the same as"):
            self.model(distill_cosine=1.0)
        config = dataclasses.replace(SMALL, num_attention_heads=4)
        with self.assertRaisesRegex(
            InputError, "num_attention_heads must be .* 2. It is 4"
        ):
            self.model(config, distill_attention=1.0)
        with self.assertRaisesRegex(InputError, "its logits are of 2 classes, this"):
            Regularized(
                BertClassifier(SMALL, 3),
                CLASSIFICATION,
                LossOptions(teacher_checkpoint="t"),
                make_teacher=lambda: BertClassifier(SMALL, 2),
            )
        student = dataclasses.replace(SMALL, num_hidden_layers=2)
        inner = BertClassifier(student, 3)
        options = LossOptions(teacher_checkpoint="t", distill_hidden=1.0)
        with self.assertRaisesRegex(InputError, "must be a multiple of this"):
            Regularized(
                inner,
                CLASSIFICATION,
                options,
                make_teacher=lambda: BertClassifier(SMALL, 3),
            )


class ClassWeightsTest(tf.test.TestCase):
    def test_balanced(self):
        # Two classes of the three occur, of 8 examples.
        found = class_weights(["balanced"], "abc", np.array([2, 0, 6]))
        self.assertAllClose(found, [2.0, 0.0, 8 / 12])

    def test_listed(self):
        labels = ("a", "b:c", "d")
        found = class_weights(["b:c:0.5", "a:3"], labels, np.ones(3))
        self.assertEqual(found, [3.0, 0.5, 1.0])
        for wrong in ("e:1", "a", "a:x", "a:-1", "a:inf", "a:nan"):
            with self.assertRaisesRegex(InputError, f"class_weights={wrong}` must be"):
                class_weights([wrong], labels, np.ones(3))


def wide_teacher():
    keras.utils.set_random_seed(77)
    return BertClassifier(WIDE, 3)


@pytest.mark.jax
class RunTest(tf.test.TestCase):
    """Runs with everything at once, on both back ends."""

    def folder(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def run_of(self, name, micro_batches=1, **losses):
        losses = {
            "smart_weight": 3.0,
            "smart_proximal_weight": 1.0,
            "mixout": 0.5,
            "label_smoothing": 0.1,
            "teacher_checkpoint": "t",
            "distill_hidden": 1.0,
            "distill_attention": 1.0,
            **losses,
        }
        task = toy_examples.engine_task(toy.CONFIG, TARGET, "toy")
        in_training = functools.partial(
            Regularized,
            objective=task.objective,
            options=LossOptions(**losses),
            make_teacher=wide_teacher,
        )
        options = toy_examples.options(
            learning_rate=0.01,
            train_batch_size=4,
            num_train_epochs=(2.0,),
            gradient_accumulation_steps=micro_batches,
            save_checkpoints_steps=3,
        )
        plan = training_plan(
            dataclasses.replace(task, in_training=in_training),
            toy_examples.prepare(TARGET),
            options,
            data=RunData("eleven examples", "0"),
            best_metric="loss",
            num_lengths=1,
        )
        model, _ = loop.train(**plan, folder=self.folder(name))
        return {name: np.array(x) for name, x in weights_by_name(model).items()}

    @pytest.mark.slow
    def test_in_parts(self):
        whole = self.run_of("whole")
        # As it was after half of its steps.
        toy.begin_as(self.folder("whole"), 3, self.folder("parts"))
        with self.assertRaisesRegex(InputError, "early.* is not in it"):
            self.run_of("parts", smart_final_momentum=0.5)
        parts = self.run_of("parts")
        for name, weight in whole.items():
            self.assertAllEqual(parts[name], weight, name)

    # The fast ones are step_test's and pretraining_test's.
    @pytest.mark.slow
    def test_in_micro_batches(self):
        """With mixout and dropout: the masks of each pass."""
        whole = self.run_of("whole")
        micro = self.run_of("micro", micro_batches=2)
        for name, weight in whole.items():
            self.assertAllClose(micro[name], weight, rtol=0, atol=1e-5, msg=name)
