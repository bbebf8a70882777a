"""docs/new_task.py, the worked example of a new kind of task, learns and is chosen."""

import importlib.util
import json
import pathlib
import random
import sys
from unittest import mock

import pytest

from bert_tf.base import cli
from bert_tf.conversion import names
from tests.script_case import ScriptCase

PATH = pathlib.Path(__file__).resolve().parents[2] / "docs" / "new_task.py"
COMMON, ODD = ("a", "b", "c", "d"), ("x", "y")

pytestmark = pytest.mark.checkout


class NewTaskTest(ScriptCase):
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *COMMON, *ODD)

    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.dict(names.HEADS))
        spec = importlib.util.spec_from_file_location("new_task", PATH)
        self.script = importlib.util.module_from_spec(spec)
        self.enter_context(mock.patch.dict(sys.modules, new_task=self.script))
        spec.loader.exec_module(self.script)
        self.write("train.tsv", 256, 1)
        self.write("dev.tsv", 40, 2)

    def write(self, name, count, seed):
        chosen = random.Random(seed)
        with open(self.path(name), "w") as file:
            for _ in range(count):
                words = chosen.choices(COMMON, k=chosen.randint(3, 9))
                place = chosen.randrange(len(words))
                words[place] = chosen.choice(ODD)
                file.write(f"{' '.join(words)}\t{place}\n")

    def defaults(self):
        files = {
            name: self.path(f"{name[:-5]}.tsv") for name in ("train_file", "dev_file")
        }
        return {**files, "max_seq_length": 12, "length_buckets": 1}

    def test_it_learns_to_point_and_keeps_the_best_of_two_runs(self):
        self.run_script(
            *("--do_train", "--do_eval", "--learning_rates=3e-2,1e-6"),
            num_train_epochs=3,
        )
        self.assertGreater(self.results()["accuracy"], 0.9)
        with open(self.path("run", "selection.jsonl")) as file:
            self.assertLen([json.loads(line) for line in file], 3)
        self.assertLen(self.read("run", "dev_tokens.txt").splitlines(), 40)

    def test_a_wrong_line_is_named(self):
        with open(self.path("train.tsv"), "a") as file:
            file.write("a b\t2\n")
        with self.assertRaisesRegex(
            self.script.InputError, "train.tsv:257: give a sent"
        ):
            self.run_script("--do_train")

    def test_its_flags(self):
        kind = cli.options_of(self.script.run)
        self.assertIn("lora_rank", kind.__dataclass_fields__)
