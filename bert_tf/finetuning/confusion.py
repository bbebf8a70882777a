"""Which labels are taken for which: the confusion matrix as a picture.

Shapes: M labelled examples, C outputs.
"""

from typing import TYPE_CHECKING

import numpy as np

from bert_tf.pictures import drawing, png
from bert_tf.tasks.targets import MULTI_LABEL, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Larger matrices have small cells, without numbers.
_MOST_NUMBERED = 40
# Of more labels no name could be read, and the picture would be as large as the memory.
_MOST_NAMED = 150
_LONGEST_NAME = 40


def confusion_matrix(
    target: Target, predictions: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """How often each label was taken for each, or decided rightly and wrongly."""
    if target.kind == MULTI_LABEL:
        # 2 true + predicted: 3 both, 2 only true, 1 only predicted, 0 neither.
        outcomes = 2 * labels + predictions
        return np.stack([(outcomes == i).sum(axis=0) for i in (3, 2, 1, 0)], axis=-1)
    from sklearn import metrics

    return metrics.confusion_matrix(
        labels, predictions, labels=range(target.num_outputs)
    )


def confusion_picture(
    target: Target, predictions: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """`confusion_matrix` as a PNG: each cell's count and its share of the row.

    Larger ones have colours alone, and very large ones the labels' numbers.
    """
    counts = confusion_matrix(target, predictions, labels)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = [_short(label) for label in target.labels]
    columns = rows
    if target.kind == MULTI_LABEL:
        columns = ["found", "missed", "false alarm", "rightly not"]
    has_numbers = max(counts.shape) <= _MOST_NUMBERED
    cell_width, cell_height = (0.9, 0.6) if has_numbers else (0.25, 0.2)
    has_names = len(rows) <= _MOST_NAMED
    if not has_names:
        cell_height *= _MOST_NAMED / len(rows)
        cell_width *= _MOST_NAMED / max(_MOST_NAMED, len(columns))
    with drawing():
        from matplotlib.figure import Figure

        # Inches: the cells, the labels next to them, the title, the scale.
        width = 3.5 + 0.08 * max(map(len, rows)) + cell_width * len(columns)
        height = 1.6 + 0.05 * max(map(len, columns)) + cell_height * len(rows)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        scale = figure.colorbar(image, ax=axes, format="{x:.0%}")
        scale.set_label("share of the row")
        if len(columns) <= _MOST_NAMED:
            axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
        if has_names:
            axes.set_yticks(range(len(rows)), rows)
        # A label is text: $ does not begin a formula.
        for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            tick.set_parse_math(False)
        axes.set_xlabel("decision" if target.kind == MULTI_LABEL else "prediction")
        axes.set_ylabel("label")
        axes.set_title(title, fontsize="medium", parse_math=False)
        if has_numbers:
            _number_cells(axes, counts, shares)
        return png(figure)


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_NAME else label[: _LONGEST_NAME - 1] + "…"


def _number_cells(axes: "Axes", counts: np.ndarray, shares: np.ndarray) -> None:
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        axes.text(
            column,
            row,
            f"{count}\n{share:.1%}",
            ha="center",
            va="center",
            fontsize="small",
            color="white" if share > 0.5 else "black",
        )
