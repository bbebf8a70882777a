import tensorflow as tf
from absl import flags

from bert_tf import cli, selection_flags
from bert_tf import flags as shared_flags
from bert_tf.tasks.finetuning import is_selection, settings_from_flags


def parse(*arguments, **options):
    def define(flag_values):
        shared_flags.define(
            flag_values, "learning_rate", "train_batch_size", "random_seed"
        )
        selection_flags.define_selection(flag_values, **options)

    return cli.parse(define, arguments)


class SettingsTest(tf.test.TestCase):
    def test_one_run_by_default(self):
        values = parse()
        self.assertEqual(settings_from_flags(values), [(5e-5, 32, 3.0, 12345)])
        self.assertFalse(is_selection(values))

    def test_the_originals_flags_are_one_run(self):
        values = parse(
            "--num_train_epochs=2.0", "--learning_rate=2e-5", "--train_batch_size=16"
        )
        self.assertEqual(settings_from_flags(values), [(2e-5, 16, 2.0, 12345)])
        self.assertFalse(is_selection(values))

    def test_lists(self):
        values = parse(
            "--learning_rates=5e-5, 2e-5",
            "--train_batch_sizes=16",
            "--num_train_epochs=2,3.5",
            "--num_restarts=2",
            "--random_seed=7",
        )
        self.assertEqual(
            settings_from_flags(values),
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
        self.assertTrue(is_selection(values))

    def test_what_asks_for_a_selection(self):
        for argument in (
            "--learning_rates=5e-5",
            "--train_batch_sizes=8",
            "--num_train_epochs=2,3",
            "--num_restarts=2",
        ):
            self.assertTrue(is_selection(parse(argument)), argument)

    def test_a_scripts_own_rates_give_way_to_one_that_is_given(self):
        rates = (5e-5, 2e-5)
        self.assertEqual(
            [
                one.learning_rate
                for one in settings_from_flags(parse(learning_rates=rates))
            ],
            [5e-5, 2e-5],
        )
        values = parse("--learning_rate=1e-4", learning_rates=rates)
        self.assertEqual(settings_from_flags(values), [(1e-4, 32, 3.0, 12345)])


class UsageTest(tf.test.TestCase):
    def test_errors(self):
        for arguments, message in (
            (["--num_train_epochs=x"], "must be numbers with commas between"),
            (["--train_batch_sizes=1.5"], "must be whole numbers with commas"),
            (["--learning_rates="], "must be numbers"),
            (["--learning_rates=nan"], "must be at least 0"),
            (["--num_train_epochs=-1"], "must be at least 0"),
            (["--train_batch_sizes=8,0"], "must be at least 1"),
            (["--learning_rates=1,2", "--learning_rate=1"], "give one of them"),
            (["--num_restarts=0"], "num_restarts"),
            (["--stop_early", "--stop_early_at=1"], "above 0 and below 1"),
            (["--stop_early_keep=2"], "no effect without --stop_early=true"),
        ):
            with self.assertRaisesRegex(flags.Error, message):
                parse(*arguments)


if __name__ == "__main__":
    tf.test.main()
