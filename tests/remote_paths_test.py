"""Every command reads and writes paths with a scheme: file://, as gs:// is."""

import importlib.util
import json
import os
import pathlib
import shlex
import signal
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from absl.testing import parameterized

import bert_tf
from tests.golden import commands, inputs
from tests.processes import run_python

pytestmark = pytest.mark.slow

_TRAINING = (
    "--init_checkpoint=R/tiny/bert_model.ckpt --do_train --train_batch_size=8"
    " --num_train_epochs=1 --max_seq_length=32"
)
# A command that trains, and a file that it writes last.
_RUNS = {
    "classifier": (
        "run_classifier --task_name=tsv --data_dir=R/tables/classes --do_eval"
        " --do_predict --text_b_column=text_b",
        "test_results.tsv",
    ),
    "squad": (
        "run_squad --train_file=R/squad/train-v2.0.json --do_predict --doc_stride=8"
        " --predict_file=R/squad/dev-v2.0.json --version_2_with_negative"
        " --max_query_length=8",
        "null_odds.json",
    ),
    "swag": (
        "run_swag --do_eval --do_predict --train_file=R/swag/train.csv"
        " --dev_file=R/swag/val.csv --test_file=R/swag/test.csv",
        "test_results.tsv",
    ),
    "ner": (
        "run_ner --do_eval --do_predict --train_file=R/tags/train.txt"
        " --dev_file=R/tags/dev.txt --test_file=R/tags/test.txt",
        "test_predictions.txt",
    ),
    "embeddings": (
        "run_embeddings --do_eval --train_file=R/pairs.csv --dev_file=R/pairs.csv"
        " --text_columns=a,b --score_column=score --loss=cosine_similarity"
        " --max_score=4",
        "dev_predictions.csv",
    ),
}
# A text that each head reads.
_TEXTS = {
    "classifier": f"{inputs.WORDS[0]} ||| {inputs.WORDS[1]}",
    "squad": f"{inputs.WORDS[0]}? ||| {inputs.WORDS[1]} {inputs.WORDS[2]}.",
    "ner": " ".join(inputs.WORDS[:3]),
}
# Kills itself when it saves a checkpoint for the third time.
_KILLED = """
import os
from bert_tf.training.checkpoints import RunCheckpoints
from tests.golden import commands
save, steps = RunCheckpoints.save, []
def counted(self, step, *arguments):
    if len(steps) == 2:
        self.wait()
        os.kill(os.getpid(), 9)
    steps.append(step)
    save(self, step, *arguments)
RunCheckpoints.save = counted
import shlex, sys
commands.run(shlex.join(sys.argv[1:]))
"""
_RUNTIMES = {"onnx": "onnx", "litert": "litert_converter"}


class RemotePathsTest(parameterized.TestCase, tf.test.TestCase):
    """R in a command line is the folder of all files; what ran once is kept."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls._folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._folder.cleanup)
        cls.here = pathlib.Path(cls._folder.name, "files")
        cls.remote = f"file://{cls.here}"
        inputs.write(str(cls.here))
        pairs = [f"{a},{b},{n % 5}" for n, (a, b) in enumerate(_pairs())]
        (cls.here / "pairs.csv").write_text("\n".join(["a,b,score", *pairs]))
        cls.ran = set()

    def setUp(self):
        super().setUp()
        # A path taken for a local one would be a folder `file:` in it.
        self.empty = tempfile.mkdtemp(dir=self._folder.name)
        before = os.getcwd()
        os.chdir(self.empty)
        self.addCleanup(os.chdir, before)

    def tearDown(self):
        self.assertEqual(os.listdir(self.empty), [])
        super().tearDown()

    def line(self, line):
        return line.replace("R/", f"{self.remote}/")

    def run_line(self, line):
        return commands.run(self.line(line))

    def run_of(self, name):
        """A folder that a fine-tuning command has written."""
        if name not in self.ran:
            line, last = _RUNS[name]
            self.run_line(f"{line} {_TRAINING} --output_dir=R/{name}")
            self.assert_written(name, last)
            self.ran.add(name)
        return f"{self.remote}/{name}"

    def assert_written(self, *names):
        path = self.here.joinpath(*names)
        self.assertTrue(path.is_file() and path.stat().st_size > 0, path)

    def test_records_and_vocabularies(self):
        self.run_line(
            "learn_vocabulary --input_file=R/corpus/*.txt --output_file=R/learned.txt"
            " --vocab_size=80"
        )
        self.assert_written("learned.txt")
        made = (
            "create_pretraining_data --vocab_file=R/release/vocab.txt --dupe_factor=1"
            " --input_file=R/corpus/*.txt --max_seq_length=32 --num_workers=1"
        )
        one, several = "one/a.tfrecord", "several/a.tfrecord"
        self.run_line(f"{made} --output_file=R/{one}")
        self.run_line(f"{made} --output_file=R/{several} --num_shards=2")
        shards = sorted(self.here.joinpath("several").glob("*-of-00002"))
        self.assertLen(shards, 2)
        # As a local file is.
        commands.run(
            self.line(made).replace("file://", "") + f" --output_file={self.empty}/l"
        )
        local = pathlib.Path(self.empty)
        self.assertEqual((local / "l").read_bytes(), (self.here / one).read_bytes())
        for path in local.iterdir():
            path.unlink()
        shown = self.run_line(f"inspect_records R/{several}*")
        self.assertNotEmpty(shown)

    def test_a_run_of_pretraining_that_is_killed_and_resumed(self):
        self.run_line(
            "create_pretraining_data --vocab_file=R/tiny/vocab.txt --dupe_factor=1"
            " --input_file=R/corpus/*.txt --max_seq_length=32 --num_workers=1"
            " --output_file=R/pretraining.tfrecord"
        )
        line = self.line(
            "run_pretraining --input_file=R/pretraining.tfrecord --output_dir=R/DIR"
            " --bert_config_file=R/tiny/bert_config.json --do_train --do_eval"
            " --train_batch_size=8 --num_train_steps=12 --num_warmup_steps=2"
            " --max_eval_steps=2 --save_checkpoints_steps=5 --log_steps=5"
        )
        arguments = shlex.split(line.replace("DIR", "killed"))
        paths = os.pathsep.join(sys.path)
        killed = run_python("-c", _KILLED, *arguments, PYTHONPATH=paths)
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        self.assertNotEmpty(
            list(self.here.joinpath("killed").glob("model.ckpt-*.index"))
        )
        commands.run(line.replace("DIR", "killed"))
        commands.run(line.replace("DIR", "whole"))
        results = [
            (self.here / name / "eval_results.txt").read_text()
            for name in ("killed", "whole")
        ]
        self.assertEqual(*results)

    @parameterized.parameters(*_RUNS)
    def test_fine_tuning(self, name):
        path = self.run_of(name)
        model = bert_tf.load(path)
        self.assertIsNotNone(model)
        # Finished: nothing is trained again.

        def written():
            found = self.here.joinpath(name).glob("model.ckpt-*")
            return {path.name: path.stat().st_mtime_ns for path in found}

        before = written()
        self.assertNotEmpty(before)
        line, _ = _RUNS[name]
        self.run_line(f"{line} {_TRAINING} --output_dir=R/{name}")
        self.assertEqual(written(), before)

    @parameterized.parameters("csv", "tsv", "jsonl", "parquet")
    def test_predict(self, kind):
        self.run_of("classifier")
        rows = [dict(zip(("text_a", "text_b"), pair, strict=True)) for pair in _pairs()]
        path = self.here / f"in.{kind}"
        if kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif kind == "parquet":
            pa.parquet.write_table(pa.Table.from_pylist(rows), path)
        else:
            between = "," if kind == "csv" else "\t"
            lines = [between.join(rows[0]), *(between.join(r.values()) for r in rows)]
            path.write_text("\n".join(lines) + "\n")
        written = "jsonl" if kind == "parquet" else kind
        self.run_line(
            f"predict --checkpoint=R/classifier --input_file=R/in.{kind}"
            f" --output_file=R/scored_{kind}.{written}"
        )
        lines = (self.here / f"scored_{kind}.{written}").read_text().splitlines()
        self.assertLen(lines, len(rows) + (written != "jsonl"))

    @parameterized.parameters(
        "tf1", "huggingface", "kerashub", "saved_model", "onnx", "litert"
    )
    def test_exports(self, kind):
        if kind in _RUNTIMES and not importlib.util.find_spec(_RUNTIMES[kind]):
            self.skipTest(f"{_RUNTIMES[kind]} is not installed")
        run = self.run_of("classifier")
        self.run_line(
            f"export_model --checkpoint=R/classifier --format={kind}"
            f" --output_dir=R/exports/{kind}"
        )
        path = f"{self.remote}/exports/{kind}"
        texts, others = zip(*_pairs(), strict=True)
        if kind == "kerashub":  # the encoder alone
            wanted, found = (bert_tf.load(each).embed(texts) for each in (run, path))
            self.assertAllClose(found, wanted, atol=1e-5)
            return
        if kind == "saved_model":
            loaded = tf.saved_model.load(path)
            outputs = loaded.signatures["serving_default"](
                text_a=tf.constant(texts), text_b=tf.constant(others)
            )
            wanted = bert_tf.load(run).predict(texts, others)
            self.assertAllClose(
                outputs["probabilities"],
                [[*each.probabilities.values()] for each in wanted],
                atol=1e-5,
            )
            return
        wanted, found = (
            bert_tf.load(each).predict(texts, others) for each in (run, path)
        )
        self.assertAllClose(
            [[*each.probabilities.values()] for each in found],
            [[*each.probabilities.values()] for each in wanted],
            atol=1e-5,
        )

    @parameterized.parameters(*_TEXTS)
    def test_explain(self, name):
        self.run_of(name)
        text = shlex.quote(_TEXTS[name])
        self.run_line(
            f"explain --checkpoint=R/{name} --output_file=R/{name}.html {text}"
        )
        self.assert_written(f"{name}.html")

    def test_compare(self):
        self.run_of("classifier")
        self.run_line(
            f"{_RUNS['classifier'][0]} {_TRAINING} --output_dir=R/other --random_seed=2"
        )
        shown = self.run_line(
            "compare R/classifier R/other --num_samples=100 --output_file=R/both.png"
        )
        self.assertIn("accuracy", shown)

    def test_plan(self):
        line = (
            "plan --input_file=R/corpus/*.txt --output_dir=R/planned --hours=1"
            " --init_checkpoint=R/tiny/bert_model.ckpt"
        )
        shown = self.run_line(line)
        self.assertIn("create_pretraining_data", shown)
        self.assertEqual(self.run_line(line), shown)


def _pairs():
    """Ten pairs of made-up texts of one to four words."""
    words = np.array(inputs.WORDS)
    return [
        (" ".join(words[n : n + 1 + n % 4]), " ".join(words[n + 9 : n + 10 + n % 3]))
        for n in range(10)
    ]


if __name__ == "__main__":
    tf.test.main()
