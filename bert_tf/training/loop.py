"""The training run: phases of steps, metrics, checkpoints, stopping without loss."""

import contextlib
import dataclasses
import functools
import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
from absl import logging
from keras import ops

from bert_tf.base import files
from bert_tf.base.errors import DivergedError, InputError, NotReachedError
from bert_tf.base.options import declarations
from bert_tf.base.progress import progress_bar
from bert_tf.conversion.source import Source
from bert_tf.optimization.layerwise import freeze, keeping_initial
from bert_tf.optimization.optimizers import optimizer_of
from bert_tf.optimization.schedules import WarmupSchedule
from bert_tf.records.pipeline import ALL_ROWS, READING_ERRORS, record_error
from bert_tf.training import run_folder
from bert_tf.training.budget import Budget
from bert_tf.training.checkpoints import (
    RunCheckpoints,
    folder_of,
    initialize,
    read_best,
)
from bert_tf.training.device_steps import training_steps
from bert_tf.training.reporting import (
    CURVES_NAME,
    LogInterval,
    Reporter,
    write_curves,
)
from bert_tf.training.step import (
    SEQUENCES,
    SKIPPED,
    TOTAL_LOSS,
    LossScale,
    computing_in,
)
from bert_tf.training.stopping import Stopping
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    create_strategy,
    description,
    distributed,
    is_chief,
    is_tpu,
    num_workers,
    require_same,
    sum_over_workers,
)
from bert_tf.training.task import Phase, Task, TrainingData
from bert_tf.training.throughput import (
    StepProfiler,
    peak_flops,
    training_flops,
)
from bert_tf.training.training_options import TrainingConfig, is_better

# On the CPU one call of the compiled steps should take about this long: short enough to
# move the bar and to notice signals, long enough that Python's share stays small.
_SECONDS_PER_CALL = 0.5


@dataclasses.dataclass
class Stream:
    """A phase's stream of batches of one shape."""

    iterator: Iterator
    flops_per_step: float | None
    calls: int = 0  # of the device, that have read from it; the first one compiles


class Signals:
    """Catches SIGTERM and SIGINT while in use; the loop polls it, saves and stops."""

    def __init__(self) -> None:
        self.received: int | None = None  # the signal's number
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Signals":
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


def train(
    task: Task,
    config: TrainingConfig,
    *,
    folder: str,
    phases: Sequence[Phase],
    init_checkpoint: str | Source | None = None,
    strategy: Strategy | None = None,
    start: run_folder.Start | None = None,
) -> tuple[keras.Model, int]:
    """Trains a task's model through its phases, resuming from its folder."""
    strategy = strategy or create_strategy()
    for phase in phases:
        check_batch_size(strategy, phase.batch_size, config.gradient_accumulation_steps)
    if task.objective.across_rows and config.gradient_accumulation_steps > 1:
        raise InputError(
            f"`gradient_accumulation_steps={config.gradient_accumulation_steps}`:"
            f" {', '.join(task.objective.across_rows)} compare the rows of a whole"
            " batch, which micro-batches do not have. Leave it out."
        )
    require_same(
        strategy,
        {
            **{
                f"`{name}`": getattr(config, name)
                for name in declarations(type(config))
            },
            "records": [(one.data_id, one.end_step, one.batch_size) for one in phases],
        },
    )
    files.make_folder(folder)
    logging.info("Running on %s.", description(strategy))
    if config.num_warmup_steps > config.num_train_steps:
        logging.warning(
            "The warmup of %s steps is longer than the run of %s: the learning rate"
            " never reaches its peak.",
            f"{config.num_warmup_steps:,}",
            f"{config.num_train_steps:,}",
        )
    run = _Run(task, config, folder, strategy, init_checkpoint, start, phases[-1])
    with run.checkpoints, run.closing:
        if run.has_steps_left(phases):
            total = None if config.max_train_hours else config.num_train_steps
            progress = progress_bar(total, done=run.step, unit="step", label=task.name)
            with Signals() as run.signals, progress as run.bar:
                for phase in phases:
                    if not run.has_made(phase) and not run.out_of_patience():
                        run.train_phase(phase)
                run.end()
    if is_chief(strategy):
        write_curves(folder, task.name)
    return run.model, run.step


class _Run:
    """A run's state, and the steps that advance it."""

    signals: Signals  # both while it trains
    bar: Any

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        folder: str,
        strategy: Strategy,
        init_checkpoint: str | Source | None,
        start: run_folder.Start | None,
        last: Phase,
    ) -> None:
        self._config = config
        self._folder = folder
        self._strategy = strategy
        self._start = start
        self._profiler = StepProfiler(
            folder, config.profile_steps, traces=is_chief(strategy)
        )
        # A run that diverges leaves nothing open either.
        self.closing = contextlib.ExitStack()
        self.closing.callback(self._profiler.close)
        keras.utils.set_random_seed(config.random_seed)
        with strategy.scope():
            with computing_in(config.precision):
                self.model = self._trained = task.build_model()
                if config.frozen_layers:
                    freeze(self.model.encoder, config.frozen_layers)
                if task.in_training:
                    self._trained = task.in_training(self.model)
                    task = dataclasses.replace(task, objective=self._trained.objective)
            schedule = WarmupSchedule(
                config.learning_rate,
                config.num_schedule_steps or config.num_train_steps,
                config.num_warmup_steps,
                shape=config.learning_rate_schedule,
                end_learning_rate=config.end_learning_rate,
                power=config.learning_rate_power,
                decay_from=config.decay_from,
                decay_share=config.decay_share,
            )
            self._optimizer = optimizer_of(
                0.0 if config.max_train_hours else schedule,  # or as the time goes
                config.optimizer,
                bias_correction=config.bias_correction,
                beta_1=config.beta_1,
                beta_2=config.beta_2,
                epsilon=config.epsilon,
                weight_decay_rate=config.weight_decay_rate,
                layerwise_decay=config.layerwise_learning_rate_decay,
                skip_nonfinite=config.precision == "float16",
                global_clipnorm=None,  # the step clips, once, after the reduction
            )
            trained, total = (
                sum(int(np.prod(weight.shape)) for weight in weights)
                for weights in (self.model.trainable_weights, self.model.weights)
            )
            if trained < total:
                share = 100.0 * trained / total
                logging.info(
                    "Training %d of %d weights (%.2f %%).", trained, total, share
                )
            # Built before the first trace: tf.function may not create variables later.
            self._optimizer.build(self._trained.trainable_variables)
            self._loss_scale = LossScale() if config.precision == "float16" else None
            self._budget: Budget | None = None
            if config.max_train_hours:
                self._budget = Budget(
                    config.max_train_hours,
                    schedule,
                    num_evaluations=bool(config.eval_steps) + last.evaluates_afterwards,
                    checkpoint_bytes=12 * total,  # weights and both moments
                )
        objective = task.objective
        self._last_phase = last
        self._stopping = Stopping(
            config.stop_if, [TOTAL_LOSS, *objective.losses, *objective.metrics]
        )
        self._task = task
        self.checkpoints = RunCheckpoints(
            folder,
            self.model,
            self._optimizer,
            max_to_keep=config.keep_checkpoint_max,
            is_chief=is_chief(strategy),
            extra={
                **(self._loss_scale.variables if self._loss_scale else {}),
                **(self._budget.variables if self._budget else {}),
            },
            training=self._trained.state if task.in_training else {},
        )
        if self.checkpoints.restore():
            if self._budget:
                self._budget.resume()
            if init_checkpoint:
                logging.info(
                    "`init_checkpoint` is ignored: %s takes precedence.",
                    self.checkpoints.latest,
                )
        elif init_checkpoint:
            with keeping_initial(self.model.encoder, config.reinitialize_layers):
                initialize(
                    self.model,
                    init_checkpoint,
                    config.init_adapter,
                    config.init_head,
                    second_checkpoint=config.second_checkpoint,
                    stack_layers=config.stack_layers,
                    init_layers=config.init_layers,
                )
        if task.begin and not self.checkpoints.step:
            task.begin(self.model)
        if task.in_training and not self.checkpoints.step:
            self._trained.begin(config.num_schedule_steps or config.num_train_steps)
        self.step = self.checkpoints.step  # training steps done
        # Records read of the set `data_id`.
        self.records = self.checkpoints.records
        self.data_id = self.checkpoints.data
        self._refuse_other_steps()

    def has_steps_left(self, phases: Sequence[Phase]) -> bool:
        """Whether to train; first makes an evaluation that a killed run lacks."""
        config = self._config
        # The run may have been killed after the checkpoint, before its evaluation.
        behind = next((p for p in phases if self.step <= p.end_step), phases[-1])
        is_done = self.has_made(phases[-1])
        if is_done and self._budget:
            logging.info(
                "Training is complete: its %g hours are used, at step %d. Raise"
                " `max_train_hours` to continue.",
                config.max_train_hours,
                self.step,
            )
        elif is_done:
            logging.info(
                "Training is complete: %s is at step %d of %d. Ask for more steps to"
                " continue.",
                self.checkpoints.latest,
                self.step,
                config.num_train_steps,
            )
        if self._start and self.step:
            different = run_folder.differences(self._folder, self._start)
            if different:
                logging.warning(
                    "Settings that differ from the run's earlier ones: %s.", different
                )
        if is_done and not self._evaluates(behind):
            return False
        self._reporter = Reporter(
            self._folder,
            self.step,
            is_chief=is_chief(self._strategy),
            observe=self._stopping.see,
            report_to=config.report_to,
            flags=self._start.flags if self._start else {},
        )
        self.closing.callback(self._reporter.close)
        # Without a checkpoint the time that it took is not known.
        is_known = not self._budget and self._reporter.evaluation(0) is not None
        is_first = not self.step and not is_known
        if phases[0].evaluates_before and phases[0].evaluate and is_first:
            self._reporter.report_evaluation(0, self._timed_evaluation(phases[0]))
        if self._evaluates(behind):
            recorded = self._reporter.evaluation(self.step)
            best = read_best(folder_of(self._folder))
            known = {0}.union(*((p.evaluation_id, *p.evaluation_was) for p in phases))
            if recorded is None:
                self._evaluate(behind)
            elif best is None or best.data in known:  # else of other records
                # Or between the evaluation and the best checkpoint's copy.
                self._keep_best(recorded, behind)
        if self._is_to_end():
            self._end_unreached()
        reason = "" if is_done else self.out_of_patience()
        if is_done or reason:
            self.checkpoints.wait()
            if reason:
                logging.info("%s", reason)
            return False
        if self._start and is_chief(self._strategy):
            run_folder.record_start(self._folder, self.step, self._start)
        return True

    def train_phase(self, phase: Phase) -> None:
        """Makes the remaining steps of a phase."""
        config = self._config
        if self.data_id not in (0, phase.data_id, *phase.data_was):
            logging.info(
                "Step %d: continuing with %s, from its first record.",
                self.step,
                phase.name or "other records",
            )
            self.records = 0
        self.data_id = phase.data_id
        run_steps = training_steps(
            self._task,
            self._trained,
            self._optimizer,
            self._strategy,
            accumulation_steps=config.gradient_accumulation_steps,
            jit_compile=config.jit_compile,
            loss_scale=self._loss_scale,
            clip_norm=config.clip_norm,
        )
        streams: dict[int, Stream] = {}
        start = self.records
        peak = None
        if hasattr(self.model, "bert_config"):
            peak = peak_flops(self._strategy)
        window = LogInterval()
        seconds_per_step = None
        while not self.has_made(phase):
            count = self._steps_of_next_call(phase, seconds_per_step)
            number = phase.stream_of(self.records)
            numbers = (
                phase.stream_of(self.records + i * phase.batch_size)
                for i in range(count)
            )
            count = len(list(next(itertools.groupby(numbers))[1]))
            if number not in streams:
                streams[number] = self._open(phase.streams[number], start)
            stream = streams[number]
            self._profiler.at(self.step)
            if self._budget:
                self._optimizer.learning_rate = self._budget.rate(self.step)
            began = time.monotonic()
            try:
                with self._profiler.call(self.step):
                    results = run_steps(stream.iterator, count)
            except READING_ERRORS as error:
                raise InputError(record_error(error)) from error
            elapsed = time.monotonic() - began
            self._check_losses(results.losses, phase)
            self.step += count
            self.records += count * phase.batch_size
            if self._loss_scale:
                self._check_gradients(results.sums[SKIPPED][0], count)
            # The first call compiles; the second one, of a single step again, measures
            # the pace.
            window.add(
                results.sums,
                steps=count,
                flops_per_step=stream.flops_per_step,
                seconds=elapsed if stream.calls else None,
                input_seconds=results.input_seconds,
            )
            # [SIGTERMs, SIGINTs, seconds per step, seconds left]
            left = self._budget.seconds_left() if self._budget else 0.0
            asked = self._summed(*self._asked(), elapsed / count, left)
            terms, interrupts, seconds, left = asked
            if stream.calls:
                seconds_per_step = seconds / num_workers(self._strategy)
                if self._budget:
                    self._follow_time(left, seconds_per_step)
            elif self._budget:
                # Forward alone is a third of a step; the rest is a margin.
                num_steps = 0.5 * phase.num_evaluated / phase.batch_size
                self._budget.foresee_evaluation(elapsed, num_steps)
            stream.calls += 1
            self.bar.set_postfix(
                window.shown()
                | {
                    "learning_rate": f"{self._learning_rate():.2e}",
                    "sequences/s": f"{results.sums[SEQUENCES][0] / elapsed:.0f}",
                },
                refresh=False,
            )
            self.bar.update(count)
            ends_phase = self.has_made(phase)
            reports = self.step % config.log_steps == 0 or ends_phase
            if reports:
                metrics = window.metrics(peak)
                metrics["learning_rate"] = self._learning_rate()
                self._reporter.report(self.step, metrics)
                window = LogInterval()
            stops = bool(terms or interrupts)
            evaluates = self._evaluates(phase)
            saves = self.step % config.save_checkpoints_steps == 0
            if self._budget and self._budget.saves(left / num_workers(self._strategy)):
                saves = True
            is_to_end = reports and self._is_to_end()
            if is_to_end or saves or ends_phase or stops or evaluates:
                self._check_weights()
                began = time.monotonic()
                if self._budget:
                    self._budget.keep()
                self.checkpoints.save(self.step, self.records, self.data_id)
                if self._budget:
                    self._budget.saved(time.monotonic() - began)
            # When stopping, leave the evaluation to the next start.
            if evaluates and not stops:
                self._evaluate(phase)
            self._stop_if_asked(terms, interrupts)
            if is_to_end or (evaluates and self._is_to_end()):
                self._end_unreached()
            if evaluates and (reason := self.out_of_patience()):
                logging.info("%s", reason)
                break

    def _open(self, data: TrainingData, start: int) -> Stream:
        """A stream from a position on, opened when it is first read."""
        spec = data(start, ALL_ROWS).element_spec
        return Stream(
            iter(distributed(self._strategy, lambda shard: data(start, shard))),
            training_flops(
                getattr(self.model, "bert_config", None),
                {name: tuple(one.shape) for name, one in spec.items()},
            ),
        )

    def has_made(self, phase: Phase) -> bool:
        """Whether a phase has used up its steps or its time."""
        is_over = self._budget is not None and self._budget.is_over
        return is_over or self.step >= phase.end_step

    def _follow_time(self, seconds_left: float, seconds_per_step: float) -> None:
        """Updates the budget by the pace, and the progress bar by the steps left."""
        assert self._budget is not None
        self._budget.update(
            self.step, seconds_left / num_workers(self._strategy), seconds_per_step
        )
        self.bar.total = round(self.step + self._budget.steps_left(self.step))

    def _steps_of_next_call(self, phase: Phase, seconds_per_step: float | None) -> int:
        """How many steps to make before control returns to Python."""
        if seconds_per_step is None:
            return 1
        config = self._config
        intervals = (config.log_steps, config.save_checkpoints_steps, config.eval_steps)
        until = min(
            *((self.step // n + 1) * n for n in intervals if n),
            self._profiler.next_boundary(self.step) or phase.end_step,
            phase.end_step,
            self.step + config.iterations_per_loop,
        )
        count = until - self.step
        if self._budget:
            left = self._budget.steps_left(self.step)
            # The rate changes between calls alone.
            count = max(1, min(count, round(min(left, 1 + 0.001 * (self.step + left)))))
        if is_tpu(self._strategy):
            return count
        return min(count, max(1, int(_SECONDS_PER_CALL / seconds_per_step)))

    def _check_losses(self, losses: np.ndarray, phase: Phase) -> None:
        """Ends the run if a loss of the steps just made is not finite."""
        finite = np.isfinite(losses)
        if finite.all():
            return
        failed = int(np.argmin(finite))
        step = self.step + failed + 1
        position = self.records + failed * phase.batch_size
        stream = phase.streams[phase.stream_of(position)]
        batch = next(iter(stream(position, ALL_ROWS)))
        path = run_folder.save_batch(self._folder, step, batch, self._task.name)
        self._end_diverged(
            f"The loss is not finite at step {step}. Lower `learning_rate`, or lengthen"
            f" the warmup. {run_folder.where_shown(path)}"
        )

    def _check_gradients(self, skipped: float, steps: int) -> None:
        """Ends the run if float16's gradients overflow at every scale."""
        assert self._loss_scale is not None
        if float(self._loss_scale.scale) <= 1.0 and skipped >= steps:
            self._end_diverged(
                f"The gradients are not finite at step {self.step}, even without"
                " scaling the loss. Train with `precision=bfloat16` or float32."
            )

    def _check_weights(self) -> None:
        """Ends the run before a checkpoint whose next loss would not be finite."""
        if not all(
            bool(ops.all(ops.isfinite(variable)))
            for variable in self.model.trainable_variables
        ):
            self._end_diverged(
                f"The weights are not finite after step {self.step}. Lower"
                " `learning_rate`, or lengthen the warmup."
            )

    def _is_to_end(self) -> bool:
        """Whether a condition of `stop_if` holds, on any worker."""
        if not self._config.stop_if or self.has_made(self._last_phase):
            return False
        return bool(self._summed(float(bool(self._stopping.reason)))[0])

    def _end_unreached(self) -> NoReturn:
        """Completes writing, and says what to look at."""
        self._wait_for_all()
        if is_chief(self._strategy):
            write_curves(self._folder, self._task.name)
        curves = os.path.join(self._folder, CURVES_NAME)
        raise NotReachedError(
            f"The run has ended at step {self.step}:"
            f" {self._stopping.reason or 'a condition of `stop_if` holds'}. Look at"
            f" {curves}: if the loss hardly falls, raise `learning_rate` or shorten the"
            " warmup; if it jumps, lower the rate. With another `stop_if`, or none, the"
            f" same command resumes from {self.checkpoints.latest}."
        )

    def _end_diverged(self, message: str) -> NoReturn:
        """Completes writing, and names the last checkpoint."""
        self._wait_for_all()
        raise DivergedError(
            f"{message} Last good checkpoint: {self.checkpoints.latest or 'none'}."
        )

    def _evaluates(self, phase: Phase) -> bool:
        """Whether to evaluate after the step just made."""
        interval = self._config.eval_steps
        if not interval or not self.step or phase.evaluate is None:
            return False
        is_last = self.step == self._config.num_train_steps
        if self._budget:
            is_last = self._budget.is_over
        return self.step % interval == 0 or is_last

    def _evaluate(self, phase: Phase) -> None:
        """Evaluates, records it, and keeps the best checkpoint."""
        results = self._timed_evaluation(phase)
        self._reporter.report_evaluation(self.step, results)
        self._keep_best(results, phase)

    def _timed_evaluation(self, phase: Phase) -> Mapping[str, float]:
        """An evaluation's results; the budget is told how long it took."""
        assert phase.evaluate is not None
        began = time.monotonic()
        results = phase.evaluate(self.model)
        if self._budget:
            self._budget.evaluated(time.monotonic() - began)
        return results

    def _keep_best(self, results: Mapping[str, float], phase: Phase) -> None:
        """Keeps the step's checkpoint if its evaluation is the best one."""
        name = self._config.best_metric
        if name not in results:
            raise InputError(
                f"`best_metric={name}` is not a metric of the evaluation:"
                f" {', '.join(results)}."
            )
        self.checkpoints.keep_best(
            self.step,
            results[name],
            name,
            data_id=phase.evaluation_id,
            data_was=phase.evaluation_was,
        )

    def out_of_patience(self) -> str:
        """Why the run ends here, by its recorded evaluations; "" if it does not."""
        name, patience = self._config.best_metric, self._config.patience
        values = [one[name] for one in self._reporter.evaluations() if name in one]
        if not patience or not values:
            return ""
        best = functools.reduce(
            lambda one, other: other if is_better(other, one, name) else one, values
        )
        since = len(values) - 1 - values.index(best)
        if since < patience:
            return ""
        return (
            f"The run ends at step {self.step}: no better {name} for {since}"
            f" evaluations (best: {best:.6g}; `patience={patience}`)."
        )

    def _asked(self) -> list[float]:
        """[SIGTERMs, SIGINTs] that this worker has received."""
        received = self.signals.received
        return [float(received == n) for n in (signal.SIGTERM, signal.SIGINT)]

    def _stop_if_asked(self, terms: float, interrupts: float) -> None:
        """Exits, with everything saved, if a worker was told to stop."""
        if not terms and not interrupts:
            return
        number = signal.SIGTERM if terms else signal.SIGINT
        self._wait_for_all()
        self.bar.close()
        print(
            f"Stopped by {number.name} at step {self.step}; saved"
            f" {self.checkpoints.latest}. Start the same command again to resume.",
            file=sys.stderr,
        )
        sys.exit(128 + number)

    def end(self) -> None:
        """Waits until all is written; exits if a signal came in the meantime."""
        self.checkpoints.wait()
        self._stop_if_asked(*self._summed(*self._asked(), 0.0, 0.0)[:2])

    def _wait_for_all(self) -> None:
        """Returns when all is written: no worker may leave while the chief writes."""
        self.checkpoints.wait()
        self._summed(0.0, 0.0, 0.0, 0.0)

    def _summed(self, *numbers: float) -> np.ndarray:
        return sum_over_workers(self._strategy, list(numbers))

    def _learning_rate(self) -> float:
        """The rate of the step just made: schedules count from step 0."""
        schedule = self._optimizer._learning_rate
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            return float(schedule(self.step - 1))
        return float(schedule)

    def _refuse_other_steps(self) -> None:
        """Raises InputError if workers have restored different checkpoints."""
        count = num_workers(self._strategy)
        total, squares = self._summed(self.step, self.step**2)
        # Equal on all workers if and only if all are equal: so either all exit or none.
        if count * squares != total**2:
            raise InputError(
                f"The workers stand at different steps (this one at {self.step}):"
                f" `output_dir={self._folder}` must be one folder that all of them see."
            )
