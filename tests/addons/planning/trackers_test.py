import contextlib
import importlib.machinery
import json
import sys
import types
from unittest import mock

import tensorflow as tf
from absl import logging

from bert_tf.addons.planning import trackers
from bert_tf.base.errors import InputError
from bert_tf.base.options import declarations
from bert_tf.training import run_folder, strategy
from bert_tf.training.reporting import Reporter
from bert_tf.training.training_options import TrainingConfig
from tests.script_case import FolderCase

FLAGS = {"learning_rate": 1e-3, "report_to": list(trackers.TRACKERS)}


def module(name, **contents):
    """A module that can be imported."""
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(made).update(contents)
    return made


class Fakes:
    """The three libraries, as far as they are used; `said` has what they were told."""

    def __init__(self):
        self.said = []
        self.fails = None
        error = type("Error", (Exception,), {})
        self.modules = {
            "wandb": module(
                "wandb",
                init=self._wandb_init,
                errors=types.SimpleNamespace(Error=error),
            ),
            "mlflow": module(
                "mlflow",
                start_run=self._mlflow_run,
                log_params=lambda values: self.said.append(("mlflow params", values)),
                log_metrics=self._logger("mlflow"),
                end_run=lambda: self.said.append(("mlflow end",)),
                exceptions=types.SimpleNamespace(MlflowException=error),
            ),
            "trackio": module("trackio", init=self._trackio_init),
        }
        self.error = error

    def _logger(self, name):
        def log(metrics, step=None):
            if self.fails == name:
                raise self.error("no server\nat all")
            self.said.append((name, step, metrics))

        return log

    def _wandb_init(self, *, id, name, config, resume, **_):
        self.said.append(("wandb init", id, name, config, resume))
        return types.SimpleNamespace(
            id=id or "w1",
            define_metric=lambda *given, **named: self.said.append((given, named)),
            log=self._logger("wandb"),
            finish=lambda: self.said.append(("wandb end",)),
        )

    def _mlflow_run(self, *, run_id, run_name, nested):
        if self.fails == "mlflow start":
            raise self.error("no server\nat all")
        self.said.append(("mlflow init", run_id, run_name, nested))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "m1"))

    def _trackio_init(self, *, project, name, config, resume, embed):
        self.said.append(("trackio init", name, config, resume))
        return types.SimpleNamespace(
            log=self._logger("trackio"),
            finish=lambda: self.said.append(("trackio end",)),
        )


class TrackersTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.fakes = Fakes()
        self.enterContext(mock.patch.dict(sys.modules, self.fakes.modules))
        self.folder = self.path("my_run")
        self.write("my_run/flags.json", json.dumps(FLAGS))

    def said(self):
        """What the libraries were told since the last time."""
        said, self.fakes.said[:] = [*self.fakes.said], []
        return said

    def report(self, name, step=0):
        opened = trackers.Trackers([name], self.folder, FLAGS)
        reporter = Reporter(self.folder, step, observers=[opened.log])
        close = reporter.close

        def close_both():
            opened.close()
            close()

        reporter.close = close_both
        return reporter

    def test_wandb(self):
        reporter = self.report("wandb")
        reporter.report(10, {"loss": 2.0})
        reporter.report_evaluation(10, {"loss": 3.0})
        reporter.close()
        self.assertEqual(
            self.said(),
            [
                ("wandb init", None, "my_run", FLAGS, "allow"),
                (("*",), {"step_metric": "step"}),
                ("wandb", None, {"train/loss": 2.0, "step": 10}),
                ("wandb", None, {"eval/loss": 3.0, "step": 10}),
                ("wandb end",),
            ],
        )
        self.report("wandb", 10).close()
        self.assertEqual(self.said()[0][1], "w1")

    def test_mlflow(self):
        reporter = self.report("mlflow")
        reporter.report(10, {"loss": 2.0})
        reporter.close()
        self.assertEqual(
            self.said(),
            [
                ("mlflow init", None, "my_run", True),
                ("mlflow params", FLAGS),
                ("mlflow", 10, {"train/loss": 2.0}),
                ("mlflow end",),
            ],
        )
        # Its parameters cannot be changed.
        self.report("mlflow", 10).close()
        self.assertEqual(
            self.said(), [("mlflow init", "m1", "my_run", True), ("mlflow end",)]
        )

    def test_trackio(self):
        self.report("trackio").close()
        ((_, name, flags, resume), _) = self.said()
        self.assertRegex(name, "^my_run-[0-9a-f]{8}$")
        self.assertEqual((flags, resume), (FLAGS, "allow"))
        reporter = self.report("trackio")
        reporter.report_evaluation(20, {"loss": 3.0})
        reporter.close()
        begun, *others = self.said()
        self.assertEqual(begun[1], name)
        logged = ("trackio", 20, {"eval/loss": 3.0})
        self.assertEqual(others, [logged, ("trackio end",)])

    def test_the_option_has_their_names(self):
        names = declarations(TrainingConfig)["report_to"].choices
        self.assertEqual(names, trackers.TRACKERS)

    def test_an_evaluation_later_goes_to_the_same_runs(self):
        trackers.Trackers(trackers.TRACKERS, self.folder, FLAGS).close()
        ids = json.loads(self.read("my_run/trackers.json"))
        self.assertEqual((ids["wandb"], ids["mlflow"]), ("w1", "m1"))
        self.said()
        with (
            mock.patch.object(trackers, "missing", lambda names: {*names} & {"wandb"}),
            mock.patch.object(logging, "warning") as warning,
        ):
            run_folder.report_evaluation(
                self.folder, 20, {"loss": 3.0}, task_name="pretraining"
            )
        self.assertIn("is not installed", warning.call_args[0][0])
        said = self.said()
        self.assertEqual([one[1] for one in said[:2]], ["m1", ids["trackio"]])
        self.assertIn(("mlflow", 20, {"eval/loss": 3.0}), said)

    def test_without_a_library_or_its_server(self):
        with (
            mock.patch.dict(sys.modules, {"wandb": None}),
            mock.patch.object(importlib.util, "find_spec", lambda name: None),
            self.assertRaisesRegex(InputError, "=wandb` needs wandb: pip install"),
        ):
            self.report("wandb")
        self.fakes.fails = "mlflow start"
        with self.assertRaisesRegex(InputError, "^`report_to=mlflow`: no server$"):
            self.report("mlflow")
        # A server that is lost does not end a training, and is named once.
        self.fakes.fails = "mlflow"
        reporter = self.report("mlflow")
        with self.assertLogs(level="WARNING") as logs:
            reporter.report(10, {"loss": 2.0})
            reporter.report(20, {"loss": 2.0})
        self.assertLen(logs.output, 1)
        self.assertIn("mlflow has not got all metrics", logs.output[0])
        self.assertLen(self.read("my_run/metrics.jsonl").splitlines(), 2)

    def test_a_worker_that_is_not_the_chief_reports_nothing(self):
        tracking = trackers.Tracking(["wandb"])
        tracking.run = types.SimpleNamespace(
            folder=self.folder,
            flags=FLAGS,
            strategy=None,
            closing=contextlib.ExitStack(),
        )
        with mock.patch.object(strategy, "is_chief", lambda strategy: False):
            tracking.started([])
        tracking.logged({"step": 1, "seconds": 1.0, "loss": 2.0})
        tracking.run.closing.close()
        self.assertEmpty(self.said())


if __name__ == "__main__":
    tf.test.main()
