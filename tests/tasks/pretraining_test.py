import dataclasses
import math
import os
import tempfile
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from bert_tf.addons.planning.bits_per_byte import Majority, warn_of_unigrams
from bert_tf.conversion.tensorflow import read_weights
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.records.manifest import fingerprint
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training.checkpoints import restore_or_initialize
from bert_tf.training.loop import train
from bert_tf.training.training_options import TrainingConfig
from tests.modeling.examples import randomize
from tests.training import toy

UNUSED = (
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
)


class PretrainingTaskTest(tf.test.TestCase):
    def test_majorities_by_hand(self):
        frequencies = np.full(toy.V, 1 / 64)
        frequencies[[5, 7, 9]] = (1 / 8, 1 / 2, 1 / 4)
        majority = Majority(pretraining_task(toy.CONFIG), frequencies)
        self.assertEqual(set(majority.scores().values()), {0.0})
        majority.add(
            {
                "masked_lm_ids": tf.constant([[7, 5, 0], [7, 0, 0]]),
                "masked_lm_weights": tf.constant([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
                "next_sentence_labels": tf.constant([[1], [1]]),
            }
        )
        majority.add(
            {
                "masked_lm_ids": tf.constant([[9, 9, 0]]),
                "masked_lm_weights": tf.constant([[1.0, 0.0, 0.0]]),
                "next_sentence_labels": tf.constant([[0]]),
            }
        )
        # 7 is masked twice, 5 and 9 once: 1, 1, 3 and 2 bits.
        expected = {
            "masked_lm_majority": 2 / 4,
            "next_sentence_majority": 2 / 3,
            "masked_lm_unigram_loss": 7 / 4 * math.log(2),
        }
        self.assertAllClose(majority.scores(), expected)
        alone = Majority(pretraining_task(toy.CONFIG, next_sentence=False), frequencies)
        names = ["masked_lm_majority", "masked_lm_unigram_loss"]
        self.assertEqual(list(alone.scores()), names)

    def test_a_loss_at_the_tokens_entropy(self):
        for loss, is_warned in ((6.7, False), (6.85, True), (7.2, True), (7.3, False)):
            with mock.patch.object(logging, "warning") as warning:
                warn_of_unigrams(
                    {"masked_lm_loss": loss, "masked_lm_unigram_loss": 7.0}
                )
            self.assertEqual(warning.called, is_warned, loss)
        with mock.patch.object(logging, "warning") as warning:
            warn_of_unigrams({"masked_lm_loss": 0.0, "masked_lm_unigram_loss": 0.0})
        warning.assert_not_called()

    def test_the_masked_lm_alone_leaves_pooler_and_head_as_they_are(self):
        task = pretraining_task(toy.CONFIG, next_sentence=False)
        self.assertEqual(list(task.objective.losses), ["masked_lm_loss"])
        self.assertEqual(list(task.objective.metrics), ["masked_lm_accuracy"])
        names = ("r.tfrecord", "base", "run")
        records, base, folder = (os.path.join(self.get_temp_dir(), x) for x in names)
        model = task.build_model()
        before = randomize(model)
        toy.save_checkpoint(base, model)
        config = TrainingConfig(
            num_train_steps=2,
            num_warmup_steps=0,
            learning_rate=0.01,
            train_batch_size=4,
        )
        phases = [toy.phase(toy.write_records(records), 2)]
        start = {"folder": folder, "init_checkpoint": base}
        model, _ = train(task, config, phases=phases, **start)
        after = {name: w.numpy() for name, w in weights_by_name(model).items()}
        for name in before:
            if name in UNUSED:
                self.assertAllEqual(after[name], before[name])
            else:
                self.assertNotAllEqual(after[name], before[name], name)
        # The checkpoint holds what is not trained too.
        model, step = restore_or_initialize(task, folder, None)
        self.assertEqual(step, 2)
        for name, weight in weights_by_name(model).items():
            self.assertAllEqual(weight.numpy(), after[name])
        # And on from it with next sentences.
        empty = os.path.join(self.get_temp_dir(), "empty")
        model, _ = restore_or_initialize(pretraining_task(toy.CONFIG), empty, folder)
        self.assertLen(weights_by_name(model), len(model.trainable_variables))

    def test_a_checkpoint_goes_on_with_packed_rows(self):
        folder = os.path.join(self.get_temp_dir(), "run")
        apart = pretraining_task(toy.CONFIG).build_model()
        weights = randomize(apart)
        toy.save_checkpoint(folder, apart, 2)
        packed = pretraining_task(toy.CONFIG, packed=True)
        model, step = restore_or_initialize(packed, folder, None)
        self.assertEqual(step, 2)
        for name, weight in weights_by_name(model).items():
            self.assertAllEqual(weight.numpy(), weights[name])


class ElectraTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.records = toy.write_records(cls.path("r.tfrecord"))
        cls.task = pretraining_task(
            dataclasses.replace(toy.CONFIG, num_attention_heads=4, embedding_size=4),
            electra={"generator_size": 0.5, "discriminator_weight": 50.0},
        )

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.root, *names)

    def train(self, name, steps=6, **settings):
        """Trains; the weights, and the losses and metrics by step."""
        config = TrainingConfig(
            num_train_steps=steps,
            num_warmup_steps=0,
            learning_rate=0.01,
            train_batch_size=4,
            log_steps=1,
            **{"save_checkpoints_steps": 2, **settings},
        )
        keras.utils.set_random_seed(1)
        phases = [toy.phase(self.records, steps)]
        model, _ = train(self.task, config, folder=self.path(name), phases=phases)
        weights = {name: w.numpy() for name, w in weights_by_name(model).items()}
        return weights, toy.metrics(self.path(name))

    @pytest.mark.jax
    @pytest.mark.slow
    def test_killed_and_in_micro_batches(self):
        whole, metrics = self.train("whole")
        for line in metrics:
            self.assertBetween(line["replaced_share"], 0.0, 0.4)
            total = line["masked_lm_loss"] + 50 * line["discriminator_loss"]
            self.assertAllClose(line["loss"], total, rtol=1e-4)
        # As it was after two steps: the same bits.
        toy.begin_as(self.path("whole"), 2, self.path("killed"))
        resumed, others = self.train("killed")
        self.assertEqual(others[0]["step"], 3)
        for name, weight in whole.items():
            self.assertEqual(resumed[name].tobytes(), weight.tobytes(), name)
        # The same tokens are drawn in two halves of each batch.
        settings = {"num_schedule_steps": 6, "gradient_accumulation_steps": 2}
        parts, others = self.train("parts", steps=2, **settings)
        for line, other in zip(metrics[:2], others, strict=True):
            self.assertEqual(line["replaced_share"], other["replaced_share"])
            self.assertAllClose(line["loss"], other["loss"], rtol=1e-5)
        for name, weight in read_weights(self.path("whole", "model.ckpt-2")).items():
            self.assertAllClose(parts[name], weight, rtol=0, atol=2e-4, msg=name)

    def test_the_objective_and_the_baseline(self):
        self.assertEqual(self.task.name, "electra")
        self.assertEqual(
            [*self.task.objective.losses, *self.task.objective.metrics],
            [
                "masked_lm_loss",
                "discriminator_loss",
                "masked_lm_accuracy",
                "discriminator_accuracy",
                "replaced_share",
            ],
        )
        names = ["masked_lm_majority", "masked_lm_unigram_loss"]
        self.assertEqual(list(Majority(self.task, np.ones(toy.V)).scores()), names)


class FingerprintTest(tf.test.TestCase):
    def test_it_is_of_names_counts_and_the_length_and_never_changes(self):
        """By sha256sum: the first 8 bytes of the digest of "128\\na 3\\n", halved."""
        self.assertEqual(fingerprint(["a"], [3], 128), 3526307621018167084)
        # A set of records may move.
        here = fingerprint(["/here/a.tfrecord", "/here/b.tfrecord"], [3, 4], 128)
        there = fingerprint(["gs://there/a.tfrecord", "b.tfrecord"], [3, 4], 128)
        self.assertEqual(here, there)
        found = {
            fingerprint([*paths], counts, length)
            for paths, counts, length in (
                ("ab", [3, 4], 128),
                ("ba", [3, 4], 128),
                ("ab", [4, 3], 128),
                ("ac", [3, 4], 128),
                ("a", [3], 128),
                ("ab", [3, 4], 512),
            )
        }
        self.assertLen(found, 6)
        # By sha256sum too: "128\na 3\nxyz\n".
        self.assertEqual(fingerprint(["a"], [3], 128, ["xyz"]), 2807712383305188792)
        # A checkpoint can hold it.
        for number in found:
            self.assertBetween(number, 1, 2**63 - 1)
