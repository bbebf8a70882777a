import json
import math
import os
import tempfile

import tensorflow as tf

from bert_tf.addons.study.report_pictures import precision_recall_curves
from bert_tf.base.errors import InputError
from bert_tf.tasks.squad.decoding import Decoded, NBestEntry
from bert_tf.tasks.squad.scoring import (
    Answers,
    best_threshold,
    best_thresholds,
    evaluate_v1,
    evaluate_v2,
    f1,
    normalize_answer,
)

# By null odd: right, an invention, half right, right, an invention.
GOLDS = {name: ("x",) * (name in "acd") for name in "ecadb"}
TEXTS = dict.fromkeys("abcde", "text")
F1 = {"a": 1.0, "b": 0, "c": 0.5, "d": 1.0, "e": 0}
NULL_ODDS = {"c": -1.0, "a": -3.0, "b": -2.0, "e": 2.0, "d": 0.5}


class BestThresholdTest(tf.test.TestCase):
    def test_an_empty_text_is_no_answer_at_any_threshold(self):
        # 3, 3, 3.5, 4.5, 3.5.
        found = best_threshold(GOLDS, {**TEXTS, "b": ""}, F1, NULL_ODDS)
        self.assertEqual(found, (90.0, 0.5))

    def test_equal_null_odds_are_told_apart_as_the_official_search_does(self):
        golds, texts = {"a": ("x",), "b": ()}, {"a": "x", "b": "y"}
        for odds, expected in (
            ({"a": 1.0, "b": 1.0}, (100.0, 1.0)),
            ({"b": 1.0, "a": 1.0}, (50.0, 0.0)),
        ):
            found = best_threshold(golds, texts, {"a": 1, "b": 0}, odds)
            self.assertEqual(found, expected)


def gold(*texts):
    return texts


class TextsTest(tf.test.TestCase):
    def test_normalize_answer(self):
        for text, expected in (
            ("The  Quick, brown-fox's\ta DEN!", "quick brownfoxs den"),
            # Punctuation goes before articles, and only ASCII's goes.
            ("a-an other's the", "aan others"),
            ("“An” École — of the Île", "“ ” école — of île"),
            ("theory and another", "theory and another"),
            ("$5.00\u00a0(5%)", "500 5"),
            ("A, an; THE...", ""),
            ("北京, the 東京", "北京 東京"),
            ("", ""),
        ):
            self.assertEqual(normalize_answer(text), expected)

    def test_f1(self):
        self.assertAllClose(f1("big red dog", "red dog barked"), 2 / 3)
        # A word counts as often as both have it: precision 1/2, recall 1.
        self.assertAllClose(f1("dog dog", "dog"), 2 / 3)
        self.assertAllClose(f1("dog", "dog cat cow"), 2 * 1 * (1 / 3) / (4 / 3))
        self.assertEqual(f1("cat", "dog"), 0)
        self.assertEqual(f1("", ""), 0)
        self.assertEqual(f1("", "", of_nothing=1), 1)
        self.assertEqual(f1("", "dog", of_nothing=1), 0)
        self.assertEqual(f1("dog", "", of_nothing=1), 0)


GOLDS_V1 = {
    "best of two": gold("red dog", "dog"),
    "half": gold("cat"),
    "articles": gold("the"),
    "missing": gold("cow"),
}
PREDICTIONS_V1 = {"half": "a big cat", "best of two": "the dog", "articles": "an"}


class Version1Test(tf.test.TestCase):
    def test_by_hand(self):
        report = evaluate_v1(GOLDS_V1, {**PREDICTIONS_V1, "unknown": "x"})
        self.assertEqual([*report], ["exact_match", "f1"])
        # 1, 0, 1, 0 and 1, 2/3, 0, 0.
        self.assertAllClose(report, {"exact_match": 50.0, "f1": 100 * (5 / 3) / 4})

    def test_an_id_that_comes_twice_counts_twice(self):
        pairs = [("a", gold("cat")), ("b", gold("dog")), ("a", gold("cow"))]
        report = evaluate_v1(pairs, {"a": "cow", "b": "pig"})
        self.assertAllClose(report, {"exact_match": 100 / 3, "f1": 100 / 3})

    def test_what_cannot_be_evaluated(self):
        with self.assertRaisesRegex(InputError, "Question a has no answer.*as 2.0"):
            evaluate_v1({"a": gold()}, {"a": "cat"})


GOLDS_V2 = {
    "city": gold("Paris"),
    "rightly not": gold(),
    "an article passed over": gold("the", "Rome"),
    "invention": gold(),
    "article": gold("an"),
}
PREDICTIONS_V2 = {
    "invention": "x",
    "city": "in Paris",
    "rightly not": "",
    "an article passed over": "a",
    "article": "",
    "unknown": "y",
}


class Version2Test(tf.test.TestCase):
    def test_by_hand(self):
        report = evaluate_v2(GOLDS_V2, PREDICTIONS_V2)
        # Exact 0, 1, 0, 0, 1; F1 2/3, 1, 0, 0, 1.
        expected = {"exact": 40.0, "f1": 100 * (8 / 3) / 5, "total": 5}
        expected |= {"HasAns_exact": 100 / 3, "HasAns_f1": 100 * (5 / 3) / 3}
        expected |= {"HasAns_total": 3, "NoAns_exact": 50.0, "NoAns_f1": 50.0}
        expected["NoAns_total"] = 2
        self.assertEqual([*report], [*expected])
        self.assertAllClose(report, expected)

    def test_null_odds_above_the_threshold_are_no_answer(self):
        odds = dict(zip(GOLDS_V2, (1.0, 0.0, 1.5, 1.01, 3.0), strict=True))
        report = evaluate_v2(GOLDS_V2, PREDICTIONS_V2, odds)
        # Exact 0, 1, 0, 1, 0 and F1 2/3, 1, 0, 1, 0: 1.0 is not above 1.0.
        self.assertAllClose(report["exact"], 40.0)
        self.assertAllClose(report["f1"], 100 * (8 / 3) / 5)
        self.assertAllClose(report["HasAns_f1"], 100 * (2 / 3) / 3)
        self.assertEqual(report["NoAns_exact"], 100.0)
        names = ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
        self.assertEqual([*report][-4:], names)
        # From 2 of 5: "" of NoAns adds nothing, then 2/3, -1, 0, 1.
        self.assertAllClose(report["best_f1"], 100 * (8 / 3) / 5)
        self.assertEqual(report["best_f1_thresh"], 1.0)
        # Exact: 2, 2, 1, 1, 2.
        self.assertEqual(report["best_exact"], 40.0)
        self.assertEqual(report["best_exact_thresh"], 0.0)
        # Without null odds each is 0.
        for given in (odds, None):
            none = evaluate_v2(GOLDS_V2, PREDICTIONS_V2, given, threshold=-1.0)
            self.assertEqual((none["HasAns_f1"], none["NoAns_f1"]), (0.0, 100.0))

    def test_one_kind_of_question(self):
        report = evaluate_v2({"a": gold()}, {"a": ""})
        names = "exact f1 total NoAns_exact NoAns_f1 NoAns_total"
        self.assertEqual([*report], names.split())
        curves = precision_recall_curves({"a": gold()}, {"a": ""}, {"a": 0})
        self.assertEqual(curves, {})

    def test_what_cannot_be_evaluated(self):
        with self.assertRaisesRegex(InputError, "5 questions have no prediction.*city"):
            evaluate_v2(GOLDS_V2, {})
        with self.assertRaisesRegex(InputError, "^4 of 5 .* no null odd.*rightly not"):
            evaluate_v2(GOLDS_V2, PREDICTIONS_V2, {"city": 0.5})
        with self.assertRaisesRegex(InputError, "no null odd"):
            best_thresholds(GOLDS_V2, PREDICTIONS_V2, {})

    def test_thresholds_and_curves(self):
        golds = {"a": gold("cat"), "b": gold(), "c": gold("dog")}
        texts = {"a": "cat", "b": "cow", "c": "big dog"}
        odds = {"a": -2.0, "b": -1.0, "c": -3.0}
        # By null odd c (exact 0, F1 2/3), a, b: exact 1, 2, 1 of 3; F1 5/3, 8/3, 5/3.
        found = best_thresholds(golds, texts, odds)
        self.assertAllClose([*found.values()], (200 / 3, -2.0, 800 / 9, -2.0))
        curves = precision_recall_curves(golds, texts, odds)
        self.assertEqual([*curves], ["pr_exact", "pr_f1", "pr_oracle"])
        # Exact: recall 0, 1/2, 1/2; F1: 1/3, 5/6, 5/6; oracle: 1/2, 1, 1.
        areas = [curve.average_precision for curve in curves.values()]
        self.assertAllClose(areas, [1 / 4, 2 / 3 / 3 + 5 / 6 / 2, 1.0])


def decoded(*texts, score_diff=None):
    """Answers of these texts, with scores that are long to write."""
    entries = [
        NBestEntry(text, 1 / (3 + rank), 0.1 * rank, -1e-20 / 3, (0, len(text)))
        for rank, text in enumerate(texts)
    ]
    best = next((text for text in texts if text), "")
    return Decoded(entries, best, score_diff)


class FilesTest(tf.test.TestCase):
    def folder(self):
        return tempfile.mkdtemp(dir=self.get_temp_dir())

    def content(self, folder, name):
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            return file.read()

    def test_as_json_writes_it(self):
        folder = self.folder()
        awkward = 'a "quote"\\, é 中 🜁 \u2028\n\t\x7f\ud800'
        odd = NBestEntry("z", math.nan, math.inf, -math.inf, (0, 1))
        answers = {
            "q1": decoded("x", "", awkward, score_diff=-0.1),
            awkward: decoded("", score_diff=1e6),
            "q3": decoded("", "y", score_diff=2.5),
            "q4": Decoded([odd], "z", math.nan),
        }
        written = Answers(version_2_with_negative=True, threshold=3.0)
        for question_id, of_question in answers.items():
            written.add(question_id, of_question)
        self.assertEmpty(os.listdir(folder))
        written.write(folder)
        names = "text", "probability", "start_logit", "end_logit"
        n_best = {
            q: [{name: getattr(entry, name) for name in names} for entry in of_q.n_best]
            for q, of_q in answers.items()
        }
        expected = {
            "predictions.json": {"q1": "x", awkward: "", "q3": "y", "q4": "z"},
            "null_odds.json": {q: of_q.score_diff for q, of_q in answers.items()},
            "nbest_predictions.json": n_best,
            "prediction_spans.json": {
                "q1": [0, 1],
                awkward: None,
                "q3": [0, 1],
                "q4": [0, 1],
            },
        }
        self.assertCountEqual(os.listdir(folder), expected)
        for name, values in expected.items():
            written = self.content(folder, name)
            self.assertEqual(written, json.dumps(values, indent=4) + "\n", name)

    def test_files_of_another_version_go(self):
        folder = self.folder()
        with open(os.path.join(folder, "null_odds.json"), "w") as file:
            file.write("{}")  # of a prediction of SQuAD 2.0, before
        written = Answers(version_2_with_negative=False)
        written.add("q1", decoded("after"))
        written.write(folder)
        names = ["nbest_predictions.json", "prediction_spans.json", "predictions.json"]
        self.assertEqual(sorted(os.listdir(folder)), names)
