"""Statistics of a set of records: counts of lengths, predictions and labels.

The counts are added block by block while records are written or read, and merged
over shards: merging in any order gives the result of one pass over all records.

A record's length is its number of tokens, including [CLS] and [SEP] but not padding.
Its special tokens are [CLS] and one [SEP] for each segment that is not empty.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# Lengths are shown in at most this many bins, as equal as whole lengths allow.
MAX_LENGTH_BINS = 16
_BAR_WIDTH = 40
_SEEN = {
    "masked_share": "replaced by [MASK]",
    "random_share": "by another token",
    "replaced_share": "replaced",
    "kept_share": "kept",
}


@dataclasses.dataclass(kw_only=True)
class RecordStatistics:
    """The counts of some records of one kind."""

    max_seq_length: int
    # None if unknown: predicted tokens are then only counted as kept or replaced.
    mask_id: int | None
    length_counts: list[int] = dataclasses.field(default_factory=list)  # by length
    prediction_counts: list[int] = dataclasses.field(default_factory=list)  # by number
    num_single_segments: int = 0
    num_masked: int = 0
    num_kept: int = 0
    num_next_sentence_labels: int = 0
    num_random_next: int = 0

    @property
    def num_records(self) -> int:
        """How many records were counted."""
        return sum(self.length_counts)

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Counts a block of records, [records, length] under the spec's names."""
        input_ids = columns["input_ids"]
        lengths = columns["input_mask"].sum(axis=1).clip(0, self.max_seq_length)
        self.length_counts = _sums(self.length_counts, np.bincount(lengths).tolist())
        self.num_single_segments += int((columns["segment_ids"] <= 0).all(axis=1).sum())
        if "next_sentence_labels" in columns:
            labels = columns["next_sentence_labels"]
            self.num_next_sentence_labels += labels.size
            self.num_random_next += int(np.count_nonzero(labels == 1))
        if "masked_lm_positions" not in columns:
            return
        is_prediction = columns["masked_lm_weights"] > 0
        counts = np.bincount(is_prediction.sum(axis=1)).tolist()
        self.prediction_counts = _sums(self.prediction_counts, counts)
        # A position outside the record is reported elsewhere.
        positions = columns["masked_lm_positions"].clip(0, self.max_seq_length - 1)
        seen = np.take_along_axis(input_ids, positions, axis=1)[is_prediction]
        is_masked = seen == (-1 if self.mask_id is None else self.mask_id)
        self.num_masked += int(is_masked.sum())
        is_kept = seen == columns["masked_lm_ids"][is_prediction]
        self.num_kept += int((is_kept & ~is_masked).sum())

    def merge(self, other: "RecordStatistics") -> None:
        """Adds the counts of other records of the same length and the same [MASK]."""
        for name, value in dataclasses.asdict(other).items():
            if name.endswith("_counts"):
                setattr(self, name, _sums(getattr(self, name), value))
            elif name.startswith("num_"):
                setattr(self, name, getattr(self, name) + value)

    def figures(self) -> dict[str, Any]:
        """Returns the results for programs: numbers, and shares between 0 and 1."""
        tokens, of_length = _summary(self.length_counts, "length")
        num_places = self.num_records * self.max_seq_length
        figures: dict[str, Any] = {
            "records": self.num_records,
            "tokens": tokens,
            "padding_share": _share(num_places - tokens, num_places),
            "max_seq_length": self.max_seq_length,
            **of_length,
            "length_histogram": self._histogram(),
            "single_segment_share": _share(self.num_single_segments, self.num_records),
        }
        if self.num_next_sentence_labels:
            figures["random_next_share"] = _share(
                self.num_random_next, self.num_next_sentence_labels
            )
        if self.prediction_counts:
            total, of_record = _summary(self.prediction_counts, "predictions")
            replaced = total - self.num_masked - self.num_kept
            # Without [CLS], and [SEP] after one segment or two.
            predictable = tokens - 3 * self.num_records + self.num_single_segments
            figures |= {
                "predictions": total,
                **of_record,
                "predicted_share": _share(total, predictable),
                "predicted_share_with_special_tokens": _share(total, tokens),
                "kept_share": _share(self.num_kept, total),
            }
            if self.mask_id is None:
                figures["replaced_share"] = _share(replaced, total)
            else:
                figures["masked_share"] = _share(self.num_masked, total)
                figures["random_share"] = _share(replaced, total)
        return figures

    def _histogram(self) -> list[dict[str, int]]:
        """Returns the bins: shortest and longest length, and number of records."""
        length, num_bins = (
            self.max_seq_length,
            min(MAX_LENGTH_BINS, self.max_seq_length),
        )
        # Bin b has the lengths n with b <= (n - 1) * num_bins / length < b + 1; the
        # first one also has length 0.
        starts = [1 - (-b * length // num_bins) for b in range(num_bins + 1)]
        counts = self.length_counts
        return [
            {
                "from": start,
                "to": end - 1,
                "records": sum(counts[start if start > 1 else 0 : end]),
            }
            for start, end in itertools.pairwise(starts)
        ]

    def lines(self) -> list[str]:
        """Returns the results for people, with lengths as bars."""
        figures = self.figures()
        lines = [
            f"records            {figures['records']:,}",
            f"tokens             {figures['tokens']:,}; {figures['padding_share']:.1%}"
            " of all places are padding",
            f"tokens a record    {figures['length_mean']:.1f} on average,"
            f" {figures['length_min']} to {figures['length_max']}"
            f" of {figures['max_seq_length']}",
        ]
        bins = figures["length_histogram"]
        most = max(1, *(each["records"] for each in bins))
        for each in bins:
            low, high, count = each.values()
            label = f"{low}-{high}" if low < high else high
            # Rounded up, so that a bin with a single record is visible.
            bar = "#" * -(-count * _BAR_WIDTH // most)
            portion = _share(count, figures["records"])
            lines.append(f"  {label:>9} {count:>13,} {portion:>6.1%} {bar}".rstrip())
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
                f" ({figures['predicted_share_with_special_tokens']:.2%} counting [CLS]"
                " and [SEP])",
                f"of the predicted   {', '.join(seen)}",
            ]
        single = figures["single_segment_share"]
        if single < 1 and "random_next_share" in figures:
            lines.append(
                f"next sentence      {figures['random_next_share']:.1%} random (of"
                " sentence order: swapped)"
            )
        return [*lines, f"one segment only   {single:.1%} of records"]


def row_figures(
    statistics: RecordStatistics, num_rows: int, *, max_seq_length: int
) -> dict[str, Any]:
    """Returns how full packed rows are, from the statistics of their sequences."""
    num_places = num_rows * max_seq_length
    num_tokens = statistics.figures()["tokens"]
    return {
        "rows": num_rows,
        "sequences": statistics.num_records,
        "sequences_per_row": _share(statistics.num_records, num_rows),
        "padding_share": _share(num_places - num_tokens, num_places),
    }


def _sums(counts: Iterable[int], others: Iterable[int]) -> list[int]:
    return list(map(sum, itertools.zip_longest(counts, others, fillvalue=0)))


def _summary(counts: Sequence[int], name: str) -> tuple[int, dict[str, float]]:
    """Returns a sum of numbers and their figures; number n occurs counts[n] times."""
    numbers = [number for number, count in enumerate(counts) if count]
    total = sum(number * count for number, count in enumerate(counts))
    return total, {
        f"{name}_mean": _share(total, sum(counts)),
        f"{name}_min": min(numbers, default=0),
        f"{name}_max": max(numbers, default=0),
    }


def _share(part: int, whole: int) -> float:
    """Returns part / whole, or 0 if the whole is 0."""
    return part / whole if whole else 0.0
