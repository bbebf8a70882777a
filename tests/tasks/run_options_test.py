import dataclasses
import pickle

import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from bert_tf import run_classifier, run_glue, run_squad
from bert_tf.addons.methods.loss_options import LossOptions
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.tasks.data_set_options import ClassifierOptions, GlueOptions
from bert_tf.tasks.run_options import RECIPES, RunSetting, warn_of_stride
from bert_tf.training.training_options import with_recipe

GIVEN = ("--output_dir=o", "--task_name=MRPC", "--data_dir=d", "--do_train")
GLUE = ("--output_dir=o", "--glue_dir=d")


def parse(*arguments):
    return cli.parse(run_classifier.run, [*GIVEN, *arguments])


def parse_glue(*arguments):
    return cli.parse(run_glue.run, [*GLUE, *arguments])


class StrideTest(tf.test.TestCase):
    def warn(self, script, *arguments):
        common = ["--output_dir=o", "--do_predict", *arguments]
        values = cli.parse(script.run, common)
        warn_of_stride(values.doc_stride, values.max_seq_length)

    def test_windows_that_do_not_overlap_are_a_warning(self):
        squad = ["--predict_file=f"]
        table = ["--task_name=tsv", "--data_dir=d", "--long_text=window"]
        for script, arguments, room in (
            (run_squad, [*squad, "--max_seq_length=128"], 125),
            (run_squad, [*squad, "--doc_stride=381"], 381),
            (run_classifier, [*table, "--doc_stride=200"], 125),
        ):
            with self.assertLogs("absl", "WARNING") as logs:
                self.warn(script, *arguments)
            self.assertIn(
                f"not less than the {room} tokens of a window", logs.output[0]
            )
        for script, arguments in (
            (run_squad, squad),
            (run_squad, [*squad, "--doc_stride=380"]),
            (run_classifier, table),
        ):
            with self.assertNoLogs("absl", "WARNING"):
                self.warn(script, *arguments)


class SettingsTest(tf.test.TestCase):
    def test_the_name_of_a_run(self):
        for settings, name in (
            (RunSetting(5e-05, 16, 2.5, 7), "lr5e-05_bs16_ep2.5_seed7"),
            (RunSetting(5e-5, 16, 3.0, 12345), "lr5e-05_bs16_ep3_seed12345"),
            (RunSetting(0.00012345678, 8, 2.5, 0), "lr0.00012345678_bs8_ep2.5_seed0"),
        ):
            self.assertEqual(settings.name, name)
            self.assertEqual(RunSetting.of_name(name), settings)
        with self.assertRaisesRegex(InputError, "'run_7' is no name of a run's set"):
            RunSetting.of_name("run_7")

    def test_one_run_or_a_selection(self):
        both = (2e-5, 5e-5)
        for arguments, expected in (
            ("--learning_rate=2e-5 --train_batch_size=16", [(2e-5, 16, 3.0, 12345)]),
            ("--learning_rates=5e-5", [(5e-5, 32, 3.0, 12345)]),
            ("--train_batch_sizes=8", [(5e-5, 8, 3.0, 12345)]),
            ("--num_restarts=2", [(5e-5, 32, 3.0, seed) for seed in (12345, 12346)]),
            # A value that is given twice counts once.
            ("--learning_rates=1e-4,1e-4", [(1e-4, 32, 3.0, 12345)]),
            (
                "--learning_rates=2e-5,5e-5 --train_batch_sizes=16,32"
                " --num_train_epochs=2,3.5 --num_restarts=2 --random_seed=7",
                [
                    (rate, size, epochs, seed)
                    for seed in (7, 8)
                    for size in (16, 32)
                    for epochs in (2.0, 3.5)
                    for rate in both
                ],
            ),
        ):
            values = parse(*arguments.split())
            self.assertEqual(values.settings, expected)
            is_one = arguments.startswith("--learning_rate=")
            self.assertEqual(values.asks_for_selection, not is_one)

    def test_a_scripts_own_rates_give_way_to_one_that_is_given(self):
        rates = [one.learning_rate for one in parse_glue().settings]
        self.assertEqual(rates, [5e-5, 4e-5, 3e-5, 2e-5])
        values = parse_glue("--learning_rate=1e-4")
        self.assertEqual(values.settings, [(1e-4, 32, 3.0, 12345)])

    def test_a_runs_options_are_its_settings_and_the_others_as_they_were(self):
        given = parse("--learning_rates=2e-5,5e-5", "--num_train_epochs=2,3")
        one = RunSetting(5e-5, 16, 3.0, 7).of(given)
        self.assertEqual(
            one.as_flags(),
            given.as_flags()
            | {"learning_rate": 5e-5, "train_batch_size": 16, "random_seed": 7}
            | {"num_train_epochs": [3.0]},
        )
        self.assertFalse(one.is_given("learning_rate"))


class UsageTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("--doc_stride=64", "--doc_stride has no effect without --long_text="),
        ("--num_train_epochs=x", "must be numbers with commas between"),
        ("--train_batch_sizes=1.5", "must be whole numbers with commas"),
        ("--learning_rates=", "must be numbers"),
        ("--learning_rates=nan", "must be a number"),
        ("--num_train_epochs=-1", "must be at least 0"),
        ("--train_batch_sizes=8,0", "must be at least 1"),
        ("--learning_rates=1,2 --learning_rate=1", "give one of them"),
        ("--num_restarts=0", "num_restarts"),
        ("--stop_early --stop_early_at=1", "must be below 1"),
        ("--stop_early_keep=2", "no effect without --stop_early=true"),
        ("--lora_rank=2 --adapter_size=2", "same in two ways"),
        ("--lora_rank=-1", "--lora_rank=-1 must be at least 0"),
        ("--lora_rank=2 --reinitialize_layers=1", "leave untrained: leave it out"),
        ("--train_pooler", "is for --lora_rank and --adapter_size"),
        ("--init_adapter=there", "give --init_checkpoint"),
        ("--recipe=nobody", "recipe"),
        ("--smart_steps=2", "--smart_steps has no effect without --smart_weight"),
        ("--smart_momentum=0.5", "no effect without --smart_proximal_weight"),
        ("--mixout=0.5 --lora_rank=2", "--mixout changes weights that --lora_rank"),
        ("--mixout=1", "must be below 1"),
        ("--max_unusable_rows=1.5", "=1.5 must be below 1, or a whole number"),
        ("--distill_hidden=1", "no effect without --teacher_checkpoint"),
        ("--teacher_checkpoint=t --distill_logits=0", "teaches nothing"),
        ("--teacher_checkpoint=t --distill_attention=1 --recompute", "needs scores"),
        ("--patience=2", "--patience has no effect without --eval_steps"),
        ("--window_pooling=max", "--window_pooling has no effect without --long_te"),
        ("--init_layers=0,1", "--init_layers has no effect without --init_checkpoint"),
    )
    def test_what_has_no_effect_or_no_sense(self, arguments, message):
        with self.assertRaisesRegex(flags.Error, message):
            parse(*arguments.split())

    def test_what_must_be_given_together(self):
        with self.assertRaisesRegex(flags.Error, "--do_predict needs --predict_file"):
            cli.parse(run_squad.run, ["--output_dir=o", "--do_predict"])


NAMES = (
    "num_train_epochs",
    "warmup_proportion",
    "learning_rate",
    "learning_rates",
    "train_batch_size",
    "bias_correction",
)


def resolved(*arguments, parse=parse):
    values = with_recipe(parse(*arguments), RECIPES)
    return {name: getattr(values, name) for name in NAMES}


class RecipeTest(tf.test.TestCase):
    def test_mosbach(self):
        with self.assertLogs(level="INFO") as logs:
            values = resolved("--recipe=mosbach")
        # Mosbach et al. 2021, section 6.
        expected = ((20.0,), 0.1, 2e-5, None, 16, True)
        self.assertEqual(values, dict(zip(NAMES, expected, strict=True)))
        self.assertIn("`num_train_epochs=20.0`", logs.output[0])
        self.assertIn("`bias_correction=True`", logs.output[0])

    def test_a_given_flag_wins_even_with_the_default(self):
        with self.assertLogs(level="INFO") as logs:
            given = "--num_train_epochs=3 --nobias_correction --train_batch_size=32"
            values = resolved("--recipe=mosbach", *given.split())
        expected = ((3.0,), 0.1, 2e-5, None, 32, False)
        self.assertEqual(values, dict(zip(NAMES, expected, strict=True)))
        self.assertIn("Given, so not", logs.output[1])
        self.assertIn("`bias_correction=False`", logs.output[1])

    def test_one_that_gives_nothing_says_nothing(self):
        with self.assertNoLogs(level="INFO"):
            resolved("--recipe=devlin")

    def test_lists_to_choose_from(self):
        values = resolved("--recipe=mosbach", parse=parse_glue)
        self.assertEqual(values["learning_rates"], (2e-5,))
        values = resolved(
            "--recipe=mosbach", "--learning_rates=1e-5,4e-5", parse=parse_glue
        )
        self.assertEqual(values["learning_rates"], (1e-5, 4e-5))
        # Who gives one rate has chosen.
        given = parse_glue("--recipe=mosbach", "--learning_rate=1e-4")
        self.assertEqual(
            {one.learning_rate for one in with_recipe(given, RECIPES).settings}, {1e-4}
        )

    def test_in_python(self):
        given = ClassifierOptions(
            output_dir="o",
            task_name="MRPC",
            data_dir="d",
            do_train=True,
            recipe="mosbach",
            train_batch_size=8,
        )
        values = with_recipe(given, RECIPES)
        self.assertEqual(values.train_batch_size, 8)
        self.assertEqual(values.learning_rate, 2e-5)
        self.assertEqual(
            dataclasses.replace(given, recipe="devlin").learning_rate, 5e-5
        )
        # A default that is given counts as given.
        given = ClassifierOptions(
            output_dir="o",
            task_name="MRPC",
            data_dir="d",
            do_train=True,
            recipe="mosbach",
            learning_rate=5e-5,
            num_train_epochs=(3.0,),
            train_batch_size=32,
        )
        values = with_recipe(given, RECIPES)
        found = values.learning_rate, values.num_train_epochs, values.train_batch_size
        self.assertEqual(found, (5e-5, (3.0,), 32))
        one = with_recipe(
            GlueOptions(output_dir="o", glue_dir="d", learning_rate=5e-5), RECIPES
        )
        self.assertLen(one.settings, 1)
        # One that has a list of rates too.
        glue = with_recipe(
            GlueOptions(output_dir="o", glue_dir="d", recipe="mosbach"), RECIPES
        )
        self.assertEqual(glue.learning_rates, (2e-5,))


class ChangedTest(tf.test.TestCase):
    def test_a_default_that_is_given_does_no_harm(self):
        given = parse("--eval_steps=10", "--patience=2")
        # As SQuAD's first stage has it.
        first = dataclasses.replace(given, eval_steps=0, patience=0)
        self.assertTrue(first.is_given("patience"))
        parse("--patience=0", "--doc_stride=64", "--long_text=window")

    def test_what_replace_changes_is_given(self):
        for before in (
            parse("--learning_rate=1e-5"),
            ClassifierOptions(
                output_dir="o",
                task_name="MRPC",
                data_dir="d",
                do_train=True,
                learning_rate=1e-5,
                vocab_file=None,
            ),
        ):
            self.assertFalse(before.is_given("vocab_file"))
            after = dataclasses.replace(before, num_restarts=3, learning_rate=5e-5)
            for name, expected in (
                ("learning_rate", True),
                ("num_restarts", True),
                ("train_batch_size", False),
            ):
                self.assertEqual(after.is_given(name), expected, name)
            after = after.with_defaults(train_batch_size=16)
            self.assertEqual(after.train_batch_size, 16)
            self.assertFalse(after.is_given("train_batch_size"))
            again = pickle.loads(pickle.dumps(after))
            self.assertEqual(again, after)
            self.assertTrue(again.is_given("num_restarts"))
            self.assertTrue(dataclasses.replace(again, pad="max").is_given("pad"))

    def test_what_is_changed(self):
        self.assertEqual(LossOptions.of(parse()).changed, {})
        given = parse("--mixout=0.5", "--class_weights=balanced")
        expected = {"mixout": 0.5, "class_weights": ["balanced"]}
        self.assertEqual(LossOptions.of(given).changed, expected)
