"""Runs the guide's commands and Python blocks in order, on small files."""

import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.readme import forks
from tests.readme.commands import commands
from tests.readme.markdown import blocks, code_spans, prose

# (what, its place taken by, why): in commands and in Python.
REPLACED = (
    (r"--bert_size=(small|base|large)", "--bert_size=tiny", "a step takes seconds"),
    (
        r"--phases=128:900000:256,512:100000:256",
        "--phases=128:3:8,512:2:4",
        "four days on 16 TPUs",
    ),
    (r"--tasks=all", "--tasks=all --learning_rates=5e-5,2e-5", "each is a run a task"),
    (r"--num_shards=64", "--num_shards=2", "the text is small"),
    (r"--num_train_steps=\d{4,}", "--num_train_steps=3", "it would take days"),
    (r"--max_train_hours=\d+", "--max_train_hours=0.002", "it would take hours"),
    (r"--stop_if='[^']*'", "--stop_if='loss>99@0.0001h'", "it would take hours"),
    (r"--hours=\d+", "--hours=0.03", "it would take hours"),
    (r"--num_warmup_steps=\d{4,}", "--num_warmup_steps=1", "it would take days"),
    (r"--train_batch_size=256", "--train_batch_size=8", "it would take days"),
    (r"vocab_size=(8000|30522)", "vocab_size=1500", "the text is small"),
    (r"--num_new_tokens=2000", "--num_new_tokens=20", "the text is small"),
    (
        r"num_new_tokens=1000",
        "num_new_tokens=20 --min_frequency=1",
        "the text is small",
    ),
    (r"steps_per_epoch=1000", "steps_per_epoch=2", "it would take days"),
    (
        r"--output_file=vocab\.txt",
        "--output_file=vocab_of_text.txt",
        "a vocabulary is not written over: the commands before it need theirs",
    ),
)
# (before which, what is run first, why).
PREPARED = (
    (
        r"python -m bert_tf\.ensemble_squad",
        "cp -r /tmp/squad_base /tmp/squad_other",
        "the same command as for /tmp/squad_base with another seed",
    ),
    (
        r"python -m bert_tf\.compare",
        "cp -r /tmp/mrpc /tmp/mrpc_other",
        "the same command as for /tmp/mrpc with another seed",
    ),
)
# (which, why). What they say is held against the project by `tests.readme.checks`.
NOT_RUN = (
    (r"make ", "sets up an environment; what it runs is tested by itself"),
    (r"pip ", "changes the environment; make test-tpu-build and test-wheel do that"),
    (r".*gs://", "no cloud"),
    (r".*--runner=", "make test-beam has Apache Beam, in an environment of its own"),
    (r".*--distribution=tpu|.*--use_tpu", "no TPU"),
    (
        r".*--distribution=multi_worker|export TF_CONFIG",
        "several machines: tests/training/strategy_test.py has two processes",
    ),
    (r"git |cd |source |tensorboard ", "not this package"),
    (r"export [A-Z_]+_DIR=", "the test has such folders"),
    (r".*--tfds_name=|.*kaggle://|.*hf://|hf |.*bert-base-uncased", "downloads"),
    (r"python benchmarks/", "hours, and data sets"),
    (
        r".*bert_tf\.compare .*--output_file",
        "long runs: tests/compare_test.py has such",
    ),
    (r".*bert_tf\.run_paper", "hours: tests/run_paper_test.py has its parts"),
)
# (which, why), of the files that the text names.
NOT_WRITTEN = (
    (r"NAME\.", "any name"),
    (r"problem_type\.txt", "of several labels, or several numbers"),
    (r"nonfinite-step-N\.tfrecord", "of a loss that is not finite"),
    (r"record_counts\.json", "of records without a manifest"),
    (r"pytorch_model\.bin", "is what we do not open"),
    (r"table_5\.md", "of run_paper"),
    (r"trackers\.json", "of libraries that the tests do not have"),
)
_FILE = re.compile(
    r"(?:OUTPUT_DIR/)?([\w.-]+\.(?:tsv|txt|jsonl?|png|md|zip|tf_?record|safetensors))"
)
_TIME_LIMIT = 1800


class Failure(NamedTuple):
    """A command that did not end well."""

    line: int
    text: str
    output: str

    def __str__(self) -> str:
        """For people."""
        return (
            f"line {self.line}: {self.text}\n"
            "failed. (It ran on what tests/readme/small_files.py writes;"
            " tests/readme/running.py has what is replaced, and what is not run.)\n"
            f"{self.output}"
        )


class Runner:
    """A place to run commands in."""

    def __init__(
        self,
        root: pathlib.Path,
        folder: pathlib.Path,
        work: pathlib.Path,
        variables: dict[str, str],
    ) -> None:
        """Makes the place."""
        self._root, self._folder = root, folder
        self._tmp = folder / "tmp"
        self._tmp.mkdir()
        self._work = work
        # `python` is the one that runs the tests, with TensorFlow imported before.
        programs = folder / "bin"
        programs.mkdir()
        python = programs / "python"
        command = f'"{sys.executable}" -IS "{forks.__file__}" "{folder}/socket" "$@"'
        python.write_text(f"#!/bin/sh\nexec {command}\n")
        python.chmod(0o755)
        paths = (str(programs), os.environ.get("PATH", os.defpath))
        self._environment = {
            **os.environ,
            **variables,
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": str(root),
        }
        # Where it is set, our commands let TensorFlow speak at its import.
        self._environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        self.server = forks.Server(f"{folder}/socket", self._environment)

    def run(self, markdown: str) -> Iterator[tuple[str, float, Failure | None]]:
        """Runs everything in the order of the file."""
        pieces: list[tuple[int, str, str | None]] = [
            (command.line, command.text, None) for command in commands(markdown)
        ]
        for block in blocks(markdown):
            if block.language == "python" and block.title:
                (self._work / block.title).write_text(block.text, "utf-8")
            elif block.language == "python":
                name = f"the Python block {block.text.splitlines()[0]}"
                pieces.append((block.line, name, block.text))
        for line, text, python in sorted(pieces, key=lambda piece: piece[0]):
            if python is None and any(re.match(rule, text) for rule, _ in NOT_RUN):
                continue
            for which, before, _ in PREPARED:
                if python is None and re.match(which, text):
                    self._failure(line, before, None)
            began = time.monotonic()
            failure = self._failure(line, text, python)
            yield text, time.monotonic() - began, failure

    def unwritten(self, markdown: str) -> Iterator[str]:
        """The files that the text names and that lie nowhere after it was run."""
        there = {path.name for path in self._folder.rglob("*")}
        for span in code_spans(prose(markdown)):
            name = _FILE.fullmatch(span.text)
            expected = name and not any(
                re.match(rule, name[1]) for rule, _ in NOT_WRITTEN
            )
            if (
                expected
                and name[1] not in there
                and not (self._root / name[1]).exists()
            ):
                yield f"line {span.line}: no command has written {name[1]}"

    def _failure(self, line: int, text: str, python: str | None) -> Failure | None:
        """Runs a command, or Python code as a notebook would."""
        code = self._rewritten(text if python is None else python)
        try:
            result = subprocess.run(
                ["bash", "-c", code if python is None else "python -"],
                input="" if python is None else code,
                cwd=self._work,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Failure(line, text, f"It took more than {_TIME_LIMIT} seconds.")
        if result.returncode == 0:
            return None
        return Failure(
            line, text, f"exit code {result.returncode}\n{result.stdout[-2000:]}"
        )

    def _rewritten(self, code: str) -> str:
        for what, new, _ in REPLACED:
            code = re.sub(what, new, code)
        return re.sub(r"(?<![\w.])/tmp/", f"{self._tmp}/", code)
