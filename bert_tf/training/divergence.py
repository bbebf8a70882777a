"""The end of a run with numbers that are not finite, and the step's batch.

nonfinite-step-123.tfrecord has the batch's records in order, with all of the model's
input arrays: integers as int64, the rest as float32. A batch of pre-training is thus an
ordinary record file, including masks:

    python -m bert_tf.tfrecords.inspect_records \
        OUTPUT_DIR/nonfinite-step-123.tfrecord --vocab_file=OUTPUT_DIR/vocab.txt
"""

import itertools
import os
import shlex
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from absl import logging
from keras import ops

from bert_tf.base import files
from bert_tf.base.errors import DivergedError, InputError
from bert_tf.records.pipeline import ALL_ROWS, first_record
from bert_tf.records.spec import FLOAT32, INT64, Feature, RecordSpec
from bert_tf.records.writing import framed
from bert_tf.training.events import Call, Callback
from bert_tf.training.step import SKIPPED


def save_batch(folder: str, step: int, batch: Mapping[str, Any], task_name: str) -> str:
    """Writes a batch to a run's folder; overwrites no file."""
    columns = {}
    for name, value in batch.items():
        array = np.asarray(value)
        is_whole = np.issubdtype(array.dtype, np.integer) or array.dtype == bool
        columns[name] = array.reshape(len(array), -1).astype(
            np.int64 if is_whole else np.float32
        )
    spec = RecordSpec(
        [
            Feature(
                name, INT64 if column.dtype == np.int64 else FLOAT32, column.shape[1:]
            )
            for name, column in columns.items()
        ]
    )
    content = b"".join(map(framed, spec.serialize_block(columns)))
    for again in itertools.chain([""], (f"-{n}" for n in itertools.count(2))):
        path = os.path.join(folder, f"nonfinite-step-{step}{again}.tfrecord")
        if not files.exists(path):
            files.write_atomically(path, content)
        if files.read_bytes(path) == content:
            break
    logging.info("%s: the batch of step %d is in %s.", task_name, step, path)
    return path


def _where_shown(path: str) -> str:
    """Returns the place of a step's batch, or the command that shows it."""
    found = first_record([path])
    try:
        RecordSpec.of_record(found[1] if found else b"", path)
    except InputError:
        return f"The step's batch is in {path}."
    return (
        f"python -m bert_tf.tfrecords.inspect_records {shlex.quote(path)} shows the"
        " step's batch."
    )


class Divergence(Callback):
    """Ends a run with losses, gradients or weights that are not finite."""

    def after_call(self, call: Call) -> bool:
        """Checks the losses, and float16's gradients."""
        finite = np.isfinite(call.results.losses)
        if not finite.all():
            self._end_at(call, int(np.argmin(finite)))
        scale = self.run.loss_scale
        if scale is None or float(scale.scale) > 1.0:
            return False
        if call.results.sums[SKIPPED][0] >= call.steps:
            self._end(
                f"The gradients are not finite at step {self.run.step}, even without"
                " scaling the loss. Train with `precision=bfloat16` or float32."
            )
        return False

    def saving(self) -> None:
        """Checks the weights: if they are not finite, the next loss is not either."""
        weights = self.run.model.trainable_variables
        if not all(bool(ops.all(ops.isfinite(one))) for one in weights):
            self._end(
                f"The weights are not finite after step {self.run.step}. Lower"
                " `learning_rate`, or lengthen the warmup."
            )

    def _end_at(self, call: Call, number: int) -> NoReturn:
        """Writes the batch of a step within a call, and ends the run."""
        run, phase = self.run, call.phase
        step = run.step - call.steps + number + 1
        position = run.records - (call.steps - number) * phase.batch_size
        stream = phase.streams[phase.stream_of(position)]
        batch = next(iter(stream(position, ALL_ROWS)))
        path = save_batch(run.folder, step, batch, run.task.name)
        self._end(
            f"The loss is not finite at step {step}. Lower `learning_rate`, or lengthen"
            f" the warmup. {_where_shown(path)}"
        )

    def _end(self, message: str) -> NoReturn:
        """Waits for pending writes, and ends the run; names the last checkpoint."""
        self.run.wait_for_all()
        latest = self.run.checkpoints.latest
        raise DivergedError(f"{message} Last good checkpoint: {latest or 'none'}.")
