"""What a run shows and records: a progress bar, TensorBoard, metrics.jsonl.

metrics.jsonl has one JSON object a line: `step`, `seconds` since the run began, and the
metrics by name; evaluation results are prefixed with `eval/`. A run that continues from
step N drops the lines after N, which it is about to write again.
"""

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tqdm
from absl import logging

from bert_tf import files

METRICS_NAME = "metrics.jsonl"


def progress_bar(total: int, *, done: int = 0, unit: str, label: str) -> tqdm.tqdm:
    """A bar with rate and time left on a terminal; nothing elsewhere."""
    return tqdm.tqdm(
        total=total,
        initial=done,
        unit=unit,
        desc=label,
        disable=None,
        dynamic_ncols=True,
        smoothing=0.1,
    )


class Reporter:
    """Writes a run's metrics to its folder.

    Args:
        folder: the run's output_dir.
        step: the step that the run stands at; later lines in metrics.jsonl are dropped,
            since the run is about to write them again.
        prefix: goes before each metric's name: an evaluation. It drops nothing but
            lines of that prefix at `step` itself.
    """

    def __init__(self, folder: str, step: int = 0, *, prefix: str = "") -> None:
        self._path = os.path.join(folder, METRICS_NAME)
        self._prefix = prefix
        self._began = time.monotonic()
        self._lines = []
        if files.exists(self._path):
            for line in files.read_text(self._path).splitlines():
                entry = _entry(line)
                if prefix:
                    again = entry.get("step") == step and any(
                        name.startswith(prefix) for name in entry
                    )
                else:
                    again = entry.get("step", step) > step
                if entry and not again:
                    self._lines.append(line + "\n")
        self._write_all()
        self._summaries = tf.summary.create_file_writer(folder)

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Records the metrics of one step."""
        named = {self._prefix + name: float(value) for name, value in metrics.items()}
        seconds = round(time.monotonic() - self._began, 3)
        line = json.dumps({"step": step, "seconds": seconds, **named}) + "\n"
        if files.is_remote(self._path):
            self._lines.append(line)  # object stores cannot append
            self._write_all()
        else:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line)
        with self._summaries.as_default(step=step):
            for name, value in named.items():
                tf.summary.scalar(name, value)
        self._summaries.flush()
        shown = ", ".join(f"{name} {value:.4g}" for name, value in named.items())
        logging.info("step %d: %s", step, shown)

    def close(self) -> None:
        """Closes the TensorBoard file."""
        self._summaries.close()

    def _write_all(self) -> None:
        files.write_atomically(self._path, "".join(self._lines))


def _entry(line: str) -> dict[str, Any]:
    """A line's object; empty for a line that a kill cut short: it is dropped."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return entry if isinstance(entry, dict) and "step" in entry else {}
