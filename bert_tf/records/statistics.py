"""What a set of records holds: counts of lengths, predictions and labels.

The counts are added up block by block while records are written or read, and merged
over shards: merging in any order gives what one pass over all records gives.

A record's length is the number of its tokens, [CLS] and [SEP] included, padding not.
Its special tokens are [CLS] and one [SEP] for each segment that is not empty.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.errors import InputError
from bert_tf.records.figures import figure_lines

# Lengths are counted in at most so many bins, as equal as whole lengths allow.
MAX_LENGTH_BINS = 16


@dataclasses.dataclass
class Spread:
    """How many numbers there were, their sum, the smallest and the largest."""

    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0

    def add(self, values: np.ndarray) -> None:
        """Takes in an array of integers that is not empty."""
        self.merge(
            Spread(len(values), int(values.sum()), int(values.min()), int(values.max()))
        )

    def merge(self, other: "Spread") -> None:
        """Takes in what another one has."""
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


class RecordStatistics:
    """The counts of some pre-training or classification records.

    Args:
        max_seq_length: values of `input_ids` in each record.
        mask_id: of [MASK]; None where the vocabulary is not known, and predicted tokens
            are told apart only as kept and replaced.
    """

    def __init__(self, *, max_seq_length: int, mask_id: int | None) -> None:
        if max_seq_length < 1:
            raise ValueError(
                f"`max_seq_length` must be positive. Received: {max_seq_length}"
            )
        self.max_seq_length = max_seq_length
        self.mask_id = mask_id
        self.lengths = Spread()
        self.length_bins = np.zeros(min(MAX_LENGTH_BINS, max_seq_length), np.int64)
        self.num_single_segments = 0
        # Of the records that hold predictions alone, so that shares are theirs.
        self.predictions = Spread()
        self.num_predictable = 0
        self.num_tokens_with_predictions = 0
        self.num_masked = 0
        self.num_kept = 0
        self.num_next_sentence_labels = 0
        self.num_random_next = 0

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """Counts a block of records.

        Args:
            columns: arrays [records, length] of integers (weights of floats) under the
                names of `bert_tf.records.spec`, `input_ids` as the model sees them;
                `masked_lm_*` and `next_sentence_labels` may be absent, other names are
                passed over.

        Raises:
            ValueError: `input_ids` is not of `max_seq_length`.
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
        bins = (lengths - 1) * len(self.length_bins) // self.max_seq_length
        last = len(self.length_bins) - 1
        self.length_bins += np.bincount(bins.clip(0, last), minlength=last + 1)
        has_second = columns["segment_ids"].max(axis=1) > 0
        num_pairs = int(np.count_nonzero(has_second))
        self.num_single_segments += len(lengths) - num_pairs
        if "next_sentence_labels" in columns:
            labels = columns["next_sentence_labels"]
            self.num_next_sentence_labels += labels.size
            self.num_random_next += int(np.count_nonzero(labels))
        if "masked_lm_positions" in columns:
            self._add_predictions(input_ids, columns)
            num_tokens = int(lengths.sum())
            self.num_tokens_with_predictions += num_tokens
            self.num_predictable += num_tokens - 2 * len(lengths) - num_pairs

    def _add_predictions(
        self, input_ids: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> None:
        is_prediction = columns["masked_lm_weights"] > 0
        self.predictions.add(is_prediction.sum(axis=1))
        # A position outside the record is an error for others to report.
        positions = columns["masked_lm_positions"].clip(0, self.max_seq_length - 1)
        seen = np.take_along_axis(input_ids, positions, axis=1)[is_prediction]
        wanted = columns["masked_lm_ids"][is_prediction]
        is_masked = (
            np.zeros(seen.shape, bool) if self.mask_id is None else seen == self.mask_id
        )
        self.num_masked += int(np.count_nonzero(is_masked))
        self.num_kept += int(np.count_nonzero((seen == wanted) & ~is_masked))

    def merge(self, other: "RecordStatistics") -> None:
        """Adds the counts of other records.

        Raises:
            ValueError: they have another length or another [MASK].
        """
        ours = self.max_seq_length, self.mask_id
        theirs = other.max_seq_length, other.mask_id
        if ours != theirs:
            raise ValueError(
                "`max_seq_length` and `mask_id` must be the same. "
                f"Received: {ours} and {theirs}"
            )
        self.lengths.merge(other.lengths)
        self.predictions.merge(other.predictions)
        self.length_bins += other.length_bins
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_values(self) -> dict[str, Any]:
        """The counts as JSON can hold them; `from_values` is the way back."""
        return {
            "max_seq_length": self.max_seq_length,
            "mask_id": self.mask_id,
            "lengths": dataclasses.asdict(self.lengths),
            "length_bins": self.length_bins.tolist(),
            "predictions": dataclasses.asdict(self.predictions),
            **{name: getattr(self, name) for name in _COUNTS},
        }

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "RecordStatistics":
        """The counts that `to_values` gave.

        Raises:
            InputError: the values are not such counts.
        """
        try:
            statistics = cls(
                max_seq_length=values["max_seq_length"], mask_id=values["mask_id"]
            )
            statistics.lengths = Spread(**values["lengths"])
            statistics.predictions = Spread(**values["predictions"])
            for number, count in enumerate(values["length_bins"]):
                statistics.length_bins[number] = count
            for name in _COUNTS:
                setattr(statistics, name, int(values[name]))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"Not the statistics of records, or those of another bert_tf: {error}"
            ) from error
        return statistics

    def figures(self) -> dict[str, Any]:
        """What the counts say, for programs: numbers and shares between 0 and 1."""
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

    def lines(self) -> list[str]:
        """What the counts say, for people."""
        return figure_lines(self.figures())

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
                starts[:-1], starts[1:], self.length_bins.tolist(), strict=True
            )
        ]


_COUNTS = (
    "num_single_segments",
    "num_predictable",
    "num_tokens_with_predictions",
    "num_masked",
    "num_kept",
    "num_next_sentence_labels",
    "num_random_next",
)


def row_figures(
    statistics: RecordStatistics, num_rows: int, *, max_seq_length: int
) -> dict[str, Any]:
    """How full packed rows are, for programs.

    Args:
        statistics: of their sequences.
        num_rows: how many rows there are.
        max_seq_length: tokens of a row.
    """
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
