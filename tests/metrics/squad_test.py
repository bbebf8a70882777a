import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.metrics.squad import (
    Gold,
    best_thresholds,
    evaluate_v1,
    evaluate_v2,
    exact_match,
    f1,
    normalize_answer,
    precision_recall_curves,
)


def gold(*texts):
    return Gold(texts, bool(texts))


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

    def test_exact_match(self):
        self.assertTrue(exact_match("the U.S.", "us"))
        self.assertFalse(exact_match("of us", "us"))

    def test_f1(self):
        # Of "big red dog" and "red dog barked" two words.
        self.assertAllClose(f1("the big red dog", "A red dog barked"), 2 / 3)
        # A word counts as often as both have it: precision 1/2, recall 1.
        self.assertAllClose(f1("dog, dog", "dog"), 2 / 3)
        self.assertAllClose(f1("dog", "dog cat cow"), 2 * 1 * (1 / 3) / (4 / 3))
        self.assertEqual(f1("cat", "dog"), 0)

    def test_f1_of_texts_without_words(self):
        self.assertEqual(f1("the", "an"), 0)
        self.assertEqual(f1("the", "an", of_nothing=1), 1)
        self.assertEqual(f1("the", "dog", of_nothing=1), 0)
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
        with self.assertRaisesRegex(InputError, "no questions"):
            evaluate_v1({}, {"a": "cat"})
        with self.assertRaisesRegex(InputError, "Question a has no answer.*as 2.0"):
            evaluate_v1({"a": gold()}, {"a": "cat"})
        with self.assertRaisesRegex(InputError, "question a must be a text.*7"):
            evaluate_v1({"a": gold("cat")}, {"a": 7})


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
        expected = {
            "exact": 40.0,
            "f1": 100 * (8 / 3) / 5,
            "total": 5,
            "HasAns_exact": 100 / 3,
            "HasAns_f1": 100 * (5 / 3) / 3,
            "HasAns_total": 3,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
        self.assertEqual([*report], [*expected])
        self.assertAllClose(report, expected)

    def test_null_odds_above_the_threshold_are_no_answer(self):
        odds = {
            "city": 1.0,
            "rightly not": 0.0,
            "an article passed over": 1.5,
            "invention": 1.01,
            "article": 3.0,
        }
        report = evaluate_v2(GOLDS_V2, PREDICTIONS_V2, odds)
        # Exact 0, 1, 0, 1, 0 and F1 2/3, 1, 0, 1, 0: 1.0 is not above 1.0.
        self.assertAllClose(report["exact"], 40.0)
        self.assertAllClose(report["f1"], 100 * (8 / 3) / 5)
        self.assertAllClose(report["HasAns_f1"], 100 * (2 / 3) / 3)
        self.assertEqual(report["NoAns_exact"], 100.0)
        self.assertEqual(
            [*report][-4:],
            ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"],
        )
        # From 2 of 5: "" of NoAns adds nothing, then 2/3, -1, 0, 1.
        self.assertAllClose(report["best_f1"], 100 * (8 / 3) / 5)
        self.assertEqual(report["best_f1_thresh"], 1.0)
        # Exact: 2, 2, 1, 1, 2.
        self.assertEqual(report["best_exact"], 40.0)
        self.assertEqual(report["best_exact_thresh"], 0.0)
        none = evaluate_v2(GOLDS_V2, PREDICTIONS_V2, odds, threshold=-1.0)
        self.assertEqual((none["HasAns_f1"], none["NoAns_f1"]), (0.0, 100.0))
        # Without null odds each is 0.
        none = evaluate_v2(GOLDS_V2, PREDICTIONS_V2, threshold=-1.0)
        self.assertEqual((none["HasAns_f1"], none["NoAns_f1"]), (0.0, 100.0))

    def test_one_kind_of_question(self):
        report = evaluate_v2({"a": gold()}, {"a": ""})
        self.assertEqual(
            [*report],
            ["exact", "f1", "total", "NoAns_exact", "NoAns_f1", "NoAns_total"],
        )
        self.assertEqual(
            precision_recall_curves({"a": gold()}, {"a": ""}, {"a": 0}), {}
        )

    def test_what_cannot_be_evaluated(self):
        with self.assertRaisesRegex(InputError, "no questions"):
            evaluate_v2({}, {})
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
        self.assertAllClose([*found], (200 / 3, -2.0, 800 / 9, -2.0))
        self.assertEqual(found.best_f1_thresh, -2.0)
        curves = precision_recall_curves(golds, texts, odds)
        self.assertEqual([*curves], ["pr_exact", "pr_f1", "pr_oracle"])
        # Exact: recall 0, 1/2, 1/2; F1: 1/3, 5/6, 5/6; oracle: 1/2, 1, 1.
        areas = [curve.average_precision for curve in curves.values()]
        self.assertAllClose(areas, [1 / 4, 2 / 3 / 3 + 5 / 6 / 2, 1.0])


if __name__ == "__main__":
    tf.test.main()
