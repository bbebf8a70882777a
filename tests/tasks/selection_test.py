import contextlib
import functools
import math
import os
import types

import tensorflow as tf

from bert_tf import run_classifier
from bert_tf.base import cli
from bert_tf.base.errors import DivergedError, InputError
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.run_log import RunRecord
from bert_tf.tasks.run_options import RunSetting
from bert_tf.tasks.selection import (
    BestRun,
    RunLog,
    Selection,
    made_with,
    report,
    search,
    select,
    write_report,
)
from bert_tf.tasks.tables import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Example, Target
from bert_tf.training import checkpoints
from bert_tf.training.reporting import Reporter
from tests.script_case import FolderCase
from tests.training import toy


def record(rate, seed, score=None, share=1.0, failure=""):
    return RunRecord(
        settings=RunSetting(rate, 32, 3.0, seed),
        scores={} if score is None else {share: {"f1": score}},
        failure=failure,
    )


class FailedTest(tf.test.TestCase):
    def test_which_runs_have_failed(self):
        for one, majority, expected in (
            (record(5e-5, 1, 0.8), 0.6, False),
            (record(5e-5, 1, 0.6), 0.6, True),  # no better than the majority class
            (record(5e-5, 1, 0.6), None, False),
            (record(5e-5, 1, 0.5, share=0.3), 0.6, False),  # stopped
            (record(5e-5, 1, failure="diverged"), None, True),
            (record(5e-5, 1, math.nan), None, True),
        ):
            self.assertEqual(one.has_failed("f1", majority), expected)
        # A loss fails above the baseline.
        for loss, expected in ((0.5, False), (0.7, True)):
            settings = RunSetting(1e-5, 8, 1.0, 1)
            one = RunRecord(settings=settings, scores={1.0: {"loss": loss}})
            self.assertEqual(one.has_failed("loss", 0.6), expected)


@functools.cache
def trained():
    """What all runs have trained, as far as a selection can see."""
    return toy.without_layers().build_model()


class GlobFolderCase(FolderCase):
    """In a folder whose name is no pattern of itself."""

    def path(self, *names):
        os.makedirs(super().path("a [1]"), exist_ok=True)
        return super().path("a [1]", *names)


class BestRunTest(GlobFolderCase):
    def write_run(self, name, step, score, bias):
        """A run's folder with a checkpoint whose head has a known bias."""
        folder = self.path("runs", name)
        trained().get_layer("pair").bias.assign([bias, bias])
        toy.save_checkpoint(folder, trained(), step)
        toy.write_config(folder)
        checkpoints.keep_if_best(folder, step, score, "accuracy")
        return folder

    def bias(self, folder):
        found = checkpoints.RunCheckpoints(folder, trained())
        self.assertTrue(found.restore())
        return float(trained().get_layer("pair").bias[0]), found.step

    def best(self):
        return self.read_json("best", "best.json")

    def test_keeps_the_best_runs_best_checkpoint(self):
        keeper = BestRun(self.path())
        # As many steps: the files have the same names.
        first = self.write_run("first", 7, 0.5, bias=1.0)
        second = self.write_run("second", 7, 0.6, bias=2.0)
        # A start that was killed left half of it.
        os.makedirs(self.path("best.tmp-17"))
        keeper.keep(first)
        self.assertEqual(self.bias(self.path("best")), (1.0, 7))
        self.assertEqual(
            self.best(), {"metric": "accuracy", "step": 7, "value": 0.5, "run": "first"}
        )
        keeper.keep(second)
        keeper.discard(first)
        self.assertEqual(self.bias(self.path("best")), (2.0, 7))
        self.assertEqual(self.best()["run"], "second")
        self.assertEqual(os.listdir(first), ["bert_config.json"])
        self.assertIn("bert_config.json", os.listdir(self.path("best")))
        self.assertCountEqual(os.listdir(self.path()), ["runs", "best"])
        # Once kept, the run's own files are not asked for again.
        keeper.discard(second)
        keeper.keep(second)
        self.assertEqual(self.bias(self.path("best")), (2.0, 7))

    def test_what_cannot_be_kept(self):
        folder = self.write_run("first", 3, 0.5, bias=1.0)
        # Others than the chief write nothing.
        keeper = BestRun(self.path(), is_chief=False)
        keeper.keep(folder)
        keeper.discard(folder)
        self.assertEqual(os.listdir(self.path()), ["runs"])
        self.assertEqual(self.bias(folder), (1.0, 3))
        keeper = BestRun(self.path())
        keeper.discard(folder)
        with self.assertRaisesRegex(InputError, "remove the run's line from selection"):
            keeper.keep(folder)


RATES = [5e-5, 4e-5, 3e-5, 2e-5]
GRID = [RunSetting(rate, 32, 3.0, 1) for rate in RATES]

# learning rate -> share of the steps -> accuracy
TABLE = {
    5e-5: {0.3: 0.50, 1.0: 0.80},
    4e-5: {0.3: 0.70, 1.0: 0.75},
    3e-5: {0.3: 0.60, 1.0: 0.90},
    2e-5: {0.3: 0.55, 1.0: 0.95},
}


class Keeper:
    """Remembers what it was told."""

    def __init__(self):
        self.kept = None
        self.discarded = set()

    def keep(self, folder):
        self.kept = os.path.basename(folder)
        assert self.kept not in self.discarded

    def discard(self, folder):
        self.discarded.add(os.path.basename(folder))


class Runs:
    """Runs by a table; the call with this number is killed."""

    def __init__(self, table=TABLE, kill_at=None):
        self.table = table
        self.calls = []
        self.kill_at = kill_at

    def __call__(self, settings, folder, until):
        self.calls.append((settings.learning_rate, until))
        if len(self.calls) == self.kill_at:
            raise KeyboardInterrupt
        assert os.path.basename(folder) == settings.name
        score = self.table[settings.learning_rate][until]
        if score is None:
            raise DivergedError("The loss is not finite at step 7. Lower it.")
        return {"accuracy": score, "loss": 1 - score}, int(100 * until)


class SelectionTestCase(GlobFolderCase):
    def setUp(self):
        super().setUp()
        self.keeper = Keeper()

    def select(self, run, settings=GRID, name="out", **options):
        made_with = {"init_checkpoint": "/a", "lengths": [1, 2]}
        made_with = options.pop("made_with", made_with)
        metric = options.pop("metric", "accuracy")
        records = RunLog(self.path(name), metric, made_with)
        keeper = options.pop("keeper", self.keeper)
        best = select(run, settings, records, keeper, **options)
        return Selection(metric, best, records.all())

    def lines(self, name="out"):
        return self.read_json_lines(name, "selection.jsonl")


class SelectTest(SelectionTestCase):
    def test_the_best_is_kept_and_all_are_recorded(self):
        run = Runs()
        with self.assertLogs(level="INFO") as logs:
            selection = self.select(run)
        self.assertEqual(run.calls, [(rate, 1.0) for rate in RATES])
        self.assertEqual(selection.best.settings, RunSetting(2e-5, 32, 3.0, 1))
        self.assertEqual(selection.best.score("accuracy"), 0.95)
        self.assertEqual(selection.best.step, 100)
        self.assertEqual(self.keeper.kept, "lr2e-05_bs32_ep3_seed1")
        expected = {f"lr{rate}_bs32_ep3_seed1" for rate in ("5e-05", "4e-05", "3e-05")}
        self.assertEqual(self.keeper.discarded, expected)
        header, *records = self.lines()
        made_with = {"init_checkpoint": "/a", "lengths": [1, 2]}
        self.assertEqual(header, {"made_with": made_with, "metric": "accuracy"})
        self.assertEqual([one["learning_rate"] for one in records], RATES)
        self.assertEqual({one["status"] for one in records}, {"finished"})
        scores = {"1.0": {"accuracy": 0.9, "loss": 0.1}}
        self.assertAllClose(records[2]["scores"], scores)
        line = r"run 3 of 4: lr3e-05_bs32_ep3_seed1 -> accuracy 0.9 \(best 0.9\), 00:00"
        self.assertRegex(logs.output[2], line)
        # Of equals the first.
        run = Runs({rate: {1.0: 0.5} for rate in RATES})
        equals = self.select(run, name="equals", keeper=Keeper())
        self.assertEqual(equals.best.settings.learning_rate, 5e-5)

    def test_killed_between_the_record_and_the_weights(self):
        class Killed(Keeper):
            def keep(self, folder):
                if "2e-05" in folder:
                    raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.select(Runs(), keeper=Killed())
        run = Runs()
        self.select(run)
        self.assertEqual(run.calls, [])
        self.assertEqual(self.keeper.kept, "lr2e-05_bs32_ep3_seed1")
        self.assertLen(self.keeper.discarded, 3)

    def test_other_settings_are_added(self):
        self.select(Runs(), GRID[:2])
        run = Runs()
        selection = self.select(run, GRID[1:3])
        self.assertEqual(run.calls, [(3e-5, 1.0)])
        self.assertEqual(
            [one.settings.learning_rate for one in selection.records], RATES[:3]
        )
        # The best of all that are there, asked for now or not.
        self.assertEqual(
            self.select(Runs(), GRID[:1]).best.settings.learning_rate, 3e-5
        )

    def test_diverged_runs_are_recorded_and_the_others_go_on(self):
        table = {**TABLE, 4e-5: {1.0: None}}
        selection = self.select(Runs(table))
        self.assertEqual(selection.best.settings.learning_rate, 2e-5)
        failed = self.lines()[2]
        self.assertEqual(failed["status"], "failed")
        self.assertStartsWith(failed["failure"], "The loss is not finite at step 7.")
        again = Runs(table)
        self.select(again)
        self.assertEqual(again.calls, [])
        run = Runs({rate: {1.0: None} for rate in RATES})
        with self.assertRaisesRegex(InputError, "All 4 runs have failed; .*one: The"):
            self.select(run, name="none")


class StopEarlyTest(SelectionTestCase):
    def test_the_best_third_goes_on(self):
        # Two of four: a third, rounded up. 4e-5 and 3e-5 lead after 0.3.
        run = Runs()
        selection = self.select(run, stop_early_at=0.3)
        self.assertEqual(run.calls, [*calls_of(RATES, 0.3), (4e-5, 1.0), (3e-5, 1.0)])
        self.assertEqual(selection.best.settings.learning_rate, 3e-5)
        statuses = [one["status"] for one in self.lines()[1:]]
        self.assertEqual(statuses, ["stopped", "finished", "finished", "stopped"])
        self.assertEqual(self.lines()[1]["scores"]["0.3"]["accuracy"], 0.5)
        self.assertEqual([*self.lines()[2]["scores"]], ["0.3", "1.0"])
        # Stopped runs keep their weights: they can be taken up again.
        self.assertEqual(self.keeper.discarded, {"lr4e-05_bs32_ep3_seed1"})

    def test_stopped_runs_are_taken_up_again(self):
        self.select(Runs(), stop_early_at=0.3, stop_early_keep=1)
        run = Runs()
        selection = self.select(run, stop_early_at=0.3, stop_early_keep=2)
        self.assertEqual(run.calls, [(3e-5, 1.0)])
        run = Runs()
        selection = self.select(run)
        self.assertEqual(run.calls, [(5e-5, 1.0), (2e-5, 1.0)])
        self.assertEqual(selection.best.settings.learning_rate, 2e-5)

    def test_killed_at_any_call_and_started_again(self):
        calls = [*calls_of(RATES, 0.3), (4e-5, 1.0), (3e-5, 1.0)]
        for number in range(1, 7):
            self.keeper = Keeper()
            killed, again = Runs(kill_at=number), Runs()
            with self.assertRaises(KeyboardInterrupt):
                self.select(killed, name=f"{number}", stop_early_at=0.3)
            selection = self.select(again, name=f"{number}", stop_early_at=0.3)
            self.assertEqual(killed.calls[:-1] + again.calls, calls)
            self.assertEqual(selection.best.settings.learning_rate, 3e-5)

    def test_the_next_best_takes_a_failed_runs_place(self):
        table = {**TABLE, 4e-5: {0.3: 0.7, 1.0: None}}
        run = Runs(table)
        selection = self.select(run, stop_early_at=0.3, stop_early_keep=2)
        self.assertEqual(run.calls[4:], [(4e-5, 1.0), (3e-5, 1.0), (2e-5, 1.0)])
        self.assertEqual(selection.best.settings.learning_rate, 2e-5)

    def test_a_run_that_went_further_before_is_judged_by_where_it_was_measured(self):
        self.select(Runs(), GRID[3:])  # to the end: 0.95
        run = Runs()
        self.select(run, stop_early_at=0.3, stop_early_keep=2)
        self.assertEqual(run.calls, [*calls_of(RATES[:3], 0.3), (4e-5, 1.0)])


class RefusalTest(SelectionTestCase):
    def test_other_runs_in_the_folder(self):
        self.select(Runs())
        run = Runs()
        # A flag that only one version has does not matter.
        self.select(
            run, made_with={"init_checkpoint": "/a", "lengths": (1, 2), "new": 1}
        )
        self.assertEqual(run.calls, [])
        other = {"init_checkpoint": "/b", "lengths": [1, 2]}
        longer = {"init_checkpoint": "/a", "lengths": (1, 3)}
        for options, message in (
            ({"made_with": other}, "t is /a there, /b here. Give another `output_dir`"),
            ({"made_with": longer}, r"lengths is \[1, 2\] there, \[1, 3\] here"),
            ({"metric": "loss"}, "the metric is accuracy there, loss here"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.select(run, **options)
            self.assertEqual(run.calls, [])

    def test_others_in_the_folder_that_were_killed_before_their_first_record(self):
        with self.assertRaises(KeyboardInterrupt):
            self.select(Runs(kill_at=1))
        # Nothing is there to go on from, so the next start may have other flags.
        with self.assertRaises(KeyboardInterrupt):
            self.select(Runs(kill_at=1), made_with={"init_checkpoint": "/b"})
        self.write("out/runs/lr5e-05/checkpoint", "")
        with self.assertRaisesRegex(InputError, "init_checkpoint is /b there, /a here"):
            self.select(Runs())
        self.select(Runs(), made_with={"init_checkpoint": "/b"})

    def test_a_damaged_line(self):
        self.select(Runs())
        path = self.path("out", "selection.jsonl")
        lines = self.read(path).splitlines(keepends=True)
        reason = r"selection.jsonl:3: .*Remove the line, and that run is"
        for old, new in (
            ('"accuracy": 0', '"f1": 0'),
            ('"step": ', '"step": Infinity, "seconds": '),
            ('"accuracy": 0', '"accuracy": Infinity, "f1": 0'),
            ('"1.0"', '"all"'),
            ('"scores": ', '"scores": [], "status": '),
        ):
            self.assertIn(old, lines[2])
            damaged = lines[2].replace(old, new)
            self.assert_refused([*lines[:2], damaged, *lines[3:]], reason)
        for content, reason in (
            (["{}\n", *lines[1:]], "jsonl:1: "),
            ([*lines[:2], '{"name": \n', *lines[3:]], "jsonl:3: "),
            ([*lines[:3], "[]\n"], "jsonl:4: "),
            (lines[1:], r"selection.jsonl:1: .*made_with"),
            ([], r"selection.jsonl:1: not valid JSON"),
        ):
            self.assert_refused(content, reason)

    def assert_refused(self, lines, reason):
        self.write(self.path("out", "selection.jsonl"), "".join(lines))
        with self.assertRaisesRegex(InputError, reason):
            self.select(Runs())


class OrderTest(tf.test.TestCase):
    def test_nan_comes_last(self):
        records = RunLog(self.get_temp_dir(), "accuracy", {})
        for settings, score in zip(GRID, (math.nan, 0.5, math.nan, 0.6), strict=True):
            scores = {1.0: {"accuracy": score}}
            records.put(RunRecord(settings=settings, scores=scores))
        a, b, c, d = GRID
        self.assertEqual(records.ranked(GRID), [d, b, a, c])


def calls_of(rates, share=1.0):
    return [(rate, share) for rate in rates]


RECORDS = [
    RunRecord(settings=RunSetting(rate, 16, 3.0, seed), failure=failure, scores=scores)
    for rate, seed, failure, scores in (
        (5e-5, 1, "", {0.3: {"f1": 0.7, "loss": 0.7}, 1.0: {"f1": 0.9, "loss": 0.4}}),
        (5e-5, 2, "", {1.0: {"f1": 0.80, "loss": 0.5}}),
        (2e-5, 1, "", {1.0: {"f1": 0.60, "loss": 0.6}}),
        (2e-5, 2, "not finite", {}),
        (2e-5, 3, "", {0.3: {"f1": 0.65, "loss": 0.8}}),
    )
]

TEXT = """\
# Best of 5 runs: lr5e-05_bs16_ep3_seed1, f1 0.9000

Scores are the f1 on the development set. The runs were chosen by it, so expect less \
than the best run's score on other data. A failed run is one that is no better than \
always answering the same (0.6200; Mosbach et al. 2021), or whose numbers were not \
finite.

| learning rate | batch | epochs | runs |   mean | standard deviation | maximum |\
 minimum | failed | stopped early |
| ------------- | ----: | -----: | ---: | -----: | -----------------: | ------: |\
 ------: | -----: | ------------: |
| 5e-05         |    16 |      3 |    2 | 0.8500 |             0.0707 |  0.9000 |\
  0.8000 |      0 |             0 |
| 2e-05         |    16 |      3 |    1 | 0.6000 |                  – |  0.6000 |\
  0.6000 |      2 |             1 |

Expected best of 1, 2, ... such runs (Dodge et al. 2019): 0.7667, 0.8333, 0.8630. What \
seeds alone explain is unknown: give `num_restarts=5`, and the best settings are \
compared with the next best.

Standard deviations are those of samples (n - 1). Runs that were stopped early are in \
no figure; they can be resumed. Each run is in selection.jsonl.
"""


def selection(baseline):
    return Selection(metric="f1", best=RECORDS[0], records=RECORDS, baseline=baseline)


class ReportTest(FolderCase):
    maxDiff = None

    def test_written_and_logged(self):
        with self.assertLogs(level="INFO") as logs:
            write_report(selection(0.62), self.path())
        self.assertEqual(self.read("selection.md"), TEXT)
        self.assertEndsWith(logs.output[-1], TEXT.split("\n")[0].removeprefix("# "))
        text = report(selection(None))
        self.assertIn("A failed run is one whose numbers were not finite.", text)

    def test_what_seeds_explain(self):
        # t = 0.19 / (0.0458 / sqrt(3)) = 7.18 with 2 degrees of freedom; and t = 1.39.
        for others, expected in (
            ((0.70, 0.66, 0.62), "better than the next best: p = 0.019 (paired"),
            ((0.91, 0.66, 0.80), "within what seeds explain of the next best: p = 0.3"),
        ):
            scores = {5e-5: (0.90, 0.80, 0.85), 2e-5: others}
            records = [
                RunRecord(
                    settings=RunSetting(rate, 16, 3.0, s), scores={1.0: {"f1": score}}
                )
                for rate, of in scores.items()
                for s, score in enumerate(of)
            ]
            best = Selection(metric="f1", best=records[0], records=records)
            self.assertIn(expected, report(best))


class Made:
    made_from = "abc"


class FakeRuns:
    """Runs that come to the scores of a table."""

    def __init__(self, table=()):
        self.task = types.SimpleNamespace(
            name="toy",
            dev_splits=("dev",),
            identity=lambda split: Made.made_from,
            baseline=lambda split, metric: 0.5,
        )
        self.strategy = tf.distribute.get_strategy()
        self.table = dict(table)
        self.ran = []

    def given(self, *arguments):
        """The same runs, of a command line."""
        self.options = parse(*arguments)
        self.metric = self.options.best_metric or "accuracy"
        return self

    def search(self, folder):
        arguments = self.task, self.options, self.strategy, self.scored
        return search(*arguments, metric=self.metric, output_dir=folder)

    def made_with(self):
        return made_with(self.task, self.options)

    def scored(self, folder, options, *, until=1.0):
        """Leaves a checkpoint at step 8; on the way, evaluations at 4, if there are."""
        self.ran.append(options.learning_rate)
        os.makedirs(folder, exist_ok=True)
        toy.write_config(folder)
        *before, last = self.table[options.learning_rate]
        model = trained()
        if before:
            toy.save_checkpoint(folder, model, 4)
            reporter = Reporter(folder)
            reporter.report_evaluation(4, {"accuracy": before[0]})
            reporter.close()
            checkpoints.keep_if_best(folder, 4, before[0], "accuracy")
        toy.save_checkpoint(folder, model, 8)
        return {"accuracy": last}, 8


class StoppingRuns(FakeRuns):
    """Its runs stop after 0.3 of their steps, at step 4, and end at step 8."""

    def scored(self, folder, options, *, until=1.0):
        stopped, ended = self.table[options.learning_rate]
        last, step = (ended, 8) if until == 1.0 else (stopped, 4)
        toy.save_checkpoint(folder, trained(), step)
        return {"accuracy": last}, step


CLASSES = Target(kind=SINGLE_LABEL, labels=("no", "yes"))


def parse(*arguments):
    given = ["--task_name=MRPC", "--data_dir=d", "--do_train", *arguments]
    if not any(one.startswith("--output_dir") for one in arguments):
        given.append("--output_dir=o")
    return cli.parse(run_classifier.run, given)


class SearchTest(FolderCase):
    def best(self):
        return self.read_json("best", "best.json")

    def test_the_best_of_the_runs_best_evaluations(self):
        # The first run was best on its way, the second one at its end.
        runs = FakeRuns(table={5e-5: [0.9, 0.6], 2e-5: [0.5, 0.8], 1e-5: [0.7]})
        selection = runs.given("--learning_rates=5e-5,2e-5,1e-5").search(self.path())
        found = [(one.score("accuracy"), one.step) for one in selection.records]
        self.assertEqual(found, [(0.9, 4), (0.8, 8), (0.7, 8)])
        self.assertEqual(self.best()["step"], 4)
        self.assertEqual(self.best()["run"], "lr5e-05_bs32_ep3_seed12345")
        self.assertIn("model.ckpt-4.index", os.listdir(self.path("best")))
        # What is left of the others: no weights.
        left = os.listdir(self.path("runs", "lr1e-05_bs32_ep3_seed12345"))
        self.assertEqual(left, ["bert_config.json"])
        self.assertTrue(os.path.exists(self.path("selection.md")))

    def test_what_is_kept_is_what_was_scored(self):
        # Better when it was compared than in the end.
        runs = StoppingRuns(table={5e-5: [0.9, 0.6]})
        selection = runs.given("--stop_early").search(self.path())
        self.assertEqual(selection.best.step, 8)
        self.assertEqual(selection.best.score("accuracy"), 0.6)
        self.assertEqual((self.best()["step"], self.best()["value"]), (8, 0.6))
        self.assertIn("model.ckpt-8.index", os.listdir(self.path("best")))

    def test_a_score_that_is_no_number_is_a_failed_run(self):
        runs = FakeRuns(table={5e-5: [float("nan")], 2e-5: [0.5]})
        selection = runs.given("--learning_rates=5e-5,2e-5").search(self.path())
        statuses = [one.status for one in selection.records]
        self.assertEqual(statuses, ["failed", "finished"])

    def test_other_flags_are_other_runs(self):
        runs = FakeRuns(table={5e-5: [0.5], 2e-5: [0.6]})
        runs.given().search(self.path())
        for argument in ("--output_dir=/x", "--num_restarts=1", "--keep_all_runs"):
            runs.given(argument).search(self.path())
        self.assertEqual(runs.ran, [5e-5])
        runs.given("--learning_rate=2e-5").search(self.path())
        self.assertEqual(runs.ran, [5e-5, 2e-5])
        with self.assertRaisesRegex(InputError, "max_seq_length is 128 there, 64 here"):
            runs.given("--max_seq_length=64").search(self.path())
        Made.made_from = "abd"
        self.addCleanup(setattr, Made, "made_from", "abc")
        with self.assertRaisesRegex(InputError, "the train examples is abc there"):
            runs.given().search(self.path())


class MadeWithTest(FolderCase):
    def test_a_checkpoint_is_the_same_from_any_folder(self):
        self.folder("bert")
        self.enterContext(contextlib.chdir(self.path()))
        runs = FakeRuns()
        found = runs.given("--init_checkpoint=bert").made_with()
        expected = {"init_checkpoint": os.path.join(os.getcwd(), "bert")}
        expected |= {"max_seq_length": 128, "the task": "toy"}
        expected |= {f"the {split} examples": "abc" for split in ("train", "dev")}
        self.assertEqual(found | expected, found)
        left_out = {"learning_rate", "output_dir", "recompute", "backend"}
        self.assertEmpty(left_out & set(found))
        best = {"metric": "accuracy", "step": 3, "value": 0.5, "run": "lr5e-05_seed1"}
        self.write("bert/best.json", best)
        found = runs.given("--init_checkpoint=bert").made_with()
        self.assertEndsWith(found["init_checkpoint"], "/bert (lr5e-05_seed1)")
        handle = runs.given("--init_checkpoint=bert_base_en").made_with()
        self.assertEqual(handle["init_checkpoint"], "bert_base_en")


class BaselineTest(tf.test.TestCase):
    def test_worked_by_hand(self):
        yes_no, numbers = ["yes", "no", "yes", "yes"], ["1", "2", "4.5"]
        number = Target(kind=REGRESSION)
        several = Target(kind=MULTI_LABEL, labels=("a", "b"))
        for target, labels, metric, expected in (
            (CLASSES, yes_no, "accuracy", 0.75),
            # Precision 3/4, recall 1.
            (CLASSES, yes_no, "f1", 6 / 7),
            (CLASSES, yes_no, "matthews_correlation", 0.0),
            (CLASSES, yes_no, "loss", None),
            (number, numbers, "pearson", 0.0),
            # The mean is 2.5: squares of 1.5, 0.5 and 2 over 3.
            (number, numbers, "mean_squared_error", 6.5 / 3),
            # a is true of most, b is not.
            (several, ["a", "a,b", "a", ""], "exact_match", 0.5),
        ):
            examples = [Example("a", None, label, "dev.tsv:1") for label in labels]
            task = object.__new__(ClassificationTask)
            task.examples = {"dev": examples}
            task.featurizers = {"dev": types.SimpleNamespace(target=target)}
            self.assertAlmostEqual(task.baseline("dev", metric), expected)
