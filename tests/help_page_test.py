import importlib
import os
import resource
import subprocess
import sys

import tensorflow as tf
from absl import flags

import bert_tf
from bert_tf import flag_groups, help_page
from tests.cli_test import SCRIPTS


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False
    )


def section(page, title):
    return page.split(f"\n{title}:\n")[1].split("\n\n")[0]


class HelpPageTest(tf.test.TestCase):
    def test_what_must_be_given_comes_first_then_the_groups(self):
        done = run("bert_tf.run_pretraining", "--do_train", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "")
        titles = [line for line in done.stdout.split("\n") if line.endswith(":")]
        titles = [title[:-1] for title in titles if not title.startswith(" ")]
        titles = titles[titles.index("Must be given") + 1 :]
        self.assertIn("Training", titles)
        self.assertEqual([one for one in flag_groups.TITLES if one in titles], titles)
        first = section(done.stdout, "Must be given")
        self.assertIn("  --output_dir\n", first)
        self.assertIn("  --input_file\n", first)
        self.assertIn("Give --bert_config_file or --bert_size or", first)
        # Though it was given before --help.
        self.assertIn("give at least one of --do_train, --do_eval", first)
        self.assertIn("--[no]do_train\n", section(done.stdout, "What to do"))
        self.assertIn("--eval_input_file\n", section(done.stdout, "Data"))
        self.assertIn(
            "--use_tpu", section(done.stdout, "Where to run").replace("[no]", "")
        )
        self.assertEqual(done.stdout.count("  --input_file\n"), 1)

    def test_defaults_as_they_are(self):
        values = flags.FlagValues()
        flags.DEFINE_integer("a", 3, "A.", flag_values=values)
        flags.DEFINE_list("b", ["x", "y"], "B.", flag_values=values)
        flags.DEFINE_bool("c", False, "C.", flag_values=values)
        flags.DEFINE_bool(
            "d", True, "D. Default: as the file has it.", flag_values=values
        )
        flags.DEFINE_string("e", None, "E.", flag_values=values)
        flags.DEFINE_enum("f", "p", ["p", "q"], "F.", flag_values=values)
        values.mark_as_parsed()
        self.assertEqual(
            help_page.page("Does.", values, list("abcdef")),
            "Does.\n\nOf this command:\n"
            "  --a\n      A. (default: 3)\n"
            "  --b\n      B. (default: x,y)\n"
            "  --[no]c\n      C. (default: false)\n"
            "  --[no]d\n      D. Default: as the file has it.\n"
            "  --e\n      E.\n"
            "  --f\n      p | q. F. (default: p)\n\n"
            "--helpfull shows the flags of absl, too.",
        )

    def test_every_help_is_a_sentence_without_ours(self):
        for module in SCRIPTS:
            values = flags.FlagValues()
            name = module
            importlib.import_module(name).define_flags(values)
            for flag in values:
                self.assertNotRegex(values[flag].help, r"\b[Oo]urs[.,:]", flag)
                self.assertIn(flag_groups.group_of(values[flag]), flag_groups.TITLES)

    def test_version_and_helpfull(self):
        for module in ("bert_tf", "bert_tf.run_squad", "tfrecords.inspect_records"):
            done = run(module, "--version")
            self.assertEqual(done.stdout, f"bert_tf {bert_tf.__version__}\n")
            self.assertEqual(done.returncode, 0)
        done = run("bert_tf.score", "--helpfull")
        self.assertIn("--checkpoint", done.stdout)
        self.assertIn("--verbosity", done.stdout)


class ListTest(tf.test.TestCase):
    def test_every_command_is_listed_within_a_second(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run("bert_tf")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.assertLess(seconds, 1.0)
        self.assertEqual(done.stderr, "")
        lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
        expected = [
            "bert-tf-" + module.rpartition(".")[2].replace("_", "-")
            for module in SCRIPTS
        ]
        self.assertContainsSubset(expected, lines)
        self.assertEqual(
            lines["bert-tf-run-pretraining"],
            "Pre-trains BERT on TFRecords of masked next-sentence pairs.",
        )

    def test_errors_name_the_command(self):
        done = run("bert_tf.quickstart", f"--output_dir={os.path.abspath(__file__)}")
        self.assertStartsWith(done.stderr, "quickstart: ")


if __name__ == "__main__":
    tf.test.main()
