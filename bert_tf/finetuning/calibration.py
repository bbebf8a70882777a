"""Whether probabilities can be believed: reliability diagrams; numbers against truth.

Guo et al. 2017, "On Calibration of Modern Neural Networks": predictions are sorted into
bins by their confidence; of those at 80 % four in five should be right.

Shapes: M labelled examples, C outputs, B bins.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_tf.metrics.correlation import pearson_and_spearman
from bert_tf.pictures import drawing, png
from bert_tf.tasks.targets import MULTI_LABEL, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_BINS = 15
# Of so many predictions the accuracy's standard error is below 0.1; bars and points of
# fewer are paler.
_FULL_COUNT = 30
# More curves than colours that the eye tells apart.
_MOST_CURVES = 10


class Reliability(NamedTuple):
    """What came true of predictions, by bins of their confidence.

    Attributes:
        counts: [B] the predictions in each bin.
        confidence: [B] their mean confidence; 0 in an empty bin.
        accuracy: [B] the share of them that came true; 0 in an empty bin.
    """

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """sum_b counts_b / M * |accuracy_b - confidence_b| (Guo et al. 2017, eq. 3)."""
        gaps = np.abs(self.accuracy - self.confidence)
        return float((self.counts * gaps).sum() / max(self.counts.sum(), 1))


def reliability(
    confidence: np.ndarray, came_true: np.ndarray, num_bins: int = NUM_BINS
) -> Reliability:
    """Sorts predictions into bins of equal width, ((b - 1) / B, b / B]."""
    confidence = np.asarray(confidence, np.float64)
    edges = np.arange(1, num_bins) / num_bins
    bins = np.searchsorted(edges, confidence, side="left")

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(bins, weights=values, minlength=num_bins)

    counts = np.bincount(bins, minlength=num_bins)
    at_least_one = np.maximum(counts, 1)
    return Reliability(
        counts=counts,
        confidence=sums(confidence) / at_least_one,
        accuracy=sums(np.asarray(came_true, np.float64)) / at_least_one,
    )


def reliabilities(
    target: Target, probabilities: np.ndarray, labels: np.ndarray
) -> list[Reliability]:
    """The reliability of the predicted class, or of each of several labels."""
    if target.kind == MULTI_LABEL:
        return [
            reliability(probabilities[:, c], labels[:, c])
            for c in range(target.num_outputs)
        ]
    predictions = probabilities.argmax(axis=-1)
    return [reliability(probabilities.max(axis=-1), predictions == labels)]


def brier_score(target: Target, probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The mean squared distance of probabilities from the truth (Brier 1950)."""
    if target.kind == MULTI_LABEL:
        return float(np.square(probabilities - labels).mean())
    truth = np.eye(target.num_outputs)[labels]
    return float(np.square(probabilities - truth).sum(axis=-1).mean())


def calibration_picture(
    target: Target, probabilities: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """A reliability diagram with the histogram of the confidence below it, as a PNG.

    Of several labels each has its curve, or all decisions have one where there are more
    labels than colours; the calibration error is the mean over the labels.
    """
    parts = reliabilities(target, probabilities, labels)
    error = np.mean([part.expected_calibration_error for part in parts])
    score = brier_score(target, probabilities, labels)
    several = target.kind == MULTI_LABEL
    names = list(target.labels) if several else ["the predicted class"]
    if len(parts) > _MOST_CURVES:
        parts = [reliability(probabilities.ravel(), labels.ravel())]
        names = ["all labels"]
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 6.4), layout="constrained")
        diagram, histogram = figure.subplots(
            2, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
        )
        diagram.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=1)
        if several:
            _draw_curves(diagram, parts, names)
        else:
            _draw_bars(diagram, parts[0])
        diagram.set_ylim(0, 1)
        diagram.set_ylabel("share that came true" if several else "accuracy")
        diagram.set_title(
            f"{title}\nexpected calibration error {error:.3f}, Brier score {score:.3f}",
            fontsize="medium",
            parse_math=False,
        )
        middles = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
        counts = np.sum([part.counts for part in parts], axis=0)
        histogram.bar(middles, counts, width=0.9 / NUM_BINS, color="tab:gray")
        histogram.set_xlim(0, 1)
        if 0 < counts[counts > 0].min() < _FULL_COUNT:
            histogram.set_title(
                f"paler above: of fewer than {_FULL_COUNT} predictions", fontsize=8
            )
        histogram.set_ylabel("predictions")
        histogram.set_xlabel("probability" if several else "confidence")
        return png(figure)


def regression_picture(
    target: Target, predictions: np.ndarray, labels: np.ndarray, title: str
) -> bytes:
    """Predicted against true numbers, as a PNG, with the line of equality."""
    columns = np.reshape(predictions, (-1, target.num_outputs))
    truth = np.reshape(labels, columns.shape)
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 5.8), layout="constrained")
        axes = figure.add_subplot()
        ends = [min(columns.min(), truth.min()), max(columns.max(), truth.max())]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        said = []
        for c in range(target.num_outputs):
            name = target.labels[c] if target.labels else ""
            axes.scatter(truth[:, c], columns[:, c], s=9, alpha=0.4, label=name)
            pearson, _ = pearson_and_spearman(columns[:, c], truth[:, c])
            said.append(f"{name} {pearson:.3f}".lstrip())
        axes.set_xlabel("label")
        axes.set_ylabel("prediction")
        axes.set_title(
            f"{title}\nPearson {', '.join(said)}", fontsize="medium", parse_math=False
        )
        if target.labels:
            _name(axes)
        return png(figure)


def _draw_bars(axes: "Axes", part: Reliability) -> None:
    """The predicted class: what came true as bars, and how far that is from claimed.

    A bar is the paler the fewer predictions it is of.
    """
    filled = part.counts > 0
    middles = ((np.arange(NUM_BINS) + 0.5) / NUM_BINS)[filled]
    accuracy, confidence = part.accuracy[filled], part.confidence[filled]
    width = 1 / NUM_BINS
    bars = axes.bar(middles, accuracy, width, edgecolor="black", linewidth=0.5)
    gaps = axes.bar(
        middles,
        confidence - accuracy,
        width,
        bottom=accuracy,
        color="none",
        edgecolor="tab:red",
        hatch="//",
        linewidth=0.5,
        label="gap to the mean confidence",
    )
    opacities = _opacities(part.counts[filled])
    for bar, gap, opacity in zip(bars, gaps, opacities, strict=True):
        bar.set_alpha(opacity)
        gap.set_alpha(opacity)
    _name(axes)


def _draw_curves(axes: "Axes", parts: list[Reliability], names: list[str]) -> None:
    for part, name in zip(parts, names, strict=True):
        filled = part.counts > 0
        places = part.confidence[filled], part.accuracy[filled]
        (line,) = axes.plot(*places, linewidth=1, label=name)
        for x, y, opacity in zip(*places, _opacities(part.counts[filled]), strict=True):
            axes.plot(x, y, "o", ms=4, color=line.get_color(), alpha=opacity)
    _name(axes)


def _opacities(counts: np.ndarray) -> np.ndarray:
    """How dark what counts of predictions say is drawn: by its standard error."""
    return np.clip(np.sqrt(counts / _FULL_COUNT), 0.15, 1.0)


def _name(axes: "Axes") -> None:
    legend = axes.legend(loc="upper left", fontsize="small")
    for text in legend.get_texts():
        text.set_parse_math(False)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
