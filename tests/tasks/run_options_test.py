import dataclasses

import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from bert_tf import cli, options, run_classifier, run_glue, run_squad
from bert_tf.tasks.data_set_options import ClassifierOptions
from bert_tf.tasks.run_options import warn_of_stride, with_recipe
from bert_tf.training.training_options import LossOptions

GIVEN = ("--output_dir=o", "--task_name=MRPC", "--data_dir=d", "--do_train")
GLUE = ("--output_dir=o", "--glue_dir=d")


def parse(*arguments):
    return cli.parse(run_classifier.run, [*GIVEN, *arguments])


def parse_glue(*arguments):
    return cli.parse(run_glue.run, [*GLUE, *arguments])


class LongTextTest(tf.test.TestCase):
    def test_cut_by_default(self):
        values = parse()
        self.assertEqual((values.long_text, values.doc_stride), ("truncate", None))

    def test_windows(self):
        values = parse("--long_text=window", "--doc_stride=64")
        self.assertEqual((values.long_text, values.doc_stride), ("window", 64))

    def test_a_stride_without_windows(self):
        with self.assertRaisesRegex(
            flags.IllegalFlagValueError,
            "--doc_stride has no effect without --long_text=",
        ):
            parse("--doc_stride=64")


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
            self.assertIn(f"no less than the {room} tokens of a window", logs.output[0])
        for script, arguments in (
            (run_squad, squad),
            (run_squad, [*squad, "--doc_stride=380"]),
            (run_classifier, table),
        ):
            with self.assertNoLogs("absl", "WARNING"):
                self.warn(script, *arguments)


class RefusalTest(tf.test.TestCase):
    def test_what_must_be_given_together(self):
        with self.assertRaisesRegex(flags.Error, "--do_predict needs --predict_file"):
            cli.parse(run_squad.run, ["--output_dir=o", "--do_predict"])


class SettingsTest(tf.test.TestCase):
    def test_one_run_by_default(self):
        values = parse()
        self.assertEqual(values.settings, [(5e-5, 32, 3.0, 12345)])
        self.assertFalse(values.asks_for_selection)

    def test_the_originals_flags_are_one_run(self):
        values = parse(
            "--num_train_epochs=2.0", "--learning_rate=2e-5", "--train_batch_size=16"
        )
        self.assertEqual(values.settings, [(2e-5, 16, 2.0, 12345)])
        self.assertFalse(values.asks_for_selection)

    def test_lists(self):
        values = parse(
            "--learning_rates=5e-5, 2e-5",
            "--train_batch_sizes=16",
            "--num_train_epochs=2,3.5",
            "--num_restarts=2",
            "--random_seed=7",
        )
        self.assertEqual(
            values.settings,
            [
                (5e-5, 16, 2.0, 7),
                (2e-5, 16, 2.0, 7),
                (5e-5, 16, 3.5, 7),
                (2e-5, 16, 3.5, 7),
                (5e-5, 16, 2.0, 8),
                (2e-5, 16, 2.0, 8),
                (5e-5, 16, 3.5, 8),
                (2e-5, 16, 3.5, 8),
            ],
        )
        self.assertTrue(values.asks_for_selection)

    def test_what_asks_for_a_selection(self):
        for argument in (
            "--learning_rates=5e-5",
            "--train_batch_sizes=8",
            "--num_train_epochs=2,3",
            "--num_restarts=2",
        ):
            self.assertTrue(parse(argument).asks_for_selection, argument)

    def test_a_scripts_own_rates_give_way_to_one_that_is_given(self):
        rates = [one.learning_rate for one in parse_glue().settings]
        self.assertEqual(rates, [5e-5, 4e-5, 3e-5, 2e-5])
        values = parse_glue("--learning_rate=1e-4")
        self.assertEqual(values.settings, [(1e-4, 32, 3.0, 12345)])


class SelectionUsageTest(tf.test.TestCase):
    def test_errors(self):
        for arguments, message in (
            (["--num_train_epochs=x"], "must be numbers with commas between"),
            (["--train_batch_sizes=1.5"], "must be whole numbers with commas"),
            (["--learning_rates="], "must be numbers"),
            (["--learning_rates=nan"], "must be a number"),
            (["--num_train_epochs=-1"], "must be at least 0"),
            (["--train_batch_sizes=8,0"], "must be at least 1"),
            (["--learning_rates=1,2", "--learning_rate=1"], "give one of them"),
            (["--num_restarts=0"], "num_restarts"),
            (["--stop_early", "--stop_early_at=1"], "must be below 1"),
            (["--stop_early_keep=2"], "no effect without --stop_early=true"),
        ):
            with self.assertRaisesRegex(flags.Error, message):
                parse(*arguments)


NAMES = (
    "num_train_epochs",
    "warmup_proportion",
    "learning_rate",
    "learning_rates",
    "train_batch_size",
    "bias_correction",
)


def resolved(*arguments, parse=parse):
    values = with_recipe(parse(*arguments))
    return {name: getattr(values, name) for name in NAMES}


class RecipeTest(tf.test.TestCase):
    def test_devlin_is_what_there_is_without_it(self):
        there = {
            "num_train_epochs": (3.0,),
            "warmup_proportion": 0.1,
            "learning_rate": 5e-5,
            "learning_rates": None,
            "train_batch_size": 32,
            "bias_correction": False,
        }
        self.assertEqual(resolved(), there)
        self.assertEqual(resolved("--recipe=devlin"), there)

    def test_mosbach(self):
        with self.assertLogs(level="INFO") as logs:
            values = resolved("--recipe=mosbach")
        # Mosbach et al. 2021, section 6.
        self.assertEqual(
            values,
            {
                "num_train_epochs": (20.0,),
                "warmup_proportion": 0.1,
                "learning_rate": 2e-5,
                "learning_rates": None,
                "train_batch_size": 16,
                "bias_correction": True,
            },
        )
        self.assertIn("--num_train_epochs=20.0", logs.output[0])
        self.assertIn("--bias_correction", logs.output[0])

    def test_a_given_flag_wins_even_with_the_default(self):
        with self.assertLogs(level="INFO") as logs:
            values = resolved(
                "--recipe=mosbach",
                "--num_train_epochs=3",
                "--nobias_correction",
                "--train_batch_size=32",
            )
        self.assertEqual(values["num_train_epochs"], (3.0,))
        self.assertFalse(values["bias_correction"])
        self.assertEqual(values["train_batch_size"], 32)
        self.assertEqual(values["learning_rate"], 2e-5)
        self.assertIn("As given", logs.output[1])
        self.assertIn("--bias_correction=False", logs.output[1])

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
            {one.learning_rate for one in with_recipe(given).settings}, {1e-4}
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
        values = with_recipe(given)
        self.assertEqual(values.train_batch_size, 8)
        self.assertEqual(values.learning_rate, 2e-5)
        self.assertEqual(
            dataclasses.replace(given, recipe="devlin").learning_rate, 5e-5
        )


class AdapterUsageTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (["--lora_rank=2", "--adapter_size=2"], "same in two ways"),
        (["--lora_rank=-1"], "--lora_rank=-1 must be at least 0"),
        (["--lora_rank=2", "--reinitialize_layers=1"], "leave untrained: leave it out"),
        (["--train_pooler"], "is for --lora_rank and --adapter_size"),
        (["--init_adapter=there"], "give --init_checkpoint"),
        (["--recipe=nobody"], "recipe"),
    )
    def test_useless_flags_are_a_usage_error(self, arguments, message):
        with self.assertRaisesRegex(
            (flags.IllegalFlagValueError, flags.ValidationError), message
        ):
            parse(*arguments)

    def test_each_flag_names_its_paper(self):
        declared = options.declarations(ClassifierOptions)
        for name, paper in (
            ("recipe", "Mosbach et al. 2021"),
            ("bias_correction", "Zhang et al. 2021"),
            ("reinitialize_layers", "Zhang et al. 2021"),
            ("layer_mixture", "Peters et al. 2018"),
            ("init_head", "Phang et al. 2018"),
            ("layerwise_learning_rate_decay", "ULMFiT"),
            ("lora_rank", "Hu et al. 2021"),
            ("adapter_size", "Houlsby et al. 2019"),
        ):
            help_text = " ".join(declared[name].help.split())
            self.assertIn(paper, help_text)


class TrainingLossTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("--smart_steps=2", "--smart_steps has no effect without --smart_weight"),
        ("--smart_momentum=0.5", "no effect without --smart_proximal_weight"),
        ("--mixout=0.5 --lora_rank=2", "--mixout is of weights that --lora_rank"),
        ("--mixout=1", "must be below 1"),
        ("--distill_hidden=1", "no effect without --teacher_checkpoint"),
        ("--teacher_checkpoint=t --distill_logits=0", "teaches nothing"),
        (
            "--teacher_checkpoint=t --distill_attention=1 --recompute",
            "--recompute forgets the scores",
        ),
        ("--patience=2", "--patience has no effect without --eval_steps"),
        ("--window_pooling=max", "--window_pooling has no effect without --long_te"),
        ("--init_layers=0,1", "--init_layers has no effect without --init_checkpoint"),
    )
    def test_what_has_no_effect(self, arguments, message):
        with self.assertRaisesRegex(flags.IllegalFlagValueError, message):
            parse(*arguments.split())

    def test_a_default_that_is_given_does_no_harm(self):
        given = parse("--eval_steps=10", "--patience=2")
        # As SQuAD's first stage has it.
        first = dataclasses.replace(given, eval_steps=0, patience=0)
        self.assertTrue(first.is_given("patience"))
        parse("--patience=0", "--doc_stride=64", "--long_text=window")

    def test_what_is_changed(self):
        self.assertEqual(LossOptions.of(parse()).changed, {})
        given = parse("--mixout=0.5", "--class_weights=balanced")
        self.assertEqual(
            LossOptions.of(given).changed,
            {"mixout": 0.5, "class_weights": ["balanced"]},
        )
