import contextlib
import dataclasses
import os
import shutil
import tempfile
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf import run_classifier
from bert_tf.base import cli
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion.adapter_files import write_adapter
from bert_tf.modeling.encoder import DictInputModel
from bert_tf.modeling.heads import BertClassifier, HeadDropout
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.tasks.finetuning import model_options, training_plan
from bert_tf.tasks.tables import Target
from bert_tf.training import loop, tensorflow_step
from bert_tf.training.run_folder import RunData
from tests.modeling.examples import small_config
from tests.training import toy, toy_examples
from tests.training.toy_examples import LENGTHS, TARGET, L, prepare, several_lengths

CONFIG = small_config(num_hidden_layers=1)
NONE = {
    "lora_rank": 0,
    "adapter_size": 0,
    "layer_mixture": False,
    "train_pooler": False,
    "recompute": False,
}


def options_of(*arguments, config=CONFIG):
    given = ["--output_dir=o", "--task_name=MRPC", "--data_dir=d", "--do_train"]
    options = cli.parse(run_classifier.run, [*given, *arguments])
    return model_options(options, config)


class ModelOptionsTest(tf.test.TestCase):
    def test_of_flags_and_of_an_adapter(self):
        options = options_of("--lora_rank=8", "--train_pooler")
        self.assertEqual(options, NONE | {"lora_rank": 8, "train_pooler": True})
        folder = os.path.join(self.get_temp_dir(), "run")
        model = BertClassifier(CONFIG, 2, adapter_size=3, layer_mixture=True)
        write_adapter(folder, model, labels=("a", "b"), problem_type=SINGLE_LABEL)
        given = [f"--init_adapter={folder}", "--init_checkpoint=base"]
        expected = NONE | {"adapter_size": 3, "layer_mixture": True}
        self.assertEqual(options_of(*given), expected)
        self.assertEqual(options_of(*given, "--adapter_size=3"), expected)
        message = "adapter_size=4`, but .* was trained with 3. Leave"
        with self.assertRaisesRegex(InputError, message):
            options_of(*given, "--adapter_size=4")
        with self.assertRaisesRegex(InputError, "num_hidden_layers=1; this one has 2"):
            options_of(*given, config=small_config())


class PaddingRowsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        Target(kind=SINGLE_LABEL, labels=("a", "b", "c")),
        Target(kind=REGRESSION),
        Target(kind=MULTI_LABEL, labels=("a", "b", "c")),
    )
    def test_they_change_neither_loss_nor_gradient(self, target):
        task = toy_examples.engine_task(toy.CONFIG, target, "toy")
        records = prepare(target)
        keras.utils.set_random_seed(3)
        model = task.build_model()
        # Without dropout: a mask is drawn for a batch's shape.
        with mock.patch.object(model, "call", without_dropout(model.call)):
            full, short = (
                self.gradients(task, model, records, rows)
                for rows in ([[4, 1, 2, -1, -1]], [[4, 1, 2]])
            )
            other = self.gradients(task, model, records, [[4, 1, 2, 3]])
        self.assertAllClose(full, short, rtol=1e-5, atol=1e-7)
        self.assertNotAllClose(full[0], other[0])

    def gradients(self, task, model, records, rows):
        """The loss's gradients, and its sums by name."""
        (batch,) = records.dataset(np.array(rows), L)
        weights = task.objective.weights(batch)
        gradients, sums = tensorflow_step.replica_gradients(task, model)(
            batch, weights, tf.constant(1.0)
        )
        return [gradient.numpy() for gradient in gradients], {
            name: value.numpy() for name, value in sums.items()
        }


def without_dropout(call):
    """A model's call that is one of evaluation."""
    return lambda *args, **options: call(*args, **{**options, "training": False})


def model_without_layers():
    """A number by the embeddings of tokens: its steps are traced in no time."""
    ids = keras.Input((None,), dtype="int32", name="input_ids")
    with keras.name_scope("cls"):
        x = keras.layers.Embedding(toy.V, 8, name="tokens")(ids)
        x = HeadDropout(0.1)(keras.ops.mean(x, axis=1))
        logits = keras.layers.Dense(1, name="number")(x)
    return DictInputModel({"input_ids": ids}, {"logits": logits})


TASK = dataclasses.replace(
    toy_examples.engine_task(toy.CONFIG, TARGET, "toy"),
    build_model=model_without_layers,
)


class FinetuneTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.enterClassContext(several_lengths())
        cls.records = prepare()
        # What other runs are held against.
        with cls.assertLogs(cls(), level="INFO") as logs, spied() as cls.batches:
            cls.whole, cls.num_steps = cls.finetune("whole")
        cls.log = logs.output

    @classmethod
    def finetune(cls, name, num_train_epochs=3.0, num_lengths=2, until=1.0, **options):
        options = {
            "learning_rate": 0.01,
            "train_batch_size": 4,
            "warmup_proportion": 0.25,
            "save_checkpoints_steps": 3,
            "log_steps": 1,
            **options,
        }
        plan = cls.plan(num_train_epochs, num_lengths, until, **options)
        return loop.train(**plan, folder=os.path.join(cls.root, name))

    @classmethod
    def plan(cls, num_train_epochs, num_lengths=2, until=1.0, **options):
        options = toy_examples.options(num_train_epochs=(num_train_epochs,), **options)
        return training_plan(
            TASK,
            cls.records,
            options,
            data=RunData("eleven examples", "0"),
            best_metric="loss",
            num_lengths=num_lengths,
            until=until,
        )

    def planned(self, *arguments):
        """The settings that a run would be trained with."""
        options = {"train_batch_size": 4, "warmup_proportion": 0.25}
        return self.plan(*arguments, **options)["config"]

    def test_each_example_once_an_epoch(self):
        self.assertEqual(self.num_steps, 9)
        self.assertLen(self.batches, 9)
        orders = []
        for epoch in (self.batches[:3], self.batches[3:6], self.batches[6:]):
            orders.append(np.concatenate([rows for rows, _ in epoch]))
            self.assertCountEqual(orders[-1], range(11))
            # One batch is not full.
            self.assertCountEqual([len(rows) for rows, _ in epoch], [4, 4, 3])
        self.assertNotAllEqual(orders[0], orders[1])
        # Of two lengths those that leave the least padding.
        self.assertEqual({length for _, length in self.batches}, {6, 12})
        for rows, length in self.batches:
            self.assertLessEqual(max(LENGTHS[int(row)] for row in rows), length)
        (line,) = [line for line in self.log if "Lengths of batches" in line]
        self.assertIn("Lengths of batches = 6, 12; ", line)

    def test_a_run_in_parts_ends_bit_identical(self):
        _, stopped_at = self.finetune("parts", until=0.2)
        self.assertEqual(stopped_at, 2)
        with spied() as batches:
            parts, number = self.finetune("parts")
        self.assertEqual(number, 9)
        for ours, whole in zip(batches, self.batches[2:], strict=True):
            self.assertAllEqual(ours[0], whole[0])
        theirs = weights_by_name(parts)
        for name, weight in weights_by_name(self.whole).items():
            self.assertAllEqual(weight.numpy(), theirs[name].numpy(), name)

    def test_going_on_with_smaller_batches(self):
        whole = os.path.join(self.root, "whole")
        shutil.copytree(whole, os.path.join(self.root, "smaller"))
        # The 9 steps made so far have read 18 batches of the plan of 22 there is now.
        _, num_steps = self.finetune("smaller", 4.0, None, train_batch_size=2)
        self.assertEqual(num_steps, 22)

    def test_as_the_original_counts_its_steps(self):
        with spied() as batches:
            _, number = self.finetune("max", 2.5, num_lengths=None)
        self.assertEqual(number, 6)  # int(11 / 4 * 2.5)
        self.assertEqual({length for _, length in batches}, {L})
        # 24 examples: the first two epochs' 22, and two of the third one.
        rows = np.concatenate([rows for rows, _ in batches]).astype(int)
        self.assertEqual(sorted(np.bincount(rows)), [2] * 9 + [3] * 2)

    def test_steps_of_a_share(self):
        for num_lengths, steps in ((2, (1, 4, 8)), (None, (1, 3, 6))):
            for until, expected in zip((0.01, 0.5, 1.0), steps, strict=True):
                config = self.planned(2.5, num_lengths, until)
                self.assertEqual(config.num_train_steps, expected)
                # The schedule is that of all steps, and so is the warmup.
                self.assertEqual(config.num_schedule_steps, steps[-1])
                self.assertEqual(config.num_warmup_steps, int(steps[-1] * 0.25))

    def test_less_than_one_step(self):
        with self.assertRaisesRegex(InputError, "less than one step"):
            self.planned(0.3, None)
        self.assertEqual(self.planned(0.3).num_train_steps, 1)
        with self.assertRaisesRegex(InputError, "=1e\\+300` makes .* steps. Lower it"):
            self.planned(1e300)

    def test_the_schedule(self):
        lines = toy.metrics(os.path.join(self.root, "whole"))
        rates = [line["learning_rate"] for line in lines]
        # Warmup of int(9 * 0.25) = 2 steps, then the decay to 0 in 9, from step 0.
        self.assertAllClose(
            rates, [0.0, 0.005, *(0.01 * left / 9 for left in range(7, 0, -1))]
        )

    def test_the_batch_of_a_loss_that_is_not_finite(self):
        """It is of the stream that it came from: the one with the batch's length."""
        with self.assertRaisesRegex(InputError, r"not finite at step \d") as caught:
            self.finetune("bad", learning_rate=1e30, warmup_proportion=0.0)
        number = int(str(caught.exception).partition("at step ")[2][0])
        path = os.path.join(self.root, "bad", f"nonfinite-step-{number}.tfrecord")
        features = [
            tf.train.Example.FromString(record.numpy()).features.feature
            for record in tf.data.TFRecordDataset(path)
        ]
        rows, length = self.batches[number - 1]
        self.assertLen(features[0]["input_ids"].int64_list.value, length)
        labels = [feature["label_ids"].float_list.value[0] for feature in features]
        self.assertAllEqual(labels[: len(rows)], rows)


@contextlib.contextmanager
def spied():
    """A list of the batches that are trained on: the examples' numbers, the length."""
    batches = []
    replica_gradients = tensorflow_step.replica_gradients

    def note(labels, is_real, ids):
        batches.append((labels.numpy()[is_real.numpy() == 1], ids.shape[1]))

    def spying(task, model, **settings):
        gradients_of = replica_gradients(task, model, **settings)

        def noted(batch, weights, *others):
            names = ("label_ids", "is_real_example", "input_ids")
            tf.py_function(note, [batch[name] for name in names], [])
            return gradients_of(batch, weights, *others)

        return noted

    with mock.patch.object(tensorflow_step, "replica_gradients", spying):
        yield batches
