import json
import os
import subprocess
import sys

import tensorflow as tf

from bert_tf import cli, ensemble_squad
from bert_tf.errors import InputError
from tests.evaluate_squad_test import question, squad


def entry(text, probability):
    return {
        "text": text,
        "probability": probability,
        "start_logit": 1.0,
        "end_logit": 2.0,
    }


V1 = squad("1.1", question("a", "dog"), question("b", "cat"))
V2 = squad("v2.0", question("a", "dog"), question("b"))


class EnsembleSquadTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.get_temp_dir()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, content, *names):
        os.makedirs(os.path.dirname(self.path(*names)), exist_ok=True)
        with open(self.path(*names), "w", encoding="utf-8") as file:
            json.dump(content, file)
        return self.path(*names)

    def read(self, *names):
        with open(self.path(*names), encoding="utf-8") as file:
            return json.load(file)

    def write_runs(self, *, version_2=False):
        """Two runs: A is surer of "dog" than B of "red dog", of b both say "cow"."""
        for name, text, odds in (("A", "dog", -3.0), ("B", "red dog", -1.0)):
            other = "red dog" if text == "dog" else "dog"
            share = {"A": 0.75, "B": 0.625}[name]
            self.write(
                {
                    "a": [entry(text, share), entry(other, 1 - share)],
                    "b": [entry("cow", 0.75), entry("", 0.25)],
                },
                name,
                "nbest_predictions.json",
            )
            if version_2:
                self.write({"a": odds, "b": odds + 1.5}, name, "null_odds.json")

    def run_script(self, *arguments, runs="A,B"):
        folders = ",".join(self.path(name) for name in runs.split(","))
        values = cli.parse(
            ensemble_squad.run,
            [
                f"--prediction_dirs={folders}",
                f"--output_dir={self.path('out')}",
                *arguments,
            ],
        )
        with self.captureWritesToStream(sys.stdout) as printed:
            ensemble_squad.run(values)
        return printed.contents()

    def test_version_1(self):
        self.write_runs()
        data = self.write(V1, "dev.json")
        printed = self.run_script(f"--predict_file={data}")
        self.assertEqual(self.read("out", "predictions.json"), {"a": "dog", "b": "cow"})
        n_best = self.read("out", "nbest_predictions.json")["a"]
        # (0.75 + 0.375) / 2 and (0.25 + 0.625) / 2
        self.assertEqual(n_best, [entry("dog", 0.5625), entry("red dog", 0.4375)])
        self.assertFalse(os.path.exists(self.path("out", "null_odds.json")))
        self.assertEqual(json.loads(printed), {"exact_match": 50.0, "f1": 50.0})
        # An ensemble may be part of another one.
        self.run_script("--output_dir=" + self.path("both"), runs="out,A")
        self.assertEqual(
            self.read("both", "nbest_predictions.json")["a"][0], entry("dog", 0.65625)
        )

    def test_version_2_and_its_threshold(self):
        self.write_runs(version_2=True)
        data = self.write(V2, "dev.json")
        version_2 = "--version_2_with_negative"
        self.run_script(version_2)
        self.assertEqual(self.read("out", "null_odds.json"), {"a": -2.0, "b": -0.5})
        self.assertEqual(self.read("out", "predictions.json"), {"a": "dog", "b": "cow"})
        printed = self.run_script(
            version_2, "--find_null_threshold", "--noplots", f"--predict_file={data}"
        )
        # To -2.0 a is answered, and b is not.
        self.assertEqual(
            self.read("out", "null_threshold.json")["null_score_diff_threshold"], -2.0
        )
        self.assertEqual(self.read("out", "predictions.json"), {"a": "dog", "b": ""})
        self.assertEqual(json.loads(printed)["f1"], 100.0)
        # It is used from then on, unless there is a flag.
        self.run_script(version_2)
        self.assertEqual(self.read("out", "predictions.json"), {"a": "dog", "b": ""})
        self.run_script(version_2, "--null_score_diff_threshold=-2.5")
        self.assertEqual(self.read("out", "predictions.json"), {"a": "", "b": ""})

    def test_what_does_not_fit(self):
        self.write_runs(version_2=True)
        data = self.write(V2, "dev.json")
        for arguments, runs, message in (
            ([], "A", "two runs at least"),
            ([], "A,B,A", "A twice"),
            (["--output_dir=" + self.path("B")], "A,B", "one of the runs' folders"),
            (["--find_null_threshold"], "A,B", "add --version_2_with_negative"),
            (
                ["--find_null_threshold", "--version_2_with_negative"],
                "A,B",
                "needs --predict_file",
            ),
            ([f"--predict_file={data}"], "A,B", "is SQuAD 2.0's: add --version_2"),
            ([], "A,C", "add --version_2_with_negative"),
            (["--version_2_with_negative"], "A,C", "No such prediction file.*C"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script(*arguments, runs=runs)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_an_incomplete_prediction_leaves_nothing(self):
        self.write_runs(version_2=True)
        data = self.write(
            squad("v2.0", question("a", "dog"), question("x")), "dev.json"
        )
        with self.assertRaisesRegex(InputError, "no prediction.* x;"):
            self.run_script(
                "--version_2_with_negative",
                "--find_null_threshold",
                f"--predict_file={data}",
            )
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_needs_no_tensorflow(self):
        self.write_runs()
        program = (
            "import sys; from bert_tf import cli, ensemble_squad as script;"
            "script.run(cli.parse(script.run, sys.argv[1:]));"
            "assert not {'tensorflow', 'keras', 'matplotlib'} & {*sys.modules}"
        )
        subprocess.run(
            [
                sys.executable,
                "-c",
                program,
                f"--prediction_dirs={self.path('A')},{self.path('B')}",
                f"--output_dir={self.path('out')}",
            ],
            check=True,
        )


if __name__ == "__main__":
    tf.test.main()
