"""A run's metrics over its steps, as a picture: OUTPUT_DIR/curves.png.

It is drawn from metrics.jsonl when training ends, and again when the trained model has
been evaluated. Panels: losses, accuracies, the learning rate, and what else evaluations
measure.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.pictures import drawing, png
from bert_tf.training.reporting import (
    AFTER_TRAINING,
    EVALUATION,
    METRICS_NAME,
    read_metrics,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES_NAME = "curves.png"

_EVALUATION_PANEL = "evaluation"
# The ending of a metric's name -> what its axis says.
_PANELS = {
    "loss": "nats",
    "accuracy": "share that is right",
    "learning_rate": "learning rate",
}

# What evaluations report of SQuAD that is on no common scale with its scores.
_NO_SCORES = ("total", "_thresh")

_NO_METRICS = {"step", "seconds", AFTER_TRAINING}

# The steps, and the values at them.
Curve = tuple[list[int], list[float]]


def write_curves(folder: str, title: str) -> None:
    """Draws a run into its folder; a run too short for a line of metrics has none."""
    try:
        picture = curves_picture(folder, title)
    except InputError as error:
        logging.info("No %s: %s", CURVES_NAME, error)
        return
    files.write_atomically(os.path.join(folder, CURVES_NAME), picture)


def curves_picture(folder: str, title: str | None = None) -> bytes:
    """What training reported as lines, evaluations as points, as a PNG."""
    curves = read_curves(folder)
    panels: dict[str, dict[str, Curve]] = {}
    for name, curve in curves.items():
        unit = next((u for end, u in _PANELS.items() if name.endswith(end)), None)
        is_score = name.startswith(EVALUATION) and not name.endswith(_NO_SCORES)
        if unit is None and is_score:
            unit = _EVALUATION_PANEL
        if unit is not None:
            panels.setdefault(unit, {})[name] = curve
    if "loss" not in curves:
        raise InputError(
            f"{os.path.join(folder, METRICS_NAME)} has no loss yet: the first line"
            " comes after --log_steps steps."
        )
    with drawing():
        from matplotlib.figure import Figure

        units = [u for u in (*_PANELS.values(), _EVALUATION_PANEL) if u in panels]
        columns = len(units) if len(units) < 4 else 2
        rows = -(-len(units) // columns)
        figure = Figure(figsize=(5.0 * columns, 4.0 * rows), layout="constrained")
        if title is None:
            title = os.path.basename(files.absolute(folder).rstrip("/"))
        figure.suptitle(title, fontsize="medium", parse_math=False)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, unit in zip(axes, units, strict=True):
            _draw(panel, panels[unit])
            panel.set_ylabel(unit)
        return png(figure)


def read_curves(folder: str) -> dict[str, Curve]:
    """The metrics in a run's metrics.jsonl by name, an evaluation's as `eval/...`."""
    curves: dict[str, Curve] = {}
    path = os.path.join(folder, METRICS_NAME)
    for _, entry in read_metrics(path, files.read_bytes(path, "file of metrics")):
        for name in entry.keys() - _NO_METRICS:
            steps, values = curves.setdefault(name, ([], []))
            steps.append(entry["step"])
            values.append(entry[name])
    return {name: curves[name] for name in sorted(curves)}


def _draw(axes: "Axes", curves: Mapping[str, Curve]) -> None:
    """Lines of training, and points of evaluations in the same colours."""
    names = dict.fromkeys(name.removeprefix(EVALUATION) for name in curves)
    for number, name in enumerate(names):
        colour = f"C{number}"
        if name in curves:
            axes.plot(*curves[name], ".-", color=colour, linewidth=1, label=name)
        if EVALUATION + name in curves:
            axes.plot(
                *curves[EVALUATION + name],
                linestyle="none",
                marker="o",
                markerfacecolor="none",
                color=colour,
                label=EVALUATION + name,
            )
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
