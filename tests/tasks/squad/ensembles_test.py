import json
import os
import tempfile

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks.squad.ensembles import Ensemble


def entries(*rows):
    names = ("text", "probability", "start_logit", "end_logit")
    return [dict(zip(names, row, strict=True)) for row in rows]


EMPTY = entries(("empty", 1.0, 0.0, 0.0))
NONE = entries(("", 1.0, 0.0, 0.0))


class EnsembleTest(tf.test.TestCase):
    def folder(self, n_best, null_odds=None):
        """A run's folder with these files."""
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        for name, content in (("nbest_predictions", n_best), ("null_odds", null_odds)):
            if content is not None:
                with open(os.path.join(folder, f"{name}.json"), "w") as file:
                    json.dump(content, file)
        return folder

    def decoded(self, *runs, **settings):
        """question id -> its answers, of runs that are (n best, null odds)."""
        ensemble = Ensemble(**settings)
        for run in runs:
            ensemble.add(self.folder(*run))
        return dict(ensemble.decoded())

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
        first = {
            "z": entries(("b", 0.5, 1.0, 1.0), ("a", 0.5, 1.0, 1.0)),
            "c": entries(("x", 1.0, 1.0, 1.0)),
        }
        second = {
            "c": entries(("x", 1.0, 1.0, 1.0)),
            "z": entries(("a", 0.5, 1.0, 1.0), ("b", 0.5, 1.0, 1.0)),
        }
        found = self.decoded((first,), (second,))
        self.assertEqual([*found], ["z", "c"])
        self.assertEqual(found["z"].best_text, "b")

    def test_no_answer_is_voted_for_and_its_score_differences_averaged(self):
        first = {
            "q": entries(
                ("", 0.5, 2.0, 2.0), ("dog", 0.3, 1.0, 1.0), ("cat", 0.2, 1, 1)
            )
        }
        second = {
            "q": entries(
                ("cat", 0.7, 3.0, 3.0), ("", 0.2, 1.0, 1.0), ("dog", 0.1, 1, 1)
            )
        }
        runs = (first, {"q": 1.0}), (second, {"q": -2.0})
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

    def test_runs_of_different_questions(self):
        first = {"a": EMPTY, "b": EMPTY, "c": EMPTY}
        with self.assertRaisesRegex(
            InputError, r"other questions than .*: 2 differ, such as a \(not there\)"
        ):
            self.decoded((first,), ({"b": EMPTY, "c": EMPTY, "d": EMPTY},))
        with self.assertRaisesRegex(
            InputError, r"null_odds.json is of other .*: 1 differ, such as d \(only"
        ):
            self.decoded(
                (first, {**dict.fromkeys("abcd", 1.0)}), version_2_with_negative=True
            )

    def test_runs_of_the_other_version(self):
        with self.assertRaisesRegex(InputError, "add --version_2_with_negative"):
            self.decoded(({"a": EMPTY}, {"a": 1.0}))
        with self.assertRaisesRegex(InputError, "No such .*null_odds.json"):
            self.decoded(({"a": EMPTY},), version_2_with_negative=True)

    def test_files_of_another_form(self):
        for n_best, message in (
            (["a"], "must be {question's id"),
            ({}, "must be {question's id"),
            ({"a": "dog"}, "question a must have a list"),
            ({"a": ["dog"]}, "question a"),
            ({"a": [{**EMPTY[0], "text": None}]}, 'an answer has no "text"'),
            ({"a": [{**EMPTY[0], "probability": "1"}]}, '"probability" must be a num'),
            ({"a": [{"text": "x", "probability": 1.0}]}, '"start_logit" must be a num'),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.decoded((n_best,))


if __name__ == "__main__":
    tf.test.main()
