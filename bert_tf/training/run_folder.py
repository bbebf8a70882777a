"""The files in a run's output_dir, in addition to its checkpoints.

    bert_config.json       the architecture
    vocab.txt              the vocabulary, one token per line
    tokenizer_config.json  {"do_lower_case": true}
    flags.json             the resolved flags of the last start that trained
    starts.jsonl           one JSON object per start that trained: the step it started
                           from, its task, its data, its settings, its flags
    labels.txt             a classifier's labels, in the order of its outputs
    problem_type.txt       what it predicts, if the labels do not show it
                           (`bert_tf.conversion.tokenizer_files`)
    metrics.jsonl          one JSON object per log step (`bert_tf.training.reporting`)
    curves.png             the same as a picture (`bert_tf.training.reporting`)
    eval_results.txt       `key = value`, sorted, in the original's format

A folder belongs to one model, one vocabulary, one task and its training data; another
one is refused before anything is overwritten. Pre-training may change its data:
the paper's second phase reads longer records.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files, strict_json
from bert_tf.config import REGRESSION, SINGLE_LABEL, BertConfig
from bert_tf.conversion.names import heads_of
from bert_tf.conversion.source import CONFIG_NAME
from bert_tf.conversion.tokenizer_files import (
    TOKENIZER_CONFIG_NAME,
    VOCAB_NAME,
    casing_of,
    read_labels,
    write_labels,
)
from bert_tf.errors import InputError
from bert_tf.options import Options
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.checkpoint_files import (
    CheckpointReader,
    DamagedCheckpointError,
    candidates,
    shown_key,
)
from bert_tf.training.reporting import Reporter, write_curves
from bert_tf.training.strategy import Agreement, is_chief

FLAGS_NAME = "flags.json"
STARTS_NAME = "starts.jsonl"
EVAL_RESULTS_NAME = "eval_results.txt"


@dataclasses.dataclass(frozen=True)
class RunData:
    """What a run trains on.

    Attributes:
        name: for messages: "3668 examples of /glue/MRPC/train.tsv".
        digest: a SHA-256 of the examples, independent of their location.
    """

    name: str
    digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a run: a line of starts.jsonl.

    Attributes:
        task: the task's name.
        data: what is trained on.
        settings: the settings that decide a run's result, by name.
        flags: all resolved flags.
        step: what the run resumed at.
    """

    task: str
    data: RunData
    settings: Mapping[str, Any]
    flags: Mapping[str, Any]
    step: int = 0


@contextlib.contextmanager
def held_for_training(folder: str, strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Locks the folder against other trainings; all workers call it, one locks."""
    handle, error = None, None
    if is_chief(strategy) and not files.is_remote(folder):
        try:
            handle = files.lock(
                folder,
                "another run is training in this --output_dir; wait for it, stop it, or"
                " give another folder.",
            )
        except InputError as locked:
            error = locked
    try:
        if Agreement(strategy, 1).sum([float(error is not None)])[0]:
            raise error or InputError(f"{folder}: another run is training in it.")
        yield
    finally:
        if handle is not None:
            os.close(handle)


def prepare(
    folder: str,
    config: BertConfig,
    vocabulary: Vocabulary | None,
    do_lower_case: bool,
    options: Options,
    *,
    head: str,
    task: str | None = None,
    data: RunData | None = None,
) -> None:
    """Creates the folder, or checks that it belongs to this model, task and data."""
    files.make_folder(folder)
    _refuse_other_task(folder, task, data)
    _refuse_other_head(folder, head)
    config_path = os.path.join(folder, CONFIG_NAME)
    flags_path = os.path.join(folder, FLAGS_NAME)
    # A start that failed before its first checkpoint leaves nothing to protect; a
    # config without flags next to it is the user's own.
    has_run = files.exists(os.path.join(folder, "checkpoint"))
    is_own = files.exists(config_path) and not files.exists(flags_path)
    if has_run and not files.exists(config_path):
        raise InputError(
            f"--output_dir={folder} has a checkpoint, but no {CONFIG_NAME}: it is"
            " another program's, or the file was removed. Give another folder, or put"
            " the file back."
        )
    if has_run or is_own:
        refuse_other_config(BertConfig.from_json_file(config_path), config, folder)
    vocab_path = os.path.join(folder, VOCAB_NAME)
    is_own_vocab = files.exists(vocab_path) and not files.exists(flags_path)
    if vocabulary is not None and (
        is_own_vocab or (has_run and files.exists(vocab_path))
    ):
        there = Vocabulary.from_file(vocab_path)
        if there.sha256 != vocabulary.sha256:
            raise InputError(
                f"--output_dir={folder} holds a run with another vocabulary"
                f" ({len(there)} tokens there, {len(vocabulary)} here, or other ones)."
                " Give another folder."
            )
        casing = casing_of(folder)
        if casing is not None and casing != do_lower_case:
            raise InputError(
                f"--output_dir={folder} holds a run with do_lower_case={casing}; this"
                f" one has {do_lower_case}. Give another folder."
            )
    if not is_own:
        files.write_atomically(config_path, config.to_json_string())
    if vocabulary is not None:
        if not is_own_vocab:
            vocabulary.save(vocab_path)
        files.write_atomically(
            os.path.join(folder, TOKENIZER_CONFIG_NAME),
            json.dumps({"do_lower_case": do_lower_case}) + "\n",
        )
    if not has_run:
        _write_flags(folder, options.as_flags())


def record_start(folder: str, step: int, start: Start) -> None:
    """Records a start that trains: starts.jsonl, flags.json."""
    path = os.path.join(folder, STARTS_NAME)
    start = dataclasses.replace(start, step=step)
    line = json.dumps(dataclasses.asdict(start), sort_keys=True)
    # As bytes: a damaged history does not prevent training.
    before = files.read_bytes(path) if step and files.exists(path) else b""
    if before and not before.endswith(b"\n"):
        before += b"\n"
    files.write_atomically(path, before + line.encode() + b"\n")
    _write_flags(folder, start.flags)


def differences(folder: str, start: Start) -> str:
    """How a start's settings differ from the previous ones; "" if they do not."""
    before = _last_start(folder)
    if before is None:
        return ""
    old = {**before.settings, "data": before.data.name}
    new = {**start.settings, "data": start.data.name}
    if before.data.digest == start.data.digest:
        new["data"] = old["data"]  # it has moved
    # A setting that only one of them has is one that the other version lacks.
    new = json.loads(json.dumps(new))
    return ", ".join(
        f"{name} was {old[name]} and is {new[name]}"
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name]
    )


def _write_flags(folder: str, values: Mapping[str, Any]) -> None:
    files.write_atomically(
        os.path.join(folder, FLAGS_NAME),
        json.dumps(values, indent=2, sort_keys=True) + "\n",
    )


def _last_start(folder: str) -> Start | None:
    """The last line of starts.jsonl; None if there is none that can be read."""
    path = os.path.join(folder, STARTS_NAME)
    if not files.exists(path):
        return None
    lines = files.read_bytes(path).splitlines() or [b""]
    try:
        line = lines[-1].decode("utf-8", "replace")
        values = files.parse_json(line, path, len(lines))
        return strict_json.from_values(Start, values, path)
    except InputError as error:
        logging.warning("What the run was made with is unknown. %s", error)
        return None


def _refuse_other_task(folder: str, task: str | None, data: RunData | None) -> None:
    """Raises InputError if a folder's run has another task, or other data."""
    if task is None or not files.exists(os.path.join(folder, "checkpoint")):
        return
    there = _last_start(folder)
    if there is None:
        # Before runs had a history, flags.json had the classifiers' task.
        old, new = _task_in_flags(folder) or task, task
        if old.lower() == new.lower():
            return
    elif there.task != task:
        old, new = there.task, task
    elif data is not None and there.data.digest != data.digest:
        old, new = (f"{task}, {name}" for name in (there.data.name, data.name))
    else:
        return
    raise InputError(
        f"--output_dir={folder} holds a run on {old}; this one is on {new}. Give"
        " another folder; to start from that run, name it as --init_checkpoint."
    )


def _task_in_flags(folder: str) -> str | None:
    """A run's --task_name, from flags.json."""
    path = os.path.join(folder, FLAGS_NAME)
    if not files.exists(path):
        return None
    try:
        values = files.read_json(path)
    except InputError:
        return None
    name = values.get("task_name") if isinstance(values, dict) else None
    return name if isinstance(name, str) else None


def check_labels(folder: str, labels: Sequence[str], problem_type: str) -> None:
    """Records what a classifier predicts, or checks that it agrees with the folder."""
    refuse_other_labels(folder, labels, problem_type)
    write_labels(folder, labels, problem_type)


def refuse_other_labels(folder: str, labels: Sequence[str], problem_type: str) -> None:
    """Raises InputError if the folder's classifier predicts something else."""
    there, problem_there = read_labels(folder)
    if there is not None:
        problem_there = problem_there or (SINGLE_LABEL if there else REGRESSION)
        old, new = _described(there, problem_there), _described(labels, problem_type)
        if old != new:
            raise InputError(
                f"--output_dir={folder} holds a run with {old}; this one has {new}."
                " Give another folder."
            )


def recorded_labels(folder: str) -> list[str] | None:
    """The labels that a classifier's run recorded; None if there are none."""
    labels, _ = read_labels(folder)
    return None if labels is None else list(labels)


def _described(labels: Sequence[str], problem_type: str) -> str:
    """Labels and problem type for a message: "the labels no, yes"."""
    words = f"the labels {', '.join(labels)}" if labels else "no labels"
    return words if problem_type == SINGLE_LABEL else f"{words} ({problem_type})"


def refuse_other_config(there: BertConfig, here: BertConfig, folder: str) -> None:
    """Raises InputError if a folder's model has other weights than this one.

    What changes no weight's shape or meaning may differ: the initializer, and dropout
    rates unless one of them is 0 (a run without dropout has no state of it to resume).
    """
    dropout = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    # All fields: `to_dict` leaves out those of ours that have their defaults.
    old, new = dataclasses.asdict(there), dataclasses.asdict(here)
    for key in old:
        if key == "initializer_range" or (key in dropout and old[key] and new[key]):
            continue
        if old[key] != new[key]:
            raise InputError(
                f"--output_dir={folder} holds a run of another model:"
                f" {key} is {old[key]} there, {new[key]} here. Give another folder."
            )


def _refuse_other_head(folder: str, head: str) -> None:
    """Raises InputError if a folder's checkpoints are of a model with another head."""
    for prefix in candidates(folder):
        try:
            keys = CheckpointReader(prefix).shapes
        except DamagedCheckpointError:
            continue  # logged when the run resumes, from an older one
        there = heads_of(shown_key(key).removeprefix("weights/") for key in keys)
        if there and head not in there:
            raise InputError(
                f"--output_dir={folder} holds a run of another task: its model's head"
                f" is for {' and '.join(there)}, this one's for {head}. Give another"
                " folder."
            )
        return


def report_evaluation(
    folder: str,
    step: int,
    results: Mapping[str, float],
    *,
    names: Mapping[str, str] | None = None,
    keeps_others: bool = False,
    is_chief: bool = True,
    task_name: str,
) -> None:
    """Records an evaluation: eval_results.txt, metrics.jsonl, TensorBoard, the log.

    If the folder has a run, its curves are redrawn.
    """
    reporter = Reporter(folder, step, after_training=True, is_chief=is_chief)
    if keeps_others:
        results = {**(reporter.evaluation(step) or {}), **results}
    reporter.report_evaluation(step, results)
    reporter.close()
    if not is_chief:
        return
    # Values as the original prints them: the shortest digits that give this float32.
    names = names or {}
    shown = {
        names.get(name, name): str(np.float32(value)) for name, value in results.items()
    }
    shown["global_step"] = str(step)
    lines = [f"{name} = {shown[name]}\n" for name in sorted(shown)]
    files.write_atomically(os.path.join(folder, EVAL_RESULTS_NAME), "".join(lines))
    write_curves(folder, task_name)
