"""The figures of a set of records as lines for people."""

from collections.abc import Mapping, Sequence
from typing import Any

_BAR_WIDTH = 40

_SEEN = {
    "masked_share": "replaced by [MASK]",
    "random_share": "by another token",
    "replaced_share": "replaced",
    "kept_share": "kept",
}


def figure_lines(figures: Mapping[str, Any]) -> list[str]:
    """A line for each figure, the lengths as bars.

    Args:
        figures: as `RecordStatistics.figures` gives them.
    """
    lines = [
        f"records            {figures['records']:,}",
        f"tokens             {figures['tokens']:,}; {figures['padding_share']:.1%} of"
        " all places are padding",
        f"tokens a record    {figures['length_mean']:.1f} on average,"
        f" {figures['length_min']} to {figures['length_max']}"
        f" of {figures['max_seq_length']}",
        *_bars(figures["length_histogram"], figures["records"]),
    ]
    if "predictions" in figures:
        seen = [
            f"{figures[key]:.1%} {text}"
            for key, text in _SEEN.items()
            if key in figures
        ]
        lines += [
            f"predictions        {figures['predictions']:,};"
            f" {figures['predictions_mean']:.1f} a record on average,"
            f" {figures['predictions_min']} to {figures['predictions_max']}",
            f"predicted          {figures['predicted_share']:.2%} of the tokens"
            f" ({figures['predicted_share_with_special_tokens']:.2%} counting [CLS] and"
            " [SEP])",
            f"of the predicted   {', '.join(seen)}",
        ]
    has_pairs = figures["single_segment_share"] < 1
    if has_pairs and "random_next_share" in figures:
        lines.append(
            f"next sentence      {figures['random_next_share']:.1%} random (of sentence"
            " order: swapped)"
        )
    lines.append(f"one segment only   {figures['single_segment_share']:.1%} of records")
    return lines


def _bars(bins: Sequence[Mapping[str, int]], num_records: int) -> list[str]:
    """A histogram, drawn."""
    most = max(1, *(each["records"] for each in bins))
    lines = []
    for each in bins:
        count = each["records"]
        label = (
            f"{each['from']}-{each['to']}" if each["from"] < each["to"] else each["to"]
        )
        # Rounded up: a bin with a single record is seen.
        bar = "#" * -(-count * _BAR_WIDTH // most)
        portion = count / max(1, num_records)
        lines.append(f"  {label:>9} {count:>13,} {portion:>6.1%} {bar}".rstrip())
    return lines
