"""Metrics summed up between two lines of the log."""

from collections.abc import Mapping

import numpy as np

from bert_tf.training.step import LOSS_SCALE, SEQUENCES, SKIPPED, TOKENS
from bert_tf.training.throughput import share_of_peak

Sums = Mapping[str, np.ndarray]  # name -> [total, weight]


class Window:
    """The steps since the last report.

    The first call of a compiled function compiles it: its steps count for the metrics,
    not for the rates.
    """

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}
        self._seconds = 0.0
        self._input_seconds = 0.0
        self._steps = 0
        self._sequences = 0.0
        self._tokens = 0.0
        self._flops = 0.0
        self._last: dict[str, np.ndarray] = {}

    def add(
        self,
        sums: Sums,
        *,
        steps: int,
        flops_per_step: float | None = None,
        seconds: float | None = None,
        input_seconds: float = 0.0,
    ) -> None:
        """Adds a call of the device."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._last = dict(sums)
        if seconds is not None:
            self._steps += steps
            self._seconds += seconds
            self._input_seconds += input_seconds
            self._sequences += float(sums[SEQUENCES][0])
            self._tokens += float(sums[TOKENS][0])
            self._flops += steps * (flops_per_step or 0.0)

    def shown(self) -> dict[str, str]:
        """The last call's metrics, for the progress bar."""
        hidden = (TOKENS, SEQUENCES, SKIPPED, LOSS_SCALE)
        return {
            name: f"{mean(value):.3f}"
            for name, value in self._last.items()
            if name not in hidden
        }

    def close(self, peak_flops: float | None = None) -> dict[str, float]:
        """The window's metrics; the next window begins."""
        metrics = {
            name: mean(value)
            for name, value in self._sums.items()
            if name not in (TOKENS, SEQUENCES)
        }
        if SKIPPED in self._sums:
            metrics[SKIPPED] = float(self._sums[SKIPPED][0])
        if self._seconds:
            metrics["steps_per_second"] = self._steps / self._seconds
            metrics["sequences_per_second"] = self._sequences / self._seconds
            if self._tokens:
                metrics["tokens_per_second"] = self._tokens / self._seconds
            metrics["input_wait_share"] = self._input_seconds / self._seconds
            if peak_flops and self._flops:
                metrics["model_flops_utilization"] = share_of_peak(
                    self._flops, self._seconds, peak_flops
                )
        self.__init__()  # type: ignore[misc]
        return metrics


def mean(total_and_weight: np.ndarray) -> float:
    """The mean of a sum; 0 where nothing has a weight."""
    total, weight = total_and_weight
    return float(total / weight) if weight else 0.0
