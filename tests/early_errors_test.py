"""What is wrong with the files is said before TensorFlow is imported."""

import json

from tests.processes import run_python
from tests.script_case import FolderCase

# TensorFlow and Keras cannot be imported.
RUNS = """
import importlib, json, sys
sys.modules |= dict.fromkeys(("tensorflow", "keras"))
from bert_tf.base import cli
from bert_tf.base.errors import InputError
for command, *arguments in json.loads(sys.argv[1]):
    run = importlib.import_module(f"bert_tf.{command}").run
    try:
        run(cli.parse(run, arguments))
    except InputError as error:
        print(json.dumps(str(error)))
    except ModuleNotFoundError as error:
        print(json.dumps(f"no {error.name}"))
"""
# What follows a good file: the import of TensorFlow or Keras.
NOT_REFUSED = "^no (tensorflow|keras)|^tensorflow is not installed"


class EarlyErrorsTest(FolderCase):
    def test_files_without_rows_and_columns(self):
        table, empty, one, two, asked = (
            f"--train_file={self.write(name, content)}"
            for name, content in (
                ("t.csv", "review,stars\na b,1\n"),
                ("empty.csv", ""),
                ("one.txt", "EU\n\n"),
                ("two.txt", "EU B-ORG\n\n"),
                ("q.jsonl", '{"question": "a"}\n'),
            )
        )
        named = ["--text_a_column=review", "--label_column=stars"]
        rows = f"--input_file={self.path('t.csv')}"
        commands = (
            (
                ["run_classifier", table],
                "t.csv: no column 'text_a' .`text_a_column`",
            ),
            (["run_classifier", empty], "empty.csv: the file is empty"),
            (
                ["run_classifier", table, *named, "--do_predict"],
                "`do_predict` needs `test_file`, .* bert_tf.predict predicts any",
            ),
            (["run_classifier", table, *named], NOT_REFUSED),
            (["run_ner", one], "one.txt:1: 1 columns, .* See `label_column`"),
            (["run_ner", empty], "empty.csv: the file is empty"),
            (["run_ner", two, "--word_column=2"], "`word_column=2`: no such column"),
            (
                ["run_ner", two, "--format=text"],
                "no labels, .* text by bert_tf.predict",
            ),
            (["run_ner", two], NOT_REFUSED),
            (["run_squad", empty], "empty.csv: the file is empty"),
            (["run_squad", asked], "q.jsonl: no column 'context'"),
            (["run_squad", asked, "--context_column=question"], "no column 'answer'"),
            (["predict", rows, "--text_a_column=x"], "t.csv:2: no column 'x'"),
            (["predict", rows, "--text_a_column=review"], NOT_REFUSED),
        )
        folder = self.path("out")
        given = [
            [*arguments, f"--checkpoint={folder}"]
            if arguments[0] == "predict"
            else [*arguments, "--do_train", f"--output_dir={folder}"]
            for arguments, _ in commands
        ]
        lines = run_python("-c", RUNS, json.dumps(given)).stdout.splitlines()
        for line, (arguments, message) in zip(lines, commands, strict=True):
            self.assertRegex(json.loads(line), message, arguments)
