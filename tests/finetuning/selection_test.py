import json
import math
import os

import tensorflow as tf

from bert_tf.errors import DivergedError, InputError
from bert_tf.finetuning.selection import StopEarly, select
from bert_tf.finetuning.settings import Settings, grid
from bert_tf.finetuning.trials import Outcome, clock, ranked

RATES = [5e-5, 4e-5, 3e-5, 2e-5]
GRID = grid(RATES, [32], [3.0], 1, 1)

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
        return Outcome({"accuracy": score, "loss": 1 - score}, int(100 * until))


class SelectionTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.keeper = Keeper()

    def select(self, run, settings=GRID, name="out", **options):
        return select(
            run,
            settings,
            **{
                "folder": os.path.join(self.get_temp_dir(), self.id(), name),
                "metric": "accuracy",
                "keeper": self.keeper,
                "made_with": {"init_checkpoint": "/a", "lengths": [1, 2]},
                **options,
            },
        )

    def lines(self, name="out"):
        path = os.path.join(self.get_temp_dir(), self.id(), name, "selection.jsonl")
        with open(path) as file:
            return [json.loads(line) for line in file]


class SelectTest(SelectionTestCase):
    def test_the_best_is_kept_and_all_are_recorded(self):
        run = Runs()
        with self.assertLogs(level="INFO") as logs:
            selection = self.select(run)
        self.assertEqual(run.calls, [(rate, 1.0) for rate in RATES])
        self.assertEqual(selection.best.settings, Settings(2e-5, 32, 3.0, 1))
        self.assertEqual(selection.best.score("accuracy"), 0.95)
        self.assertEqual(selection.best.step, 100)
        self.assertEndsWith(selection.best_folder, "/runs/lr2e-05_bs32_ep3_seed1")
        self.assertEqual(self.keeper.kept, "lr2e-05_bs32_ep3_seed1")
        self.assertEqual(
            self.keeper.discarded,
            {f"lr{rate}_bs32_ep3_seed1" for rate in ("5e-05", "4e-05", "3e-05")},
        )
        header, *records = self.lines()
        self.assertEqual(
            header,
            {
                "made_with": {"init_checkpoint": "/a", "lengths": [1, 2]},
                "metric": "accuracy",
            },
        )
        self.assertEqual([one["learning_rate"] for one in records], RATES)
        self.assertEqual({one["status"] for one in records}, {"finished"})
        self.assertAllClose(
            records[2]["scores"], {"1.0": {"accuracy": 0.9, "loss": 0.1}}
        )
        # Three thirds done: what is left is a third of what they took.
        self.assertRegex(
            logs.output[2],
            r"run 3 of 4: lr3e-05_bs32_ep3_seed1 -> accuracy 0.9 \(best 0.9\),"
            r" 00:00:00, about 00:00:00 left",
        )

    def test_lower_is_better_for_a_loss(self):
        self.assertEqual(
            self.select(Runs(), metric="loss").best.settings.learning_rate, 2e-5
        )

    def test_the_first_of_equals_is_the_best(self):
        table = {rate: {1.0: 0.5} for rate in RATES}
        self.assertEqual(self.select(Runs(table)).best.settings.learning_rate, 5e-5)
        self.assertEqual(self.keeper.kept, "lr5e-05_bs32_ep3_seed1")

    def test_killed_at_any_run_and_started_again(self):
        whole = self.select(Runs(), name="whole")
        for number in range(1, 5):
            name = f"killed{number}"
            self.keeper = Keeper()
            killed = Runs(kill_at=number)
            with self.assertRaises(KeyboardInterrupt):
                self.select(killed, name=name)
            again = Runs()
            selection = self.select(again, name=name)
            # The run that was killed is called again, and none before it.
            self.assertEqual(killed.calls[:-1] + again.calls, calls_of(RATES))
            self.assertEqual(selection.best.settings, whole.best.settings)
            self.assertEqual(self.keeper.kept, "lr2e-05_bs32_ep3_seed1")
            self.assertEqual(
                [one["name"] for one in self.lines(name)[1:]],
                [one["name"] for one in self.lines("whole")[1:]],
            )

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

    def test_all_done_and_started_again(self):
        self.select(Runs())
        run = Runs()
        self.assertEqual(self.select(run).best.settings.learning_rate, 2e-5)
        self.assertEqual(run.calls, [])

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

    def test_a_diverged_run_is_recorded_and_the_others_go_on(self):
        table = {**TABLE, 4e-5: {1.0: None}}
        run = Runs(table)
        selection = self.select(run)
        self.assertEqual(selection.best.settings.learning_rate, 2e-5)
        failed = self.lines()[2]
        self.assertEqual(failed["status"], "failed")
        self.assertEqual(
            failed["failure"], "The loss is not finite at step 7. Lower it."
        )
        again = Runs(table)
        self.select(again)
        self.assertEqual(again.calls, [])

    def test_all_have_diverged(self):
        with self.assertRaisesRegex(
            InputError,
            "All 4 runs have failed; .*selection.jsonl they .* The first one: The loss",
        ):
            self.select(Runs({rate: {1.0: None} for rate in RATES}))

    def test_another_metric_than_there_is(self):
        with self.assertRaisesRegex(
            InputError, "--best_metric=f1 is none of the scores .*: accuracy, loss"
        ):
            self.select(Runs(), metric="f1")


class StopEarlyTest(SelectionTestCase):
    def test_the_best_third_goes_on(self):
        # Two of four: a third, rounded up. 4e-5 and 3e-5 lead after 0.3.
        run = Runs()
        selection = self.select(run, stop_early=StopEarly(0.3))
        self.assertEqual(run.calls, [*calls_of(RATES, 0.3), (4e-5, 1.0), (3e-5, 1.0)])
        self.assertEqual(selection.best.settings.learning_rate, 3e-5)
        self.assertEqual(
            [(one["learning_rate"], one["status"]) for one in self.lines()[1:]],
            [
                (5e-5, "stopped"),
                (4e-5, "finished"),
                (3e-5, "finished"),
                (2e-5, "stopped"),
            ],
        )
        self.assertEqual(self.lines()[1]["scores"]["0.3"]["accuracy"], 0.5)
        self.assertEqual([*self.lines()[2]["scores"]], ["0.3", "1.0"])
        # Stopped runs keep their weights: they can be taken up again.
        self.assertEqual(self.keeper.discarded, {"lr4e-05_bs32_ep3_seed1"})

    def test_stopped_runs_are_taken_up_again(self):
        self.select(Runs(), stop_early=StopEarly(0.3, 1))
        run = Runs()
        selection = self.select(run, stop_early=StopEarly(0.3, 2))
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
                self.select(killed, name=f"{number}", stop_early=StopEarly(0.3))
            selection = self.select(again, name=f"{number}", stop_early=StopEarly(0.3))
            self.assertEqual(killed.calls[:-1] + again.calls, calls)
            self.assertEqual(selection.best.settings.learning_rate, 3e-5)

    def test_the_next_best_takes_a_failed_runs_place(self):
        table = {**TABLE, 4e-5: {0.3: 0.7, 1.0: None}}
        run = Runs(table)
        selection = self.select(run, stop_early=StopEarly(0.3, 2))
        self.assertEqual(run.calls[4:], [(4e-5, 1.0), (3e-5, 1.0), (2e-5, 1.0)])
        self.assertEqual(selection.best.settings.learning_rate, 2e-5)

    def test_a_run_that_went_further_before_is_judged_by_where_it_was_measured(self):
        self.select(Runs(), GRID[3:])  # to the end: 0.95
        run = Runs()
        self.select(run, stop_early=StopEarly(0.3, 2))
        self.assertEqual(run.calls, [*calls_of(RATES[:3], 0.3), (4e-5, 1.0)])


class RefusalTest(SelectionTestCase):
    def test_other_runs_in_the_folder(self):
        self.select(Runs())
        for options, message in (
            (
                {"made_with": {"init_checkpoint": "/b", "lengths": [1, 2]}},
                "init_checkpoint is /a there, /b here. Give another --output_dir",
            ),
            (
                {"made_with": {"init_checkpoint": "/a", "lengths": (1, 3)}},
                r"lengths is \[1, 2\] there, \[1, 3\] here",
            ),
            ({"metric": "loss"}, "the metric is accuracy there, loss here"),
        ):
            run = Runs()
            with self.assertRaisesRegex(InputError, message):
                self.select(run, **options)
            self.assertEqual(run.calls, [])

    def test_others_in_the_folder_that_were_killed_before_their_first_record(self):
        with self.assertRaises(KeyboardInterrupt):
            self.select(Runs(kill_at=1))
        # Nothing is there to go on from, so the next start may have other flags.
        with self.assertRaises(KeyboardInterrupt):
            self.select(Runs(kill_at=1), made_with={"init_checkpoint": "/b"})
        folder = os.path.join(self.get_temp_dir(), self.id(), "out", "runs", "lr5e-05")
        os.makedirs(folder)
        with open(os.path.join(folder, "checkpoint"), "w"):
            pass
        with self.assertRaisesRegex(InputError, "init_checkpoint is /b there, /a here"):
            self.select(Runs())
        self.select(Runs(), made_with={"init_checkpoint": "/b"})

    def test_flags_that_only_one_version_has_do_not_matter(self):
        self.select(Runs())
        run = Runs()
        self.select(
            run, made_with={"init_checkpoint": "/a", "lengths": (1, 2), "new": 1}
        )
        self.assertEqual(run.calls, [])

    def test_a_damaged_line(self):
        self.select(Runs())
        path = os.path.join(self.get_temp_dir(), self.id(), "out", "selection.jsonl")
        with open(path) as file:
            lines = file.readlines()
        for number, line in ((1, "{}\n"), (3, '{"name": \n'), (4, "[]\n")):
            with open(path, "w") as file:
                file.writelines([*lines[: number - 1], line, *lines[number:]])
            with self.assertRaisesRegex(InputError, f"jsonl:{number}: "):
                self.select(Runs())
        for old, new in (
            ('"accuracy": 0', '"f1": 0'),
            ('"step": ', '"step": Infinity, "seconds": '),
            ('"accuracy": 0', '"accuracy": Infinity, "f1": 0'),
            ('"1.0"', '"all"'),
            ('"scores": ', '"scores": [], "status": '),
        ):
            self.assertIn(old, lines[2])
            with open(path, "w") as file:
                file.writelines([*lines[:2], lines[2].replace(old, new), *lines[3:]])
            with self.assertRaisesRegex(
                InputError, r"selection.jsonl:3: .*Remove the line, and that run is"
            ):
                self.select(Runs())
        with open(path, "w") as file:
            file.writelines(lines[1:])
        with self.assertRaisesRegex(InputError, r"selection.jsonl:1: .*made_with"):
            self.select(Runs())
        os.truncate(path, 0)
        with self.assertRaisesRegex(InputError, r"selection.jsonl:1: not valid JSON"):
            self.select(Runs())


class OrderTest(tf.test.TestCase):
    def test_nan_comes_last(self):
        a, b, c, d = GRID
        scores = {a: math.nan, b: 0.5, c: math.nan, d: 0.6}
        self.assertEqual(ranked(scores, "accuracy"), [d, b, a, c])

    def test_clock(self):
        self.assertEqual(clock(3 * 3600 + 61.4), "03:01:01")


def calls_of(rates, share=1.0):
    return [(rate, share) for rate in rates]


if __name__ == "__main__":
    tf.test.main()
