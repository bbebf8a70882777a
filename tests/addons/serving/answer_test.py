import dataclasses
import io
import math
import sys
import tempfile
import types
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.addons.serving import answer
from bert_tf.addons.serving.answerer import Answerer
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion.reading import read_reading
from bert_tf.tasks.squad.decoding import NBestEntry
from bert_tf.text.documents import sentence_splitter
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.script_case import FolderCase, printed
from tests.training import toy

TOKENS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "won", "?", "the", "denver"),
    *("broncos", "beat", "carolina", ".", "it", "rained", "yet", "in", "2016"),
]
CONTEXT = "It rained. The Denver Bróncos beat Carolina. It rained in 2016."
QUESTION = "Who won?"
ANSWER = "Denver Bróncos"
SPAN = (15, 29)  # of ANSWER in CONTEXT, counted by hand


class ModelOfTokens:
    """Stands for a model: a token's scores hang on the token alone."""

    def __init__(self, starts, ends, num_positions=512):
        self.bert_config = dataclasses.replace(
            toy.CONFIG, max_position_embeddings=num_positions
        )
        self.input = {
            name: tf.TensorSpec([None, None], tf.int32)
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        self._tables = {"start_logits": starts, "end_logits": ends}
        self.shapes = []

    def __call__(self, inputs, training):
        assert not training
        ids = tf.numpy_function(self._note, [inputs["input_ids"]], tf.int32)
        outputs = {}
        for name, scores in self._tables.items():
            table = np.full(len(TOKENS), -10.0, np.float32)
            for token, score in scores.items():
                table[TOKENS.index(token)] = score
            outputs[name] = tf.gather(table, ids)
        return outputs

    def _note(self, ids):
        self.shapes.append(ids.shape)
        return ids


def tokenizer():
    return WordPieceTokenizer(Vocabulary(TOKENS))


def answers(model, context=CONTEXT, **options):
    (found,) = Answerer(model, tokenizer(), **options)([QUESTION], context)
    return found


class AnswererTest(tf.test.TestCase):
    def test_answers_are_cut_from_the_text_with_their_probabilities(self):
        model = ModelOfTokens(
            {"denver": 1.0, "carolina": 0.0}, {"broncos": math.log(3), "carolina": 0.0}
        )
        found = answers(model, n_best_size=2)
        # exp(1 + log 3) to exp(1), and the third pair is not among the best two.
        self.assertEqual(
            [(entry.text, entry.span) for entry in found],
            [(ANSWER, SPAN), ("Denver Bróncos beat Carolina", (15, 43))],
        )
        self.assertAllClose([entry.probability for entry in found], [0.75, 0.25])

    def test_no_answer_comes_first_above_the_threshold(self):
        model = ModelOfTokens(
            {"denver": 1.0, "[CLS]": 0.5}, {"broncos": math.log(3), "[CLS]": 0.5}
        )
        # "No answer" scores 1, the answer 1 + log 3: the difference is -1.0986.
        settings = {"n_best_size": 1, "version_2_with_negative": True}
        for threshold, expected in (
            (0.0, [(ANSWER, 0.75), ("", 0.25)]),
            (-1.09, [(ANSWER, 0.75), ("", 0.25)]),
            (-1.11, [("", 0.25), (ANSWER, 0.75)]),
        ):
            found = answers(model, null_score_diff_threshold=threshold, **settings)
            texts, probabilities = zip(*expected, strict=True)
            self.assertEqual([entry.text for entry in found], [*texts])
            self.assertAllClose([e.probability for e in found], probabilities)
            self.assertEqual([e.span for e in found if not e.text], [None])

    def test_a_long_text_is_read_in_windows(self):
        before = "It rained. " * 40
        context = f"{before}The Denver  Bróncos\nbeat Carolina. {before}"
        model = ModelOfTokens({"denver": 5.0}, {"broncos": 5.0})
        lengths = {"max_seq_length": 24, "doc_stride": 8, "max_query_length": 4}
        start = len(before) + 4
        # 246 tokens, a window of 18 every 8: 30 windows. With the question and the
        # special tokens 24.
        for batch_size, shapes in (
            (1, [(1, 24)] * 30),
            (3, [(3, 24)] * 10),
            (100, [(30, 24)]),
        ):
            model.shapes.clear()
            found = answers(model, context, batch_size=batch_size, **lengths)
            self.assertEqual(found[0].text, "Denver  Bróncos")
            self.assertEqual(found[0].span, (start, start + 15))
            # The first one is the graph's first run, on a token.
            self.assertEqual(model.shapes, [(1, 1), *shapes])

    def test_a_text_without_a_span_has_no_answer(self):
        # The best start and the best end are in the question.
        model = ModelOfTokens({"who": 5.0}, {"won": 5.0})
        (found,) = answers(model, n_best_size=1)
        self.assertIsNone(found.span)

    def test_what_cannot_be_answered_is_refused(self):
        model = ModelOfTokens({}, {}, num_positions=100)
        with self.assertRaisesRegex(InputError, "=384` must not exceed .*100"):
            Answerer(model, tokenizer())
        answerer = Answerer(model, tokenizer(), max_seq_length=100)
        with self.assertRaisesRegex(InputError, "Question 2 is empty"):
            list(answerer([QUESTION, " "], CONTEXT))
        with self.assertRaisesRegex(InputError, "has no word"):
            list(answerer([QUESTION], "\u200b \n"))


class SentenceTest(tf.test.TestCase):
    def test_the_sentence_of_an_answer(self):
        sentence = "The Denver Bróncos beat Carolina."
        lines = "No end\n\n  It rained. Denver won \r\nnot yet. It rained.\n"
        for context, said, language, expected in (
            (CONTEXT, ANSWER, "en", sentence),
            (CONTEXT, "The", "en", sentence),
            (CONTEXT, "Carolina.", "en", sentence),
            (CONTEXT, sentence, "en", sentence),
            (CONTEXT, "2016", "en", "It rained in 2016."),
            # Lines are paragraphs.
            (lines, "Denver", "en", "Denver won"),
            (lines, "yet", "en", "not yet."),
            (lines, "end", "en", "No end"),
            # An answer in two sentences has both.
            ("It rained. Yet it won. In May.", "won. In", "en", "Yet it won. In May."),
            ("Rain.\nWho won\nit? Rain.", "won\nit", "en", "Who won\nit?"),
            # Without a language a line is a sentence.
            ("One. Two.\nThree. Four.\n", "Three", "", "Three. Four."),
            ("雨が降った。東京が勝った。", "東京", "ja", "東京が勝った。"),
            ("Wide\u3000. It rained. Denver won.", "Denver", "en", "Denver won."),
        ):
            start = context.index(said)
            first, last = answer.sentence_round(
                context, (start, start + len(said)), sentence_splitter(language)
            )
            self.assertEqual(context[first:last], expected)


class ShowTest(tf.test.TestCase):
    def test_what_is_broken_over_lines_is_shown_on_one(self):
        context = "The Denver\n  Bróncos\twon."
        entries = [
            NBestEntry(context[4:20], 0.75, 1.0, 1.0, (4, 20)),
            NBestEntry("", 0.051, 0.0, 0.0, None),
        ]
        self.assertEqual(
            answer.show(QUESTION, entries, context, lambda line: (line,)).split("\n"),
            [
                QUESTION,
                "   75.00%  Denver Bróncos",
                "           The **Denver Bróncos** won.",
                "    5.10%  no answer",
            ],
        )


class OptionsTest(FolderCase):
    def options(self, *arguments, run=None, threshold=None):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        if run is not None:
            self.write(f"{folder}/flags.json", run)
        source = types.SimpleNamespace(
            folder=folder,
            reading=read_reading(folder),
            require_config=lambda: toy.CONFIG,
        )
        values = cli.parse(
            answer.run, ["--checkpoint=C", "--context_file=F", *arguments]
        )
        if threshold is not None:
            found = {"null_score_diff_threshold": threshold}
            self.write(f"{folder}/null_threshold.json", found)
        return answer.options_of(values.as_flags(), source)

    def test_a_length_within_the_models_positions(self):
        options = self.options()
        self.assertEqual((options["max_seq_length"], options["doc_stride"]), (16, 128))
        self.assertEqual(options["null_score_diff_threshold"], 0.0)

    def test_the_run_goes_before_defaults_and_the_user_before_the_run(self):
        run = {
            "doc_stride": 64,
            "max_seq_length": 12,
            "n_best_size": 5,
            "version_2_with_negative": True,
            "null_score_diff_threshold": -1.0,
        }
        options = self.options("--n_best_size=7", run=run)
        self.assertEqual(options | run | {"n_best_size": 7}, options)
        options = self.options("--noversion_2_with_negative", run=run)
        self.assertFalse(options["version_2_with_negative"])
        # Thresholds: the user's, then the one that was found, then the run's.
        name = "null_score_diff_threshold"
        self.assertEqual(self.options(run=run, threshold=-3.5)[name], -3.5)
        given = "--null_score_diff_threshold=2"
        self.assertEqual(self.options(given, run=run, threshold=-3.5)[name], 2.0)
        # Found for it, so it may say that there is no answer.
        self.assertTrue(self.options(threshold=-3.5)["version_2_with_negative"])

    def test_a_threshold_for_a_model_that_always_answers_is_refused(self):
        with self.assertRaisesRegex(InputError, "give --version_2_with_negative too"):
            self.options("--null_score_diff_threshold=2")


class RefusalTest(FolderCase):
    def printed(self, *arguments, standard_input=b""):
        stdin = io.TextIOWrapper(io.BytesIO(standard_input))
        with mock.patch.object(sys, "stdin", stdin):
            return printed(answer, *arguments)

    def test_what_is_missing_is_said_before_anything_is_loaded(self):
        empty = self.write("empty.txt", " \n")
        for arguments, message, standard_input in (
            (["--context_file=F"], "Give a question", b""),
            (["--context_file=F", " "], "Give a question", b""),
            (["--context_file=nowhere", "Who?"], "No such context file: nowhere", b""),
            ([f"--context_file={empty}", "Who?"], "no text to find answers in", b""),
            (["--context_file=-", "Who?"], "=-: no text to find", b""),
            (["--context_file=-", "Who?"], "Standard input:1: not UTF-8", b"a\xff"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.printed(
                    "--checkpoint=nowhere", *arguments, standard_input=standard_input
                )
