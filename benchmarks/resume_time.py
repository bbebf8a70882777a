r"""The time to go on with a run: at step 100 and at step 100,000.

    python benchmarks/resume_time.py

A toy model (hidden size 32, two layers, length 64) and records of its own. A checkpoint
of each step is made by saving with that step and its position in the records; a process
of its own then starts there and makes one step. Time is from the process's start to the
step's end, once with all of Python's and TensorFlow's imports and once without; the
starts take turns, and the fastest of each counts. If reaching a position meant reading
up to it, step 100,000 would take a thousand times as long as step 100.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from absl import app, flags

# `make benchmark` gives these to every script.
flags.DEFINE_string("data_dir", None, "Not needed: the records are generated.")
flags.DEFINE_string("original_dir", None, "Not needed.")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

STEPS = (100, 100_000)
BATCH_SIZE = 32
# Both steps are some 3,200 records into half an epoch, which is what is read over.
NUM_FILES, RECORDS_PER_FILE = 8, 2_003
SEQ_LENGTH, NUM_PREDICTIONS, VOCAB_SIZE = 64, 8, 1000


class ResumeTime(NamedTuple):
    """Seconds from the start to the end of the first step."""

    with_imports: float
    without_imports: float


def resume_times(folder: str, runs: int) -> dict[int, ResumeTime]:
    """The fastest of some starts at each of STEPS.

    Args:
        folder: where to put records and checkpoints.
        runs: how many starts at each step.
    """
    write_records(folder)
    best: dict[int, ResumeTime] = {}
    for _ in range(runs):
        for step in STEPS:
            call = [
                sys.executable,
                __file__,
                f"--start_at={step}",
                f"--folder={folder}",
            ]
            began = time.time()
            done = subprocess.run(
                [*call, f"--began={began}"], check=True, capture_output=True, text=True
            )
            seconds = ResumeTime(*json.loads(done.stdout.splitlines()[-1]))
            before = best.get(step, seconds)
            best[step] = ResumeTime(*map(min, before, seconds))
    return best


def write_records(folder: str) -> None:
    """Writes the records."""
    import numpy as np

    from bert_tf.records.spec import RecordSpec
    from bert_tf.records.writing import write_records as write

    spec = RecordSpec.pretraining(SEQ_LENGTH, NUM_PREDICTIONS)
    rng = np.random.default_rng(0)
    for number in range(NUM_FILES):
        with open(os.path.join(folder, f"records-{number}"), "wb") as file:
            write(
                file,
                [
                    spec.serialize(
                        {
                            "input_ids": rng.integers(5, VOCAB_SIZE, SEQ_LENGTH),
                            "input_mask": [1] * SEQ_LENGTH,
                            "segment_ids": [0] * SEQ_LENGTH,
                            "masked_lm_positions": range(1, NUM_PREDICTIONS + 1),
                            "masked_lm_ids": rng.integers(
                                5, VOCAB_SIZE, NUM_PREDICTIONS
                            ),
                            "masked_lm_weights": [1.0] * NUM_PREDICTIONS,
                            "next_sentence_labels": [0],
                        }
                    )
                    for _ in range(RECORDS_PER_FILE)
                ],
            )


def start(folder: str, step: int, began: float) -> ResumeTime:
    """Goes on at a step, for one step, in this process."""
    from bert_tf.base.config import BertConfig
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.records.pipeline import record_counts, training_dataset
    from bert_tf.records.spec import RecordSpec
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training.checkpoints import RunCheckpoints
    from bert_tf.training.loop import train
    from bert_tf.training.task import Phase
    from bert_tf.training.training_options import TrainingConfig

    task = pretraining_task(
        BertConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            max_position_embeddings=SEQ_LENGTH,
        )
    )
    paths = [os.path.join(folder, f"records-{n}") for n in range(NUM_FILES)]
    output_dir = tempfile.mkdtemp(dir=folder)
    num_steps = max(STEPS) + 1
    imported = time.time()
    # The checkpoint of that step, which the run then finds; not part of the time.
    model = task.build_model()
    optimizer = create_optimizer(1e-4, num_steps, 0, global_clipnorm=None)
    optimizer.build(model.trainable_variables)
    with RunCheckpoints(output_dir, model, optimizer) as checkpoints:
        checkpoints.save(step, step * BATCH_SIZE)
    prepared = time.time()
    counts = record_counts(paths, os.path.join(folder, "record_counts.json"))
    train(
        task,
        TrainingConfig(
            num_train_steps=step + 1,
            num_schedule_steps=num_steps,
            num_warmup_steps=0,
            learning_rate=1e-4,
            train_batch_size=BATCH_SIZE,
            # What is saved after the step is part of neither start.
            save_checkpoints_steps=10 * num_steps,
        ),
        folder=output_dir,
        phases=[
            Phase(
                end_step=step + 1,
                batch_size=BATCH_SIZE,
                streams=[
                    lambda position, shard: training_dataset(
                        paths,
                        counts,
                        RecordSpec.pretraining(SEQ_LENGTH, NUM_PREDICTIONS),
                        batch_size=BATCH_SIZE,
                        seed=1,
                        start=position,
                        shard=shard,
                    )
                ],
            )
        ],
    )
    ended = time.time()
    return ResumeTime(imported - began + ended - prepared, ended - prepared)


def main(_: list[str]) -> None:
    """Measures and prints; or, as a child, goes on at one step."""
    if FLAGS.start_at is not None:
        print(json.dumps(start(FLAGS.folder, FLAGS.start_at, FLAGS.began)))
        return
    with tempfile.TemporaryDirectory() as folder:
        times = resume_times(folder, FLAGS.runs)
    print(f"{'at step':>9}  {'seconds':>7}  {'without imports':>15}")
    for step, best in times.items():
        print(f"{step:>9,}  {best.with_imports:>7.2f}  {best.without_imports:>15.2f}")


FLAGS = flags.FLAGS

if __name__ == "__main__":
    flags.DEFINE_integer("runs", 5, "Starts at each step.")
    flags.DEFINE_integer("start_at", None, "Of a child: the step to go on at.")
    flags.DEFINE_string("folder", None, "Of a child: where the records are.")
    flags.DEFINE_float("began", 0.0, "Of a child: when it was started.")
    app.run(main)
