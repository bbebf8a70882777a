"""Every notebook, run cell by cell with SMALL, in a folder of its own."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.addons.teaching import notebook_files

pytestmark = [pytest.mark.checkout, pytest.mark.slow]

ROOT = str(notebook_files.FOLDER.parent)
# Seconds; on two idle cores a notebook takes a minute or two.
LIMIT = 1800
# A single thin line in a picture is more.
LEAST_COLOUR = 0.002


def run_notebook(path, folder, **environment):
    """(exit code, report) of `tests.addons.teaching.run_notebook` in a folder."""
    report = os.path.join(folder, "report.json")
    result = subprocess.run(
        [sys.executable, "-m", "tests.addons.teaching.run_notebook", str(path), report],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]),
            # The `python` of the commands.
            "PATH": os.pathsep.join(
                [os.path.dirname(sys.executable), os.environ["PATH"]]
            ),
            "IPYTHONDIR": os.path.join(folder, ".ipython"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if not os.path.exists(report):
        raise AssertionError(result.stderr)
    with open(report, encoding="utf-8") as file:
        return result.returncode, json.load(file)


class ExecutedNotebooksTest(tf.test.TestCase):
    def run_small(self, name, *, pictures, hidden_commands=3):
        """The output of all cells."""
        folder = self.get_temp_dir()
        code, cells = run_notebook(
            notebook_files.path_of(name), folder, BERT_TF_SMALL="1"
        )
        last = cells[-1]
        self.assertEqual(
            code, 0, f"{last['source']}\n{last['error']}\n{last['output'][-3000:]}"
        )
        self.assertLen(cells, len(notebook_files.sources(name)))
        ran = [command for cell in cells for command in cell["commands"]]
        written = [
            command
            for source in notebook_files.sources(name)
            for command in notebook_files.commands(source)
        ]
        # Each one of those that are written was run: none hides behind an `if`.
        self.assertLen(ran, len(written) + hidden_commands)
        shown = [path for cell in cells for path in cell["pictures"]]
        self.assertLen(shown, pictures)
        for path in shown:
            with open(path, "rb") as file:
                share = notebook_files.coloured_share(file.read())
            self.assertGreater(share, LEAST_COLOUR, path)
        output = "\n".join(cell["output"] for cell in cells)
        self.assertIn("bert_tf is installed already: nothing to install.", output)
        return output

    def test_pretrain_on_tpu(self):
        output = self.run_small("pretrain_on_tpu", pictures=1, hidden_commands=0)
        self.assertIn("model.ckpt-50.index", output)
        self.assertRegex(output, r"Restored .*model.ckpt-\d+ \(step \d+\)\.")
        self.assertRegex(output, r"Return \[MASK\] if .*\r?\n +[\d.]+%  \S+")

    def test_finetune_glue(self):
        output = self.run_small("finetune_glue", pictures=4)
        self.assertIn("eval_accuracy", output)
        self.assertIn("| SST-2", output)

    def test_squad(self):
        output = self.run_small("squad", pictures=3)
        self.assertIn("null_score_diff_threshold", output)
        self.assertRegex(output, r"How does the text begin\?\r?\n +[\d.]+%")

    def test_features_and_attention(self):
        output = self.run_small("features_and_attention", pictures=2)
        self.assertIn("selectivity", output)
        self.assertRegex(output, r"\n  0\.\d{3}  \S+")
