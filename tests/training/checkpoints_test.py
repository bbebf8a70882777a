import dataclasses
import functools
import itertools
import os
import pathlib
import tempfile
import threading
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.base import files
from bert_tf.base.config import SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.conversion.adapter_files import write_adapter
from bert_tf.conversion.source import folder_of
from bert_tf.conversion.tensorflow import find_checkpoint, read_weights
from bert_tf.modeling.fused import without_fusion, xla_compiles_for_the_cpu
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.optimization.optimizers import create_optimizer
from bert_tf.records.pipeline import InputShard
from bert_tf.tasks.tables import Target
from bert_tf.training import checkpoints as checkpoints_module
from bert_tf.training.checkpoints import (
    RunCheckpoints,
    read_best,
    restore_or_initialize,
)
from bert_tf.training.loop import train
from bert_tf.training.task import Phase
from bert_tf.training.training_options import TrainingConfig
from tests.conversion import runs
from tests.modeling.examples import outputs_of, random_records, randomize
from tests.script_case import FolderCase
from tests.training import toy, toy_examples

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


@functools.cache
def models(config):
    """Two models and their optimizers, in turn."""

    def made():
        model = BertPretrainer(config)
        optimizer = create_optimizer(0.1, 10, 0)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    return itertools.cycle([made(), made()])


def make_run(folder, config=toy.CONFIG, **options):
    """A run that begins with other values than the last one's."""
    model, optimizer = next(models(config))
    kernel(model).assign(np.full(kernel(model).shape, -1))
    return model, optimizer, RunCheckpoints(folder, model, optimizer, **options)


def flip_byte(path, position):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def random_states(model):
    return [
        v.numpy().tolist() for v in model.non_trainable_variables if "seed" in v.path
    ]


def kernel(model):
    return weights_by_name(model)["bert/pooler/dense/kernel"]


class CheckpointsTestCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.folder = self.path()

    def read_bytes(self, name):
        return pathlib.Path(self.path(name)).read_bytes()

    def checkpoint_files(self):
        return sorted(name for name in os.listdir(self.folder) if "model.ckpt" in name)

    def save_steps(self, *steps, **options):
        """Saves a checkpoint for each step; the pooler's kernel is full of the step."""
        model, _, checkpoints = make_run(self.folder, **options)
        for step in steps:
            kernel(model).assign(np.full((8, 8), step))
            checkpoints.save(step, 4 * step)
        checkpoints.wait()
        return checkpoints

    def check_restores(self, step):
        """A new start finds this step, and goes on from it."""
        model, _, checkpoints = make_run(self.folder)
        self.assertTrue(checkpoints.restore())
        self.assertEqual((checkpoints.step, checkpoints.records), (step, 4 * step))
        self.assertAllEqual(kernel(model).numpy(), np.full((8, 8), step))
        self.assertEqual(checkpoints.latest, self.path(f"model.ckpt-{step}"))
        self.assertEqual(tf.train.latest_checkpoint(self.folder), checkpoints.latest)
        return checkpoints


class RunCheckpointsTest(CheckpointsTestCase):
    def test_all_that_decides_the_next_step_comes_back(self):
        model, optimizer, checkpoints = make_run(self.folder)
        path = toy.write_records(self.path("r"))
        batch = next(iter(toy.data(path)(0, InputShard())))
        model.compile(optimizer, run_eagerly=True)
        with without_fusion():
            model.train_on_batch(batch)
        checkpoints.save(5, 20, 2**63 - 1, 12.4)
        checkpoints.wait()

        other, other_optimizer, restored = make_run(self.folder)
        self.assertNotEqual(random_states(model), random_states(other))
        self.assertTrue(restored.restore())
        self.assertEqual(
            (restored.step, restored.records, restored.data, restored.seconds),
            (5, 20, 2**63 - 1, 12),
        )
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
        scale = keras.Variable(8.0, trainable=False)
        model, _, checkpoints = make_run(self.folder, extra={"loss_scale": scale})
        checkpoints.save(5, 20)
        checkpoints.wait()
        keys = dict(tf.train.list_variables(self.path("model.ckpt-5")))
        self.assertIn("weights/bert.Sembeddings.Sword_embeddings" + SUFFIX, keys)
        for key in (
            "progress/step",
            "progress/data",
            "progress/seconds",
            "random/0000",
            "extra/loss_scale",
        ):
            self.assertIn(key + SUFFIX, keys)
        self.assertEqual(find_checkpoint(self.folder), self.path("model.ckpt-5"))
        weights = read_weights(self.folder)
        self.assertAllEqual(weights["bert/pooler/dense/kernel"], kernel(model).numpy())

    def test_a_checkpoint_of_an_earlier_version_comes_back(self):
        # As written by tf.train.CheckpointManager, without progress/data and extra.
        model, optimizer, _ = make_run(self.folder)
        old = tf.train.Checkpoint(
            weights={n: v.value for n, v in weights_by_name(model).items()},
            progress={
                "step": tf.Variable(3, dtype=tf.int64),
                "records": tf.Variable(12, dtype=tf.int64),
            },
            optimizer={v.path: v.value for v in optimizer.variables},
            random={
                f"{n:04d}": v.value
                for n, v in enumerate(
                    v for v in model.non_trainable_variables if "seed" in v.path
                )
            },
        )
        kernel(model).assign(np.full((8, 8), 3))
        tf.train.CheckpointManager(
            old, self.folder, max_to_keep=5, checkpoint_name="model.ckpt"
        ).save(checkpoint_number=3)
        checkpoints = self.check_restores(3)
        self.assertEqual(checkpoints.data, 0)
        scale = keras.Variable(8.0, trainable=False)
        _, _, checkpoints = make_run(self.folder, extra={"loss_scale": scale})
        self.assertTrue(checkpoints.restore())
        self.assertEqual(scale.numpy(), 8.0)

    def test_another_models_checkpoint_is_refused_and_not_taken_for_damaged(self):
        self.save_steps(1, 2)
        for change, what in (
            ({"num_hidden_layers": 2}, "layer_1.* is not in it"),
            ({"hidden_size": 16}, r"is float32\[.*\] there, float32\[.*\] here"),
        ):
            config = dataclasses.replace(toy.CONFIG, **change)
            with self.assertRaisesRegex(
                InputError,
                "model.ckpt-2 belongs to another model or optimizer.*" + what,
            ):
                make_run(self.folder, config)[2].restore()
        deeper = dataclasses.replace(toy.CONFIG, num_hidden_layers=2)
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        _, _, checkpoints = make_run(folder, deeper)
        checkpoints.save(1, 1)
        checkpoints.wait()
        with self.assertRaisesRegex(InputError, "layer_1.* is left over"):
            make_run(folder)[2].restore()

    def test_a_folder_of_any_name(self):
        for name in (
            "run [1]",
            "lr={1e-4}",
            "a*b?",
            "a\\b, c",
            "-run",
            "läuft 文",
            "[ab",
        ):
            with self.subTest(name=name):
                folder = self.path(name)
                model, _, checkpoints = make_run(folder)
                kernel(model).assign(np.full((8, 8), 7))
                files.make_folder(folder)
                checkpoints.save(3, 12)
                checkpoints.keep_best(3, {"loss": 0.5}, "loss")
                checkpoints.wait()
                best = checkpoints_module.folder_of(folder)
                for one in (folder, best):
                    found = read_weights(one)["bert/pooler/dense/kernel"]
                    self.assertAllEqual(found, np.full((8, 8), 7))
                model, _, checkpoints = make_run(folder)
                self.assertTrue(checkpoints.restore())
                self.assertAllEqual(kernel(model).numpy(), np.full((8, 8), 7))

    def test_a_checkpoint_whose_own_name_is_a_glob_is_refused(self):
        self.write("a[1].ckpt.index", "")
        with self.assertRaisesRegex(InputError, r"with \[ or \\ in its name. Rename"):
            read_weights(self.path("a[1].ckpt"))

    def test_the_last_few_are_kept(self):
        self.save_steps(1, 2, 3, 4, max_to_keep=2)
        self.assertLen(self.checkpoint_files(), 4)
        state = tf.train.get_checkpoint_state(self.folder)
        self.assertEqual(
            list(state.all_model_checkpoint_paths),
            [self.path("model.ckpt-3"), self.path("model.ckpt-4")],
        )
        self.check_restores(4)

    def test_old_ones_that_a_kill_has_left_are_removed(self):
        self.save_steps(1, 2, 3, 4, max_to_keep=0)  # named, and nothing removed
        _, _, checkpoints = make_run(self.folder, max_to_keep=2)
        self.assertTrue(checkpoints.restore())
        there = {name for name in os.listdir(self.folder) if name.endswith(".index")}
        self.assertEqual(there, {"model.ckpt-3.index", "model.ckpt-4.index"})

    def test_a_finished_runs_checkpoint_is_not_written_again(self):
        self.save_steps(1)
        before = os.stat(self.path("model.ckpt-1.index"))
        checkpoints = self.check_restores(1)
        checkpoints.save(1, 4)
        checkpoints.wait()
        after = os.stat(self.path("model.ckpt-1.index"))
        self.assertEqual(
            (before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns)
        )

    def test_only_the_chief_writes_and_all_restore(self):
        model, _, other = make_run(self.folder, is_chief=False)
        other.save(1, 4)
        other.keep_best(1, {"loss": 1.0}, "loss")
        other.wait()
        self.assertEqual(os.listdir(self.folder), [])
        self.save_steps(1, 2)
        self.assertTrue(other.restore())
        self.assertEqual(other.step, 2)
        self.assertAllEqual(kernel(model).numpy(), np.full((8, 8), 2))


class InTheBackgroundTest(CheckpointsTestCase):
    def make_busy_run(self):
        """A run whose background has something else to do until `go_on` is set."""
        self.go_on = threading.Event()
        model, _, checkpoints = make_run(self.folder)
        checkpoints._thread.submit(self.go_on.wait, 60)
        return model, checkpoints

    def test_what_is_saved_are_the_values_at_the_call(self):
        model, checkpoints = self.make_busy_run()
        kernel(model).assign(np.full((8, 8), 1))
        checkpoints.save(1, 4)
        # Training goes on, in place, while the write has not begun.
        add = tf.function(
            lambda v: v.assign_add(tf.ones([8, 8])),
            jit_compile=xla_compiles_for_the_cpu(),
        )
        add(kernel(model).value)
        kernel(model).value.assign_add(tf.ones([8, 8]))
        self.assertEqual(os.listdir(self.folder), [])
        self.assertIsNone(checkpoints.latest)
        self.go_on.set()
        checkpoints.wait()
        self.assertAllEqual(kernel(model).numpy(), np.full((8, 8), 3))
        self.check_restores(1)


class FailedWriteTest(CheckpointsTestCase):
    def test_a_full_disk_is_one_line_and_loses_nothing(self):
        checkpoints = self.save_steps(1)

        def full(file, path):
            raise OSError(28, "No space left on device")

        with mock.patch.object(files, "flush", full):
            checkpoints.save(2, 8)
            message = "model.ckpt-2 could not be written: .*No space left"
            with self.assertRaisesRegex(InputError, message) as caught:
                checkpoints.save(3, 12)
        self.assertNotIn("\n", str(caught.exception))
        self.assertLen(self.checkpoint_files(), 2)
        self.assertEqual(checkpoints.latest, self.path("model.ckpt-1"))
        self.check_restores(1)

    def test_a_folder_that_cannot_be_written_to_is_one_line(self):
        self.write("file", "")
        _, _, checkpoints = make_run(self.path("file"))
        checkpoints.save(1, 4)
        with self.assertRaisesRegex(InputError, "model.ckpt-1 could not be written"):
            checkpoints.wait()

    def test_what_reads_back_differently_is_not_named(self):
        checkpoints = self.save_steps(1, max_to_keep=1)
        flush = files.flush

        def flip(file, path):
            flush(file, path)
            if "data" in path:
                flip_byte(path, os.path.getsize(path) // 2)

        with mock.patch.object(files, "flush", flip):
            checkpoints.save(2, 8)
            with self.assertRaisesRegex(
                InputError, "model.ckpt-2 could not be written"
            ):
                checkpoints.wait()
        self.check_restores(1)


class DamageTest(CheckpointsTestCase):
    """The newest checkpoint is damaged in some way; the one before it is used."""

    def check_falls_back(self, what):
        with self.assertLogs(level="WARNING") as logs:
            checkpoints = self.check_restores(2)
        self.assertRegex("\n".join(logs.output), r"model\.ckpt-3 is damaged: " + what)
        # The run goes on and gets past the damage.
        checkpoints.save(3, 12)
        checkpoints.wait()
        with self.assertNoLogs(level="WARNING"):
            self.assertTrue(make_run(self.folder)[2].restore())

    def setUp(self):
        super().setUp()
        self.save_steps(1, 2, 3)
        self.data = self.path("model.ckpt-3.data-00000-of-00001")
        self.index = self.path("model.ckpt-3.index")

    def test_a_file_that_is_cut_off(self):
        for path, what in (
            (self.index, "model.ckpt-3.index cannot be read"),
            (self.data, ".* cannot be read: Read less bytes"),
        ):
            os.truncate(path, os.path.getsize(path) // 2)
            self.check_falls_back(what)

    def test_a_flipped_byte(self):
        position = self.read_bytes(self.data).index(np.float32([3] * 64).tobytes())
        flip_byte(self.data, position + 17)
        self.check_falls_back(
            "weights/bert/pooler/dense/kernel cannot be read: its bytes do not match"
        )
        flip_byte(self.index, os.path.getsize(self.index) // 2)
        self.check_falls_back(".* cannot be read")

    def test_a_flipped_byte_in_what_only_others_use(self):
        for step in (1, 2, 3):
            path = self.path(f"model.ckpt-{step}.data-00000-of-00001")
            flip_byte(path, os.path.getsize(path) - 100)
        with self.assertRaisesRegex(InputError, "_CHECKPOINTABLE_OBJECT_GRAPH"):
            make_run(self.folder)[2].restore()

    def test_the_state_file_is_not_needed(self):
        for content in (b"", b"\0" * 100, b'model_checkpoint_path: "model.ckpt-2"\n'):
            self.write("checkpoint", content)
            self.check_restores(3)
            kept = tf.train.get_checkpoint_state(self.folder).all_model_checkpoint_paths
            self.assertLen(kept, 3)
        os.remove(self.path("checkpoint"))
        self.check_restores(3)
        for ending in ("index", "data-00000-of-00001"):
            os.remove(self.path(f"model.ckpt-3.{ending}"))
        self.check_restores(2)

    def test_none_is_left(self):
        for name in self.checkpoint_files():
            os.truncate(self.path(name), 1)
        with self.assertRaisesRegex(
            InputError, "model.ckpt-3 is damaged: .* no other in .* is whole"
        ):
            make_run(self.folder)[2].restore()
        for name in self.checkpoint_files():
            os.remove(self.path(name))
        with self.assertRaisesRegex(InputError, "A checkpoint is named; and no other"):
            make_run(self.folder)[2].restore()

    def test_a_damaged_one_that_is_never_reached_again_goes_when_a_newer_is_whole(self):
        os.truncate(self.data, 100)
        checkpoints = self.check_restores(2)
        checkpoints.save(4, 16)
        checkpoints.wait()
        self.assertFalse(os.path.exists(self.index))
        with self.assertNoLogs(level="WARNING"):
            make_run(self.folder)[2].restore()

    def test_evaluation_reads_past_the_damage_too_and_changes_nothing(self):
        os.truncate(self.data, 10)
        state = self.read_bytes("checkpoint")
        model = BertPretrainer(toy.CONFIG)
        checkpoints = RunCheckpoints(self.folder, model)
        self.assertTrue(checkpoints.restore())
        self.assertEqual(checkpoints.step, 2)
        self.assertEqual(self.read_bytes("checkpoint"), state)

    def test_what_killed_writes_have_left_is_removed(self):
        left = [
            "model.ckpt-4.tmp-123.data-00000-of-00001",
            "model.ckpt-4.data-00000-of-00001",
            "checkpoint.tmp-77",
            "metrics.jsonl.tmp-78",
        ]
        for name in left:
            self.write(name, b"half")
        os.makedirs(self.path("model.ckpt-4.tmp-123_temp/part"))
        for name in ("model.ckpt-notes.txt", "text.tfrecord-00000-of-00001.tmp-5"):
            self.write(name, "others' own")
        before = set(os.listdir(self.folder))
        self.check_restores(3)
        self.assertEqual(
            before - set(os.listdir(self.folder)), {*left, "model.ckpt-4.tmp-123_temp"}
        )


class KeepBestTest(CheckpointsTestCase):
    def evaluate(self, values, name="loss", max_to_keep=1, data_id=0):
        """Saves and evaluates at each step; a value a step."""
        _, _, checkpoints = make_run(self.folder, max_to_keep=max_to_keep)
        checkpoints.restore()
        with checkpoints:
            for step, value in values.items():
                checkpoints.save(step, 4 * step)
                checkpoints.keep_best(step, {name: value}, name, data_id=data_id)

    def best(self):
        best = self.read_json("best/best.json")
        self.assertEqual(
            read_weights(self.path("best")).path,
            self.path(f"best/model.ckpt-{best['step']}"),
        )
        return best

    def test_the_best_one_outlives_the_last_few(self):
        self.evaluate({1: 3.0, 2: 1.5, 3: 2.0, 4: 1.5})
        self.assertEqual(self.best(), {"metric": "loss", "step": 2, "value": 1.5})
        self.assertFalse(os.path.exists(self.path("model.ckpt-2.index")))
        self.assertCountEqual(
            os.listdir(self.path("best")),
            [
                "best.json",
                "checkpoint",
                "model.ckpt-2.data-00000-of-00001",
                "model.ckpt-2.index",
            ],
        )

    def test_an_evaluation_made_again_ends_what_was_begun(self):
        self.evaluate({1: 3.0, 2: 1.5}, max_to_keep=5)
        listing = sorted(os.listdir(self.path("best")))
        os.remove(self.path("best/checkpoint"))
        with self.assertNoLogs(level="INFO"):  # once more that it is the best
            checkpoints_module.keep_if_best(self.folder, 2, 1.5, "loss")
        self.assertEqual(self.best()["step"], 2)
        self.assertEqual(sorted(os.listdir(self.path("best"))), listing)

    def test_another_value_of_the_same_step_must_be_better(self):
        """As of a run that went back to an older checkpoint with other settings."""
        self.evaluate({1: 3.0, 2: 1.5}, max_to_keep=5)
        self.evaluate({2: 2.5})
        self.assertEqual(self.best(), {"metric": "loss", "step": 2, "value": 1.5})
        self.evaluate({2: 1.0})
        self.assertEqual(self.best(), {"metric": "loss", "step": 2, "value": 1.0})

    def test_other_data_begin_anew(self):
        """As those of a second phase: its losses are no worse for being higher."""
        self.evaluate({1: 1.0, 2: 1.5}, data_id=128)
        self.assertEqual(self.best()["step"], 1)
        self.evaluate({3: 2.0, 4: 2.5}, data_id=512)
        self.assertEqual(
            self.best(), {"metric": "loss", "step": 3, "value": 2.0, "data": 512}
        )
        # A folder of before this was recorded.
        self.evaluate({5: 3.0})
        self.assertEqual(self.best()["step"], 3)

    def test_a_damaged_file_begins_anew(self):
        self.evaluate({1: 0.1})
        for content in (
            "{",
            '{"step": 3}',
            '{"metric": "loss", "step": Infinity, "value": 1.5}',
            '{"metric": "loss", "step": 1, "value": -Infinity}',
            '{"metric": ["loss"], "step": 1, "value": 1.5}',
        ):
            self.write("best/best.json", content)
            self.assertIsNone(read_best(self.path("best")))
        self.evaluate({2: 0.5})
        self.assertEqual(self.best()["step"], 2)

    def test_a_checkpoint_written_over_leaves_it_as_it_was(self):
        self.evaluate({1: 0.1}, max_to_keep=5)
        before = self.read_bytes("best/model.ckpt-1.index")
        os.remove(self.path("checkpoint"))
        os.truncate(self.path("model.ckpt-1.data-00000-of-00001"), 0)
        _, _, checkpoints = make_run(self.folder)
        checkpoints.save(1, 99)
        checkpoints.wait()
        self.assertEqual(self.read_bytes("best/model.ckpt-1.index"), before)

    def test_its_folder_is_a_whole_checkpoint_folder(self):
        for name in ("bert_config.json", "vocab.txt", "tokenizer_config.json"):
            self.write(name, name)
        self.evaluate({1: 0.1})
        path = self.path("best")
        self.assertEqual(find_checkpoint(path), self.path("best/model.ckpt-1"))
        for name in ("bert_config.json", "vocab.txt", "tokenizer_config.json"):
            self.assertEqual(self.read(folder_of(path), name), name)

    def test_a_disk_without_hard_links(self):
        def link(source, target):
            raise OSError("not permitted")

        with mock.patch.object(checkpoints_module.os, "link", link):
            self.evaluate({1: 0.1, 2: 0.05})
        self.assertEqual(self.best()["step"], 2)


TARGET = Target(kind=SINGLE_LABEL, labels=("a", "b"))
RECORDS = random_records(toy.CONFIG, length=toy.L)


def batches(position, shard):
    del position, shard
    return tf.data.Dataset.from_tensors(RECORDS).repeat()


class InitializationTestCase(FolderCase):
    def setUp(self):
        super().setUp()
        base = BertClassifier(toy.CONFIG, 2)
        self.values = randomize(base)
        self.base = runs.save(self.path("base"), base, tokens=None)

    def task(self, **options):
        return toy_examples.engine_task(toy.CONFIG, TARGET, "toy", **options)

    def train(self, name, task=None, num_steps=4, **options):
        """A run from the base; its weights by name. Without steps, as it begins."""
        self.model, _ = train(
            task or self.task(),
            TrainingConfig(
                num_train_steps=4,
                num_warmup_steps=0,
                train_batch_size=4,
                **{"learning_rate": 0.01, **options},
            ),
            folder=self.path(name),
            phases=[Phase(end_step=num_steps, batch_size=4, streams=[batches])],
            init_checkpoint=self.base,
        )
        return {name: v.numpy() for name, v in weights_by_name(self.model).items()}


class ParameterEfficientTest(InitializationTestCase, parameterized.TestCase):
    @parameterized.parameters({"lora_rank": 2}, {"adapter_size": 3})
    def test_trained_stopped_and_loaded(self, **options):
        task = self.task(**options)
        with self.assertLogs(level="INFO") as logs:
            whole = self.train("whole", task, save_checkpoints_steps=2)
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
        # Stopped half way, it comes to the same end.
        toy.begin_as(self.path("whole"), 2, self.path("stopped"))
        for name, value in self.train("stopped", task).items():
            self.assertAllEqual(value, whole[name], name)
        # What it learned, apart from it.
        adapter = write_adapter(
            self.path("whole"),
            self.model,
            labels=TARGET.labels,
            problem_type=TARGET.kind,
        )
        size = os.path.getsize(os.path.join(adapter, "adapter.safetensors"))
        self.assertLess(size, 10_000)
        model, step = restore_or_initialize(
            task, self.path("new"), self.base, init_adapter=adapter
        )
        self.assertEqual(step, 0)
        self.assertAllEqual(outputs_of(model, RECORDS)["logits"], logits)
        # Without it, there is nothing to evaluate.
        with self.assertRaisesRegex(InputError, "is not trained for this task"):
            restore_or_initialize(task, self.path("new"), self.base)

    def test_training_goes_on_from_an_adapter(self):
        task = self.task(lora_rank=2)
        first = task.build_model()
        learned = randomize(first, seed=8)
        adapter = write_adapter(
            self.path("first"),
            first,
            labels=TARGET.labels,
            problem_type=TARGET.kind,
        )
        second = self.train("second", task, 0, init_adapter=adapter)
        for name, value in second.items():
            is_learned = "lora" in name or name.startswith("output")
            expected = learned if is_learned else self.values
            self.assertAllEqual(value, expected[name], name)


class StabilityTest(InitializationTestCase):
    def test_the_top_is_drawn_anew(self):
        weights = self.train("new", num_steps=0, reinitialize_layers=1)
        again = self.train("again", num_steps=0, reinitialize_layers=1)
        for name, value in weights.items():
            self.assertAllEqual(again[name], value, name)
            is_new = "layer_0" in name or "pooler" in name
            if not is_new:
                self.assertAllEqual(value, self.values[name], name)
            elif name.endswith("/kernel"):
                self.assertNotAllEqual(value, self.values[name], name)
                self.assertLess(np.abs(value).max(), 0.0401)

    def test_a_head_is_new_where_it_is_dropped(self):
        weights = self.train("dropped", num_steps=0, init_head=False)
        self.assertNotAllEqual(weights["output_weights"], self.values["output_weights"])
        self.assertAllEqual(weights["output_bias"], [0.0, 0.0])
        name = "bert/pooler/dense/kernel"
        self.assertAllEqual(weights[name], self.values[name])
