"""The messages that users meet first, as in first_messages.txt.

python -m tests.first_messages_test  writes them anew, for the same commands
"""

import itertools
import os
import pathlib
import re
import shlex
import string
import tempfile

import pytest
import tensorflow as tf

from tests.golden.commands import outcome

pytestmark = pytest.mark.checkout

_LIST = pathlib.Path(__file__).with_suffix("").with_name("first_messages.txt")
_FILES = {
    "train.csv": "review,stars\nA good film,5\nA bad film,1\n",
    "header.csv": "review,stars\n",
    "empty.csv": "",
    "one_class.csv": "review,stars\nA,1\nB,1\n",
    "latin.csv": b"review,stars\ncaf\x81,1\n",
    "lines.jsonl": '{"text": "a", "label": 1}\n{"text": "b"\n',
    "one.txt": "EU\nrejects\n\n",
    "q.csv": "question,context,answer\nWho?,A film.,Nobody\n",
    "squad.json": '{"data": [',
    "swag.csv": "sent1,sent2\na,b\n",
    "text.txt": "A good film.\n\nA bad film.\n",
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ngood\nfilm\n",
    "words.txt": "a\ngood\n",
    "bert_config.json": '{"vocab_size": 8, "hidden_size": 16, "num_hidden_layers": 1,'
    ' "num_attention_heads": 2, "intermediate_size": 32}',
    "typo.json": '{"vocab_size": 8, "hiden_size": 16}',
    "broken.json": '{"vocab_size": 8,',
    "pickled/pytorch_model.bin": "x",
    "data/notes/about.txt": "x",
}
_COLUMNS = "--text_a_column=review --label_column=stars"
_CONFIG = "--bert_config_file=bert_config.json"
_SHORT = {
    "COLUMNS": _COLUMNS,
    "TABLE": f"--train_file=train.csv {_COLUMNS}",
    "DEV": "--dev_file=train.csv",
    "CONFIG": _CONFIG,
    "MODEL": f"--vocab_file=vocab.txt {_CONFIG}",
}
# What to do.
_REMEDY = re.compile(
    "(?i)give|did you mean|write|train first|mend|save|convert|copy"
    "|see --|name a|needs --|must be (one|given|at least)|value should be one of"
    "|could not convert|here: --|flags are written|must (not exceed|have)|download"
    "|is it the right"
)


def _write_files(folder):
    for name, content in _FILES.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def _said(line, folder):
    """The exit code, and what a command says in the end."""
    command, *arguments = shlex.split(string.Template(line).substitute(_SHORT))
    code, _, stderr, _ = outcome(command, *arguments)
    *_, last = stderr.removesuffix("Pass --help to see help on flags.\n").splitlines()
    return code, last.replace(os.path.realpath(folder), "FOLDER")


class FirstMessagesTest(tf.test.TestCase):
    def test_each_is_the_listed_one_and_says_what_to_do(self):
        lines = _LIST.read_text("utf-8").splitlines()
        listed = [
            (line[2:], message)
            for line, message in itertools.pairwise(lines)
            if line.startswith("$ ")
        ]
        self.assertGreaterEqual(len(listed), 60)
        folder = self.get_temp_dir()
        _write_files(folder)
        before, back = os.listdir(folder), os.getcwd()
        self.addCleanup(os.chdir, back)
        os.chdir(folder)
        for line, message in listed:
            code, said = _said(line, folder)
            self.assertEqual((said, code > 0), (message, True), line)
            self.assertRegex(said, _REMEDY, line)
        self.assertEqual({*os.listdir(folder)} - {*before, "out"}, set())


def _main():
    blocks = []
    with tempfile.TemporaryDirectory() as folder:
        lines = _LIST.read_text("utf-8").splitlines()
        _write_files(folder)
        os.chdir(folder)
        for line in lines:
            if line.startswith("#"):
                blocks.append(line)
            elif line.startswith("$ "):
                blocks.append(f"{line}\n{_said(line[2:], folder)[1]}")
    _LIST.write_text("\n\n".join(blocks) + "\n", "utf-8")


if __name__ == "__main__":
    _main()
