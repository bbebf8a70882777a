"""What tests of commands share: a folder of their own, a toy BERT's files, the run."""

import contextlib
import csv
import io
import json
import os
import pathlib
import tempfile
from unittest import mock

import tensorflow as tf

from bert_tf.base import cli
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.step import on_devices
from tests.training import toy


def read_tsv(path):
    """The rows of a table of predictions, by column."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def printed(script, *arguments):
    """What a script prints to stdout."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        script.run(cli.parse(script.run, arguments))
    return out.getvalue()


class FolderCase(tf.test.TestCase):
    """Each test has a folder of its own, where names stand for files."""

    def path(self, *names):
        return os.path.join(self.get_temp_dir(), *names)

    def folder(self, *names):
        """A folder in it: the one of that name, or else a new one."""
        if not names:
            return tempfile.mkdtemp(dir=self.get_temp_dir())
        os.makedirs(self.path(*names), exist_ok=True)
        return self.path(*names)

    def read(self, *names):
        return pathlib.Path(self.path(*names)).read_text("utf-8")

    def read_json(self, *names):
        return json.loads(self.read(*names))

    def read_json_lines(self, *names):
        return [*map(json.loads, self.read(*names).splitlines())]

    def write(self, name, content):
        """Writes text, bytes, or else JSON; the file's path."""
        path = pathlib.Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, (str, bytes)):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)


class ScriptCase(FolderCase):
    """Runs `script` on a toy BERT with the vocabulary `tokens`."""

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

    def training_nothing(self):
        """Within it a training step is an error."""
        error = AssertionError("trained")
        return mock.patch.object(on_devices(), "training_steps", side_effect=error)

    def run_script(self, *arguments, **options):
        """What the script's `run` returns."""
        return self.script.run(self.flags(*arguments, **options))
