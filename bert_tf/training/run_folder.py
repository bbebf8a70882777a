"""The files in a run's output_dir besides its checkpoints.

    bert_config.json       the architecture
    vocab.txt              the vocabulary, one token per line
    tokenizer_config.json  {"do_lower_case": true}; "segmenter" if there is one
    flags.json             the resolved flags of the last start that trained
    reading.json           how the model reads texts (`bert_tf.conversion.reading`)
    starts.jsonl           one JSON object per start that trained: the first step, the
                           task, the data, the settings, the flags
    labels.txt             a classifier's labels, in the order of its outputs
    problem_type.txt       the kind of prediction, if the labels do not show it
                           (`bert_tf.conversion.tokenizer_files`)
    words.json             properties of a tagger's training words
    metrics.jsonl          one JSON object per log step (`bert_tf.training.reporting`)
    curves.png             the metrics as a picture (`bert_tf.training.reporting`)
    eval_results.txt       `key = value`, sorted, in the original's format
    nonfinite-step-*.tfrecord  the batch of a step whose loss was not finite

A folder belongs to one model, vocabulary, task and training data; others are refused
before anything is overwritten. Only pre-training may change its data: the paper's
second phase reads longer records.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.addons import addon
from bert_tf.base.config import REGRESSION, SINGLE_LABEL, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.options import FLAGS_NAME, Options, flags_of_run
from bert_tf.conversion.names import heads_of
from bert_tf.conversion.reading import of_flags
from bert_tf.conversion.source import CONFIG_NAME
from bert_tf.conversion.tensorflow import (
    CheckpointReader,
    DamagedCheckpointError,
    find_checkpoint,
    is_of_a_run,
    shown_key,
)
from bert_tf.conversion.tokenizer_files import (
    TOKENIZER_CONFIG_NAME,
    VOCAB_NAME,
    casing_of,
    read_labels,
    segmenter_of,
    write_labels,
)
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.checkpoints import STARTS_NAME, STATE_NAME, candidates
from bert_tf.training.reporting import Reporter, write_curves
from bert_tf.training.strategy import Strategy, is_chief, sum_over_workers

EVAL_RESULTS_NAME = "eval_results.txt"


@dataclasses.dataclass(frozen=True)
class RunData:
    """The training data of a run."""

    name: str  # for messages: "3668 examples of /glue/MRPC/train.tsv"
    digest: str  # SHA-256 of the examples, independent of their location


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a run: a line of starts.jsonl."""

    task: str
    data: RunData
    settings: Mapping[str, Any]  # settings that decide a run's result, by name
    flags: Mapping[str, Any]
    step: int = 0  # step at which the run resumed


@contextlib.contextmanager
def held_for_training(folder: str, strategy: Strategy) -> Iterator[None]:
    """Locks a folder against other trainings; all workers call it, one locks."""
    error = None
    with contextlib.ExitStack() as stack:
        if is_chief(strategy) and not files.is_remote(folder):
            try:
                handle = files.lock(
                    folder,
                    "another run is training in this `output_dir`; wait for it, stop"
                    " it, or give another folder.",
                )
                stack.callback(os.close, handle)
            except InputError as locked:
                error = locked
        if sum_over_workers(strategy, [float(error is not None)])[0]:
            raise error or InputError(f"{folder}: another run is training in it.")
        yield


def prepare(
    folder: str,
    config: BertConfig,
    vocabulary: Vocabulary | None,
    do_lower_case: bool,
    segmenter: str,
    options: Options,
    *,
    head: str,
    task: str | None = None,
    data: RunData | None = None,
    labels: Sequence[str] | None = None,
    problem_type: str = SINGLE_LABEL,
) -> None:
    """Creates a folder, or checks that it belongs to this model, task and data."""
    files.make_folder(folder)
    config_path, flags_path, vocab_path, state_path = (
        os.path.join(folder, name)
        for name in (CONFIG_NAME, FLAGS_NAME, VOCAB_NAME, STATE_NAME)
    )
    # A start that failed before its first checkpoint leaves nothing to protect; a file
    # without flags next to it is the user's own.
    has_run, has_flags = files.exists(state_path), files.exists(flags_path)
    if has_run and not has_flags and not is_of_a_run(other := find_checkpoint(folder)):
        raise InputError(
            f"`output_dir={folder}`: {other} is a checkpoint of another program, such"
            " as the original. Give it as `init_checkpoint`, with another `output_dir`."
        )
    if labels is not None:
        _refuse_other_labels(folder, labels, problem_type)
    _refuse_other_task(folder, task, data)
    _refuse_other_head(folder, head)
    is_own = files.exists(config_path) and not has_flags
    is_own_vocab = files.exists(vocab_path) and not has_flags
    if has_run and not files.exists(config_path):
        raise InputError(
            f"`output_dir={folder}` has a checkpoint, but no {CONFIG_NAME}: it is"
            " another program's, or the file was removed. Give another folder, or put"
            " the file back."
        )
    if has_run or is_own:
        refuse_other_config(BertConfig.from_json_file(config_path), config, folder)
    if (
        vocabulary is not None
        and files.exists(vocab_path)
        and (has_run or is_own_vocab)
    ):
        there, casing = Vocabulary.from_file(vocab_path), casing_of(folder)
        old_new = None
        if there.sha256 != vocabulary.sha256:
            old_new = f"{len(there)} tokens", f"{len(vocabulary)}, or other ones"
        elif casing not in (None, do_lower_case):
            old_new = f"do_lower_case={casing}", str(do_lower_case)
        elif segmenter_of(folder) not in (None, segmenter):
            old_new = f"segmenter={segmenter_of(folder)}", segmenter
        if old_new:
            raise InputError(
                f"`output_dir={folder}` holds a run with another vocabulary or casing:"
                f" {old_new[0]} there, {old_new[1]} here. Give another folder."
            )
    if not is_own:
        files.write_atomically(config_path, config.to_json_string())
    if vocabulary is not None:
        if not is_own_vocab:
            vocabulary.save(vocab_path)
        settings: dict[str, Any] = {"do_lower_case": do_lower_case}
        if segmenter != NO_SEGMENTER:
            settings["segmenter"] = segmenter
        files.write_atomically(
            os.path.join(folder, TOKENIZER_CONFIG_NAME), json.dumps(settings) + "\n"
        )
    if not has_run:
        _write_flags(folder, options.as_flags())
    if labels is not None:
        write_labels(folder, labels, problem_type)


def record_start(folder: str, step: int, start: Start) -> None:
    """Records a start that trains, in starts.jsonl and flags.json."""
    path = os.path.join(folder, STARTS_NAME)
    start = dataclasses.replace(start, step=step)
    line = json.dumps(dataclasses.asdict(start), sort_keys=True)
    # Read as bytes, so that a damaged history does not prevent training.
    before = files.read_bytes(path) if step and files.exists(path) else b""
    if before and not before.endswith(b"\n"):
        before += b"\n"
    files.write_atomically(path, before + line.encode() + b"\n")
    _write_flags(folder, start.flags)


def differences(folder: str, start: Start) -> str:
    """Describes how a start's settings differ from the previous ones, or returns ""."""
    before = _last_start(folder)
    if before is None:
        return ""
    old = {**before.settings, "data": before.data.name}
    new = {**start.settings, "data": start.data.name}
    if before.data.digest == start.data.digest:
        new["data"] = old["data"]  # the same data, moved
    # A setting in only one of them is one that the other version lacks.
    new = json.loads(json.dumps(new))
    return ", ".join(
        f"{name} was {old[name]} and is {new[name]}"
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name]
    )


def _write_flags(folder: str, values: Mapping[str, Any]) -> None:
    """Writes flags.json, and reading.json from it."""
    of_flags(values).write(folder)
    files.write_atomically(
        os.path.join(folder, FLAGS_NAME),
        json.dumps(values, indent=2, sort_keys=True) + "\n",
    )


def starts(folder: str) -> list[Start]:
    """Returns a run's starts; raises InputError for a damaged line."""
    path = os.path.join(folder, STARTS_NAME)
    if not files.exists(path):
        return []
    lines = files.read_bytes(path).decode("utf-8", "replace").splitlines()
    return [
        strict_json.from_values(Start, files.parse_json(line, path, number), path)
        for number, line in enumerate(lines, start=1)
    ]


def _last_start(folder: str) -> Start | None:
    """Returns the last line of starts.jsonl; None if there is no readable one."""
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
    """Raises InputError if a folder's run has another task or other data."""
    if task is None or not files.exists(os.path.join(folder, STATE_NAME)):
        return
    there = _last_start(folder)
    if there is None:
        return
    if there.task != task:
        old, new = there.task, task
    elif data is not None and there.data.digest != data.digest:
        old, new = (f"{task}, {name}" for name in (there.data.name, data.name))
    else:
        return
    raise InputError(
        f"`output_dir={folder}` holds a run on {old}; this one is on {new}. Give"
        " another folder; to start from that run, name it as `init_checkpoint`."
    )


def _refuse_other_labels(folder: str, labels: Sequence[str], problem_type: str) -> None:
    """Raises InputError if a folder's classifier predicts something else."""
    there, problem_there = read_labels(folder)
    if there is None:
        return
    problem_there = problem_there or (SINGLE_LABEL if there else REGRESSION)
    old, new = (
        f"{', '.join(names) or 'no labels'} ({kind})"
        for names, kind in ((there, problem_there), (labels, problem_type))
    )
    if old != new:
        raise InputError(
            f"`output_dir={folder}` holds a run with the labels {old}; this one has"
            f" {new}. Give another folder."
        )


def refuse_other_config(there: BertConfig, here: BertConfig, folder: str) -> None:
    """Raises InputError if a folder's model has other weights than this one.

    The initializer may differ, as may dropout rates, unless one of them is 0: a run
    without dropout has no random state to resume.
    """
    dropout = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    # All fields are compared: `to_dict` leaves out fields of ours with default values.
    old, new = dataclasses.asdict(there), dataclasses.asdict(here)
    for key in old:
        if key == "initializer_range" or (key in dropout and old[key] and new[key]):
            continue
        if old[key] != new[key]:
            raise InputError(
                f"`output_dir={folder}` holds a run of another model:"
                f" {key} is {old[key]} there, {new[key]} here. Give another folder."
            )


def _refuse_other_head(folder: str, head: str) -> None:
    """Raises InputError if a folder's checkpoints have another head."""
    for prefix in candidates(folder):
        try:
            keys = CheckpointReader(prefix).shapes
        except DamagedCheckpointError:
            continue  # logged when the run resumes from an older one
        there = heads_of(shown_key(key).removeprefix("weights/") for key in keys)
        if there and head not in there:
            raise InputError(
                f"`output_dir={folder}` holds a run of another task: its model's head"
                f" is for {' and '.join(there)}, this one's for {head}. Give another"
                " folder."
            )
        return


def forget_results(folder: str, prefix: str) -> None:
    """Removes results with this prefix from a folder's eval_results.txt."""
    path = os.path.join(folder, EVAL_RESULTS_NAME)
    if files.exists(path):
        lines = files.lines(files.read_text(path))
        kept = [line for line in lines if not line.startswith(prefix)]
        files.write_atomically(path, "".join(kept))


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

    If the folder has a run, redraws its curves.
    """
    flags = flags_of_run(folder)
    with contextlib.ExitStack() as closing:
        observers = []
        if is_chief and flags.get("report_to"):
            trackers = addon("report_to").of_run(folder, flags)
            closing.callback(trackers.close)
            observers.append(trackers.log)
        reporter = Reporter(
            folder, step, after_training=True, is_chief=is_chief, observers=observers
        )
        closing.callback(reporter.close)
        if keeps_others:
            results = {**(reporter.evaluation(step) or {}), **results}
        reporter.report_evaluation(step, results)
    if not is_chief:
        return
    # Values as printed by the original: the shortest digits of this float32.
    names = names or {}
    shown = {
        names.get(name, name): str(np.float32(value)) for name, value in results.items()
    }
    shown["global_step"] = str(step)
    lines = [f"{name} = {shown[name]}\n" for name in sorted(shown)]
    files.write_atomically(os.path.join(folder, EVAL_RESULTS_NAME), "".join(lines))
    if candidates(folder):  # after a selection, the best run has its own folder
        write_curves(folder, task_name)
