import tensorflow as tf
from absl import flags

from bert_tf import cli, flag_rules, run_classifier, run_squad


class StrideTest(tf.test.TestCase):
    def values(self, script, *arguments):
        common = ["--output_dir=o", "--do_predict", *arguments]
        return cli.parse(script.run, common)

    def test_windows_that_do_not_overlap_are_a_warning(self):
        squad = ["--predict_file=f"]
        table = ["--task_name=tsv", "--data_dir=d", "--long_text=window"]
        for script, arguments, room in (
            (run_squad, [*squad, "--max_seq_length=128"], 125),
            (run_squad, [*squad, "--doc_stride=381"], 381),
            (run_classifier, [*table, "--doc_stride=200"], 125),
        ):
            with self.assertLogs("absl", "WARNING") as logs:
                flag_rules.warn_of_stride(self.values(script, *arguments))
            self.assertIn(f"no less than the {room} tokens of a window", logs.output[0])
        for script, arguments in (
            (run_squad, squad),
            (run_squad, [*squad, "--doc_stride=380"]),
            (run_classifier, table),
        ):
            with self.assertNoLogs("absl", "WARNING"):
                flag_rules.warn_of_stride(self.values(script, *arguments))


class RefusalTest(tf.test.TestCase):
    def test_what_must_be_given_together(self):
        with self.assertRaisesRegex(flags.Error, "--do_predict needs --predict_file"):
            cli.parse(run_squad.run, ["--output_dir=o", "--do_predict"])


if __name__ == "__main__":
    tf.test.main()
