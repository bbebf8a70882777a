import dataclasses
import functools
import itertools
import os
import shutil
import signal
import tempfile
import time
import types
from typing import ClassVar
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.addons.planning import budget
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError, NotReachedError
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.records.pipeline import InputShard
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training import checkpoints, events, loop, reporting
from bert_tf.training.checkpoints import restore_or_initialize
from bert_tf.training.loop import train
from bert_tf.training.reporting import LogInterval
from bert_tf.training.task import ENDLESS
from bert_tf.training.training_options import TrainingConfig
from tests.training import toy

TASK = toy.without_layers()


@functools.cache
def shared_folder():
    """Has the records, and the runs that were not stopped."""
    folder = tempfile.TemporaryDirectory()
    toy.write_records(os.path.join(folder.name, "r.tfrecord"))
    return folder


class LoopTestCase(tf.test.TestCase):
    wholes: ClassVar[dict] = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = shared_folder().name
        cls.records = os.path.join(cls.root, "r.tfrecord")

    def whole(self, name="whole", **options):
        """The model of a run that was not stopped, which all tests share."""
        if name not in self.wholes:
            self.wholes[name], _ = self.train(name, **options)
        return self.wholes[name]

    def train(self, name, **options):
        task = options.pop("task", TASK)
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
            task,
            TrainingConfig(**options),
            folder=self.folder(name),
            phases=phases or [toy.phase(self.records, options["num_train_steps"])],
            init_checkpoint=init_checkpoint,
        )

    def folder(self, name):
        root = self.root if name.startswith("whole") else self.get_temp_dir()
        return os.path.join(root, name)

    def metrics(self, name):
        return toy.metrics(self.folder(name))

    def assert_same_weights(self, model, other):
        theirs = weights_by_name(other)
        for name, weight in weights_by_name(model).items():
            self.assertAllEqual(weight.numpy(), theirs[name].numpy(), name)

    def stop_at_first_call(self):
        """SIGTERM arrives during the first call of the device."""
        add = LogInterval.add

        def add_and_stop(self, sums, **numbers):
            add(self, sums, **numbers)
            signal.raise_signal(signal.SIGTERM)

        return mock.patch.object(LogInterval, "add", add_and_stop)


class ResumeTest(LoopTestCase):
    def test_a_run_that_was_stopped_ends_bit_identical(self):
        whole = self.whole()
        report = reporting.Reporter.report

        def report_and_die(self, step, metrics):
            report(self, step, metrics)
            if step == 8:
                raise SystemExit("killed")

        with (
            mock.patch.object(reporting.Reporter, "report", report_and_die),
            self.assertRaisesRegex(SystemExit, "killed"),
        ):
            self.train("stopped", iterations_per_loop=1)
        # Eight steps and their metrics were there, the last checkpoint was of six.
        model, step = self.train("stopped")
        self.assertEqual(step, 9)
        self.assert_same_weights(model, whole)
        self.assertEqual(
            [line["step"] for line in self.metrics("stopped")], [2, 4, 6, 8, 9]
        )

    def test_sigterm_saves_and_exits_with_143_and_does_not_evaluate_first(self):
        whole = self.whole()
        evaluated = []

        def evaluate(model):
            del model
            evaluated.append(True)
            return {"loss": 1.0}

        phases = [toy.phase(self.records, 9, evaluate=evaluate)]
        # In the last step too.
        for name, options in (
            ("stopped", {"phases": phases, "eval_steps": 1}),
            ("last", {"num_train_steps": 1, "num_schedule_steps": 9}),
        ):
            with (
                mock.patch.object(reporting.Reporter, "seconds", lambda self: 1000.0),
                self.stop_at_first_call(),
                self.assertRaises(SystemExit) as caught,
            ):
                self.train(name, **options)
            self.assertEqual(caught.exception.code, 143)
        self.assertTrue(os.path.exists(self.folder("stopped") + "/model.ckpt-1.index"))
        self.assertEmpty(evaluated)
        model, _ = self.train("stopped", phases=phases, eval_steps=1)
        self.assert_same_weights(model, whole)
        lines = self.metrics("stopped")
        # The stopped start has no line, and its time counts.
        self.assertGreaterEqual(min(line["seconds"] for line in lines), 1000.0)
        lines = [line["step"] for line in lines if "eval/loss" in line]
        self.assertEqual(lines, [1, 2, 3, 4, 5, 6, 7, 8, 9])

    @pytest.mark.jax
    def test_a_run_that_has_not_reached_what_it_should_ends_and_can_resume(self):
        whole = self.whole()
        for _ in range(2):  # the same command trains no further
            with self.assertRaisesRegex(
                NotReachedError, r"at step 4: loss is .* at step 4 .*curves.png.*ckpt-4"
            ):
                self.train("ended", stop_if=("loss<0@2", "loss>0@3"))
            self.assertEqual([one["step"] for one in self.metrics("ended")], [2, 4])
        self.assertTrue(os.path.exists(self.folder("ended") + "/curves.png"))
        # It resumes with another condition, which an evaluation does not meet.
        phases = [toy.phase(self.records, 9, evaluate=lambda model: {"loss": 3.0})]
        with self.assertRaisesRegex(NotReachedError, "eval/loss is 3 at step 6"):
            self.train("ended", stop_if="eval/loss>2@5", phases=phases, eval_steps=2)
        model, step = self.train("ended", stop_if="loss>100@8")
        self.assertEqual(step, 9)
        self.assert_same_weights(model, whole)

    def test_calls_keep_the_pace_of_the_steps(self):
        counts = []

        def slow_run(run_steps, iterator, count):
            counts.append(count)
            time.sleep(0.2 * count)
            return run_steps(iterator, count)

        with toy.around_calls(slow_run):
            self.train("slow", save_checkpoints_steps=100, log_steps=100)
        # At 0.2 s a step and half a second a call: never more than two at a time.
        self.assertEqual(counts[:2], [1, 1])
        self.assertLessEqual(max(counts), 2)

    def test_a_training_of_so_many_hours(self):
        now = [0.0]

        def clocked_run(run_steps, iterator, count):
            # The first call of each start compiles.
            now[0] += count + 10.0 * (not calls)
            calls.append(count)
            return run_steps(iterator, count)

        def evaluate(model):
            now[0] += 5.0
            evaluated.append(model)
            return {"loss": 1.0}

        def clock():
            return now[0]

        def train(seconds, folder="hours", **of_phase):
            calls.clear()
            phase = toy.phase(self.records, ENDLESS, evaluate=evaluate, **of_phase)
            return self.train(
                folder,
                max_train_hours=seconds / 3600.0,
                phases=[phase],
                eval_steps=10**6,
                log_steps=1,
            )[1]

        calls, evaluated = [], []
        self.enterContext(toy.around_calls(clocked_run))
        self.enterContext(
            mock.patch.object(loop, "time", types.SimpleNamespace(monotonic=clock))
        )
        clocked = functools.partial(budget.Budget, clock=clock)
        table = {"max_train_hours": clocked}
        self.enterContext(
            mock.patch.object(events, "addon", lambda n: table.get(n) or addon(n))
        )
        # 11 seconds compile and make a step; as many are left for an evaluation.
        self.assertEqual(train(60.0), 39)
        self.assertLen(evaluated, 1)
        self.assertLess(now[0], 60.0)
        *_, last, evaluation = self.metrics("hours")
        self.assertEqual(evaluation["step"], 39)
        # Step 38 of 39, counted from 0, of a schedule of 9 steps with 2 of warmup.
        self.assertAllClose(last["learning_rate"], 0.01 / 39, rtol=0.01)
        rates = [line.get("learning_rate", 0.0) for line in self.metrics("hours")]
        # Before the warmup ends, at 8 2/3.
        self.assertAllClose(max(rates), 0.01 * 8 / (39 * 2 / 9), rtol=0.01)
        with self.assertLogs(level="INFO") as log:
            self.assertEqual(train(60.0), 39)
        self.assertIn("its 0.0166667 hours are used", "\n".join(log.output))
        # A minute more: 16 seconds are not for steps, as it compiles again.
        self.assertEqual(train(120.0), 39 + 60 - 10 - 11)
        # 12.5 seconds are left: compiling, and half of a step's time for every 4 of 12
        # examples. Or 5, which an evaluation before the first step has taken.
        self.assertEqual(train(60.0, "estimated", num_evaluated=12), 38)
        before = {"num_evaluated": 12, "evaluates_before": True}
        self.assertEqual(train(60.0, "measured", **before), 60 - 10 - 5 - 5)
        # The same if it was killed before its first checkpoint, but after that.
        folder = self.folder("killed")
        os.mkdir(folder)
        shutil.copy(os.path.join(self.folder("measured"), "metrics.jsonl"), folder)
        self.assertEqual(train(60.0, "killed", **before), 60 - 10 - 5 - 5)

    def test_weights_that_are_not_finite_are_not_saved(self):
        with self.assertRaisesRegex(InputError, "weights are not finite after step 1"):
            self.train("run", learning_rate=2e38, num_train_steps=1, num_warmup_steps=0)
        self.assertFalse(os.path.exists(self.folder("run") + "/model.ckpt-1.index"))

    def test_a_finished_run_is_left_as_it_is(self):
        whole = self.whole()
        path = os.path.join(self.folder("whole"), "metrics.jsonl")
        before = os.stat(path).st_mtime_ns
        # Its own checkpoint comes before any other.
        again, step = self.train("whole", init_checkpoint="nowhere")
        self.assertEqual(step, 9)
        self.assert_same_weights(whole, again)
        self.assertEqual(before, os.stat(path).st_mtime_ns)


class PhasesTest(LoopTestCase):
    def setUp(self):
        super().setUp()
        self.longer = toy.write_records(
            os.path.join(self.get_temp_dir(), "longer.tfrecord"), max_seq_length=16
        )
        self.first = toy.phase(self.records, 5, data_id=1)
        self.second = toy.phase(
            self.longer, 9, batch_size=2, max_seq_length=16, data_id=2
        )

    def test_two_commands_are_one_with_two_phases(self):
        one = self.whole("whole phases", phases=[self.first, self.second])
        self.train("two", num_train_steps=5, num_schedule_steps=9, phases=[self.first])
        two, step = self.train("two", phases=[self.second])
        self.assertEqual(step, 9)
        self.assert_same_weights(one, two)
        self.assertEqual([line["step"] for line in self.metrics("whole phases")],
                         [2, 4, 5, 6, 8, 9])  # fmt: skip

    def test_a_run_that_was_stopped_goes_on_in_its_phase(self):
        one = self.whole("whole phases", phases=[self.first, self.second])
        positions = []

        def noted(phase):
            def data(position, shard):
                positions.append((phase.data_id, position))
                return phase.streams[0](position, shard)

            return dataclasses.replace(phase, streams=[data])

        phases = [noted(self.first), noted(self.second)]
        with (
            toy.killed_after(7),
            self.assertRaisesRegex(SystemExit, "killed"),
        ):
            self.train(
                "stopped",
                phases=phases,
                iterations_per_loop=1,
                save_checkpoints_steps=1,
            )
        # Each phase begins with its first record.
        self.assertEqual(list(dict.fromkeys(positions)), [(1, 0), (2, 0)])
        positions.clear()
        stopped, _ = self.train("stopped", phases=phases)
        self.assertEqual(set(positions), {(2, 4)})  # after 2 steps of 2
        self.assert_same_weights(one, stopped)

    def test_a_batch_that_grows_reads_on_in_the_same_records(self):
        positions = []

        def data(position, shard):
            positions.append(position)
            return self.larger.streams[0](position, shard)

        self.larger = toy.phase(self.records, 7, batch_size=8, data_id=1)
        phases = [self.first, dataclasses.replace(self.larger, streams=[data])]
        options = {"num_train_steps": 7, "phases": phases}
        whole, _ = self.train("grown", **options)
        self.assertEqual(set(positions), {20})  # after 5 steps of 4
        with toy.killed_after(6), self.assertRaisesRegex(SystemExit, "killed"):
            self.train(
                "stopped",
                **options,
                iterations_per_loop=1,
                save_checkpoints_steps=1,
            )
        positions.clear()
        stopped, _ = self.train("stopped", **options)
        self.assertEqual(set(positions), {28})
        self.assert_same_weights(whole, stopped)

    def test_batches_of_one_shape_come_together(self):
        plan = (0, 0, 1, 1, 1, 0, 1, 0, 0)
        counts, opened = [], []

        def stream(number):
            path, length = ((self.records, 12), (self.longer, 16))[number]
            read = toy.data(path, max_seq_length=length)

            def data(position, shard):
                opened.append((number, position))
                return read(position, shard)

            return data

        def noted_call(run_steps, iterator, count):
            counts.append(count)
            return run_steps(iterator, count)

        phase = dataclasses.replace(
            self.first,
            end_step=9,
            streams=[stream(0), stream(1)],
            stream_of=lambda position: plan[min(position // 4, 8)],
        )
        with (
            toy.around_calls(noted_call),
            mock.patch.object(loop, "_SECONDS_PER_CALL", 1e9),
        ):
            self.train("run", phases=[phase], save_checkpoints_steps=99, log_steps=99)
        # The first call compiles, the second one measures the pace.
        self.assertEqual(counts, [1, 1, 3, 1, 1, 2])
        # Where the run began, though a stream is opened when it is first read.
        self.assertEqual(set(opened), {(0, 0), (1, 0)})


class EvaluationTest(LoopTestCase):
    def evaluation(self, losses):
        """A phase whose evaluations give these losses in turn."""
        self.evaluated = []

        def evaluate(model):
            del model
            self.evaluated.append(True)
            return {"loss": losses[len(self.evaluated) - 1]}

        return [toy.phase(self.records, 9, evaluate=evaluate)]

    def test_a_kill_during_an_evaluation_loses_none_and_the_best_is_kept(self):
        with self.assertRaises(IndexError):  # the second one breaks off
            self.train("run", phases=self.evaluation([3.0]), eval_steps=4)
        self.train(
            "run",
            phases=self.evaluation([2.0, 2.5]),
            eval_steps=4,
            keep_checkpoint_max=1,
        )
        lines = [line for line in self.metrics("run") if "eval/loss" in line]
        self.assertEqual(
            [(line["step"], line["eval/loss"]) for line in lines],
            [(4, 3.0), (8, 2.0), (9, 2.5)],
        )
        best = tf.train.latest_checkpoint(os.path.join(self.folder("run"), "best"))
        self.assertEndsWith(best, "model.ckpt-8")
        last = tf.train.latest_checkpoint(self.folder("run"))
        self.assertEndsWith(last, "model.ckpt-9")

    def test_a_run_ends_when_its_patience_does(self):
        settings = {"eval_steps": 2, "patience": 2}
        reason = "The run ends at step 8: no better loss for 2 evaluations"
        with self.assertLogs(level="INFO") as logs:
            _, step = self.train(
                "run", phases=self.evaluation([3.0, 2.0, 2.5, 2.0, 1.0]), **settings
            )
        self.assertEqual(str(logs.output).count("The run ends at step"), 1)
        self.assertIn(reason, str(logs.output))
        # At steps 6 and 8 it is not better than at 4.
        self.assertEqual(step, 8)
        self.assertLen(self.evaluated, 4)
        best = tf.train.latest_checkpoint(os.path.join(self.folder("run"), "best"))
        self.assertEndsWith(best, "model.ckpt-4")
        # It is done when the same command comes again; with more patience it is not.
        with self.assertLogs(level="INFO") as logs:
            _, step = self.train("run", phases=self.evaluation([]), **settings)
        self.assertEqual(str(logs.output).count(reason), 1)
        self.assertEqual(step, 8)
        self.assertEmpty(self.evaluated)
        settings["patience"] = 3
        _, step = self.train("run", phases=self.evaluation([1.0]), **settings)
        self.assertEqual(step, 9)

    def test_a_kill_during_the_last_evaluation_of_its_patience(self):
        settings = {"eval_steps": 2, "patience": 1}
        with self.assertRaises(IndexError):
            self.train("run", phases=self.evaluation([2.0]), **settings)
        _, step = self.train("run", phases=self.evaluation([3.0]), **settings)
        self.assertEqual(step, 4)

    def test_a_metric_that_is_not_there_is_one_line(self):
        with self.assertRaisesRegex(InputError, "`best_metric=f1` is not a metric"):
            self.train(
                "run", phases=self.evaluation([1.0]), eval_steps=4, best_metric="f1"
            )


class PrecisionTest(LoopTestCase):
    @pytest.mark.slow
    def test_half_precision_learns_about_the_same(self):
        task = toy.task()
        keras.utils.set_random_seed(TrainingConfig.random_seed)
        start = weights_by_name(task.build_model())
        models = [
            self.train(precision, task=task, precision=precision)[0]
            for precision in ("float32", "bfloat16", "float16")
        ]
        exact, *others = (
            np.concatenate(
                [(weight - start[name]).numpy().ravel() for name, weight in
                 weights_by_name(model).items()]
            )
            for model in models
        )  # fmt: skip
        for model, moved in zip(models[1:], others, strict=True):
            self.assertEqual(model.trainable_variables[0].dtype, "float32")
            cosine = exact @ moved / np.linalg.norm(exact) / np.linalg.norm(moved)
            self.assertGreater(cosine, 0.9)

    def test_an_overflow_skips_a_step_and_halves_the_scale(self):
        with mock.patch("bert_tf.training.step.INITIAL_LOSS_SCALE", 2.0**40):
            self.train("run", precision="float16", num_train_steps=40, log_steps=1)
        lines = self.metrics("run")
        skipped = [line["skipped_steps"] for line in lines]
        self.assertGreater(sum(skipped), 3)
        self.assertEqual(sum(skipped[-5:]), 0)
        for line, after in itertools.pairwise(lines):
            factor = 0.5 if line["skipped_steps"] else 1.0
            self.assertEqual(after["loss_scale"], line["loss_scale"] * factor)
        # It goes on with the scale that it had.
        self.train("run", precision="float16", num_train_steps=42, log_steps=1)
        self.assertEqual(self.metrics("run")[40]["loss_scale"], lines[-1]["loss_scale"])

    def test_gradients_that_overflow_at_any_scale_stop_the_run(self):
        def never(self, is_finite):
            del is_finite
            self.scale.assign(1.0)

        with (
            mock.patch("bert_tf.training.step.INITIAL_LOSS_SCALE", float("inf")),
            mock.patch("bert_tf.training.step.LossScale.update", never),
            mock.patch("bert_tf.training.step.GLOBAL_CLIP_NORM", float("nan")),
            self.assertRaisesRegex(InputError, "not finite at step 1, even without"),
        ):
            self.train("run", precision="float16")

    def test_micro_batches_of_a_loss_that_compares_rows_are_refused(self):
        message = (
            "^`gradient_accumulation_steps=2`: in_batch_loss, spread compare the rows"
        )
        with self.assertRaisesRegex(InputError, message):
            self.train(
                "run", task=toy.contrastive_task(), gradient_accumulation_steps=2
            )

    def test_a_schedule_shorter_than_the_training_is_refused(self):
        with self.assertRaisesRegex(InputError, "must not be below the 9 steps"):
            self.train("run", num_schedule_steps=8)


class MetricsTest(LoopTestCase):
    def test_what_is_reported(self):
        self.whole()
        lines = self.metrics("whole")
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
        names = os.listdir(self.folder("whole"))
        self.assertNotEmpty([name for name in names if "tfevents" in name])

    def test_the_first_loss_does_not_wait_for_log_steps(self):
        self.train("patient", log_steps=6)
        with (
            mock.patch.object(loop, "_SECONDS_TO_A_LOSS", 0.0),
            self.assertLogs(level="INFO") as logs,
        ):
            self.train("impatient", log_steps=6)
        lines = [line for line in logs.output if ": loss" in line]
        self.assertLen(lines, 3, lines)  # and at the steps 6 and 9
        self.assertRegex(lines[0], r"step 1: loss [\d.]+.*; next at step 6$")
        kept = [
            [{**entry, "seconds": 0} for entry in reporting.metrics_of(self.folder(n))]
            for n in ("patient", "impatient")
        ]
        steps = [[entry["step"] for entry in entries] for entries in kept]
        self.assertEqual(steps, [[6, 9]] * 2)
        self.assertEqual(kept[0][0]["loss"], kept[1][0]["loss"])

    def test_a_loss_that_is_not_finite_stops_with_one_line(self):
        with (
            self.assertRaisesRegex(InputError, "not finite at step 3.*: none"),
            mock.patch.object(reporting.Reporter, "close", autospec=True) as closed,
        ):
            self.train(
                "run", learning_rate=1e38, num_warmup_steps=4, profile_steps="1,100"
            )
        # What was open is closed: the next run of this process starts a profile.
        self.assertEqual(closed.call_count, 1)
        with tf.profiler.experimental.Profile(self.folder("next")):
            pass
        batch = os.path.join(self.folder("run"), "nonfinite-step-3.tfrecord")
        kept = tf.data.TFRecordDataset(batch).map(toy.SPEC.parse)
        read = toy.data(self.records, seed=3)(8, InputShard())
        for value, expected in zip(kept.batch(4).take(1), read.take(1), strict=True):
            self.assertAllEqual(value["input_ids"], expected["input_ids"])


class InitializationTest(LoopTestCase):
    def test_from_a_checkpoint(self):
        task = toy.task()
        first = task.build_model()
        toy.save_checkpoint(self.folder("first"), first)
        with self.assertLogs("absl", "WARNING") as logs:
            fresh, _ = self.train(
                "fresh",
                task=task,
                num_train_steps=1,
                num_warmup_steps=2000,
                phases=[toy.phase(self.records, 0)],
                init_checkpoint=self.folder("first"),
            )
        self.assert_same_weights(fresh, first)
        self.assertIn(
            "The warmup of 2,000 steps is longer than the run of 1", logs.output[0]
        )

    def test_nothing_to_evaluate(self):
        with self.assertRaisesRegex(InputError, "Train first"):
            restore_or_initialize(toy.task(), self.folder("empty"), None)

    def test_what_no_metric_depends_on_may_be_missing(self):
        """As of a checkpoint with the masked LM's head alone."""
        missing = ["bert/pooler/dense/kernel", "cls/seq_relationship/output_bias"]
        given = toy.save_checkpoint(self.folder("given"), TASK.build_model())
        with mock.patch.object(checkpoints, "load_weights", return_value=missing):
            alone = pretraining_task(toy.CONFIG, next_sentence=False)
            _, step = restore_or_initialize(alone, self.folder("empty"), given)
            self.assertEqual(step, 0)
            with self.assertRaisesRegex(InputError, "has no bert/pooler/dense/kernel"):
                restore_or_initialize(toy.task(), self.folder("empty"), given)

    def test_another_model_in_the_folder_is_refused(self):
        self.whole()
        other = pretraining_task(dataclasses.replace(toy.CONFIG, num_hidden_layers=2))
        with self.assertRaisesRegex(InputError, "another model"):
            restore_or_initialize(other, self.folder("whole"), None)


class RecordErrorTest(LoopTestCase):
    def test_a_damaged_record_is_one_line(self):
        records = toy.write_records(os.path.join(self.get_temp_dir(), "damaged"))
        with open(records, "r+b") as file:
            file.seek(40)
            file.write(b"\xff\xff\xff")
        with self.assertRaisesRegex(
            InputError, r"cannot be read: corrupted record at \d+\. .*inspect_rec"
        ):
            self.train("run", phases=[toy.phase(records, 9)])


class OptimizerOptionsTest(LoopTestCase):
    def test_adams_numbers_and_the_clip_reach_the_step(self):
        keras.utils.set_random_seed(TrainingConfig.random_seed)
        start = {n: w.numpy() for n, w in weights_by_name(TASK.build_model()).items()}

        def change(name, **options):
            options |= {"num_train_steps": 1, "num_warmup_steps": 0}
            model, _ = self.train(name, **options)
            found = weights_by_name(model)
            return {name: found[name].numpy() - start[name] for name in start}

        # m = (1 - beta_1) g, and next to so large an epsilon sqrt(v) is nothing: the
        # change is r m / epsilon.
        moved = change("half", beta_1=0.5, epsilon=1e6, learning_rate=1e4,
                       weight_decay_rate=0.0, clip_norm=0.02)  # fmt: skip
        length = sum((x**2).sum() for x in moved.values()) ** 0.5
        self.assertAllClose(length, 0.5 * 1e4 * 0.02 / 1e6, rtol=1e-3)
        # With beta_2 = 0 v is g^2: the change is the sign, and the decay.
        signs = change("signs", beta_1=0.0, beta_2=0.0, epsilon=1e-12,
                       learning_rate=1e-3, weight_decay_rate=5.0)  # fmt: skip
        kernel = "cls/pair/kernel"
        sign = np.abs(signs[kernel] / 1e-3 + 5.0 * start[kernel])
        self.assertAllClose(sign, np.ones_like(sign), atol=1e-2)
