"""Ways to use BERT for tagging, side by side: the paper's Table 7, and ours."""

import math
from collections.abc import Mapping

from bert_tf.finetuning.markdown import figure, table
from bert_tf.pictures import drawing, png
from bert_tf.tagging.feature_choices import PAPER_DEV_F1

_OURS, _THEIRS = "ours", "BERT-BASE, CoNLL-2003 (Devlin et al. 2018)"


def feature_table(scores: Mapping[str, float], metric: str) -> str:
    """The table, in Markdown."""
    return table(
        ["features", f"{_OURS}, {metric}", f"{_THEIRS}, f1"],
        [
            [way, figure(score, 100, 2), figure(PAPER_DEV_F1[way], digits=1)]
            for way, score in scores.items()
        ],
    )


def feature_picture(scores: Mapping[str, float], metric: str) -> bytes:
    """Bars of the same scores, as a PNG."""
    ways = list(scores)
    ours = [100 * score for score in scores.values()]
    theirs = [PAPER_DEV_F1[way] for way in ways]
    # The ways differ by a few hundredths: from 0 on all bars would look alike.
    least = min(value for value in (*ours, *theirs) if not math.isnan(value))
    with drawing():
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(8.0, 1.5 + 0.6 * len(ways)), layout="constrained")
        axes = drawn.add_subplot()
        for label, values, shift, colour in (
            (f"{_OURS}, {metric}", ours, -0.2, "tab:blue"),
            (f"{_THEIRS}, f1", theirs, 0.2, "0.65"),
        ):
            places = [place + shift for place in range(len(ways))]
            bars = axes.barh(places, values, 0.4, label=label, color=colour)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        axes.set_yticks(range(len(ways)), ways)
        axes.invert_yaxis()
        axes.set_xlim(max(0.0, math.floor(least) - 5.0), 101.0)
        drawn.suptitle("Tagging with BERT's features", fontsize="medium")
        axes.set_xlabel("per cent, development set; the axis does not begin at 0")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
        return png(drawn)
