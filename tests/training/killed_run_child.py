"""A training run that is killed, by itself, at a moment that it is told.

python -m tests.training.killed_run_child FOLDER RECORDS KIND NUMBER

A moment is one of a KIND: `report` (a step's metrics), `fsync`, `replace`, `remove`,
`link` (of a file, just before it), `write` (a checkpoint is half written), or `any` of
them. The run dies at the one of that NUMBER; -1 is never. Beside the run's own files,
FOLDER has `input.jsonl` then: each batch that was read, with its number in the stream
and its records; and `moments`, how many of any kind there were.
"""

import collections
import dataclasses
import hashlib
import json
import os
import signal
import sys
import threading

import tensorflow as tf

from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.training import reporting
from bert_tf.training.loop import train
from bert_tf.training.training_options import TrainingConfig
from tests.training import toy

NUM_RECORDS, BATCH_SIZE, NUM_STEPS = 24, 4, 12


class Moments:
    """Counts moments, and kills the process at one of them."""

    def __init__(self, kind, number):
        self.counts = collections.Counter()
        self._kind, self._number = kind, number
        self._lock = threading.Lock()  # two threads may not count at once

    def is_last(self, kind):
        with self._lock:
            self.counts.update([kind, "any"])
            return self.counts[self._kind] - 1 == self._number and self._kind in (
                kind,
                "any",
            )

    def before(self, owner, kind):
        """Makes each call of a function a moment, just before it."""
        function = getattr(owner, kind)

        def call(*args, **options):
            if self.is_last(kind):
                die()
            return function(*args, **options)

        setattr(owner, kind, call)

    def in_the_middle_of_a_write(self):
        write = tf.train.Checkpoint.write

        def write_half(checkpoint, path, *args, **options):
            is_last = self.is_last("write")
            written = write(checkpoint, path, *args, **options)
            if is_last:
                data = path + ".data-00000-of-00001"
                os.truncate(data, os.path.getsize(data) // 2)
                os.truncate(path + ".index", 0)
                die()
            return written

        tf.train.Checkpoint.write = write_half


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def noted(folder, data):
    """The records as they are, each batch noted as it is read."""

    def note(number, ids):
        records = [hashlib.md5(row.tobytes()).hexdigest()[:8] for row in ids.numpy()]
        with open(os.path.join(folder, "input.jsonl"), "a") as file:
            file.write(json.dumps([int(number), records]) + "\n")
        return number

    def data_from(position, shard):
        def pass_on(number, batch):
            done = tf.py_function(note, [number, batch["input_ids"]], tf.int64)
            with tf.control_dependencies([done]):
                return {name: tf.identity(value) for name, value in batch.items()}

        batches = data(position, shard).enumerate(position // BATCH_SIZE)
        return batches.map(pass_on)

    return data_from


def evaluate(model):
    """Some number that hangs on the weights, and neither rises nor falls for long."""
    kernel = weights_by_name(model)["cls/pair/kernel"].numpy()
    return {"loss": float(abs(kernel).view("uint32").sum() % 1000)}


def run(folder, records):
    """The run, in whatever process."""
    os.makedirs(folder, exist_ok=True)
    phase = toy.phase(records, NUM_STEPS, BATCH_SIZE, evaluate=evaluate)
    data = toy.data(records, NUM_RECORDS, BATCH_SIZE)
    train(
        toy.without_layers(),
        TrainingConfig(
            num_train_steps=NUM_STEPS,
            num_warmup_steps=2,
            learning_rate=0.01,
            train_batch_size=BATCH_SIZE,
            save_checkpoints_steps=3,
            keep_checkpoint_max=2,
            log_steps=1,
            eval_steps=4,
            # Callbacks that are on, and end nothing.
            patience=9,
            stop_if=("loss>1000@5",),
        ),
        folder=folder,
        phases=[dataclasses.replace(phase, streams=[noted(folder, data)])],
    )


def main():
    folder, records, kind, number = sys.argv[1:]
    moments = Moments(kind, int(number))
    for name in ("replace", "fsync", "remove", "link"):
        moments.before(os, name)
    moments.before(reporting.Reporter, "report")
    moments.in_the_middle_of_a_write()
    run(folder, records)
    with open(os.path.join(folder, "moments"), "w") as file:
        file.write(str(moments.counts["any"]))


if __name__ == "__main__":
    main()
