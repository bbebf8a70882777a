"""The training run: steps, metrics, checkpoints, stopping without a loss."""

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_tf import files
from bert_tf.conversion.checkpoint import load_weights
from bert_tf.errors import InputError
from bert_tf.optimization.adamw import create_optimizer
from bert_tf.records.pipeline import record_error
from bert_tf.task import Task
from bert_tf.training.checkpoints import RunCheckpoints
from bert_tf.training.reporting import Reporter, progress_bar
from bert_tf.training.step import TOTAL_LOSS, training_steps

# On the CPU one call of the compiled steps should take about this long: the bar moves
# and a signal is heard, while Python's share stays small.
_SECONDS_PER_CALL = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train.

    Attributes:
        num_train_steps: the step to train to, counted from the run's first start.
        num_warmup_steps: steps of rising learning rate.
        learning_rate: the peak.
        train_batch_size: sequences a step, over all devices.
        save_checkpoints_steps: steps between two checkpoints.
        keep_checkpoint_max: checkpoints to keep; 0 for all.
        log_steps: steps between two lines of metrics.
        iterations_per_loop: the most steps in one call of the device.
        bias_correction: Adam's, which the original leaves out.
        random_seed: of initial weights, dropout and the order of the data.
    """

    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    train_batch_size: int
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    log_steps: int = 100
    iterations_per_loop: int = 1000
    bias_correction: bool = False
    random_seed: int = 12345

    @classmethod
    def from_flags(
        cls,
        flag_values: flags.FlagValues,
        *,
        num_train_steps: int,
        num_warmup_steps: int,
    ) -> "TrainingConfig":
        """The config from a script's flags of the same names."""
        given: dict[str, Any] = {
            field.name: flag_values[field.name].value
            for field in dataclasses.fields(cls)
            if field.name in flag_values
        }
        given |= {
            "num_train_steps": num_train_steps,
            "num_warmup_steps": num_warmup_steps,
        }
        return cls(**given)


def train(
    task: Task,
    config: TrainingConfig,
    *,
    folder: str,
    dataset: Callable[[int], tf.data.Dataset],
    init_checkpoint: str | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> tuple[keras.Model, int]:
    """Trains a task's model to `config.num_train_steps`, from where the folder stands.

    Args:
        task: what to train.
        config: how.
        folder: the run's output_dir: checkpoints, TensorBoard, metrics.jsonl. If it has
            a checkpoint, the run goes on from there.
        dataset: position -> endless batches from that record on.
        init_checkpoint: weights to start a fresh run from.
        strategy: the devices; the default one if None.

    Returns:
        The trained model, and the number of steps that it was trained for.

    Raises:
        InputError: a checkpoint or a record does not fit, or the loss is not finite.
        SystemExit: 128 + the signal's number, after SIGTERM or SIGINT, with all saved.
    """
    files.make_folder(folder)
    strategy = strategy or tf.distribute.get_strategy()
    keras.utils.set_random_seed(config.random_seed)
    with strategy.scope():
        model = task.build_model()
        optimizer = create_optimizer(
            config.learning_rate,
            config.num_train_steps,
            config.num_warmup_steps,
            bias_correction=config.bias_correction,
            global_clipnorm=None,  # the step clips, once, after the reduction
        )
        # Built before the first trace: tf.function may not create variables later.
        optimizer.build(model.trainable_variables)
    checkpoints = RunCheckpoints(
        folder, model, optimizer, max_to_keep=config.keep_checkpoint_max
    )
    if checkpoints.restore():
        if init_checkpoint:
            logging.info(
                "--init_checkpoint=%s is left aside: %s goes before it.",
                init_checkpoint,
                checkpoints.latest,
            )
    elif init_checkpoint:
        load_weights(model, init_checkpoint)
    step, records = checkpoints.step, checkpoints.records
    if step >= config.num_train_steps:
        logging.info(
            "Training is done: %s is at step %d of %d. Ask for more steps to go on.",
            checkpoints.latest,
            step,
            config.num_train_steps,
        )
        return model, step

    run_steps = training_steps(task, model, optimizer, strategy)
    batches = dataset(records)
    if strategy.num_replicas_in_sync > 1:
        batches = strategy.experimental_distribute_dataset(batches)
    iterator = iter(batches)
    reporter = Reporter(folder, step)
    window = _Window()
    seconds_per_step = None
    calls = 0
    with (
        _Signals() as signals,
        progress_bar(
            config.num_train_steps, done=step, unit="step", label=task.name
        ) as bar,
    ):
        while step < config.num_train_steps:
            until = min(
                _next_multiple(step, config.log_steps),
                _next_multiple(step, config.save_checkpoints_steps),
                config.num_train_steps,
                step + config.iterations_per_loop,
            )
            count = until - step
            if seconds_per_step is None:
                count = 1
            elif not tf.config.list_logical_devices("TPU"):
                count = min(count, max(1, int(_SECONDS_PER_CALL / seconds_per_step)))
            began = time.monotonic()
            sums = _run(run_steps, iterator, count)
            elapsed = time.monotonic() - began
            # The first call compiles; the second one, of a single step again, tells
            # the pace.
            if calls > 0:
                seconds_per_step = elapsed / count
            step += count
            records += count * config.train_batch_size
            window.add(sums, count, elapsed if calls > 0 else None)
            calls += 1
            _stop_unless_finite(sums, step, checkpoints)
            bar.set_postfix(
                window.shown()
                | {
                    "learning_rate": f"{_learning_rate(optimizer, step - 1):.2e}",
                    "sequences/s": f"{count * config.train_batch_size / elapsed:.0f}",
                },
                refresh=False,
            )
            bar.update(count)
            if step % config.log_steps == 0 or step == config.num_train_steps:
                metrics = window.close(config.train_batch_size)
                # The rate of the step just made: schedules count from step 0.
                metrics["learning_rate"] = _learning_rate(optimizer, step - 1)
                reporter.report(step, metrics)
            is_last = step == config.num_train_steps
            if step % config.save_checkpoints_steps == 0 or is_last or signals.received:
                _stop_unless_finite_weights(model, step, checkpoints)
                checkpoints.save(step, records)
            if signals.received:
                reporter.close()
                bar.close()
                print(
                    f"Stopped by {signal.Signals(signals.received).name} at step"
                    f" {step}; saved {checkpoints.latest}. Start the same command"
                    " again to go on.",
                    file=sys.stderr,
                )
                sys.exit(128 + signals.received)
    reporter.close()
    return model, step


def restore_or_initialize(
    task: Task, folder: str, init_checkpoint: str | None
) -> tuple[keras.Model, int]:
    """A task's model for evaluation: the folder's checkpoint, or else the given one.

    Returns:
        The model, and the number of steps that it was trained for in this folder.

    Raises:
        InputError: there is neither, or it does not fit the model, or it has no head
            for this task.
    """
    model = task.build_model()
    checkpoints = RunCheckpoints(folder, model)
    if checkpoints.restore():
        return model, checkpoints.step
    if not init_checkpoint:
        raise InputError(
            f"Nothing to evaluate: --output_dir={folder} has no checkpoint and there is"
            " no --init_checkpoint. Train first (--do_train)."
        )
    missing = load_weights(model, init_checkpoint)
    if missing:
        raise InputError(
            f"--init_checkpoint={init_checkpoint} is not trained for this task: it has"
            f" no {missing[0]}. Train first (--do_train)."
        )
    return model, 0


class _Window:
    """Metrics summed up since the last report."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}
        self._steps = 0
        self._seconds = 0.0
        self._last: dict[str, np.ndarray] = {}

    def add(
        self, sums: Mapping[str, np.ndarray], steps: int, seconds: float | None
    ) -> None:
        """Adds a call's sums; `seconds` is None for the call that compiled."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._last = dict(sums)
        if seconds is not None:
            self._steps += steps
            self._seconds += seconds

    def shown(self) -> dict[str, str]:
        """The last call's metrics, for the progress bar."""
        return {name: f"{_divide(value):.3f}" for name, value in self._last.items()}

    def close(self, batch_size: int) -> dict[str, float]:
        """The window's metrics; the next window begins."""
        metrics = {name: _divide(value) for name, value in self._sums.items()}
        if self._seconds:
            metrics["sequences_per_second"] = self._steps * batch_size / self._seconds
        self.__init__()  # type: ignore[misc]
        return metrics


class _Signals:
    """Hears SIGTERM and SIGINT while in use; the loop asks, saves and stops."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "_Signals":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._hear)
            except ValueError:  # not the main thread, as in some notebooks
                break
        return self

    def _hear(self, number: int, frame: object) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        self.received = number

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _run(run_steps, iterator, count: int) -> dict[str, np.ndarray]:
    try:
        sums = run_steps(iterator, tf.constant(count, tf.int32))
        return {name: value.numpy().astype(np.float64) for name, value in sums.items()}
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
        raise InputError(record_error(error)) from error


def _stop_unless_finite(
    sums: Mapping[str, np.ndarray], step: int, checkpoints: RunCheckpoints
) -> None:
    if np.isfinite(sums[TOTAL_LOSS]).all():
        return
    raise InputError(
        f"The loss is not finite at step {step}. Lower --learning_rate, or lengthen the"
        f" warmup. Last good checkpoint: {checkpoints.latest or 'none'}."
    )


def _stop_unless_finite_weights(
    model: keras.Model, step: int, checkpoints: RunCheckpoints
) -> None:
    """Keeps a checkpoint whose next loss would not be finite from being written."""
    if all(
        bool(tf.reduce_all(tf.math.is_finite(variable.value)))
        for variable in model.trainable_variables
    ):
        return
    raise InputError(
        f"The weights are not finite after step {step}. Lower --learning_rate, or"
        f" lengthen the warmup. Last good checkpoint: {checkpoints.latest or 'none'}."
    )


def _learning_rate(optimizer: keras.Optimizer, step: int) -> float:
    schedule = optimizer._learning_rate
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return float(schedule(step))
    return float(schedule)


def _divide(total_and_weight: np.ndarray) -> float:
    total, weight = total_and_weight
    return float(total / weight) if weight else 0.0


def _next_multiple(step: int, interval: int) -> int:
    return (step // interval + 1) * interval
