import json
import os

import numpy as np

from bert_tf.addons.planning.reference_curves import Reference
from bert_tf.addons.study import compare
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.tasks import metrics, run_log
from bert_tf.tasks.reports import write_predictions
from bert_tf.tasks.run_options import RunSetting
from bert_tf.tasks.tables import Example, Target
from tests.drawn import drawn
from tests.script_case import FolderCase, printed

LABELS = ("no", "yes")


class CompareCase(FolderCase):
    def compare(self, *arguments):
        folders = [self.path(run) for run in "ab"]
        return printed(compare, *folders, "--num_samples=200", *arguments)

    def write_table(self, run, target, logits, labels):
        rows = [
            Example(text_a=f"text {i}", text_b="a\u2028b", label=label, source=f"x:{i}")
            for i, label in enumerate(labels)
        ]
        os.makedirs(self.path(run), exist_ok=True)
        path = self.path(run, "dev_predictions.tsv")
        write_predictions(path, rows, target, logits)


class CompareRunsTest(CompareCase):
    def test_classes(self):
        rng = np.random.default_rng(0)
        truth = rng.integers(0, 2, 40)
        target = Target(kind=SINGLE_LABEL, labels=LABELS)
        said = [np.where(rng.random(40) < p, truth, 1 - truth) for p in (0.6, 0.9)]
        for run, each in zip("ab", said, strict=True):
            labels = [LABELS[label] for label in truth]
            self.write_table(run, target, np.eye(2)[each], labels)
        found = json.loads(self.compare("--json"))["compared"]
        rows = found["dev_predictions.tsv, 40 examples"]
        names = metrics.METRICS_OF[SINGLE_LABEL]
        self.assertEqual([*rows], [*names])
        expected = [metrics.scores(names, each, truth) for each in said]
        for name, row in rows.items():
            self.assertAllClose(row["scores"], [each[name] for each in expected])
        self.assertIn("| accuracy ", self.compare())

    def test_numbers(self):
        target, rng = Target(kind=REGRESSION), np.random.default_rng(0)
        truth = rng.normal(size=20).round(3)
        for run in "ab":
            logits = (truth + rng.normal(size=20))[:, None]
            self.write_table(run, target, logits, [str(x) for x in truth])
        (rows,) = json.loads(self.compare("--json"))["compared"].values()
        self.assertEqual([*rows], ["pearson", "spearman", "mean_squared_error"])

    def test_several_labels_of_which_a_text_may_have_none(self):
        target = Target(kind=MULTI_LABEL, labels=LABELS)
        said = {"a": [[1, -1], [1, 1], [1, -1]], "b": [[1, -1], [1, 1], [-1, -1]]}
        for run in "ab":
            self.write_table(run, target, np.array(said[run]), ["no", "no,yes", ""])
            self.write(f"{run}/problem_type.txt", f"{MULTI_LABEL}\n")
        (rows,) = json.loads(self.compare("--json"))["compared"].values()
        self.assertAllClose(rows["exact_match"]["scores"], [2 / 3, 1.0])
        # One label a row does not make it a choice of one class.
        for run in "ab":
            self.write_table(run, target, np.array([[1, -1], [-1, 1]]), ["no", "yes"])
        (rows,) = json.loads(self.compare("--json"))["compared"].values()
        self.assertIn("exact_match", rows)

    def test_curves_of_pre_training(self):
        """A is faster at first in steps; B's steps have more tokens and take longer."""
        losses = {"a": [4.0, 3.0, 2.8, 2.6], "b": [5.0, 3.5, 2.5]}
        steps = {"a": [100, 200, 300, 400], "b": [100, 200, 300]}
        for run, tokens, seconds in (("a", 50.0, 36.0), ("b", 100.0, 72.0)):
            lines = []
            for step, loss in zip(steps[run], losses[run], strict=True):
                rates = {"steps_per_second": 2.0, "tokens_per_second": 2.0 * tokens}
                at = {"step": step, "seconds": step * seconds}
                lines += [{**at, "loss": 9.0, **rates}, {**at, "eval/loss": loss}]
            lines.append({**at, "eval/loss": 9.0, "after_training": True})
            content = "".join(f"{json.dumps(line)}\n" for line in lines)
            self.write(f"{run}/metrics.jsonl", content)
            self.write(f"{run}/eval_results.txt", f"loss = {losses[run][-1]}\n")
            self.write(f"{run}/flags.json", {"eval_input_file": "held.tfrecord"})
        picture = self.path("curves.png")
        found = json.loads(self.compare("--json", f"--output_file={picture}"))["ahead"]
        # By hand: over steps -0.5 at 200 and 0.3 at 300, so 0 at 262.5.
        self.assertEqual([one[0] for one in found["steps"]], ["A", "B"])
        self.assertAllClose(found["steps"][0][1:], [100, 262.5])
        self.assertAllClose(found["steps"][1][1:], [262.5, 300])
        # 10,000 tokens are A's step 200 (3.0) and B's 100 (5.0); 20,000 are 400 (2.6)
        # and 200 (3.5): A all along. An hour is as many of their steps as well.
        self.assertEqual(found["tokens"], [["A", 10_000.0, 20_000.0]])
        self.assertEqual(found["hours"], [["A", 2.0, 4.0]])
        said = self.compare()
        self.assertRegex(
            said, r"\| steps +\| +A from 100 to 262.5; B from 262.5 to 300"
        )
        self.assertRegex(said, r"\| tokens +\| +A from 10,000 to 20,000")
        self.assertGreater(os.path.getsize(picture), 5000)
        # The reference of their size is drawn over tokens.
        points: dict = {"bits_per_byte": [3.0, 2.0], "masked_lm_loss": [6.0, 4.0]}
        points |= {"unigram_bits_per_byte": 3.0, "masked_lm_unigram_loss": 7.0}
        behind = Reference(size="tiny", made="", tokens=[1e3, 2e4], **points)
        runs = {
            run: compare.Progress(one.axes, {"masked_lm_loss": one.scores["loss"]})
            for run in "ab"
            if (one := compare.progress(self.path(run)))
        }
        for axes, is_drawn in ((["steps"], False), (["steps", "tokens"], True)):
            texts, _ = drawn(
                lambda axes=axes: compare.progress_picture(
                    runs, axes, "masked_lm_loss", behind
                )
            )
            self.assertEqual("reference tiny" in texts, is_drawn)
        # Other records give no verdict.
        self.write("b/flags.json", {"eval_input_file": "other.tfrecord"})
        self.assertEqual(json.loads(self.compare("--json"))["ahead"], {})
        with self.assertRaisesRegex(InputError, "both runs must have been evaluated"):
            self.compare(f"--output_file={picture}")

    def test_who_is_ahead_where(self):
        def run(steps, losses):
            return compare.Progress(
                {"steps": steps}, {"loss": losses, "accuracy": losses}
            )

        same = run([1, 2, 3], [3.0, 2.0, 1.0])
        self.assertEqual(compare.leads(same, same, "steps", "loss"), [])
        met = run([1, 2, 3], [2.0, 2.0, 0.5])
        found = compare.leads(same, met, "steps", "loss")
        self.assertEqual(found, [("B", 1.0, 3.0)])
        found = compare.leads(same, met, "steps", "accuracy")
        self.assertEqual(found, [("A", 1.0, 3.0)])
        self.assertEqual(compare.leads(same, run([5, 6], [1, 1]), "steps", "loss"), [])

    def test_evaluations_of_pre_training(self):
        for run, loss in (("a", 2.5), ("b", 2.25)):
            self.write(f"{run}/eval_results.txt", f"global_step = 9\nloss = {loss}\n")
            self.write(f"{run}/flags.json", {"input_file": f"{run}.tfrecord"})
        found = json.loads(self.compare("--json"))
        self.assertEqual(found["evaluations"]["loss"], [2.5, 2.25])
        self.assertRegex(self.compare(), r"(?s)different records: a.tf.*\| -0.2500 +\|")

    def test_entities_and_trials(self):
        gold = ["Jo B-PER", "Li I-PER", "went O", "", "to O", "Rome B-LOC", ""]
        for run, said in (("a", "B-PER O O  O B-LOC "), ("b", "B-PER I-PER O  O O ")):
            lines = [
                f"{g} {s}".strip() for g, s in zip(gold, said.split(" "), strict=True)
            ]
            content = "\n".join(lines) + "\n"
            self.write(f"{run}/dev_predictions.txt", content)
        for run, metric in (("a", "perplexity"), ("b", "f1")):
            records = [
                run_log.RunRecord(
                    settings=RunSetting(2e-5, 32, 3.0, seed),
                    scores={1.0: {metric: score}},
                )
                for seed, score in enumerate((0.5, 0.7))
            ]
            header = run_log.Header(made_with={}, metric=metric)
            run_log.write(self.path(run), header, records)
        found = json.loads(self.compare("--json"))
        (rows,) = found["compared"].values()
        # A finds Rome alone of two entities, and says one more; B finds Jo Li alone.
        self.assertAllClose(rows["f1"]["scores"], [0.5, 2 / 3])
        self.assertAllClose(rows["accuracy"]["scores"], [0.8, 0.8])
        self.assertAllClose(
            [*found["expected_best"].values()], [[0.6, 0.55], [0.6, 0.65]]
        )

    def test_words_of_a_test_set_count_if_it_had_labels(self):
        for run in "ab":
            # A separator of lines, for Python, in a word.
            self.write(f"{run}/test_predictions.txt", "a\u2028b X X\nc X Y\n\n")
        with self.assertRaisesRegex(InputError, "share no predictions"):
            self.compare()
        for run in "ab":
            self.write(f"{run}/eval_results.txt", "global_step = 1\ntest_f1 = 0.5\n")
        (rows,) = json.loads(self.compare("--json"))["compared"].values()
        self.assertAllClose(rows["accuracy"]["scores"], [0.5, 0.5])

    def test_questions(self):
        answers = [{"text": "the cat", "answer_start": 0}]
        qas = [{"id": str(i), "question": "?", "answers": answers} for i in range(3)]
        data = {"data": [{"paragraphs": [{"context": "the cat", "qas": qas}]}]}
        self.write("dev.json", data)
        for run, text in (("a", "a cat"), ("b", "black cat")):
            said = {str(i): text for i in range(3)}
            self.write(f"{run}/predictions.json", said)
        gold = f"--predict_file={self.path('dev.json')}"
        (rows,) = json.loads(self.compare("--json", gold))["compared"].values()
        self.assertAllClose(rows["exact_match"]["scores"], [1.0, 0.0])
        self.assertAllClose(rows["f1"]["scores"], [1.0, 2 / 3])
        self.assertAllClose(rows["exact_match"]["p_value"], 0.25)


class RefusedTest(CompareCase):
    def test_what_cannot_be_compared(self):
        target = Target(kind=SINGLE_LABEL, labels=LABELS)
        self.write_table("a", target, np.eye(2), ["no", "yes"])
        self.write("b/notes.txt", "")
        with self.assertRaisesRegex(InputError, "share no predictions.*none in"):
            self.compare()
        numbers = Target(kind=REGRESSION, labels=LABELS)
        self.write_table("b", numbers, np.eye(2), ["1,2", "2,1"])
        with self.assertRaisesRegex(InputError, "several numbers .*; compare reads"):
            self.compare()
        self.write_table("b", target, np.eye(2), ["no", "no"])
        with self.assertRaisesRegex(InputError, "has other examples"):
            self.compare()
        self.write("b/dev_predictions.tsv", "text\nhello\n")
        with self.assertRaisesRegex(InputError, "dev_predictions.tsv: not as a fine-"):
            self.compare()
        with self.assertRaisesRegex(
            InputError, "two runs: python -m bert_tf.compare RUN RUN"
        ):
            printed(compare, "one")
