"""Commands, each killed at its file operations, then given again: FOLDER [NAME...].

Operations are those that Python's audit hooks report, below the output's folder. Each
run is a fork of a process that has imported everything and used nothing of TensorFlow.
Prints for each command: [name, operations, kills, seconds, what differed].
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time
import traceback
from typing import NamedTuple

import h5py
import tensorflow as tf  # noqa: F401 (all of it before the forks)
from absl import logging

from bert_tf import (
    run_classifier,
    run_embeddings,
    run_glue,
    run_ner,
    run_pretraining,
    run_squad,
    run_swag,
)
from bert_tf.addons.corpora import extension, trimming
from bert_tf.addons.serving import export_model
from bert_tf.addons.study import probe
from bert_tf.base import cli
from bert_tf.records import create_pretraining_data, learn_vocabulary
from bert_tf.tasks import glue_suite, pretraining  # noqa: F401
from bert_tf.tasks.feature_extraction import extract_features
from bert_tf.training.reporting import Reporter
from tests.readme.small_files import SmallFiles
from tests.training.killed_run_test import CLOCKS

_SEED = 20
_DURATION = re.compile(rb'"seconds": [\d.]+|\d\d:\d\d:\d\d|hours +\| +[\d.]+')
_ALL = 10_000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# By the event: which of its arguments are paths.
_EVENTS = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.link": (0, 1),
    "os.truncate": (0,),
}


class Command(NamedTuple):
    """A command line, {out} being its output's folder."""

    script: object
    arguments: str
    most: int = _ALL
    makes_folder: bool = False


_MODEL = "--init_checkpoint={BERT_BASE_DIR} --max_seq_length=32"
_TRAINING = (
    f"{_MODEL} --do_train --train_batch_size=4 --num_train_epochs=1 --log_steps=1"
)
_RECORDS = (
    "--input_file=text.txt --output_file={out}/x.tfrecord --num_workers=1"
    " --vocab_file={BERT_BASE_DIR}/vocab.txt --max_seq_length=32 --dupe_factor=1"
    " --max_predictions_per_seq=5"
)
_EXPORT = "--checkpoint={BERT_BASE_DIR} --output_dir={out}/x"

COMMANDS = {
    "vocabulary": Command(
        learn_vocabulary,
        "--input_file=text.txt --output_file={out}/v.txt --vocab_size=600"
        " --num_workers=1",
    ),
    "extended vocabulary": Command(
        extension,
        "--init_checkpoint={BERT_BASE_DIR} --input_file=text.txt --num_workers=1"
        " --output_file={out}/folder/v.txt --num_new_tokens=20 --min_frequency=1",
    ),
    "trimmed vocabulary": Command(
        trimming,
        "--init_checkpoint={BERT_BASE_DIR} --input_file=text.txt --num_workers=1"
        " --output_dir={out}/x",
    ),
    "records": Command(create_pretraining_data, _RECORDS),
    "shards": Command(
        create_pretraining_data, f"{_RECORDS} --num_shards=2 --deduplicate=documents"
    ),
    "packed rows": Command(
        create_pretraining_data, f"{_RECORDS} --num_shards=2 --packed_length=64"
    ),
    "TF1": Command(export_model, f"{_EXPORT} --format=tf1", makes_folder=True),
    "Hugging Face": Command(export_model, f"{_EXPORT} --format=huggingface"),
    "KerasHub": Command(export_model, f"{_EXPORT} --format=kerashub", 12, True),
    "features": Command(
        extract_features,
        "--input_file=input.txt --output_file={out}/x.jsonl --layers=-1"
        " --vocab_file={BERT_BASE_DIR}/vocab.txt"
        " --bert_config_file={BERT_BASE_DIR}/bert_config.json"
        " --init_checkpoint={BERT_BASE_DIR}/bert_model.ckpt --batch_size=1",
        6,
    ),
    "classifier": Command(
        run_classifier,
        f"{_TRAINING} --task_name=WNLI --data_dir={{GLUE_DIR}}/WNLI --do_eval"
        " --do_predict --output_dir={out}/x --eval_steps=2 --patience=1",
        4,
    ),
    "longer classifier": Command(
        run_classifier,
        f"{_TRAINING} --task_name=WNLI --data_dir={{GLUE_DIR}}/WNLI --do_eval"
        " --output_dir={out}/x --max_position_embeddings=1024 --attention_window=8",
        4,
    ),
    "selection": Command(
        run_classifier,
        f"{_TRAINING} --task_name=WNLI --data_dir={{GLUE_DIR}}/WNLI --do_eval"
        " --num_restarts=2 --output_dir={out}/x",
        2,
    ),
    "GLUE": Command(
        run_glue,
        f"{_TRAINING.replace(' --do_train', '')} --tasks=WNLI --learning_rates=1e-3"
        " --glue_dir={GLUE_DIR} --do_predict=False --output_dir={out}/x",
        2,
    ),
    "SavedModel": Command(
        export_model, f"{_EXPORT} --format=saved_model --max_seq_length=16", 2
    ),
    "probe": Command(
        probe,
        "--init_checkpoint={BERT_BASE_DIR} --max_seq_length=32 --output_dir={out}/x"
        " --train_file={CONLL_DIR}/eng.train --test_file={CONLL_DIR}/eng.testb",
        2,
    ),
    "pre-training": Command(
        run_pretraining,
        "--input_file=records/128/text.tfrecord --output_dir={out}/x"
        " --do_train --do_eval --train_batch_size=4"
        " --bert_config_file={BERT_BASE_DIR}/bert_config.json"
        " --num_train_steps=4 --max_eval_steps=2 --save_checkpoints_steps=2"
        " --log_steps=1",
        4,
    ),
    "pre-training with callbacks": Command(
        run_pretraining,
        "--input_file=records/128/text.tfrecord --output_dir={out}/x"
        " --do_train --do_eval --train_batch_size=4 --stop_if=loss>100@2"
        " --bert_config_file={BERT_BASE_DIR}/bert_config.json --profile_steps=1,2"
        " --num_train_steps=4 --max_eval_steps=2 --save_checkpoints_steps=2"
        " --log_steps=1 --eval_steps=2",
        4,
    ),
    "pre-training that ends early": Command(
        run_pretraining,
        "--input_file=records/128/text.tfrecord --output_dir={out}/x"
        " --do_train --do_eval --train_batch_size=4 --max_train_hours=0.00001"
        " --bert_config_file={BERT_BASE_DIR}/bert_config.json"
        " --max_eval_steps=2 --log_steps=1 --eval_steps=2",
        4,
    ),
    "choices": Command(
        run_swag,
        f"{_TRAINING} --train_file={{SWAG_DIR}}/train.csv --do_eval"
        " --dev_file={SWAG_DIR}/val.csv --output_dir={out}/x",
        2,
    ),
    "embeddings": Command(
        run_embeddings,
        f"{_TRAINING} --train_file={{STSB_DIR}}/train.tsv --max_score=5"
        " --do_eval --dev_file={STSB_DIR}/dev.tsv --output_dir={out}/x",
        2,
    ),
    "questions": Command(
        run_squad,
        f"{_TRAINING} --train_file={{SQUAD_DIR}}/train-v1.1.json --do_predict"
        " --predict_file={SQUAD_DIR}/dev-v1.1.json --max_query_length=8"
        " --doc_stride=8 --num_workers=1 --output_dir={out}/x",
        2,
    ),
    "words": Command(
        run_ner,
        f"{_TRAINING} --train_file={{CONLL_DIR}}/eng.train --do_eval --do_predict"
        " --dev_file={CONLL_DIR}/eng.testa --test_file={CONLL_DIR}/eng.testb"
        " --output_dir={out}/x",
        2,
    ),
}


def _files(folder):
    """Path -> content of all that is to be the same, without what a clock says."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            key = os.path.relpath(path, folder)
            # The fingerprint of a SavedModel is another one each time.
            if name in ("starts.jsonl", "fingerprint.pb"):
                continue
            if "tfevents" in name or ".tmp-" in key or key.startswith("x/plugins"):
                continue
            content = pathlib.Path(path).read_bytes()
            if name == "metrics.jsonl":
                content = "".join(
                    json.dumps(
                        {k: v for k, v in line.items() if not k.endswith(CLOCKS)}
                    )
                    for line in map(json.loads, content.splitlines())
                ).encode()
            if name == "metadata.json":
                content = json.loads(content)
                del content["date_saved"]
            if name.endswith(".h5"):
                content = _tensors(path)
            if name.endswith((".json", ".jsonl", ".md")) and name != "metadata.json":
                content = _DURATION.sub(b"", content)
            found[key] = content
    return found


def _tensors(path):
    """Name -> bytes of what an HDF5 file holds; the file itself has times in it."""
    found = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()].tobytes()

    with h5py.File(path) as file:
        file.visititems(add)
    assert found
    return found


def _watch(folder, last):
    """Kills the process before its operation of that number; the list counts them."""
    count = [0]

    def hook(event, arguments):
        if event == "open":
            path, mode, flags = arguments
            is_writing = flags & _WRITING if mode is None else set(mode) & set("wax+")
            if not is_writing:
                return
            paths = (path,)
        elif event in _EVENTS:
            paths = [arguments[place] for place in _EVENTS[event]]
        else:
            return
        if not any(isinstance(p, str) and p.startswith(folder) for p in paths):
            return
        if count[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 1

    sys.addaudithook(hook)
    return count


def _run(act, log):
    """Runs something in a fork of its own; its exit status."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1]
    status = 1
    try:
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        act()
        status = 0
    except BaseException:  # noqa: BLE001 (it must not get into the parent's code)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _try(command, variables, out, log):
    """What differs after each kill; the number of operations and of kills."""
    arguments = command.arguments.format(out=out, **variables).split()

    def fresh():
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(os.path.join(out, "x") if command.makes_folder else out)

    def start(last=-1):
        def act():
            count = _watch(out, last)
            command.script.run(cli.parse(command.script.run, arguments))
            pathlib.Path(f"{log}.count").write_text(str(count[0]))

        return _run(act, log)

    def told():
        return pathlib.Path(log).read_text(errors="replace")[-3000:]

    fresh()
    if start():
        return [f"it does not run: {told()}"], 0, 0
    whole = _files(out)
    operations = int(pathlib.Path(f"{log}.count").read_text())
    moments = range(operations)
    if operations > command.most:
        moments = sorted(random.Random(_SEED).sample(moments, command.most))
    problems = []
    for moment in moments:
        fresh()
        if os.waitstatus_to_exitcode(start(moment)) != -signal.SIGKILL:
            problems.append(f"{moment}: not killed: {told()}")
            continue
        if start():
            problems.append(f"{moment}: the same command again: {told()}")
            continue
        found = _files(out)
        differing = [
            name
            for name in sorted({*whole, *found})
            if whole.get(name) != found.get(name)
        ]
        if differing:
            problems.append(f"{moment}: {', '.join(differing)}")
    return problems, operations, len(moments)


def main():
    """Tries every command, or those that are named."""
    work, data, out, log = (
        os.path.join(os.path.realpath(sys.argv[1]), name)
        for name in ("work", "data", "out", "log")
    )
    os.makedirs(work)
    os.chdir(work)
    # In checkpoints, whose bytes are compared.
    Reporter.seconds = lambda self: 0.0
    logging.set_verbosity(logging.INFO)

    def make():
        variables = SmallFiles(pathlib.Path(work), pathlib.Path(data)).variables
        pathlib.Path(f"{log}.variables").write_text(json.dumps(variables))

    if _run(make, log):
        sys.exit(pathlib.Path(log).read_text())
    variables = json.loads(pathlib.Path(f"{log}.variables").read_text())
    for name in sys.argv[2:] or COMMANDS:
        began = time.monotonic()
        problems, operations, kills = _try(COMMANDS[name], variables, out, log)
        seconds = time.monotonic() - began
        print(
            json.dumps([name, operations, kills, round(seconds), problems]), flush=True
        )


if __name__ == "__main__":
    main()
