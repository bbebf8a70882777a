import os
import random
import sys
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf.addons.teaching import quickstart
from bert_tf.base.errors import InputError


class SentencesTest(tf.test.TestCase):
    def test_prose_is_kept_and_cut_at_sentence_ends(self):
        for text, sentences in (
            (
                "This is the first of them.  And (here) comes the\n"
                "second one! Is this a third?\n\nA new paragraph starts here: it ends.",
                [
                    "This is the first of them.",
                    "And (here) comes the second one!",
                    "Is this a third?",
                    "A new paragraph starts here: it ends.",
                ],
            ),
            # Markup is taken away.
            (
                "The *first* argument is ``a`` :class:`name` here.",
                ["The first argument is a name here."],
            ),
            # Code, grammars, tables and fragments are left out.
            (">>> print('this is no prose at all')", []),
            ("assignment_stmt ::= this is a grammar rule of some words.", []),
            ("| this | is | a | table of words.", []),
            ("Too short this.", []),
            ("no capital letter begins this sentence here.", []),
            ("It has no end and so it is a heading", []),
            ("See x = y[0] + f(z) ** 2 or a.b.c, d_e_f, g(h).", []),
        ):
            self.assertEqual(quickstart.sentences_of(text), sentences)


class DocumentsTest(tf.test.TestCase):
    def test_python_brings_more_than_a_megabyte(self):
        names, size = set(), 0
        for document in quickstart.read_documents():
            names.add(document.name)
            size += sum(map(len, document.sentences))
            if size > 1_000_000:
                break
        self.assertContainsSubset({"topic assignment", "argparse.py"}, names)
        self.assertGreater(size, 1_000_000)


class WordOrderTest(tf.test.TestCase):
    def test_each_is_there_as_written_and_shuffled(self):
        sentences = [
            f"Number {word}, of them: is written 'as' a long sentence."
            for word in ("alpha", "beta", "gamma", "delta")
        ]
        rows = quickstart.examples(quickstart.usable_words(sentences), random.Random(0))
        written = {
            f"number {word} of them is written as a long sentence"
            for word in ("alpha", "beta", "gamma", "delta")
        }
        self.assertLen(rows, 8)
        self.assertEqual(
            {text for label, text in rows if label == quickstart.AS_WRITTEN}, written
        )
        shuffled = [text for label, text in rows if label == quickstart.SHUFFLED]
        self.assertNoCommonElements(shuffled, written)
        self.assertCountEqual(
            [sorted(text.split()) for text in shuffled],
            [sorted(text.split()) for text in written],
        )

    def test_short_long_and_repeated_sentences_are_left_out(self):
        self.assertEqual(
            quickstart.usable_words(
                ["Only four words here.", "word " * 30, "Go go go go go go.",
                 *["One, two three four five."] * 3, "one two three four five"]
            ),
            [["one", "two", "three", "four", "five"]],
        )  # fmt: skip


class StepsTest(tf.test.TestCase):
    def settings(self, **changes):
        values = {
            "output_dir": self.get_temp_dir(),
            "random_seed": 1,
            "vocab_size": 2,
            "num_train_steps": 3,
            "num_finetune_examples": 4,
            "num_finetune_seeds": 5,
        }
        return quickstart.QuickstartOptions(**(values | changes))

    def test_other_settings_in_the_same_folder_are_refused(self):
        quickstart.keep_settings(self.settings())
        quickstart.keep_settings(self.settings())
        with self.assertRaisesRegex(InputError, "`num_train_steps=3` there, 30"):
            quickstart.keep_settings(self.settings(num_train_steps=30))
        with (
            mock.patch.object(quickstart, "NSP_LABELS", "original"),
            self.assertRaisesRegex(InputError, "`nsp_labels=exact` there, original"),
        ):
            quickstart.keep_settings(self.settings())

    def test_accuracies_next_to_those_of_a_constant_answer(self):
        scores = {
            "masked_lm_accuracy": 0.25,
            "masked_lm_majority": 0.05,
            "next_sentence_majority": 0.5,
        }
        # Of 2240 even pairs one standard error is sqrt(0.25 / 2240), 1.056 %.
        text = quickstart.held_out({**scores, "next_sentence_accuracy": 0.533})
        self.assertRegex(text, r"LM +25.0% +5.0%\n *next sentence +53.3% +50.0%$")
        text = quickstart.held_out({**scores, "next_sentence_accuracy": 0.53})
        self.assertIn("the next sentence is not learnt yet", text)

    def test_table(self):
        text = quickstart.table_steps(
            {"pre-trained": [0.7, 0.8, 0.9], "from scratch": [0.5]}, self.settings()
        )
        self.assertIn("80.0%      10.0%   70.0%  80.0%  90.0%", text)
        self.assertIn("50.0%       0.0%   50.0%", text)


@pytest.mark.slow
class WholeQuickstartTest(tf.test.TestCase):
    def test_small(self):
        settings = quickstart.QuickstartOptions(
            output_dir=self.get_temp_dir(),
            random_seed=1,
            vocab_size=1000,
            num_train_steps=4,
            num_finetune_examples=64,
            num_finetune_seeds=1,
        )
        with self.captureWritesToStream(sys.stdout) as printed:
            quickstart.run_all(settings)
        for step in ("[1/7]", "[7/7]", "pre-trained", "from scratch", "Try your own"):
            self.assertIn(step, printed.contents())
        for name in ("vocab.txt", "pretraining", "word_order"):
            self.assertTrue(os.path.exists(settings.path(name)))
        first = printed.contents()
        # Nothing is trained again.
        with (
            self.captureWritesToStream(sys.stdout) as printed,
            mock.patch.object(quickstart.run_pretraining, "run", side_effect=KeyError),
            mock.patch.object(quickstart.run_classifier, "run", side_effect=KeyError),
        ):
            quickstart.run_all(settings)
        without_times = [
            [line for line in text.splitlines() if not line.endswith(" s")]
            for text in (first, printed.contents())
        ]
        self.assertEqual(*without_times)
