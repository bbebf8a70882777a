import os
import sys
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.quickstart import steps


class ProgressTest(tf.test.TestCase):
    def settings(self, **changes):
        values = {
            "output_dir": self.get_temp_dir(),
            "random_seed": 1,
            "vocab_size": 2,
            "num_train_steps": 3,
            "num_finetune_examples": 4,
            "num_finetune_seeds": 5,
        }
        return steps.Settings(**(values | changes))

    def test_a_step_is_made_once_and_remembered(self):
        made = []

        def make():
            made.append(1)
            return {"result": 7}

        for _ in range(2):
            progress = steps.Progress(self.settings(), 1)
            self.assertEqual(progress.step("A step", make), {"result": 7})
        self.assertLen(made, 1)
        self.assertFalse(progress.ran_any)

    def test_a_step_that_fails_is_made_again(self):
        def fail():
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            steps.Progress(self.settings(), 1).step("A step", fail)
        progress = steps.Progress(self.settings(), 1)
        self.assertEqual(progress.step("A step", lambda: 8), 8)

    def test_other_settings_in_the_same_folder_are_refused(self):
        steps.Progress(self.settings(), 1).step("A step", lambda: 1)
        with self.assertRaisesRegex(InputError, "--num_train_steps=3, not 30"):
            steps.Progress(self.settings(num_train_steps=30), 1)
        with (
            mock.patch.object(steps, "NSP_LABELS", "original"),
            self.assertRaisesRegex(InputError, "--nsp_labels=exact, not original"),
        ):
            steps.Progress(self.settings(), 1)

    def test_accuracies_next_to_those_of_a_constant_answer(self):
        scores = {
            "masked_lm_accuracy": 0.25,
            "masked_lm_majority": 0.05,
            "next_sentence_majority": 0.5,
        }
        # Of 2240 even pairs one standard error is sqrt(0.25 / 2240), 1.056 %.
        text = steps.held_out({**scores, "next_sentence_accuracy": 0.533})
        self.assertRegex(text, r"LM +25.0% +5.0%\n *next sentence +53.3% +50.0%$")
        text = steps.held_out({**scores, "next_sentence_accuracy": 0.53})
        self.assertIn("the next sentence is not learnt yet", text)

    def test_table(self):
        text = steps.table(
            {"pre-trained": [0.7, 0.8, 0.9], "from scratch": [0.5]}, self.settings()
        )
        self.assertIn("80.0%      10.0%   70.0%  80.0%  90.0%", text)
        self.assertIn("50.0%       0.0%   50.0%", text)


@pytest.mark.slow
class WholeQuickstartTest(tf.test.TestCase):
    def test_small(self):
        settings = steps.Settings(
            output_dir=self.get_temp_dir(),
            random_seed=1,
            vocab_size=1000,
            num_train_steps=4,
            num_finetune_examples=64,
            num_finetune_seeds=1,
        )
        with self.captureWritesToStream(sys.stdout) as printed:
            steps.run_all(settings)
        for step in ("[1/7]", "[7/7]", "pre-trained", "from scratch", "Try your own"):
            self.assertIn(step, printed.contents())
        for name in ("vocab.txt", "pretraining", "word_order"):
            self.assertTrue(os.path.exists(settings.path(name)))
        with self.captureWritesToStream(sys.stdout) as printed:
            steps.run_all(settings)
        self.assertIn("All is done", printed.contents())


if __name__ == "__main__":
    tf.test.main()
