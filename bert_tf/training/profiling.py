"""A profile of some steps on demand: --profile_steps=FIRST,LAST.

The steps after FIRST, up to LAST, are traced: 100,110 shows ten steps, the 101st to the
110th. The trace of the devices and the host is where TensorBoard looks for it:

    OUTPUT_DIR/plugins/profile/TIME/HOST.xplane.pb

TensorBoard's profile plugin shows it (`pip install xprof`, then `tensorboard
--logdir=OUTPUT_DIR`). A traced step is slower than others, and the first steps compile:
choose some after them, and few.
"""

import contextlib
import types

import tensorflow as tf
from absl import logging

from bert_tf import keras_backend
from bert_tf.errors import InputError


def parse_steps(spec: str) -> tuple[int, int]:
    """--profile_steps as (first, last)."""
    numbers = [part.strip() for part in spec.split(",")]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        first, last = map(int, numbers)
        if first < last:
            return first, last
    raise InputError(
        f"--profile_steps={spec}: give two steps, the second one larger, such as"
        " 100,110: the ten steps after step 100."
    )


class StepProfiler:
    """Traces the requested steps; the loop reports its progress to it."""

    def __init__(self, folder: str, spec: str | None, *, traces: bool = True) -> None:
        self._folder = folder
        self._traces = traces
        self._steps = parse_steps(spec) if spec else None
        self._is_tracing = False

    def next_boundary(self, step: int) -> int | None:
        """The step at which a call of the device must end; None where none is left."""
        for boundary in self._steps or ():
            if step < boundary:
                return boundary
        return None

    def at(self, step: int) -> None:
        """Starts or stops the trace if it is time to."""
        if self._steps is None or not self._traces:
            return
        first, last = self._steps
        if first <= step < last and not self._is_tracing:
            try:
                _start(self._folder)
            except (tf.errors.AlreadyExistsError, RuntimeError):  # TensorFlow's, JAX's
                logging.warning("--profile_steps: another profile is being made.")
                self._traces = False
                return
            self._is_tracing = True
        elif step >= last:
            self.close()

    def call(self, step: int) -> contextlib.AbstractContextManager:
        """A context for the device calls from this step on: named in the trace."""
        if not self._is_tracing:
            return contextlib.nullcontext()
        if keras_backend.is_jax():
            return _jax_profiler().StepTraceAnnotation("train", step_num=step)
        return tf.profiler.experimental.Trace("train", step_num=step, _r=1)

    def close(self) -> None:
        """Ends and writes a trace that is under way."""
        if not self._is_tracing:
            return
        self._is_tracing = False
        if keras_backend.is_jax():
            _jax_profiler().stop_trace()
        else:
            tf.profiler.experimental.stop()
        logging.info("Wrote a profile to %s/plugins/profile.", self._folder)


def _start(folder: str) -> None:
    if keras_backend.is_jax():
        _jax_profiler().start_trace(folder)
    else:
        tf.profiler.experimental.start(folder)


def _jax_profiler() -> types.ModuleType:
    import jax

    return jax.profiler
