import dataclasses
import os

import keras
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.names import weights_by_name
from bert_tf.optimization.adamw import create_optimizer
from bert_tf.training.checkpoints import RunCheckpoints
from tests.training import toy


def make_run(folder, config=toy.CONFIG, **options):
    model = BertPretrainer(config)
    optimizer = create_optimizer(0.1, 10, 0)
    optimizer.build(model.trainable_variables)
    return model, optimizer, RunCheckpoints(folder, model, optimizer, **options)


def random_states(model):
    return [
        v.numpy().tolist() for v in model.non_trainable_variables if "seed" in v.path
    ]


class RunCheckpointsTest(tf.test.TestCase):
    def test_all_that_decides_the_next_step_comes_back(self):
        model, optimizer, checkpoints = make_run(self.get_temp_dir())
        path = toy.write_records(os.path.join(self.get_temp_dir(), "r"))
        batch = next(iter(toy.dataset(path)(0)))
        model.compile(optimizer)
        model.train_on_batch(batch)
        checkpoints.save(5, 20)

        keras.utils.set_random_seed(99)
        other, other_optimizer, other_checkpoints = make_run(self.get_temp_dir())
        self.assertNotEqual(random_states(model), random_states(other))
        self.assertTrue(other_checkpoints.restore())
        self.assertEqual((other_checkpoints.step, other_checkpoints.records), (5, 20))
        self.assertEqual(random_states(model), random_states(other))
        theirs = weights_by_name(other)
        for name, weight in weights_by_name(model).items():
            self.assertAllEqual(weight.numpy(), theirs[name].numpy())
        self.assertNotEmpty(random_states(model))
        for mine, its in zip(
            optimizer.variables, other_optimizer.variables, strict=True
        ):
            self.assertAllEqual(mine.numpy(), its.numpy())
        self.assertEqual(int(other_optimizer.iterations.numpy()), 1)

    def test_the_layout_is_the_one_that_is_written_down(self):
        _, _, checkpoints = make_run(self.get_temp_dir())
        keys = dict(tf.train.list_variables(checkpoints.save(5, 20)))
        suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
        self.assertIn("weights/bert.Sembeddings.Sword_embeddings" + suffix, keys)
        for key in ("progress/step", "progress/records", "random/0000"):
            self.assertIn(key + suffix, keys)

    def test_nothing_to_restore(self):
        _, _, checkpoints = make_run(self.get_temp_dir())
        self.assertFalse(checkpoints.restore())
        self.assertEqual(checkpoints.step, 0)

    def test_a_damaged_or_missing_checkpoint_is_one_line(self):
        path = make_run(self.get_temp_dir())[2].save(1, 1) + ".data-00000-of-00001"
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        with self.assertRaisesRegex(InputError, "model.ckpt-1 is damaged or missing"):
            make_run(self.get_temp_dir())[2].restore()
        os.remove(path)
        with self.assertRaisesRegex(InputError, "model.ckpt-1 is damaged or missing"):
            make_run(self.get_temp_dir())[2].restore()

    def test_another_models_checkpoint_is_refused(self):
        make_run(self.get_temp_dir())[2].save(1, 1)
        config = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        with self.assertRaisesRegex(InputError, "another model or optimizer"):
            make_run(self.get_temp_dir(), config)[2].restore()


if __name__ == "__main__":
    tf.test.main()
