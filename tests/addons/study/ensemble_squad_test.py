import json
import os
import tempfile

from absl import flags

from bert_tf.addons.study import ensemble_squad
from bert_tf.base.errors import InputError
from tests.script_case import FolderCase, printed
from tests.tasks.squad.evaluate_squad_test import question, squad


def entries(*rows):
    names = ("text", "probability", "start_logit", "end_logit")
    return [dict(zip(names, row, strict=True)) for row in rows]


EMPTY = entries(("empty", 1.0, 0.0, 0.0))
NONE = entries(("", 1.0, 0.0, 0.0))
V1 = squad("1.1", question("a", "dog"), question("b", "cat"))
V2 = squad("v2.0", question("a", "dog"), question("b"))


class EnsembleSquadTest(FolderCase):
    def written(self, name, folder="out"):
        return self.read_json(folder, name)

    def write_runs(self, *, version_2=False):
        """Two runs: A is surer of "dog" than B of "red dog", of b both say "cow"."""
        cow = entries(("cow", 0.75, 1.0, 2.0), ("", 0.25, 1.0, 2.0))
        for name, texts, share, odds in (
            ("A", ("dog", "red dog"), 0.75, -3.0),
            ("B", ("red dog", "dog"), 0.625, -1.0),
        ):
            shares = zip(texts, (share, 1 - share), strict=True)
            n_best = {"a": entries(*((*each, 1.0, 2.0) for each in shares)), "b": cow}
            self.write(f"{name}/nbest_predictions.json", n_best)
            if version_2:
                self.write(f"{name}/null_odds.json", {"a": odds, "b": odds + 1.5})

    def run_script(self, *arguments, runs="A,B"):
        folders = ",".join(self.path(name) for name in runs.split(","))
        given = f"--prediction_dirs={folders}", f"--output_dir={self.path('out')}"
        return printed(ensemble_squad, *given, *arguments)

    def test_version_1(self):
        self.write_runs()
        said = self.run_script(f"--predict_file={self.write('dev.json', V1)}")
        self.assertEqual(self.written("predictions.json"), {"a": "dog", "b": "cow"})
        # (0.75 + 0.375) / 2 and (0.25 + 0.625) / 2
        expected = entries(("dog", 0.5625, 1.0, 2.0), ("red dog", 0.4375, 1.0, 2.0))
        self.assertEqual(self.written("nbest_predictions.json")["a"], expected)
        self.assertFalse(os.path.exists(self.path("out", "null_odds.json")))
        self.assertEqual(json.loads(said), {"exact_match": 50.0, "f1": 50.0})
        # An ensemble may be part of another one.
        self.run_script("--output_dir=" + self.path("both"), runs="out,A")
        first = self.written("nbest_predictions.json", "both")["a"][0]
        self.assertEqual(first["probability"], 0.65625)

    def test_version_2_and_its_threshold(self):
        self.write_runs(version_2=True)
        data = f"--predict_file={self.write('dev.json', V2)}"
        for threshold, answers, f1 in (
            (0, {"a": "dog", "b": "cow"}, 50.0),
            (-1, {"a": "dog", "b": ""}, 100.0),
            (-2.5, {"a": "", "b": ""}, 50.0),
        ):
            given = f"--null_score_diff_threshold={threshold}" if threshold else ""
            said = self.run_script("--version_2_with_negative", data, *given.split())
            self.assertEqual(self.written("predictions.json"), answers)
            self.assertEqual(json.loads(said)["f1"], f1)
        self.assertEqual(self.written("null_odds.json"), {"a": -2.0, "b": -0.5})

    def test_what_does_not_fit(self):
        self.write_runs(version_2=True)
        data = self.write("dev.json", V2)
        for arguments, runs, message in (
            ([], "A", "two runs at least"),
            ([], "A,B,A", "each once"),
            (["--output_dir=" + self.path("B")], "A,B", "one of the runs' folders"),
            (["--null_score_diff_threshold=1"], "A,B", "version_2_with_negative"),
            ([f"--predict_file={data}"], "A,B", "is SQuAD 2.0's: add --version_2"),
            (["--version_2_with_negative"], "A,C", "C"),
        ):
            with self.assertRaisesRegex((InputError, flags.Error), message):
                self.run_script(*arguments, runs=runs)
        self.assertFalse(os.path.exists(self.path("out")))
        other = squad("v2.0", question("a", "dog"), question("x"))
        data = self.write("dev.json", other)
        with self.assertRaisesRegex(InputError, "no prediction.* x;"):
            self.run_script("--version_2_with_negative", f"--predict_file={data}")
        self.assertEqual(os.listdir(self.path("out")), [])


class EnsembleTest(FolderCase):
    def folder(self, n_best, null_odds=None):
        """A run's folder with these files."""
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        for name, content in (("nbest_predictions", n_best), ("null_odds", null_odds)):
            if content is not None:
                self.write(f"{folder}/{name}.json", content)
        return folder

    def decoded(self, *runs, **settings):
        """question id -> its answers, of runs that are (n best, null odds)."""
        folders = [self.folder(*run) for run in runs]
        return dict(ensemble_squad.ensemble(folders, **settings))

    def test_mean_probabilities_by_hand(self):
        runs = [
            ({"q": entries(("red dog", 0.6, 2.0, 1.0), ("dog", 0.4, 1.0, 1.0))},),
            ({"q": entries(("dog", 0.7, 3.0, 2.0), ("cat", 0.3, 0.5, 0.5))},),
        ]
        found = self.decoded(*runs)["q"]
        self.assertEqual(
            [entry.text for entry in found.n_best], ["dog", "red dog", "cat"]
        )
        # A run without a text gives it 0; logits are those of the runs that have it.
        self.assertAllClose(
            [entry[1:4] for entry in found.n_best],
            [(0.55, 2.0, 1.5), (0.3, 2.0, 1.0), (0.15, 0.5, 0.5)],
        )
        self.assertEqual((found.best_text, found.score_diff), ("dog", None))
        self.assertLen(self.decoded(*runs, n_best_size=2)["q"].n_best, 2)

    def test_equal_probabilities_and_the_order_of_questions_are_the_first_runs(self):
        one, other = ("b", 0.5, 1.0, 1.0), ("a", 0.5, 1.0, 1.0)
        first = {"z": entries(one, other), "c": EMPTY}
        found = self.decoded((first,), ({"c": EMPTY, "z": entries(other, one)},))
        self.assertEqual([*found], ["z", "c"])
        self.assertEqual(found["z"].best_text, "b")

    def test_no_answer_is_voted_for_and_its_score_differences_averaged(self):
        first = entries(("", 0.5, 2.0, 2.0), ("dog", 0.3, 1.0, 1.0), ("cat", 0.2, 1, 1))
        second = entries(
            ("cat", 0.7, 3.0, 3.0), ("", 0.2, 1.0, 1.0), ("dog", 0.1, 1, 1)
        )
        runs = ({"q": first}, {"q": 1.0}), ({"q": second}, {"q": -2.0})
        found = self.decoded(*runs, version_2_with_negative=True)["q"]
        self.assertEqual([entry.text for entry in found.n_best], ["cat", "", "dog"])
        self.assertAllClose(
            [entry.probability for entry in found.n_best], [0.45, 0.35, 0.2]
        )
        self.assertEqual((found.best_text, found.score_diff), ("cat", -0.5))
        # "No answer" is there however few are kept.
        found = self.decoded(*runs, version_2_with_negative=True, n_best_size=1)["q"]
        self.assertEqual([entry.text for entry in found.n_best], ["cat", ""])
        # The best text is the best that is one.
        found = self.decoded(runs[0], runs[0], version_2_with_negative=True)["q"]
        self.assertEqual((found.n_best[0].text, found.best_text), ("", "dog"))

    def test_a_run_without_a_span_has_no_vote(self):
        some = {"q": entries(("dog", 0.4, 1.0, 1.0), ("cat", 0.2, 1.0, 1.0))}
        found = self.decoded((some,), ({"q": EMPTY},))["q"]
        self.assertEqual([entry.text for entry in found.n_best], ["dog", "cat"])
        self.assertAllClose([entry.probability for entry in found.n_best], [0.2, 0.1])
        found = self.decoded(({"q": EMPTY},), ({"q": EMPTY},))["q"]
        self.assertEqual(found.best_text, "empty")
        self.assertEqual([entry.probability for entry in found.n_best], [1.0])
        # Of SQuAD 2.0 its difference is a million, which would outvote all others.
        found = self.decoded(
            (some, {"q": -1.5}), ({"q": NONE}, {"q": 1e6}), version_2_with_negative=True
        )["q"]
        self.assertEqual((found.best_text, found.score_diff), ("dog", -1.5))
        none = ({"q": NONE}, {"q": 1e6})
        found = self.decoded(none, none, version_2_with_negative=True)["q"]
        self.assertEqual((found.best_text, found.score_diff), ("", 1e6))

    def test_files_that_do_not_fit(self):
        first = {"a": EMPTY, "b": EMPTY, "c": EMPTY}
        others = {"b": EMPTY, "c": EMPTY, "d": EMPTY}
        version_2 = {"version_2_with_negative": True}
        for runs, settings, message in (
            ([(first,), (others,)], {}, "2 differ from the first run's, such as a"),
            (
                [(first, dict.fromkeys("abcd", 1.0))],
                version_2,
                "1 differ from .* such as d",
            ),
            ([({"a": EMPTY}, {"a": 1.0})], {}, "add --version_2_with_negative"),
            ([({"a": EMPTY},)], version_2, "No such .*null_odds.json"),
            ([(["a"],)], {}, "must be {question's id"),
            ([({},)], {}, "this file has 0"),
            ([({"a": "dog"},)], {}, "question a has 'dog'"),
            ([({"a": ["dog"]},)], {}, "question a: an answer must have a text"),
            ([({"a": [{**EMPTY[0], "text": None}]},)], {}, "must have a text"),
            ([({"a": [{**EMPTY[0], "probability": "x"}]},)], {}, "three numbers"),
            ([({"a": [{"text": "x", "probability": 1.0}]},)], {}, "three numbers"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.decoded(*runs, **settings)
