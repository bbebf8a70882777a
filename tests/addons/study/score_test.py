import contextlib
import functools
import io
import math

import numpy as np
import tensorflow as tf

from bert_tf.addons.study import score
from bert_tf.addons.study.score import (
    SentenceScore,
    SentenceScorer,
    corpus_pseudo_perplexity,
)
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.addons.serving.fill_mask_test import TOKENS, biased_model
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", "d"]
# The model has more rows than the vocabulary: nothing may be given to them.
assert len(PIECES) < toy.V


class PseudoPerplexityTest(tf.test.TestCase):
    def test_numbers_worked_by_hand(self):
        # 1/2 and 1/8: a likelihood of 1/16, of two tokens; its root is 1/4.
        one = SentenceScore(["a", "b"], [math.log(0.5), math.log(0.125)])
        self.assertAllClose(one.pseudo_log_likelihood, math.log(1 / 16))
        self.assertAllClose(one.pseudo_perplexity, 4.0)
        # With one of 1/32: 2 ** -9 of three tokens.
        other = SentenceScore(["d"], [math.log(1 / 32)])
        self.assertAllClose(corpus_pseudo_perplexity([one, other]), 8.0)
        # No more than a number can be.
        self.assertEqual(SentenceScore(["d"], [-1e6]).pseudo_perplexity, math.inf)


class SentenceScorerTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = BertPretrainer(toy.CONFIG)
        randomize(cls.model)
        cls.tokenizer = WordPieceTokenizer(Vocabulary(PIECES))

    def scorer(self, **options):
        return SentenceScorer(self.model, self.tokenizer, **options)

    def outputs(self, ids, position, segments=None):
        """The model's logits of one row, without padding."""
        return {
            name: value.numpy()[0].astype(np.float64)
            for name, value in self.model(
                {
                    "input_ids": np.array([ids], np.int32),
                    "input_mask": np.ones([1, len(ids)], np.int32),
                    "segment_ids": np.array([segments or [0] * len(ids)], np.int32),
                    "masked_lm_positions": np.array([[position]], np.int32),
                }
            ).items()
        }

    def test_each_token_is_masked_in_turn(self):
        texts = {"a bc d": [5, 6, 7, 8], "d": [8], "d d a a b": [8, 8, 5, 5, 6]}
        for batch_size in (1, 3, 32):
            scores = list(self.scorer(batch_size=batch_size).sentences(texts))
            for found, (text, ids) in zip(scores, texts.items(), strict=True):
                self.assertEqual(found.tokens, [PIECES[i] for i in ids], text)
                expected = []
                for place, token in enumerate(ids, start=1):
                    row = [2, *ids, 3]
                    row[place] = 4
                    logits = self.outputs(row, place)["masked_lm_logits"][0]
                    weights = np.exp(logits[: len(PIECES)])
                    expected.append(math.log(weights[token] / weights.sum()))
                self.assertAllClose(found.log_probabilities, expected, 1e-4, 1e-4)

    def test_pairs(self):
        expected = []
        for ids, segments in (
            ([2, 5, 3, 6, 7, 3], [0, 0, 0, 1, 1, 1]),
            ([2, 8, 5, 3, 8, 3], [0, 0, 0, 0, 1, 1]),
        ):
            no, yes = self.outputs(ids, 0, segments)["next_sentence_logits"]
            expected.append(1 / (1 + math.exp(yes - no)))
        pairs = [("a", "bc"), ("d a", "d")]
        for batch_size in (1, 2):
            scores = list(self.scorer(batch_size=batch_size).pairs(pairs))
            self.assertAllClose(scores, expected, 1e-4, 1e-4)

    def test_what_cannot_be_scored(self):
        scorer = self.scorer()
        for text, message in ((" ", "no token"), ("a " * 15, "17 tokens")):
            with self.assertRaisesRegex(InputError, message):
                list(scorer.sentences([text]))
        without = BertPretrainer(toy.CONFIG, next_sentence=False)
        with self.assertRaisesRegex(InputError, "no next sentence head"):
            list(SentenceScorer(without, self.tokenizer).pairs([("a", "d")]))


class ScoreTest(FolderCase):
    def setUp(self):
        super().setUp()
        # It finds "cat" three times as likely as "sat", whatever stands round them.
        self.folder = runs.save(self.path("run"), biased_model(), tokens=TOKENS)

    def printed(self, *arguments):
        return printed(score, f"--checkpoint={self.folder}", *arguments).splitlines()

    def test_lines(self):
        # 4/3; its square root times that of 4: 2 * sqrt(4/3); of all three 16 ** (1/3)
        # times 3 ** (-2/3).
        lines = self.printed("Cat", "cat sat", "--tokens")
        self.assertEqual(
            [line.split() for line in lines],
            [
                ["1.333", "Cat"],
                ["-0.288", "cat"],
                ["2.309", "cat", "sat"],
                ["-0.288", "cat"],
                ["-1.386", "sat"],
                ["1.923", "all", "2", "sentences", "together"],
            ],
        )

    def test_what_cannot_be_scored_is_said_before_anything_else(self):
        with self.assertRaisesRegex(InputError, "Give a sentence"):
            self.printed()
        path = self.write("lines", "sat\n\n" + "cat " * 40 + "\n")
        parse = functools.partial(cli.parse, score.run)
        checkpoint = f"--checkpoint={self.folder}"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            with self.assertRaisesRegex(InputError, f"^{path}:3: .* 42 tokens"):
                score.run(parse([checkpoint, f"--input_file={path}"]))
            with self.assertRaisesRegex(InputError, "^There is no token"):
                score.run(parse([checkpoint, "sat", "cat |||  "]))
        self.assertEqual(out.getvalue(), "")
