"""Checks that a run's numbers are finite; where not, the run ends and says why."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import DivergedError
from bert_tf.records.pipeline import ALL_ROWS
from bert_tf.training import diagnosis
from bert_tf.training.config import Phase
from bert_tf.training.precision import LossScale


def check_losses(
    losses: np.ndarray,
    phase: Phase,
    *,
    step: int,
    records: int,
    folder: str,
    task_name: str,
) -> None:
    """Checks the losses of the steps just made."""
    finite = np.isfinite(losses)
    if finite.all():
        return
    failed = int(np.argmin(finite))
    failed_step = step + failed + 1
    position = records + failed * phase.batch_size
    stream = phase.streams[phase.stream_of(position)]
    batch = next(iter(stream(position, ALL_ROWS)))
    path = diagnosis.save_batch(folder, failed_step, batch, task_name)
    raise DivergedError(
        f"The loss is not finite at step {failed_step}. Lower --learning_rate, or"
        f" lengthen the warmup. The step's batch is in {path} (python -m"
        " bert_tf.tfrecords.inspect_records shows it)."
    )


def check_gradients(
    loss_scale: LossScale, *, skipped: float, steps: int, step: int
) -> None:
    """Checks that float16 has not come to gradients that overflow at any scale."""
    if loss_scale.scale.numpy() > 1.0 or skipped < steps:
        return
    raise DivergedError(
        f"The gradients are not finite at step {step}, even without scaling the loss."
        " Train with --precision=bfloat16 or float32."
    )


def check_weights(model: keras.Model, step: int) -> None:
    """Keeps a checkpoint whose next loss would not be finite from being written."""
    if all(
        bool(tf.reduce_all(tf.math.is_finite(variable.value)))
        for variable in model.trainable_variables
    ):
        return
    raise DivergedError(
        f"The weights are not finite after step {step}. Lower --learning_rate, or"
        " lengthen the warmup."
    )
