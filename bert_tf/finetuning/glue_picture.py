"""The table of GLUE as a picture: bars of our scores beside the paper's."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.glue_results import TaskResult
from bert_tf.metrics.glue import MISMATCHED
from bert_tf.pictures import drawing, png
from bert_tf.tasks.glue_paper import PAPER

# Model -> task -> metric -> score on the test set, in per cent.
Paper = Mapping[str, Mapping[str, Mapping[str, float]]]

# The bar of a task none of whose runs was better than the majority class.
_FAILED: dict[str, Any] = {"facecolor": "none", "edgecolor": "tab:red", "hatch": "//"}


def short_name(metric: str) -> str:
    """A metric as a table's column has room for it."""
    name = metric.removesuffix(MISMATCHED)
    name = {"matthews_correlation": "MCC", "f1": "F1"}.get(name, name)
    return f"{name} (mm)" if metric.endswith(MISMATCHED) else name


def picture(results: Sequence[TaskResult], paper: Paper = PAPER) -> bytes:
    """A bar for each task's score, ours beside the paper's, as a PNG."""
    bars = [
        (result, metric)
        for result in results
        for metric in result.scores
        if metric.removesuffix(MISMATCHED) == result.metric
    ]
    series = {
        "ours, development set": [
            100 * result.scores[metric] for result, metric in bars
        ],
        **{
            f"{model} of Devlin et al. 2018, test set": [
                models.get(result.task, {}).get(metric, math.nan)
                for result, metric in bars
            ]
            for model, models in paper.items()
        },
    }
    colours = ["tab:blue", "0.65", "0.4"]
    with drawing():
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

        drawn = Figure(
            figsize=(max(8.0, 3 + 0.9 * len(bars)), 4.5), layout="constrained"
        )
        axes = drawn.add_subplot()
        width = 0.8 / len(series)
        for number, (label, scores) in enumerate(series.items()):
            places = [
                place + (number - (len(series) - 1) / 2) * width
                for place in range(len(bars))
            ]
            heights = [0.0 if math.isnan(score) else score for score in scores]
            drawn_bars = axes.bar(
                places, heights, width, label=label, color=colours[number % 3]
            )
            labels = ["" if math.isnan(score) else f"{score:.1f}" for score in scores]
            if not number:
                for place, (result, _) in enumerate(bars):
                    if result.has_failed:
                        labels[place] += " failed"
                        drawn_bars[place].set(**_FAILED)
            axes.bar_label(
                drawn_bars,
                labels,
                fontsize=7,
                rotation=90,
                padding=2,
            )
        names = [f"{result.task}\n{short_name(metric)}" for result, metric in bars]
        axes.set_xticks(range(len(bars)), names, fontsize=8)
        axes.set_ylim(min(0.0, *axes.get_ylim()), 112)
        axes.set_yticks(range(0, 101, 20))
        axes.set_ylabel("score, per cent")
        axes.set_title("GLUE: our development scores and the paper's test scores")
        handles = [
            Patch(color=colour, label=label)
            for label, colour in zip(series, colours, strict=False)
        ]
        if any(result.has_failed for result, _ in bars):
            handles.append(Patch(**_FAILED, label="ours, no run learnt"))
        drawn.legend(
            handles=handles,
            loc="outside lower center",
            ncols=len(handles),
            fontsize=7,
            frameon=False,
        )
        axes.spines[["top", "right"]].set_visible(False)
        return png(drawn)
