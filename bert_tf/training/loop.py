"""The training run: phases of steps, metrics, checkpoints, stopping without loss."""

import contextlib
import dataclasses
import itertools
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.options import declarations
from bert_tf.base.progress import progress_bar
from bert_tf.conversion.source import Source
from bert_tf.optimization.layerwise import freeze, keeping_initial, log_untrained
from bert_tf.optimization.optimizers import AdamWeightDecay, create_optimizer, rate_of
from bert_tf.records.pipeline import ALL_ROWS, READING_ERRORS, record_error
from bert_tf.training import events, run_folder
from bert_tf.training.checkpoints import (
    RunCheckpoints,
    folder_of,
    initialize,
    read_best,
)
from bert_tf.training.events import Call, Callback, Signals, exit_after
from bert_tf.training.reporting import LogInterval, Reporter, training_line
from bert_tf.training.step import LossScale, computing_in, on_devices
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    create_strategy,
    description,
    is_chief,
    is_tpu,
    num_workers,
    require_same,
    require_same_step,
    sum_over_workers,
)
from bert_tf.training.task import ENDLESS, Phase, Task, TrainingData
from bert_tf.training.throughput import peak_flops, training_flops
from bert_tf.training.training_options import TrainingConfig

# Target seconds per call of the compiled steps on the CPU: short enough to move the bar
# and to notice signals, long enough that Python's share stays small.
_SECONDS_PER_CALL = 0.5
# Without a bar, the first loss is in the log after about so long, whatever `log_steps`.
_SECONDS_TO_A_LOSS = 20.0


def train(
    task: Task,
    config: TrainingConfig,
    *,
    folder: str,
    phases: Sequence[Phase],
    init_checkpoint: str | Source | None = None,
    strategy: Strategy | None = None,
    start: run_folder.Start | None = None,
    callbacks: Sequence[Callback] = (),  # in addition to those that the config asks for
) -> tuple[keras.Model, int]:
    """Trains a task's model through its phases; resumes from the folder."""
    strategy = strategy or create_strategy()
    _refuse_differing(task, config, phases, strategy)
    files.make_folder(folder)
    logging.info("Running on %s.", description(strategy))
    callbacks = [*events.asked_for(config), *callbacks]
    run = _Run(task, config, folder, strategy, phases, start, callbacks)
    with run.closing:
        run.restore(init_checkpoint)
        if run.has_steps_left():
            run.train()
    for one in callbacks:
        one.ended()
    return run.model, run.step


def _refuse_differing(
    task: Task, config: TrainingConfig, phases: Sequence[Phase], strategy: Strategy
) -> None:
    """Raises InputError for batches that cannot be split, or workers that differ."""
    for phase in phases:
        check_batch_size(strategy, phase.batch_size, config.gradient_accumulation_steps)
    if task.objective.across_rows and config.gradient_accumulation_steps > 1:
        raise InputError(
            f"`gradient_accumulation_steps={config.gradient_accumulation_steps}`:"
            f" {', '.join(task.objective.across_rows)} compare the rows of a whole"
            " batch, which micro-batches do not have. Leave it out."
        )
    settings = {f"`{n}`": getattr(config, n) for n in declarations(type(config))}
    records = [(one.data_id, one.end_step, one.batch_size) for one in phases]
    require_same(strategy, {**settings, "records": records})


def _optimizer(config: TrainingConfig) -> AdamWeightDecay:
    """Returns the optimizer with its schedule; the step clips, after the reduction."""
    if config.num_warmup_steps > config.num_train_steps:
        logging.warning(
            "The warmup of %s steps is longer than the run of %s: the learning rate"
            " never reaches its peak.",
            f"{config.num_warmup_steps:,}",
            f"{config.num_train_steps:,}",
        )
    return create_optimizer(
        learning_rate=config.learning_rate,
        num_train_steps=config.num_schedule_steps or config.num_train_steps,
        num_warmup_steps=config.num_warmup_steps,
        optimizer=config.optimizer,
        learning_rate_schedule=config.learning_rate_schedule,
        end_learning_rate=config.end_learning_rate,
        power=config.learning_rate_power,
        decay_from=config.decay_from,
        decay_share=config.decay_share,
        bias_correction=config.bias_correction,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        weight_decay_rate=config.weight_decay_rate,
        layerwise_decay=config.layerwise_learning_rate_decay,
        skip_nonfinite=config.precision == "float16",
        global_clipnorm=None,
    )


@dataclasses.dataclass
class _Stream:
    """A phase's stream of batches of one shape."""

    iterator: Iterator
    flops_per_step: float | None
    calls: int = 0  # device calls that have read from it; the first one compiles


def _open_stream(
    data: TrainingData, start: int, strategy: Strategy, model: keras.Model
) -> _Stream:
    """Opens a stream at a position."""
    spec = data(start, ALL_ROWS).element_spec
    shapes = {name: tuple(one.shape) for name, one in spec.items()}
    config = getattr(model, "bert_config", None)
    batches = on_devices().global_batches(strategy, lambda rows: data(start, rows))
    return _Stream(iter(batches), training_flops(config, shapes))


class _Run:
    """A run's state, and the steps that advance it."""

    signals: Signals  # both only during training
    bar: Any
    saving_seconds: float | None = None

    def __init__(
        self,
        task: Task,
        config: TrainingConfig,
        folder: str,
        strategy: Strategy,
        phases: Sequence[Phase],
        start: run_folder.Start | None,
        callbacks: Sequence[Callback],
    ) -> None:
        self.config = config
        self.folder = folder
        self.strategy = strategy
        self.phases = phases
        self.flags: Mapping[str, Any] = start.flags if start else {}
        self._start = start
        self._callbacks = callbacks
        self._ends_early = False
        # Closes everything even if the run diverges.
        self.closing = contextlib.ExitStack()
        for one in callbacks:
            one.run = self
        keras.utils.set_random_seed(config.random_seed)
        with strategy.scope():
            with computing_in(config.precision):
                self.model = self._trained = task.build_model()
                if config.frozen_layers:
                    freeze(self.model.encoder, config.frozen_layers)
                if task.in_training:
                    self._trained = task.in_training(self.model)
                    task = dataclasses.replace(task, objective=self._trained.objective)
            self.task = task
            log_untrained(self.model)
            self.optimizer = _optimizer(config)
            for one in callbacks:
                self.optimizer = one.optimizer(self.optimizer)
            # Built before the first trace: tf.function may not create variables later.
            self.optimizer.build(self._trained.trainable_variables)
            self.loss_scale = LossScale() if config.precision == "float16" else None
        scale = [self.loss_scale.variables] if self.loss_scale else []
        states = [*(one.state for one in callbacks), *scale]
        extra = {name: state[name] for state in states for name in state}
        assert len(extra) == sum(map(len, states)), "two states of one name"
        self.checkpoints = RunCheckpoints(
            folder,
            self.model,
            self.optimizer,
            max_to_keep=config.keep_checkpoint_max,
            is_chief=is_chief(strategy),
            extra=extra,
            training=self._trained.state if task.in_training else {},
        )
        self.closing.enter_context(self.checkpoints)

    def restore(self, init_checkpoint: str | Source | None) -> None:
        """Restores the last checkpoint, or loads the initial weights."""
        config, task = self.config, self.task
        if self.checkpoints.restore():
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
        require_same_step(self.strategy, self.step, self.folder)
        for one in self._callbacks:
            one.restored()

    def has_steps_left(self) -> bool:
        """Whether steps remain; first makes an evaluation that a killed run missed."""
        phases = self.phases
        # The run may have been killed after the checkpoint, before its evaluation.
        behind = next((p for p in phases if self.step <= p.end_step), phases[-1])
        is_done = self._has_made(phases[-1])
        if self.step >= phases[-1].end_step:
            logging.info(
                "Training is complete: %s is at step %d of %d. Ask for more steps to"
                " continue.",
                *(self.checkpoints.latest, self.step, self.config.num_train_steps),
            )
        different = ""
        if self._start and self.step:
            different = run_folder.differences(self.folder, self._start)
        if different:
            message = "Settings that differ from the run's earlier ones: %s."
            logging.warning(message, different)
        if is_done and not self._evaluates(behind):
            return False
        self._reporter = Reporter(
            self.folder,
            self.step,
            seconds=self.checkpoints.seconds,
            is_chief=is_chief(self.strategy),
            observers=[one.logged for one in self._callbacks],
        )
        self.closing.callback(self._reporter.close)
        for one in self._callbacks:
            one.started(self._reporter.lines)
        if phases[0].evaluates_before and phases[0].evaluate and not self.step:
            self._evaluate(phases[0])
        if self._evaluates(behind):
            recorded = self._reporter.evaluation(self.step)
            best = read_best(folder_of(self.folder))
            known = {0}.union(*((p.evaluation_id, *p.evaluation_was) for p in phases))
            if recorded is None:
                self._keep_best(self._evaluate(behind), behind)
            elif best is None or best.data in known:  # else of other records
                # Or between the evaluation and the copy of the best checkpoint.
                self._keep_best(recorded, behind)
        if is_done or self._should_end():
            self.wait_for_all()
            return False
        if self._start and is_chief(self.strategy):
            run_folder.record_start(self.folder, self.step, self._start)
        return True

    def train(self) -> None:
        """Makes the remaining steps; returns when everything is written."""
        is_endless = self.phases[-1].end_step == ENDLESS
        total = None if is_endless else self.config.num_train_steps
        bar = progress_bar(total, done=self.step, unit="step", label=self.task.name)
        with Signals() as self.signals, bar as self.bar:
            for phase in self.phases:
                self._train_phase(phase)
            self.checkpoints.wait()
            # A signal may have come in the meantime.
            self._stop_if_asked(*self.summed(*self.signals.numbers(), 0.0)[:2])

    def _train_phase(self, phase: Phase) -> None:
        """Makes the remaining steps of a phase."""
        if self._has_made(phase) or self._ends_early:
            return
        config = self.config
        if self.data_id not in (0, phase.data_id, *phase.data_was):
            records = phase.name or "other records"
            message = "Step %d: continuing with %s, from its first record."
            logging.info(message, self.step, records)
            self.records = 0
        self.data_id = phase.data_id
        run_steps = on_devices().training_steps(
            self.task,
            self._trained,
            self.optimizer,
            self.strategy,
            accumulation_steps=config.gradient_accumulation_steps,
            jit_compile=config.jit_compile,
            loss_scale=self.loss_scale,
            clip_norm=config.clip_norm,
        )
        streams: dict[int, _Stream] = {}
        start = self.records
        peak = None
        if hasattr(self.model, "bert_config"):
            peak = peak_flops(self.strategy)
        window = LogInterval()
        pace = None  # seconds per step
        silent_since = time.monotonic() if self.bar.disable else math.inf
        while not self._has_made(phase) and not self._ends_early:
            number = phase.stream_of(self.records)
            if number not in streams:
                data = phase.streams[number]
                streams[number] = _open_stream(data, start, self.strategy, self.model)
            stream = streams[number]
            count = self._steps_of_next_call(phase, pace)
            began = time.monotonic()
            try:
                results = run_steps(stream.iterator, count)
            except READING_ERRORS as error:
                raise InputError(record_error(error)) from error
            elapsed = time.monotonic() - began
            self.step += count
            self.records += count * phase.batch_size
            # The first call compiles; the second one, again of a single step, measures
            # the pace.
            window.add(
                results.sums,
                steps=count,
                flops_per_step=stream.flops_per_step,
                seconds=elapsed if stream.calls else None,
                input_seconds=results.input_seconds,
            )
            # [SIGTERMs, SIGINTs, seconds per step]
            terms, interrupts, seconds = self.summed(
                *self.signals.numbers(), elapsed / count
            )
            if stream.calls:
                pace = seconds / num_workers(self.strategy)
            known = pace if stream.calls else None
            call = Call(phase, count, results, elapsed, known)
            due = [one.after_call(call) for one in self._callbacks]  # all are asked
            stream.calls += 1
            rate = rate_of(self.optimizer, self.step)
            self.bar.set_postfix(window.shown(rate, elapsed), refresh=False)
            self.bar.update(count)
            ends_phase = self._has_made(phase)
            reports = self.step % config.log_steps == 0 or ends_phase
            if reports:
                metrics = window.metrics(peak)
                metrics["learning_rate"] = rate
                self._reporter.report(self.step, metrics)
                window = LogInterval()
                silent_since = math.inf
            elif time.monotonic() - silent_since > _SECONDS_TO_A_LOSS:
                next_line = self.step + -self.step % config.log_steps
                next_line = min(next_line, phase.end_step)
                line = training_line(self.step, window.metrics(peak))
                logging.info("%s; next at step %d", line, next_line)
                silent_since = math.inf
            stops = bool(terms or interrupts)
            evaluates = self._evaluates(phase)
            saves = self.step % config.save_checkpoints_steps == 0 or any(due)
            ends = reports and self._should_end()
            if ends or saves or ends_phase or stops or evaluates:
                self._save()
            # When stopping, leave the evaluation to the next start.
            if evaluates and not stops:
                self._keep_best(self._evaluate(phase), phase)
            self._stop_if_asked(terms, interrupts)
            if evaluates:
                self._should_end()

    def _has_made(self, phase: Phase) -> bool:
        """Whether a phase has made all its steps, or a callback ends the training."""
        is_over = any(one.is_over for one in self._callbacks)
        return is_over or self.step >= phase.end_step

    def _should_end(self) -> bool:
        """Whether a callback ends the run before its last step."""
        if not self._has_made(self.phases[-1]):
            answers = [one.should_end() for one in self._callbacks]  # all are asked
            self._ends_early |= any(answers)
        return self._ends_early

    def _steps_of_next_call(self, phase: Phase, pace: float | None) -> int:
        """Returns the number of steps before control returns to Python."""
        most = [one.before_call(self.step) for one in self._callbacks]
        if pace is None:
            return 1
        config = self.config
        intervals = (config.log_steps, config.save_checkpoints_steps, config.eval_steps)
        until = min(
            *((self.step // n + 1) * n for n in intervals if n),
            phase.end_step,
            self.step + config.iterations_per_loop,
        )
        count = min([until - self.step, *filter(None, most)])
        if not is_tpu(self.strategy):
            count = min(count, max(1, int(_SECONDS_PER_CALL / pace)))
        positions = (self.records + i * phase.batch_size for i in range(count))
        groups = itertools.groupby(map(phase.stream_of, positions))
        return len(list(next(groups)[1]))  # of one stream

    def _save(self) -> None:
        began = time.monotonic()
        for one in self._callbacks:
            one.saving()
        seconds = self._reporter.seconds()
        self.checkpoints.save(self.step, self.records, self.data_id, seconds)
        self.saving_seconds = time.monotonic() - began

    def _evaluates(self, phase: Phase) -> bool:
        """Whether to evaluate after the last step made."""
        interval = self.config.eval_steps
        if not interval or not self.step or phase.evaluate is None:
            return False
        is_last = self.step == self.phases[-1].end_step
        is_last |= any(one.is_over for one in self._callbacks)
        return self.step % interval == 0 or is_last

    def _evaluate(self, phase: Phase) -> Mapping[str, float]:
        """Evaluates, and records and returns the results."""
        assert phase.evaluate is not None
        began = time.monotonic()
        results = phase.evaluate(self.model)
        seconds = time.monotonic() - began
        self._reporter.report_evaluation(self.step, results)
        for one in self._callbacks:
            one.evaluated(self.step, results, seconds)
        return results

    def _keep_best(self, results: Mapping[str, float], phase: Phase) -> None:
        """Keeps the step's checkpoint if its evaluation is the best."""
        self.checkpoints.keep_best(
            self.step,
            results,
            self.config.best_metric,
            data_id=phase.evaluation_id,
            data_was=phase.evaluation_was,
        )

    def _stop_if_asked(self, terms: float, interrupts: float) -> None:
        """Exits with everything saved, if a worker was told to stop."""
        if terms or interrupts:
            self.wait_for_all()
            self.bar.close()
            exit_after(
                signal.SIGTERM if terms else signal.SIGINT,
                f"at step {self.step}; saved {self.checkpoints.latest}",
            )

    def wait_for_all(self) -> None:
        """Waits until all is written: no worker may leave while the chief writes."""
        self.checkpoints.wait()
        self.summed(0.0, 0.0, 0.0)

    def summed(self, *numbers: float) -> np.ndarray:
        """Returns the sums over all workers, all of which must call this."""
        return sum_over_workers(self.strategy, list(numbers))
