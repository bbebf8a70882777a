"""What answering up to a null odd is worth, and how null odds are spread, as PNG."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.metrics.null_odds import Curve
from bert_tf.pictures import drawing, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_BINS = 40
SCORE_DIFFERENCE = "score difference: null answer - best text"
PROBABILITY = "null odds"


def threshold_picture(curve: Curve, threshold: float, title: str) -> bytes:
    """Precision, recall and score over the threshold, the chosen one marked."""
    thresholds = np.array(curve.thresholds[1:], np.float64)
    left, right = _range(np.append(thresholds, threshold))
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axes = figure.add_subplot()
        for name, values in (
            ("precision of what is answered", curve.precisions),
            ("recall of the answerable", curve.recalls),
            ("score of all questions", curve.totals),
        ):
            # From one threshold to the next nothing changes.
            axes.step([left, *thresholds], values, where="post", label=name)
        _mark(axes, threshold)
        axes.set_xlim(left, right)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("threshold of the " + SCORE_DIFFERENCE)
        axes.set_ylabel("share, by F1")
        axes.grid(alpha=0.3)
        axes.legend(loc="best", fontsize="small")
        axes.set_title(title, fontsize="medium", parse_math=False)
        return png(figure)


def histogram_picture(
    values: Mapping[str, Sequence[float]],
    title: str,
    *,
    threshold: float | None = None,
    label: str = SCORE_DIFFERENCE,
) -> bytes:
    """How null odds are spread, each kind of question as shares of that kind.

    What lies far outside (no text at all: a difference of a million) is in the outer
    bins.
    """
    kinds = {name: np.array(odds, np.float64) for name, odds in values.items() if odds}
    everything = np.concatenate(list(kinds.values()))
    if label == PROBABILITY and everything.min() >= 0 and everything.max() <= 1:
        left, right = 0.0, 1.0
    else:
        left, right = _range(
            everything if threshold is None else np.append(everything, threshold)
        )
    edges = np.linspace(left, right, NUM_BINS + 1).tolist()
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axes = figure.add_subplot()
        for name, odds in kinds.items():
            axes.hist(
                np.clip(odds, left, right),
                bins=edges,
                weights=np.full(len(odds), 1 / len(odds)),
                alpha=0.55,
                label=f"{name}: {len(odds):,}",
            )
        if threshold is not None:
            _mark(axes, threshold)
        axes.set_xlim(left, right)
        axes.set_xlabel(label)
        axes.set_ylabel("share of the questions")
        axes.legend(loc="best", fontsize="small")
        axes.set_title(title, fontsize="medium", parse_math=False)
        return png(figure)


def precision_recall_picture(curve: Curve, title: str) -> bytes:
    """Precision over recall, with the area below in the title."""
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 4.8), layout="constrained")
        axes = figure.add_subplot()
        # The official areas are of steps that end at their point.
        axes.step(curve.recalls, curve.precisions, where="pre")
        axes.fill_between(curve.recalls, curve.precisions, step="pre", alpha=0.25)
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("recall")
        axes.set_ylabel("precision")
        axes.grid(alpha=0.3)
        axes.set_title(
            f"{title}\naverage precision {100 * curve.average_precision:.2f}",
            fontsize="medium",
            parse_math=False,
        )
        return png(figure)


def _mark(axes: "Axes", threshold: float) -> None:
    axes.axvline(
        threshold,
        color="black",
        linestyle="--",
        linewidth=1,
        label=f"threshold {threshold:.3f}",
    )


def _range(values: np.ndarray) -> tuple[float, float]:
    """The span of all but a few values far outside, with a margin.

    Far outside is more than five times the middle half's width away from it.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return -1.0, 1.0
    low, high = np.percentile(finite, [25, 75])
    reach = 5 * (high - low) or np.inf
    near = finite[(finite >= low - reach) & (finite <= high + reach)]
    margin = max(0.03 * (near.max() - near.min()), 1e-3)
    return float(near.min() - margin), float(near.max() + margin)
