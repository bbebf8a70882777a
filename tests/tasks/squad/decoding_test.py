import importlib.util
import unittest

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.tasks.squad.decoding import (
    NO_SPAN_SCORE_DIFF,
    Decoder,
    align,
    text_or_null,
)
from bert_tf.tasks.squad.reading import Question
from bert_tf.tasks.squad.windows import QuestionFeaturizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer


class AlignTest(tf.test.TestCase):
    def assert_found(self, token_text, words, text, do_lower_case=True):
        start, end, failure = align(token_text, words, do_lower_case)
        self.assertEqual((words[start:end], failure), (text, ""))

    def assert_all_words(self, token_text, words, failure, do_lower_case=True):
        alignment = align(token_text, words, do_lower_case)
        self.assertEqual(alignment[:2], (0, len(words)))
        self.assertRegex(alignment.failure, failure)

    def test_found(self):
        for token_text, words, text in (
            ("steve smith", "Steve Smith's", "Steve Smith"),
            ("1895", "(1895-1943).", "1895"),
            ("1943", "(1895-1943).", "1943"),
            ("1895 - 1943", "(1895-1943).", "1895-1943"),
            ("$ 1 . 5", "of $1.5 .", "$1.5"),
            ("a b c", "a b c", "a b c"),
            ("japan", "Japanese", "Japan"),
            ("ese", "Japanese", "ese"),
            ("cafe beyonce", "«Café Beyoncé»", "Café Beyoncé"),
            ("istanbul", "İstanbul's", "İstanbul"),
            ("οδος", "(ΟΔΟΣ)", "ΟΔΟΣ"),
            ("ﬁrst", "“ﬁrst”", "ﬁrst"),
            ("北 京", "在北京的", "北京"),
            ("京 2008", "(北京2008年)", "京2008"),
        ):
            self.assert_found(token_text, words, text)
        self.assert_found("Café", "(Café)", "Café", do_lower_case=False)
        # The original takes the first of two: these could be the tokens of the last.
        self.assertEqual(align("an", "Banana", True), (1, 3, ""))

    @unittest.skipUnless(importlib.util.find_spec("icu4py"), "the extra `segmenter`")
    def test_words_without_spaces(self):
        words = "ภาษาไทยเป็นภาษา"
        self.assertEqual(align("ไทย เป็น", words, False, "icu"), (4, 11, ""))
        self.assertEqual(align("ไทย เป็น", words, False)[:2], (0, 15))

    def test_where_characters_are_not_one_to_one_it_is_all_words(self):
        others = "other characters"
        # A combining accent is removed.
        self.assert_all_words("cafe", "(cafe\u0301)", others)
        self.assert_found("cafe\u0301", "(cafe\u0301)", "cafe\u0301", False)
        # A space that does not separate the original's words, and a soft hyphen.
        self.assert_all_words("10 km", "(10\u00a0km)", others)
        self.assert_all_words("cooperate", "co\u00adoperate.", others)
        # The syllable is three letters once it is decomposed.
        self.assert_all_words("\u1112\u1161\u11ab", "(한)", others)
        self.assert_found("한", "(한)", "한", do_lower_case=False)

    def test_tokens_that_are_not_in_the_words(self):
        self.assert_all_words("[UNK]", "(🜁)", "not in")
        self.assert_all_words("beyonce", "Beyoncé", "not in", do_lower_case=False)
        self.assert_all_words("", "all", "not in")


TOKENS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] who ? anna met bob ##by in paris . ( ) 18 ##95 cafe"
    " 北 京 a b c d e f g h 10 km ##an ban"
)
TOKENIZER = WordPieceTokenizer(Vocabulary(TOKENS.split(" ")))
# Of 2 : 1 and so on, as the difference of two scores.
LOG_2, LOG_3 = np.log(2.0), np.log(3.0)


def features_of(context, max_seq_length=32, doc_stride=128):
    """[CLS] who ? [SEP] context [SEP]: the paragraph's tokens begin at 4."""
    sizes = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    sizes["max_query_length"] = 4
    featurizer = QuestionFeaturizer(TOKENIZER, for_training=False, **sizes)
    question = Question(question_id="q1", text="Who?", context=context)
    (features,) = featurizer([question])
    return features


def scores(length=32, default=-50, **by_place):
    """Scores [length], all low but those given as p4=1.5."""
    logits = np.full(length, default, np.float32)
    for place, score in by_place.items():
        logits[int(place[1:])] = score
    return logits


def decode(features, starts, ends, **settings):
    if isinstance(starts, np.ndarray):
        starts, ends = [starts], [ends]
    return Decoder(TOKENIZER, **settings)(features, starts, ends)


def texts(decoded):
    return [entry.text for entry in decoded.n_best]


class NBestTest(tf.test.TestCase):
    # anna 4, met 5, bob 6, ##by 7, in 8, paris 9, . 10, [SEP] 11
    context = "Anna met\nBobby in Paris."

    def test_spans_by_the_sum_of_their_scores(self):
        starts, ends = scores(p4=LOG_3, p6=0), scores(p7=LOG_2, p9=0)
        decoded = decode(features_of(self.context), starts, ends, n_best_size=2)
        # 6 : 3 : 2 : 1, of which two are kept; and Anna ... Bobby has a line end in it.
        self.assertEqual(texts(decoded), ["Anna met Bobby", "Anna met Bobby in Paris"])
        first, second = decoded.n_best
        self.assertAllClose(first[1:4], [2 / 3, LOG_3, LOG_2])
        self.assertAllClose(second[1:4], [1 / 3, LOG_3, 0])
        self.assertEqual([first.span, second.span], [(0, 14), (0, 23)])
        self.assertEqual(decoded.best_text, "Anna met Bobby")
        self.assertIsNone(decoded.score_diff)

    def test_only_spans_of_the_paragraph(self):
        # Of the seven highest, two starts are the paragraph's, and three ends.
        starts = scores(p0=9, p1=8, p3=7, p11=6, p30=5, p5=4, p6=3)
        ends = scores(p0=9, p2=8, p4=7, p11=6, p31=5, p9=4, p7=3)
        settings = {"n_best_size": 7, "max_answer_length": 4}
        decoded = decode(features_of(self.context), starts, ends, **settings)
        self.assertEqual(texts(decoded), ["met Bobby", "Bobby in Paris", "Bobby"])

    def test_the_longest_answer(self):
        starts, ends = scores(p4=1), scores(p9=9, p8=8)
        for length, text in ((6, "Anna met Bobby in Paris"), (5, "Anna met Bobby in")):
            settings = {"n_best_size": 2, "max_answer_length": length}
            decoded = decode(features_of(self.context), starts, ends, **settings)
            self.assertEqual(texts(decoded)[0], text)

    def test_what_takes_part_in_the_highest_falls_out_after(self):
        # The two highest starts are padding's: nothing is left, as in the original.
        starts = scores(48, p40=3, p41=2, p4=1)
        ends = scores(48, p4=1)
        decoded = decode(features_of(self.context), starts, ends, n_best_size=2)
        self.assertEqual(decoded.n_best, [("empty", 1.0, 0.0, 0.0, None)])
        self.assertEqual(decoded.best_text, "empty")
        decoded = decode(features_of(self.context), starts, ends, n_best_size=3)
        self.assertEqual(texts(decoded)[0], "Anna")

    def test_ties_keep_the_order_of_starts_then_ends(self):
        # Starts 4 and 6, of the same score, then 5; ends 9, then 7 and 8, of the same.
        starts, ends = scores(p4=1, p6=1, p5=0), scores(p9=1, p7=0, p8=0)
        decoded = decode(features_of(self.context), starts, ends, n_best_size=3)
        expected = ["Anna met Bobby in Paris", "Bobby in Paris", "Anna met Bobby"]
        self.assertEqual(texts(decoded), expected)
        # All equal: the first n_best_size places are taken, [CLS] and the question too.
        flat = np.zeros(32, np.float32)
        decoded = decode(features_of(self.context), flat, flat, n_best_size=6)
        self.assertEqual(texts(decoded), ["Anna", "Anna met", "met"])
        self.assertAllClose([one.probability for one in decoded.n_best], [1 / 3] * 3)

    def test_equal_texts_count_once_with_the_higher_score(self):
        # a 4, b 5, a 6
        starts, ends = scores(p4=0, p6=LOG_2), scores(p4=LOG_2, p6=LOG_2)
        decoded = decode(features_of("a b a"), starts, ends, n_best_size=2)
        self.assertEqual(texts(decoded), ["a", "a b a"])
        self.assertEqual(decoded.n_best[0].span, (4, 5))
        probabilities = [entry.probability for entry in decoded.n_best]
        self.assertAllClose(probabilities, [2 / 3, 1 / 3])

    def test_a_start_counts_where_it_has_most_context(self):
        # Windows of 4 tokens, 2 apart: a b c d, c d e f, e f g h. Of c the first one
        # has a token on either side, of d the second one.
        features = features_of("a b c d e f g h", max_seq_length=9, doc_stride=2)
        self.assertLen(features.windows, 3)
        # In the second one c is the best start, and is not taken for it.
        low = scores(9)
        starts = [scores(9, p6=1), scores(9, p4=5, p5=2), low]
        ends = [scores(9, p6=1), scores(9, p5=3), scores(9, p4=4)]
        decoded = decode(features, starts, ends, n_best_size=2)
        self.assertEqual(texts(decoded), ["d", "c"])
        self.assertEqual([e.start_logit for e in decoded.n_best], [2, 1])
        self.assertEqual([e.span for e in decoded.n_best], [(6, 7), (4, 5)])


SQUAD_2 = {"version_2_with_negative": True, "n_best_size": 2}


class NullAnswerTest(tf.test.TestCase):
    def test_the_least_likely_window_says_the_score(self):
        features = features_of("a b c d e f g h", max_seq_length=9, doc_stride=2)
        starts = [scores(9, p0=3, p5=1), scores(9, p0=0.5), scores(9, p0=2)]
        ends = [scores(9, p0=3, p5=0), scores(9, p0=1), scores(9, p0=-0.5)]
        decoded = decode(features, starts, ends, **SQUAD_2)
        # 6, 1.5 and 1.5, of which the first is taken; b has 1.
        self.assertEqual(texts(decoded), ["", "b"])
        self.assertEqual(decoded.n_best[0][2:], (0.5, 1.0, None))
        self.assertEqual(decoded.best_text, "b")
        self.assertEqual(decoded.score_diff, 0.5)
        self.assertEqual(text_or_null(*decoded[1:], 0.0), "")
        self.assertEqual(text_or_null(*decoded[1:], 0.49), "")
        self.assertEqual(text_or_null(*decoded[1:], 0.5), "b")

    def test_no_answer_is_always_among_the_n_best(self):
        starts, ends = scores(p0=-9, p4=1, p5=0), scores(p0=-9, p5=0, p6=0)
        decoded = decode(features_of("a b c"), starts, ends, **SQUAD_2)
        self.assertEqual(texts(decoded), ["a b", "a b c", ""])
        self.assertAllClose(sum(entry.probability for entry in decoded.n_best), 1)
        self.assertEqual(decoded.score_diff, -19)

    def test_at_the_same_score_no_answer_comes_last(self):
        logits = scores(p0=1, p4=1)
        decoded = decode(features_of("a"), logits, logits, **SQUAD_2)
        self.assertEqual(texts(decoded), ["a", ""])
        self.assertEqual(decoded.score_diff, 0)

    def test_one_n_best(self):
        settings = SQUAD_2 | {"n_best_size": 1}
        starts, ends = scores(p0=1, p4=2), scores(p4=2)
        decoded = decode(features_of("a b"), starts, ends, **settings)
        self.assertEqual(texts(decoded), ["a", ""])
        self.assertEqual(decoded.score_diff, 1 - 50 - 4)
        # The original fails here.
        decoded = decode(features_of("a b"), scores(p0=1), scores(p0=1), **settings)
        self.assertEqual(texts(decoded), [""])
        self.assertEqual(decoded.score_diff, NO_SPAN_SCORE_DIFF)

    def test_no_span_at_all(self):
        features = features_of("a b")
        decoded = decode(features, scores(p0=3, p1=2), scores(p0=3, p1=2), **SQUAD_2)
        self.assertEqual(decoded.n_best, [("", 1.0, 3.0, 3.0, None)])
        self.assertEqual(decoded.best_text, "")
        self.assertEqual(decoded.score_diff, 1e6)
        self.assertEqual(text_or_null(*decoded[1:], 1e9), "")


class EdgesTest(tf.test.TestCase):
    def test_a_paragraph_without_tokens(self):
        for context in ("", " \n ", "\u00a0"):
            features = features_of(context)
            decoded = decode(features, [], [])
            self.assertEqual(decoded, ([("empty", 1.0, 0.0, 0.0, None)], "empty", None))
            decoded = decode(features, [], [], version_2_with_negative=True)
            self.assertEqual(decoded, ([("", 1.0, 0.0, 0.0, None)], "", 1e6))


class AnswerTextTest(tf.test.TestCase):
    def both(self, context, first, last):
        """The answer's text and characters, by alignment and by offsets."""
        features = features_of(context)
        answers = []
        for answer_text in ("alignment", "offsets"):
            starts, ends = (scores(**{f"p{4 + x}": 9}) for x in (first, last))
            decoded = decode(features, starts, ends, answer_text=answer_text)
            text, (start, end) = decoded.best_text, decoded.n_best[0].span
            if answer_text == "offsets":
                self.assertEqual(text, context[start:end])
            else:
                self.assertEqual(text.split(), context[start:end].split())
            answers.append((text, (start, end)))
        return answers

    def test_the_same_where_characters_are_one_to_one(self):
        for context, tokens, expected in (
            ("in (1895) .", (2, 3), ("1895", (4, 8))),
            ("in «Café» .", (2, 2), ("Café", (4, 8))),
            ("a 在北京的 b", (2, 3), ("北京", (3, 5))),
            ("bobby", (0, 0), ("bob", (0, 3))),
            ("  a\u202fb  c", (1, 1), ("b", (4, 5))),
        ):
            aligned, cut = self.both(context, *tokens)
            self.assertEqual(aligned, expected, context)
            self.assertEqual(cut, expected, context)

    def test_offsets_where_the_alignment_fails(self):
        for context, tokens, aligned_text, cut_text in (
            ("in (10\u00a0km) .", (2, 3), "(10\u00a0km)", "10\u00a0km"),
            ("in (cafe\u0301) .", (2, 2), "(cafe\u0301)", "cafe\u0301"),
            ("in (🜁) .", (2, 2), "(🜁)", "🜁"),
            ("a (b\u00adc) .", (0, 1), "a (b\u00adc)", "a ("),
        ):
            aligned, cut = self.both(context, *tokens)
            self.assertEqual((aligned[0], cut[0]), (aligned_text, cut_text))

    def test_offsets_know_which_of_equal_pieces(self):
        # ban ##an ##an: the last two are "an" both, and the first "an" is in "ban".
        aligned, cut = self.both("( Banan )", 2, 2)
        self.assertEqual(aligned, ("an", (3, 5)))
        self.assertEqual(cut, ("an", (5, 7)))

    def test_failures_are_logged_if_asked(self):
        features = features_of("(10\u00a0km)")
        logits = scores(p5=1), scores(p6=1)
        with self.assertLogs(logging.get_absl_logger(), "INFO") as logs:
            decode(features, *logits, n_best_size=1, verbose_logging=True)
        self.assertLen(logs.output, 1)
        self.assertRegex(
            logs.output[0], r"Question q1: answer '10 km' .*'\(10\\xa0km\)'"
        )
        with self.assertNoLogs(logging.get_absl_logger(), "INFO"):
            decode(features, *logits, n_best_size=1)
