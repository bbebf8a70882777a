"""The speed of a run: its model FLOPs utilization, and a profile of its steps.

The utilization is the share of the devices' peak that a run uses:

    FLOPs of the model per step / seconds per step / peak

A multiplication and an addition are 2 FLOPs, so a product of [m, k] and [k, n] takes
2 m k n. Only matrix products of the encoder and the masked LM count: lookups, softmax,
normalization and the scores of labels are small in comparison. Training takes three
times the forward pass: the backward pass has two products for each one of the forward
pass (Kaplan et al. 2020, arXiv:2001.08361, section 2.1). Recomputation to save memory
does not count (Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B).

The peak is the maker's figure for dense products in bfloat16 (float16 if the device has
no bfloat16), whatever the run's precision. CPUs, and devices not in the table, have no
peak and no utilization.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.base import keras_backend
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.training.events import Call, Callback
from bert_tf.training.strategy import Strategy, device_name, is_chief

# Part of a device's name, the more specific ones first -> FLOPs per second. Before v4,
# each of a TPU chip's two cores is a device of its own.
_PEAKS = {
    "tpu v2": 22.5e12,
    "tpu v3": 61.5e12,
    "tpu v4": 275e12,
    "tpu v5 lite": 197e12,
    "tpu v5e": 197e12,
    "tpu v5p": 459e12,
    "tpu v5": 459e12,
    "tpu v6": 918e12,
    "b200": 2250e12,
    "h200": 989e12,
    "h100 pcie": 756e12,
    "h100": 989e12,
    "a100": 312e12,
    "l40s": 362e12,
    "l40": 181e12,
    "a10g": 70e12,
    "a10": 125e12,
    "l4": 121e12,
    "v100": 125e12,
    "t4": 65e12,
    "rtx 4090": 165e12,
    "rtx 3090": 71e12,
}


def training_flops(
    config: BertConfig | None, shapes: Mapping[str, tuple]
) -> float | None:
    """Returns a training step's FLOPs for batches of these shapes; None if unknown.

    One sequence of S tokens and P predictions, forward, with N layers, hidden size H,
    intermediate size I and V tokens:

        queries, keys, values, attention output   N * 8 S H^2
        scores and context, each [S, K] a head    N * 4 S K H
        feed-forward network                      N * 4 S H I
        masked LM: transform, scores              2 P H E + 2 P E V
        embeddings to hidden size                 2 S E H, if their size E is not H

    A token sees K = S tokens; with local attention its window and G global ones.
    These see all by weights of their own: 4 H min(S (G + H), G (A S + H)) for A heads.
    """
    if config is None or any(None in shape for shape in shapes.values()):
        return None
    *batch, length = shapes["input_ids"]
    hidden, width = config.hidden_size, config.embedding_width
    heads, num_global = config.num_attention_heads, config.global_tokens or 0
    seen = min(length, 1 + 2 * (config.attention_window or length) + num_global)
    own = min(length * (num_global + hidden), num_global * (heads * length + hidden))
    flops = config.num_hidden_layers * (
        8 * length * hidden**2
        + 4 * (length * seen + own) * hidden
        + 4 * length * hidden * config.intermediate_size
    )
    if width != hidden:
        flops += 2 * length * width * hidden
    if "masked_lm_positions" in shapes:
        predictions = shapes["masked_lm_positions"][1]
        flops += 2 * predictions * width * (hidden + config.vocab_size)
    return 3.0 * math.prod(batch) * flops


def peak_flops(strategy: Strategy) -> float | None:
    """Returns the peak FLOP/s of all devices of a strategy; None if unknown."""
    name = device_name(strategy).lower()
    for part, peak in _PEAKS.items():
        if part in name:
            return peak * strategy.num_replicas_in_sync
    return None


# A profile of some steps on demand: --profile_steps=FIRST,LAST.
#
# The steps after FIRST, up to LAST, are traced: 100,110 shows ten steps, the 101st to
# the 110th. The trace of the devices and the host is written for TensorBoard to
#
#     OUTPUT_DIR/plugins/profile/TIME/HOST.xplane.pb
#
# TensorBoard's profile plugin shows it (`pip install xprof`, then `tensorboard
# --logdir=OUTPUT_DIR`). A traced step is slower than others, and the first steps
# compile: choose a few later steps.


def parse_steps(spec: str) -> tuple[int, int]:
    """Parses --profile_steps into (first, last)."""
    numbers = [part.strip() for part in spec.split(",")]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        first, last = map(int, numbers)
        if first < last:
            return first, last
    raise InputError(
        f"`profile_steps={spec}`: give two steps, the second one larger, such as"
        " 100,110: the ten steps after step 100."
    )


class StepProfiler(Callback):
    """Traces the steps of `profile_steps`."""

    def __init__(self, spec: str) -> None:
        self._first, self._last = parse_steps(spec)
        self._traces = False
        self._tracing = contextlib.ExitStack()
        self._is_tracing = False
        self._of_call = contextlib.ExitStack()

    def started(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Ensures that the trace is written however the run ends; only the chief's."""
        self._traces = is_chief(self.run.strategy)
        self.run.closing.callback(self.close)

    def before_call(self, step: int) -> int | None:
        """Starts or ends the trace if due; returns the steps until then."""
        if self._traces and self._first <= step < self._last and not self._is_tracing:
            try:
                self._tracing.enter_context(_trace(self.run.folder))
                self._is_tracing = True
            except (tf.errors.AlreadyExistsError, RuntimeError):  # TensorFlow's, JAX's
                logging.warning("`profile_steps`: another profile is being made.")
                self._traces = False
        elif step >= self._last:
            self.close()
        if self._is_tracing:
            self._of_call.enter_context(_named_step(step))
        return next(
            (one - step for one in (self._first, self._last) if step < one), None
        )

    def after_call(self, call: Call) -> bool:
        """Ends the call's name in the trace."""
        self._of_call.close()
        return False

    def close(self) -> None:
        """Ends and writes the trace, if any."""
        if self._is_tracing:
            self._is_tracing = False
            self._of_call.close()
            self._tracing.close()
            logging.info("Wrote a profile to %s/plugins/profile.", self.run.folder)


def _trace(folder: str) -> contextlib.AbstractContextManager:
    if keras_backend.is_jax():
        import jax

        return jax.profiler.trace(folder)
    return tf.profiler.experimental.Profile(folder)


def _named_step(step: int) -> contextlib.AbstractContextManager:
    if keras_backend.is_jax():
        import jax

        return jax.profiler.StepTraceAnnotation("train", step_num=step)
    return tf.profiler.experimental.Trace("train", step_num=step, _r=1)
