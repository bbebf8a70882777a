import dataclasses
import json
import os
import signal
import time
from unittest import mock

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.modeling.names import weights_by_name
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training import loop, reporting
from bert_tf.training.config import TrainingConfig
from bert_tf.training.loop import restore_or_initialize, train
from bert_tf.training.window import Window
from tests.training import toy

TASK = pretraining_task(toy.CONFIG)


class LoopTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.records = toy.write_records(
            os.path.join(self.get_temp_dir(), "r.tfrecord")
        )

    def train(self, name, **options):
        init_checkpoint = options.pop("init_checkpoint", None)
        phases = options.pop("phases", None)
        options = {
            "num_train_steps": 9,
            "num_warmup_steps": 2,
            "learning_rate": 0.01,
            "train_batch_size": 4,
            "save_checkpoints_steps": 3,
            "log_steps": 2,
            **options,
        }
        return train(
            TASK,
            TrainingConfig(**options),
            folder=self.folder(name),
            phases=phases or [toy.phase(self.records, options["num_train_steps"])],
            init_checkpoint=init_checkpoint,
        )

    def folder(self, name):
        return os.path.join(self.get_temp_dir(), name)

    def metrics(self, name):
        with open(os.path.join(self.folder(name), "metrics.jsonl")) as file:
            return [json.loads(line) for line in file]

    def assert_same_weights(self, model, other):
        theirs = weights_by_name(other)
        for name, weight in weights_by_name(model).items():
            self.assertAllEqual(weight.numpy(), theirs[name].numpy(), name)


class ResumeTest(LoopTestCase):
    def test_a_run_that_was_stopped_ends_bit_identical(self):
        whole, _ = self.train("whole")
        report = reporting.Reporter.report

        def report_and_die(self, step, metrics):
            report(self, step, metrics)
            if step == 8:
                raise SystemExit("killed")

        with (
            mock.patch.object(reporting.Reporter, "report", report_and_die),
            self.assertRaisesRegex(SystemExit, "killed"),
        ):
            self.train("stopped")
        # Eight steps and their metrics were there, the last checkpoint was of six.
        model, step = self.train("stopped")
        self.assertEqual(step, 9)
        self.assert_same_weights(model, whole)
        self.assertEqual(
            [line["step"] for line in self.metrics("stopped")], [2, 4, 6, 8, 9]
        )

    def test_the_number_of_steps_in_a_call_changes_nothing(self):
        whole, _ = self.train("whole")
        single, _ = self.train("single", iterations_per_loop=1)
        self.assert_same_weights(whole, single)

    def test_another_seed_is_another_run(self):
        whole, _ = self.train("whole")
        other, _ = self.train("other", random_seed=1)
        table = "bert/embeddings/word_embeddings"
        self.assertNotAllClose(
            weights_by_name(whole)[table].numpy(), weights_by_name(other)[table].numpy()
        )

    def test_sigterm_saves_and_exits_with_143(self):
        whole, _ = self.train("whole")
        add = Window.add

        def add_and_stop(self, sums, **numbers):
            add(self, sums, **numbers)
            signal.raise_signal(signal.SIGTERM)

        with (
            mock.patch.object(Window, "add", add_and_stop),
            self.assertRaises(SystemExit) as caught,
        ):
            self.train("stopped")
        self.assertEqual(caught.exception.code, 143)
        _, step = restore_or_initialize(TASK, self.folder("stopped"), None)
        self.assertEqual(step, 1)
        model, _ = self.train("stopped")
        self.assert_same_weights(model, whole)

    def test_calls_keep_the_pace_of_the_steps(self):
        counts = []
        run = loop._call

        def slow_run(run_steps, iterator, count):
            counts.append(count)
            time.sleep(0.2 * count)
            return run(run_steps, iterator, count)

        with mock.patch.object(loop, "_call", slow_run):
            self.train("slow", save_checkpoints_steps=100, log_steps=100)
        # At 0.2 s a step and half a second a call: never more than two at a time.
        self.assertEqual(counts[:2], [1, 1])
        self.assertLessEqual(max(counts), 2)

    def test_a_signal_in_the_last_step_is_heard(self):
        add = Window.add

        def add_and_stop(self, sums, **numbers):
            add(self, sums, **numbers)
            signal.raise_signal(signal.SIGTERM)

        with (
            mock.patch.object(Window, "add", add_and_stop),
            self.assertRaises(SystemExit) as caught,
        ):
            self.train("stopped", num_train_steps=1)
        self.assertEqual(caught.exception.code, 143)

    def test_weights_that_are_not_finite_are_not_saved(self):
        with self.assertRaisesRegex(InputError, "weights are not finite after step 1"):
            self.train("run", learning_rate=2e38, num_train_steps=1, num_warmup_steps=0)
        self.assertFalse(os.path.exists(self.folder("run") + "/model.ckpt-1.index"))

    def test_a_finished_run_is_left_as_it_is(self):
        whole, _ = self.train("whole")
        before = os.stat(
            os.path.join(self.folder("whole"), "metrics.jsonl")
        ).st_mtime_ns
        again, step = self.train("whole")
        self.assertEqual(step, 9)
        self.assert_same_weights(whole, again)
        after = os.stat(os.path.join(self.folder("whole"), "metrics.jsonl")).st_mtime_ns
        self.assertEqual(before, after)

    def test_only_the_last_checkpoints_are_kept(self):
        self.train("few", keep_checkpoint_max=2)
        names = [n for n in os.listdir(self.folder("few")) if n.endswith(".index")]
        self.assertCountEqual(names, ["model.ckpt-6.index", "model.ckpt-9.index"])


class MetricsTest(LoopTestCase):
    def test_what_is_reported(self):
        self.train("run")
        lines = self.metrics("run")
        self.assertEqual([line["step"] for line in lines], [2, 4, 6, 8, 9])
        for line in lines:
            self.assertAllClose(
                line["loss"],
                line["masked_lm_loss"] + line["next_sentence_loss"],
                rtol=0.05,  # the means of batches of different weights
            )
            self.assertBetween(line["masked_lm_accuracy"], 0, 1)
        # The rate of steps 1, 3, 5, 7, 8, counted from 0: warmup 2, then the decay.
        self.assertAllClose(
            [line["learning_rate"] for line in lines],
            [0.005, 0.01 * 6 / 9, 0.01 * 4 / 9, 0.01 * 2 / 9, 0.01 / 9],
        )
        events = [n for n in os.listdir(self.folder("run")) if "tfevents" in n]
        self.assertLen(events, 1)

    def test_a_loss_that_is_not_finite_stops_with_one_line(self):
        with self.assertRaisesRegex(InputError, "not finite at step 3.*: none"):
            self.train("run", learning_rate=1e38, num_warmup_steps=4)


class InitializationTest(LoopTestCase):
    def test_from_a_checkpoint_and_not_when_there_is_one_in_the_folder(self):
        first, _ = self.train("first")
        fresh, _ = self.train("fresh", num_train_steps=1, num_warmup_steps=1,
                              init_checkpoint=self.folder("first"))  # fmt: skip
        # The first step of a warmup has rate 0.
        self.assert_same_weights(fresh, first)
        resumed, _ = self.train("first", init_checkpoint="nowhere")
        self.assert_same_weights(resumed, first)

    def test_nothing_to_evaluate(self):
        with self.assertRaisesRegex(InputError, "Train first"):
            restore_or_initialize(TASK, self.folder("empty"), None)

    def test_another_model_in_the_folder_is_refused(self):
        self.train("run")
        other = pretraining_task(dataclasses.replace(toy.CONFIG, num_hidden_layers=2))
        with self.assertRaisesRegex(InputError, "another model"):
            restore_or_initialize(other, self.folder("run"), None)


class RecordErrorTest(LoopTestCase):
    def test_a_damaged_record_is_one_line(self):
        with open(self.records, "r+b") as file:
            file.seek(40)
            file.write(b"\xff\xff\xff")
        with self.assertRaisesRegex(InputError, "record cannot be read"):
            self.train("run")


if __name__ == "__main__":
    tf.test.main()
