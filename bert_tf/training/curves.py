"""A run's losses and accuracies over its steps, as a picture: from metrics.jsonl."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

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

# The ending of a metric's name -> what its axis says.
_PANELS = {"loss": "nats", "accuracy": "share that is right"}

_NO_METRICS = {"step", "seconds", AFTER_TRAINING}

# The steps, and the values at them.
Curve = tuple[list[int], list[float]]


def curves_picture(folder: str) -> bytes:
    """What training reported as lines, evaluations as points, as a PNG.

    Losses stand in one panel, accuracies, where there are any, in another one.

    Args:
        folder: a run's output_dir; local or remote.

    Raises:
        InputError: it has no metrics.jsonl, or none with a loss yet.
    """
    curves = read_curves(folder)
    panels = {
        unit: {name: curve for name, curve in curves.items() if name.endswith(ending)}
        for ending, unit in _PANELS.items()
    }
    panels = {unit: named for unit, named in panels.items() if named}
    if not panels:
        raise InputError(
            f"{os.path.join(folder, METRICS_NAME)} has no loss yet: the first line"
            " comes after --log_steps steps."
        )
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6 * len(panels), 4.2), layout="constrained")
        figure.suptitle(folder, fontsize="medium", parse_math=False)
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for panel, (unit, named) in zip(axes, panels.items(), strict=True):
            _draw(panel, named)
            panel.set_ylabel(unit)
        return png(figure)


def read_curves(folder: str) -> dict[str, Curve]:
    """Every metric in a run's metrics.jsonl by its name, an evaluation's as `eval/...`.

    Args:
        folder: a run's output_dir.

    Raises:
        InputError: there is no metrics.jsonl.
    """
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
