import importlib
import inspect
import pydoc
import re

import tensorflow as tf
from absl import flags

import bert_tf
from bert_tf.base import cli, options
from tests.base.cli_test import SCRIPTS
from tests.golden.commands import outcome
from tests.processes import run_python, seconds_of_other_processes


def section(page, title):
    return page.split(f"\n{title}:\n")[1].split("\n\n")[0]


class HelpPageTest(tf.test.TestCase):
    def test_what_must_be_given_comes_first_then_the_groups(self):
        code, page, stderr, _ = outcome("run_pretraining", "--do_train", "--help")
        self.assertEqual((code, stderr), (0, ""))
        titles = [line for line in page.split("\n") if line.endswith(":")]
        titles = [title[:-1] for title in titles if not title.startswith(" ")]
        titles = titles[titles.index("Must be given") + 1 :]
        self.assertIn("Training", titles)
        self.assertEqual([one for one in options.TITLES if one in titles], titles)
        first = section(page, "Must be given")
        self.assertIn("  --output_dir\n", first)
        self.assertIn("  --input_file\n", first)
        self.assertIn("Give --bert_config_file or --bert_size or", first)
        # Though it was given before --help.
        self.assertIn("give at least one of --do_train, --do_eval", first)
        self.assertIn("--[no]do_train\n", section(page, "What to do"))
        self.assertIn("--eval_input_file\n", section(page, "Data"))
        self.assertIn("--use_tpu", section(page, "Where to run").replace("[no]", ""))
        self.assertEqual(page.count("  --input_file\n"), 1)

    def test_methods_have_a_page_of_their_own(self):
        _, page, _, _ = outcome("run_classifier", "--help")
        shown = re.findall(r"^  --(?:\[no\])?(\w+)$", page, re.M)
        self.assertLessEqual(len(shown), 90)
        code, methods, _, _ = outcome("run_classifier", "--help_methods")
        more = re.findall(r"^  --(?:\[no\])?(\w+)$", methods, re.M)
        self.assertEqual((code, methods[:20]), (0, "Other ways to train:"))
        self.assertContainsSubset(["lora_rank", "distill_logits", "mixout"], more)
        self.assertNoCommonElements(shown, more)
        kind = cli.options_of(importlib.import_module("bert_tf.run_classifier").run)
        self.assertCountEqual([*shown, *more], options.declarations(kind))
        named = page.split("--help_methods shows ")[1]
        self.assertContainsSubset(more, re.findall(r"--(\w+)", named))

    def test_a_table_needs_no_task(self):
        _, page, _, _ = outcome("run_classifier", "--help")
        self.assertNotIn("--task_name or", section(page, "Must be given"))
        self.assertIn("Give --train_file, your own table; or --task_name and", page)
        self.assertIn("run_classifier --train_file=", page.split("Must be given")[0])

    def test_defaults_as_they_are(self):
        class Several(options.Options):
            a: int = options.option(3, "A.", decides="numbers")
            b: tuple[str, ...] = options.option(("x", "y"), "B.", decides="numbers")
            c: bool = options.option(False, "C.", decides="numbers")
            d: bool = options.option(
                True, "D. Default: as the file has it.", decides="numbers"
            )
            e: str | None = options.option(None, "E.", decides="numbers")
            f: str = options.option("p", "F.", choices=("p", "q"), decides="numbers")

        values = flags.FlagValues()
        options.define(values, Several)
        values.mark_as_parsed()
        self.assertEqual(
            cli.page("Does.", values, Several),
            "Does.\n\nOf this command:\n"
            "  --a\n      A. (default: 3)\n"
            "  --b\n      B. (default: x,y)\n"
            "  --[no]c\n      C. (default: false)\n"
            "  --[no]d\n      D. Default: as the file has it.\n"
            "  --e\n      E.\n"
            "  --f\n      p | q. F. (default: p)\n\n"
            "--helpfull shows the flags of absl, too.",
        )

    def test_help_of_python(self):
        class First(options.Options):
            """Things."""

            a: int = options.option(options.REQUIRED, "A of --c.", decides="numbers")
            b: tuple[str, ...] | None = options.option(
                None, "B. " + "words " * 20, decides="numbers"
            )

        class Second(First, title=options.DATA, hides=["b"]):
            """More."""

            b = None
            c: str = options.option("p", "C.", choices=("p", "q"), decides="numbers")

        self.assertEqual(
            Second.__doc__,
            "More.\n\nData:\n    c: str = 'p'\n        One of 'p', 'q'. C.\n\n"
            "Of this command:\n    a: int\n        A of c.",
        )
        page = pydoc.plain(pydoc.render_doc(First))
        self.assertIn(
            " |      b: tuple[str, ...] | None = None\n |          B. w", page
        )
        self.assertNotIn("__", page)
        self.assertLess(max(map(len, page.splitlines())), 90)
        # What notebooks complete.
        self.assertContainsSubset(["a", "b"], inspect.signature(First).parameters)
        with self.assertRaisesRegex(TypeError, "'d'"):
            First(a=1, d=2)

    def test_every_help_is_a_sentence_without_ours(self):
        for module in SCRIPTS:
            kind = cli.options_of(importlib.import_module(module).run)
            for name, declared in options.declarations(kind).items():
                self.assertNotRegex(declared.help, r"\b[Oo]urs[.,:]", name)
                self.assertIn(options.title_of(kind, name), options.TITLES)

    def test_version_and_helpfull(self):
        for command in ("run_squad", "inspect_records"):
            code, printed, *_ = outcome(command, "--version")
            self.assertEqual(printed, f"bert_tf {bert_tf.__version__}\n")
            self.assertEqual(code, 0)
        page = run_python("-m", "bert_tf.score", "--helpfull").stdout
        self.assertIn("--checkpoint", page)
        self.assertIn("--verbosity", page)


class ListTest(tf.test.TestCase):
    def test_every_command_is_listed_within_a_second(self):
        began = seconds_of_other_processes()
        done = run_python("-m", "bert_tf")
        self.assertLess(seconds_of_other_processes() - began, 1.0)
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
