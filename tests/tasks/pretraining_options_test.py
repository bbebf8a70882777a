import dataclasses

import tensorflow as tf
from absl import flags

from bert_tf import run_pretraining
from bert_tf.base import cli
from bert_tf.tasks.pretraining_options import RECIPES
from bert_tf.training.training_options import with_recipe

Refused = flags.IllegalFlagValueError
GIVEN = "--input_file=x --output_dir=o --do_train --bert_size=tiny"


def resolved(arguments):
    return with_recipe(
        cli.parse(run_pretraining.run, f"{GIVEN} {arguments}".split()), RECIPES
    )


class RecipeTest(tf.test.TestCase):
    def test_without_one_nothing_changes(self):
        with self.assertNoLogs(level="INFO"):
            values = resolved("")
        # The original script's defaults.
        self.assertEqual((values.train_batch_size, values.learning_rate), (32, 5e-5))
        self.assertIsNone(values.dropout)

    def test_the_papers(self):
        # Devlin et al. 2018, appendix A.2.
        values = resolved("--recipe=paper")
        self.assertEqual((values.train_batch_size, values.learning_rate), (256, 1e-4))
        self.assertEqual(
            (values.num_train_steps, values.num_warmup_steps), (10**6, 10**4)
        )
        self.assertEqual((values.beta_2, values.clip_norm), (0.999, 1.0))
        self.assertTrue(values.next_sentence)
        self.assertEqual(values.learning_rate_schedule, "linear")

    def test_all_of_it_given(self):
        given = "--train_batch_size=8 --learning_rate=1 --num_warmup_steps=4"
        with self.assertLogs(level="INFO") as logs:
            resolved(f"--recipe=paper {given} --num_train_steps=9")
        self.assertIn("`recipe=paper`: all of it is given.", logs.output[0])
        self.assertIn("not from the recipe: `train_batch_size=8`", logs.output[1])

    def test_for_a_budget(self):
        with self.assertLogs(level="INFO") as logs:
            values = resolved("--recipe=budget --num_train_steps=5000 --dropout=0.1")
        self.assertEqual(values.num_warmup_steps, 300)
        self.assertEqual((values.dropout, values.beta_2), (0.1, 0.999))
        self.assertTrue(values.bias_correction)
        self.assertEqual((values.train_batch_size, values.learning_rate), (32, 3e-3))
        self.assertEqual(
            (values.optimizer, values.learning_rate_schedule), ("muon", "wsd")
        )
        self.assertFalse(values.next_sentence)
        self.assertEqual(values.initial_positions, "neighbours")
        self.assertEqual(
            (values.masked_lm_prob, values.eval_masked_lm_prob), (0.25, 0.15)
        )
        self.assertIn("`num_warmup_steps=300`", logs.output[0])
        self.assertIn("not from the recipe: `dropout=0.1`", logs.output[1])
        for given in ("--electra", "--init_checkpoint=model.ckpt"):
            values = resolved(f"--recipe=budget {given}")
            self.assertEqual((values.optimizer, values.learning_rate), ("adamw", 1e-3))
            self.assertEqual(values.initial_positions, "random")
        for optimizer in ("adamw", "lamb"):
            values = resolved(f"--recipe=budget --optimizer={optimizer}")
            self.assertEqual(
                (values.optimizer, values.learning_rate, values.initial_positions),
                (optimizer, 1e-3, "neighbours"),
            )
        # Its values are no given ones, which would exclude others.
        values = resolved("--recipe=budget --electra")
        self.assertFalse(values.is_given("next_sentence"))
        self.assertIsNone(values.masked_lm_prob)
        for given in (
            "--optimizer=muon --init_checkpoint=model.ckpt",
            "--optimizer=muon --electra",
            "--next_sentence",
            "--initial_positions=random",
        ):
            values = resolved(f"--recipe=budget {given}")
            self.assertEqual(values.initial_positions, "random")
        with self.assertRaisesRegex(
            Refused, "excludes --init_checkpoint: leave one out"
        ):
            resolved("--initial_positions=sinusoids --init_checkpoint=model.ckpt")
        with self.assertLogs(level="INFO") as logs:
            values = resolved("--recipe=budget --phases=128:600:8,512:400:8")
        self.assertEqual(values.num_warmup_steps, 60)
        self.assertNotIn("train_batch_size", logs.output[0])
        self.assertIn("not from the recipe: `phases=128:600:8", logs.output[1])
        # The schedule that is used has to have a use for what is given.
        with self.assertRaisesRegex(Refused, "wsd has no use for --decay_from"):
            resolved("--recipe=budget --decay_from=warmup")
        values = resolved("--recipe=budget --decay_share=0.5")
        self.assertEqual(values.decay_share, 0.5)
        with self.assertRaisesRegex(Refused, "linear has no use for --decay_share"):
            resolved("--recipe=paper --decay_share=0.5")
        # Once more it is the same.
        again = with_recipe(values, RECIPES)
        self.assertEqual(dataclasses.asdict(again), dataclasses.asdict(values))


if __name__ == "__main__":
    tf.test.main()
