"""What a set of records holds: counts of lengths, predictions and labels.

The counts are added block by block while records are written or read, and merged
over shards: merging in any order gives the result of one pass over all records.

A record's length is the number of its tokens, [CLS] and [SEP] included, padding not.
Its special tokens are [CLS] and one [SEP] for each segment that is not empty.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import strict_json
from bert_tf.errors import InputError

# Lengths are counted in at most this many bins, as equal as whole lengths allow.
MAX_LENGTH_BINS = 16
_BAR_WIDTH = 40
_SEEN = {
    "masked_share": "replaced by [MASK]",
    "random_share": "by another token",
    "replaced_share": "replaced",
    "kept_share": "kept",
}


@dataclasses.dataclass
class Spread:
    """How many numbers there were, their sum, the smallest and the largest."""

    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0

    def add(self, values: np.ndarray) -> None:
        """Adds an array of integers that is not empty."""
        self.merge(
            Spread(len(values), int(values.sum()), int(values.min()), int(values.max()))
        )

    def merge(self, other: "Spread") -> None:
        """Adds another one's numbers."""
        if other.count:
            empty = not self.count
            self.least = other.least if empty else min(self.least, other.least)
            self.most = other.most if empty else max(self.most, other.most)
            self.count += other.count
            self.total += other.total

    @property
    def mean(self) -> float:
        """The mean; 0 of no numbers."""
        return share(self.total, self.count)


@dataclasses.dataclass(kw_only=True)
class RecordStatistics:
    """The counts of some pre-training or classification records.

    `mask_id` is None if the vocabulary is unknown; predicted tokens are then only
    counted as kept or replaced.
    """

    max_seq_length: int
    mask_id: int | None
    lengths: Spread = dataclasses.field(default_factory=Spread)
    length_bins: list[int] = dataclasses.field(default_factory=list)
    predictions: Spread = dataclasses.field(default_factory=Spread)
    num_single_segments: int = 0
    # Only of records with predictions, so that shares refer to these.
    num_predictable: int = 0
    num_tokens_with_predictions: int = 0
    num_masked: int = 0
    num_kept: int = 0
    num_next_sentence_labels: int = 0
    num_random_next: int = 0

    def __post_init__(self) -> None:
        if self.max_seq_length < 1:
            raise InputError(
                f"`max_seq_length` must be positive. Received: {self.max_seq_length}"
            )
        num_bins = min(MAX_LENGTH_BINS, self.max_seq_length)
        self.length_bins = self.length_bins or [0] * num_bins
        if len(self.length_bins) != num_bins:
            raise InputError(
                f"`length_bins` must be {num_bins} counts. Received:"
                f" {len(self.length_bins)}"
            )

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Counts a block of records: arrays [records, length] under the spec's names.

        `input_ids` are as the model sees them; `masked_lm_*` and `next_sentence_labels`
        may be absent.
        """
        input_ids = columns["input_ids"]
        if input_ids.shape[1:] != (self.max_seq_length,):
            raise ValueError(
                f"`input_ids` must be [records, {self.max_seq_length}]. "
                f"Received: {input_ids.shape}"
            )
        if not len(input_ids):
            return
        lengths = columns["input_mask"].sum(axis=1)
        self.lengths.add(lengths)
        num_bins = len(self.length_bins)
        bins = ((lengths - 1) * num_bins // self.max_seq_length).clip(0, num_bins - 1)
        self._add_bins(np.bincount(bins, minlength=num_bins).tolist())
        num_pairs = int(np.count_nonzero(columns["segment_ids"].max(axis=1) > 0))
        self.num_single_segments += len(lengths) - num_pairs
        if "next_sentence_labels" in columns:
            labels = columns["next_sentence_labels"]
            self.num_next_sentence_labels += labels.size
            self.num_random_next += int(np.count_nonzero(labels))
        if "masked_lm_positions" not in columns:
            return
        num_tokens = int(lengths.sum())
        self.num_tokens_with_predictions += num_tokens
        self.num_predictable += num_tokens - 2 * len(lengths) - num_pairs
        is_prediction = columns["masked_lm_weights"] > 0
        self.predictions.add(is_prediction.sum(axis=1))
        # A position outside the record is reported elsewhere.
        positions = columns["masked_lm_positions"].clip(0, self.max_seq_length - 1)
        seen = np.take_along_axis(input_ids, positions, axis=1)[is_prediction]
        wanted = columns["masked_lm_ids"][is_prediction]
        is_masked = np.zeros(seen.shape, bool)
        if self.mask_id is not None:
            is_masked = seen == self.mask_id
        self.num_masked += int(np.count_nonzero(is_masked))
        self.num_kept += int(np.count_nonzero((seen == wanted) & ~is_masked))

    def merge(self, other: "RecordStatistics") -> None:
        """Adds the counts of other records of the same length and the same [MASK]."""
        ours = self.max_seq_length, self.mask_id
        theirs = other.max_seq_length, other.mask_id
        if ours != theirs:
            raise ValueError(
                "`max_seq_length` and `mask_id` must be the same. "
                f"Received: {ours} and {theirs}"
            )
        self.lengths.merge(other.lengths)
        self.predictions.merge(other.predictions)
        self._add_bins(other.length_bins)
        for field in dataclasses.fields(self):
            if field.name.startswith("num_"):
                count = getattr(self, field.name) + getattr(other, field.name)
                setattr(self, field.name, count)

    def _add_bins(self, counts: Sequence[int]) -> None:
        bins = zip(self.length_bins, counts, strict=True)
        self.length_bins = [ours + theirs for ours, theirs in bins]

    def to_values(self) -> dict[str, Any]:
        """The counts as JSON; `from_values` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "RecordStatistics":
        """The counts that `to_values` gave."""
        source = "statistics of records"
        fields = {field.name for field in dataclasses.fields(cls)}
        if missing := fields - values.keys():
            raise InputError(f"{source}: {', '.join(sorted(missing))} missing.")
        return strict_json.from_values(cls, values, source)

    def figures(self) -> dict[str, Any]:
        """The counts' results for programs: numbers and shares between 0 and 1."""
        num_places = self.lengths.count * self.max_seq_length
        figures: dict[str, Any] = {
            "records": self.lengths.count,
            "tokens": self.lengths.total,
            "padding_share": share(num_places - self.lengths.total, num_places),
            "max_seq_length": self.max_seq_length,
            "length_mean": self.lengths.mean,
            "length_min": self.lengths.least,
            "length_max": self.lengths.most,
            "length_histogram": self._histogram(),
            "single_segment_share": share(self.num_single_segments, self.lengths.count),
        }
        if self.num_next_sentence_labels:
            figures["random_next_share"] = share(
                self.num_random_next, self.num_next_sentence_labels
            )
        if self.predictions.count:
            total = self.predictions.total
            replaced = total - self.num_masked - self.num_kept
            figures |= {
                "predictions": total,
                "predictions_mean": self.predictions.mean,
                "predictions_min": self.predictions.least,
                "predictions_max": self.predictions.most,
                "predicted_share": share(total, self.num_predictable),
                "predicted_share_with_special_tokens": share(
                    total, self.num_tokens_with_predictions
                ),
                "kept_share": share(self.num_kept, total),
            }
            if self.mask_id is None:
                figures["replaced_share"] = share(replaced, total)
            else:
                figures["masked_share"] = share(self.num_masked, total)
                figures["random_share"] = share(replaced, total)
        return figures

    def _histogram(self) -> list[dict[str, int]]:
        """The shortest and longest length of each bin, and its records."""
        num_bins = len(self.length_bins)
        # Bin b has the lengths n with b <= (n - 1) * num_bins / max_seq_length < b + 1.
        starts = [
            1 - (-b * self.max_seq_length // num_bins) for b in range(num_bins + 1)
        ]
        return [
            {"from": start, "to": end - 1, "records": count}
            for start, end, count in zip(
                starts[:-1], starts[1:], self.length_bins, strict=True
            )
        ]

    def lines(self) -> list[str]:
        """The counts' results for people; the lengths as bars."""
        figures = self.figures()
        lines = [
            f"records            {figures['records']:,}",
            f"tokens             {figures['tokens']:,}; {figures['padding_share']:.1%}"
            " of all places are padding",
            f"tokens a record    {figures['length_mean']:.1f} on average,"
            f" {figures['length_min']} to {figures['length_max']}"
            f" of {figures['max_seq_length']}",
        ]
        most = max(1, *self.length_bins)
        for each in figures["length_histogram"]:
            low, high, count = each["from"], each["to"], each["records"]
            label = f"{low}-{high}" if low < high else high
            # Rounded up, so that a bin with a single record is visible.
            bar = "#" * -(-count * _BAR_WIDTH // most)
            portion = share(count, figures["records"])
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
    """How full packed rows are, from the statistics of their sequences."""
    num_places = num_rows * max_seq_length
    return {
        "rows": num_rows,
        "sequences": statistics.lengths.count,
        "sequences_per_row": share(statistics.lengths.count, num_rows),
        "padding_share": share(num_places - statistics.lengths.total, num_places),
    }


def share(part: int, whole: int) -> float:
    """A part of the whole; 0 of nothing."""
    return part / whole if whole else 0.0
