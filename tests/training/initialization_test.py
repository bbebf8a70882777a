import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.config import SINGLE_LABEL
from bert_tf.conversion.adapter_files import write_adapter
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertClassifier
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.tasks import classification
from bert_tf.tasks.targets import Target
from bert_tf.training.config import Phase, TrainingConfig
from bert_tf.training.initialization import restore_or_initialize
from bert_tf.training.loop import train
from tests.modeling.examples import outputs_of, random_records, randomize
from tests.training import toy

TARGET = Target(kind=SINGLE_LABEL, labels=("a", "b"))
RECORDS = random_records(toy.CONFIG, length=toy.L)


def batches(position, shard):
    del position, shard
    return tf.data.Dataset.from_tensors(RECORDS).repeat()


class InitializationTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        base = BertClassifier(toy.CONFIG, 2)
        self.values = randomize(base)
        self.base = self.folder("base")
        os.makedirs(self.base)
        toy.write_config(self.base)
        toy.save_checkpoint(self.base, base)

    def folder(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def task(self, **options):
        return classification.task(toy.CONFIG, TARGET, "toy", **options)

    def train(self, name, task=None, num_train_steps=4, stop_at=None, **options):
        """A run from the base; its weights by name."""
        model, _ = train(
            task or self.task(),
            TrainingConfig(
                num_train_steps=stop_at or num_train_steps,
                num_schedule_steps=num_train_steps,
                num_warmup_steps=0,
                train_batch_size=4,
                **{"learning_rate": 0.01, **options},
            ),
            folder=self.folder(name),
            phases=[
                Phase(
                    end_step=stop_at or num_train_steps,
                    batch_size=4,
                    streams=[batches],
                )
            ],
            init_checkpoint=self.base,
        )
        self.model = model
        return {name: v.numpy() for name, v in weights_by_name(model).items()}


class ParameterEfficientTest(InitializationTestCase, parameterized.TestCase):
    @parameterized.parameters({"lora_rank": 2}, {"adapter_size": 3})
    def test_trained_stopped_and_loaded(self, **options):
        task = self.task(**options)
        with self.assertLogs(level="INFO") as logs:
            whole = self.train("whole", task)
        self.assertRegex(
            "\n".join(logs.output), r"Training \d+ of \d+ weights \(\d+\.\d\d %\)"
        )
        logits = outputs_of(self.model, RECORDS)["logits"]
        for name, value in whole.items():
            is_frozen = name in self.values and not (
                name.startswith("output")
                or ("LayerNorm" in name and "adapter_size" in options)
            )
            if is_frozen:
                self.assertAllEqual(value, self.values[name], name)
            else:
                self.assertNotAllEqual(value, self.values.get(name, 0.0), name)
        # Stopped half way, it goes on to the same end.
        self.train("stopped", task, stop_at=2)
        for name, value in self.train("stopped", task).items():
            self.assertAllEqual(value, whole[name], name)
        # What it learned, apart from it.
        adapter = write_adapter(
            self.folder("whole"),
            self.model,
            labels=TARGET.labels,
            problem_type=TARGET.kind,
        )
        size = os.path.getsize(os.path.join(adapter, "adapter.safetensors"))
        self.assertLess(size, 10_000)
        model, step = restore_or_initialize(
            task, self.folder("new"), self.base, init_adapter=adapter
        )
        self.assertEqual(step, 0)
        self.assertAllEqual(outputs_of(model, RECORDS)["logits"], logits)
        # Without it, there is nothing to evaluate.
        with self.assertRaisesRegex(InputError, "is not trained for this task"):
            restore_or_initialize(task, self.folder("new"), self.base)

    def test_training_goes_on_from_an_adapter(self):
        task = self.task(lora_rank=2)
        trained = self.train("first", task)
        adapter = write_adapter(
            self.folder("first"),
            self.model,
            labels=TARGET.labels,
            problem_type=TARGET.kind,
        )
        second = self.train("second", task, init_adapter=adapter, learning_rate=0.0)
        for name, value in trained.items():
            self.assertAllEqual(second[name], value, name)


class StabilityTest(InitializationTestCase):
    def test_the_top_is_drawn_anew(self):
        # At a rate of 0 what a run ends with is what it began with.
        weights = self.train("new", reinitialize_layers=1, learning_rate=0.0)
        again = self.train("again", reinitialize_layers=1, learning_rate=0.0)
        for name, value in weights.items():
            self.assertAllEqual(again[name], value, name)
            is_new = "layer_0" in name or "pooler" in name
            if not is_new:
                self.assertAllEqual(value, self.values[name], name)
            elif name.endswith("/kernel"):
                self.assertNotAllEqual(value, self.values[name], name)
                self.assertLess(np.abs(value).max(), 0.0401)

    def test_a_head_is_new_where_it_is_dropped(self):
        weights = self.train("kept", learning_rate=0.0)
        self.assertAllEqual(weights["output_weights"], self.values["output_weights"])
        weights = self.train("dropped", learning_rate=0.0, init_head=False)
        self.assertNotAllEqual(weights["output_weights"], self.values["output_weights"])
        self.assertAllEqual(weights["output_bias"], [0.0, 0.0])
        name = "bert/pooler/dense/kernel"
        self.assertAllEqual(weights[name], self.values[name])


if __name__ == "__main__":
    tf.test.main()
