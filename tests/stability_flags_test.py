import tensorflow as tf
from absl import flags
from absl.testing import parameterized

from bert_tf import flags as shared_flags
from bert_tf import selection_flags, stability_flags


def parsed(*arguments, learning_rates=None):
    flag_values = flags.FlagValues()
    shared_flags.define(flag_values, warmup_proportion=0.2)
    shared_flags.define_training(flag_values)
    selection_flags.define_selection(flag_values, learning_rates=learning_rates)
    stability_flags.define_stability(flag_values)
    stability_flags.define_parameter_efficient(flag_values)
    flag_values(["script", *arguments])
    return flag_values


def resolved(*arguments, **options):
    flag_values = parsed(*arguments, **options)
    stability_flags.apply_recipe(flag_values)
    return {
        name: flag_values[name].value
        for name in (
            "num_train_epochs",
            "warmup_proportion",
            "learning_rate",
            "learning_rates",
            "train_batch_size",
            "bias_correction",
        )
    }


class RecipeTest(tf.test.TestCase):
    def test_devlin_is_what_there_is_without_it(self):
        there = {
            "num_train_epochs": [3.0],
            "warmup_proportion": 0.2,
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
                "num_train_epochs": [20.0],
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
        self.assertEqual(values["num_train_epochs"], [3.0])
        self.assertFalse(values["bias_correction"])
        self.assertEqual(values["train_batch_size"], 32)
        self.assertEqual(values["learning_rate"], 2e-5)
        self.assertIn("As given", logs.output[1])
        self.assertIn("--nobias_correction", logs.output[1])

    def test_lists_to_choose_from(self):
        grid = [5e-5, 3e-5]
        values = resolved("--recipe=mosbach", learning_rates=grid)
        self.assertEqual(values["learning_rates"], [2e-5])
        values = resolved(
            "--recipe=mosbach", "--learning_rates=1e-5,4e-5", learning_rates=grid
        )
        self.assertEqual(values["learning_rates"], [1e-5, 4e-5])
        # Who gives one rate has chosen.
        values = resolved(
            "--recipe=mosbach", "--learning_rate=1e-4", learning_rates=grid
        )
        self.assertEqual(values["learning_rate"], 1e-4)
        self.assertEqual(values["learning_rates"], grid)


class ValidationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (["--lora_rank=2", "--adapter_size=2"], "two ways to do the same"),
        (["--lora_rank=-1"], "lower bound|non-negative|>= 0"),
        (["--lora_rank=2", "--reinitialize_layers=1"], "leave untrained: leave it out"),
        (["--train_pooler"], "without them all is trained"),
        (["--init_adapter=there"], "give --init_checkpoint"),
        (["--recipe=nobody"], "recipe"),
    )
    def test_useless_flags_are_a_usage_error(self, arguments, message):
        with self.assertRaisesRegex(
            (flags.IllegalFlagValueError, flags.ValidationError), message
        ):
            parsed(*arguments)

    def test_each_flag_names_its_paper(self):
        flag_values = parsed()
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
            help_text = " ".join(flag_values[name].help.split())
            self.assertIn(paper, help_text)


if __name__ == "__main__":
    tf.test.main()
