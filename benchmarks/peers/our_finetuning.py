"""Our turns in benchmarks/finetuning.py: steps of training, passes of prediction.

    python our_finetuning.py JOB

JOB and the answers are those of huggingface_finetuning.py without an output; paddings
are "length" and "max", as run_classifier's --pad, and data_dir is the task's folder.
It makes what run_classifier makes, with its defaults, and leaves its checkpoints and
reports out, as the other side does.

The batches by length of a turn of training are drawn evenly from an epoch's, ordered by
their lengths, so that a few steps have the lengths of all.

Shapes: M batches of an epoch, n of them in a turn.
"""

import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

# One call a length compiles, the next one tells its time.
WARM_UP_STEPS = 2
LEAST_STEPS = 8

# Seconds -> (examples, the seconds that they took).
Turn = Callable[[float], tuple[float, float]]


class FineTuning:
    """A model, its data and its optimizer.

    Args:
        job: what to run.
        folder: the runs' --output_dir, where nothing is written.
    """

    def __init__(self, job: dict[str, Any], folder: str) -> None:
        import keras
        import tensorflow as tf

        from bert_tf.conversion.loading import load_weights
        from bert_tf.optimization.optimizers import create_optimizer
        from bert_tf.tasks import finetuning
        from bert_tf.tasks.classification import ClassificationTask
        from bert_tf.training.step import computing_in, on_devices

        keras.utils.set_random_seed(job["seed"])
        self._job = job
        strategy = tf.distribute.get_strategy()
        all_options = {way: options_of(job, folder, way) for way in ways(job)}
        self._options = all_options[ways(job)[0]]
        found = finetuning.files_of(
            self._options, finetuning.folder_of_model(self._options)
        )
        self._runs = {
            padding: finetuning.FineTuning(
                ClassificationTask(options, found, strategy), options, found, strategy
            )
            for padding, options in all_options.items()
        }
        run = self._runs[ways(job)[0]]
        with computing_in(job["precision"]):
            self._model = run.task.build_model()
        load_weights(self._model, job["checkpoint"])
        self._records = run.task.records("train")
        num_train_steps = int(len(self._records) / job["batch_size"] * job["epochs"])
        optimizer = create_optimizer(
            job["learning_rate"],
            num_train_steps,
            int(num_train_steps * job["warmup_proportion"]),
            decay_from="warmup",
            bias_correction=True,
            global_clipnorm=None,  # The step clips.
        )
        optimizer.build(self._model.trainable_variables)
        self._steps = on_devices().training_steps(
            run.trained, self._model, optimizer, strategy
        )

    def step(self, batches: Iterator) -> float:
        """One step; the seconds that it took."""
        began = time.perf_counter()
        self._steps(batches, 1)
        return time.perf_counter() - began

    def training_by_length(self) -> Turn:
        """Turns of training on batches of like length."""
        import numpy as np

        from bert_tf.records.batching import LengthPlan, static_lengths

        table, batch_size = self._records, self._job["batch_size"]
        lengths = static_lengths(table.lengths, self._options.length_buckets)
        plan = LengthPlan(table.lengths, batch_size, lengths, self._job["seed"])
        epoch = plan.epoch(0)
        counts = np.bincount(epoch.buckets, minlength=len(lengths))
        streams = {
            bucket: iter(
                table.dataset(
                    epoch.rows[epoch.buckets == bucket], lengths[bucket]
                ).repeat()
            )
            for bucket in np.flatnonzero(counts)
        }
        seconds = np.zeros(len(lengths))
        for _ in range(WARM_UP_STEPS):
            for bucket, stream in streams.items():
                seconds[bucket] = self.step(stream)
        of_step = (seconds * counts).sum() / counts.sum()
        of_batch = len(self._records) / counts.sum()
        by_length = np.argsort(epoch.buckets, kind="stable")

        def turn(least: float) -> tuple[float, float]:
            count = max(LEAST_STEPS, round(least / of_step))
            evenly = ((np.arange(count) + 0.5) * len(by_length) / count).astype(int)
            began = time.perf_counter()
            for number in np.sort(by_length[evenly]):
                self.step(streams[epoch.buckets[number]])
            return count * of_batch, time.perf_counter() - began

        return turn

    def training_at_the_longest(self) -> Turn:
        """Turns of training on batches padded to max_seq_length."""
        from bert_tf.records.batching import endless_rows

        records, batch_size = self._records, self._job["batch_size"]
        num_batches = records.num_batches(batch_size)
        rows = endless_rows(len(records), batch_size, self._job["seed"], 0, num_batches)
        length = records.spec.max_seq_length
        batches = iter(records.dataset(rows, length).repeat())

        def one_step() -> int:
            self.step(batches)
            return self._job["batch_size"]

        for _ in range(WARM_UP_STEPS):
            one_step()
        return repeated(one_step)

    def prediction(self, padding: str) -> Turn:
        """Turns of prediction: whole passes over the dev set."""
        run = self._runs[padding]

        def one_pass() -> int:
            return len(run.predict(self._model, "dev"))

        one_pass()
        return repeated(one_pass)

    def turns(self) -> dict[tuple[str, str], Turn]:
        """By "train" or "predict" and padding, when all is compiled."""
        training = {
            "length": self.training_by_length,
            "max": self.training_at_the_longest,
        }
        made: dict[tuple[str, str], Turn] = {}
        for padding in ways(self._job):
            made["train", padding] = training[padding]()
            made["predict", padding] = self.prediction(padding)
        return made


def ways(job: dict[str, Any]) -> list[str]:
    """The paddings to measure."""
    return job["paddings"]


def options_of(job: dict[str, Any], folder: str, padding: str) -> Any:
    """run_classifier's options."""
    from bert_tf import run_classifier
    from bert_tf.base import cli

    return cli.parse(
        run_classifier.run,
        [
            "--do_train=true",
            "--do_eval=true",
            f"--task_name={job['task']}",
            f"--data_dir={job['data_dir']}",
            f"--init_checkpoint={job['checkpoint']}",
            f"--max_seq_length={job['max_seq_length']}",
            f"--eval_batch_size={job['batch_size']}",
            f"--precision={job['precision']}",
            f"--pad={padding}",
            f"--output_dir={folder}",
        ],
    )


def repeated(work: Callable[[], int]) -> Turn:
    """A turn that does work, so many examples a time, until the time is over."""

    def turn(least: float) -> tuple[float, float]:
        examples, began, seconds = 0, time.perf_counter(), 0.0
        while seconds < least:
            examples += work()
            seconds = time.perf_counter() - began
        return examples, seconds

    return turn


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        turns = FineTuning(json.loads(sys.argv[1]), folder).turns()
        print("ready", flush=True)
        for line in sys.stdin:
            kind, padding, least = line.split()
            print(*turns[kind, padding](float(least)), flush=True)


if __name__ == "__main__":
    main()
