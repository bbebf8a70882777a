"""What the tests of fine-tuning scripts share: a toy BERT's files, and the run."""

import csv
import os

import tensorflow as tf

from bert_tf import cli
from bert_tf.text.vocabulary import Vocabulary
from tests.training import toy


def read_tsv(path):
    """The rows of a table of predictions, by column."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


class ScriptCase(tf.test.TestCase):
    """Runs a script on a toy BERT, in a folder of the test's own.

    Attributes:
        script: the module.
        tokens: the vocabulary.
    """

    script = None
    tokens = ()

    def setUp(self):
        super().setUp()
        self.config = toy.write_config(self.get_temp_dir())
        self.vocab = self.path("v.txt")
        Vocabulary(self.tokens).save(self.vocab)

    def defaults(self):
        """Flags of all runs, unless a test says otherwise."""
        return {}

    def path(self, *names):
        return os.path.join(self.get_temp_dir(), *names)

    def read(self, *names):
        with open(self.path(*names)) as file:
            return file.read()

    def results(self, name="run"):
        """A run's eval_results.txt."""
        lines = self.read(name, "eval_results.txt").splitlines()
        pairs = (line.split(" = ") for line in lines)
        return {name: float(value) for name, value in pairs}

    def flags(self, *arguments, **options):
        """The script's flags, parsed; an option of None is not given."""
        options = {
            "vocab_file": self.vocab,
            "bert_config_file": self.config,
            "output_dir": self.path("run"),
            **self.defaults(),
            **options,
        }
        given = [f"--{k}={v}" for k, v in options.items() if v is not None]
        return cli.parse(self.script.run, [*arguments, *given])

    def run_script(self, *arguments, **options):
        self.script.run(self.flags(*arguments, **options))
