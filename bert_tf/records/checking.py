"""Do records make sense? The rules that every record keeps, and who breaks them.

The rules are those of `bert_tf.records.spec`'s table, and of how a record is built:
[CLS] A [SEP] B [SEP], where B may be empty; in a packed row, several of these. Masking
touches neither [CLS] nor [SEP].
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.records.packing import unpacked_columns
from bert_tf.text.vocabulary import CLS, MASK, SEP, Vocabulary

MISFIT = "layout"

# The order of the report.
RULES = {
    MISFIT: "cannot be read, or has other features than the first record",
    "input_mask": "input_mask is not ones, then zeros",
    "padding": "input_ids are not 0 in the padding",
    "segments": "segment_ids are not 0 for A, 1 for B, 0 in the padding",
    "vocabulary": "an id is outside the vocabulary",
    "cls": "the first token is not [CLS]",
    "sep": "a segment does not end with [SEP]",
    "rows": "sequence_ids are not 1, 2, ... then 0 in the padding, or cls_positions and"
    " next_sentence_weights do not fit them",
    "weights": "masked_lm_weights are not ones, then zeros",
    "positions": "masked_lm_positions do not ascend, or lie outside the tokens",
    "unused_slots": "masked_lm_positions or _ids are not 0 after the predictions",
    "predicted_ids": "a masked_lm_id is outside the vocabulary",
    "special": "[CLS] or [SEP] is to be predicted",
    "mask": "[MASK] stands where nothing is predicted",
    "label": "next_sentence_labels is neither 0 nor 1",
}


@dataclasses.dataclass
class Violations:
    """The records that break one rule.

    Attributes:
        num_records: how many there are.
        first: the file and the number of the first one.
    """

    num_records: int
    first: str


class RecordChecks:
    """Finds and counts the records that break a rule.

    Args:
        vocabulary: the records'; without it, ids can only be negative, and the special
            tokens are not looked at.
    """

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary = vocabulary
        ids = vocabulary.ids if vocabulary is not None else {}
        # -1 is no token's id.
        self._cls, self._sep, self._mask = (
            ids.get(token, -1) for token in (CLS, SEP, MASK)
        )
        self.num_records = 0
        self.violations: dict[str, Violations] = {}

    def add(
        self, columns: Mapping[str, np.ndarray], path: str, numbers: Sequence[int]
    ) -> None:
        """Checks a block of records.

        Args:
            columns: arrays [records, length] under the schema's names.
            path: the file that they are from.
            numbers: each record's number in the file.
        """
        self.num_records += len(numbers)
        for rule, broken in self.find(columns).items():
            rows = np.flatnonzero(broken)
            if len(rows):
                self.count(rule, len(rows), f"record {numbers[rows[0]]} of {path}")

    def count(self, rule: str, num_records: int, first: str) -> None:
        """Adds records that break a rule."""
        known = self.violations.setdefault(rule, Violations(0, first))
        known.num_records += num_records

    def find(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Which records of a block break which rule: a boolean array for each."""
        lengths = columns["input_mask"].sum(axis=1)
        if "sequence_ids" in columns:
            broken = self._check_rows(columns, lengths)
        else:
            broken = self._check_sequences(columns, lengths)
        if "masked_lm_positions" in columns:
            broken |= self._check_predictions(columns, lengths)
        if "next_sentence_labels" in columns:
            labels = columns["next_sentence_labels"]
            broken["label"] = ((labels != 0) & (labels != 1)).any(axis=1)
            if self._mask >= 0:
                broken["mask"] = self._check_mask(columns)
        return broken

    def _check_sequences(
        self, columns: Mapping[str, np.ndarray], lengths: np.ndarray
    ) -> dict[str, np.ndarray]:
        ids, mask, segments = (
            columns[name] for name in ("input_ids", "input_mask", "segment_ids")
        )
        places = np.arange(ids.shape[1])
        is_token = places < lengths[:, None]
        b_lengths = segments.sum(axis=1)
        a_lengths = lengths - b_lengths
        in_b = is_token & (places >= a_lengths[:, None])
        broken = {
            "input_mask": (mask != is_token).any(axis=1),
            "padding": ((ids != 0) & ~is_token).any(axis=1),
            "segments": (segments != in_b).any(axis=1) | (a_lengths < 0),
            "vocabulary": (ids < 0).any(axis=1),
        }
        if self._vocabulary is not None:
            broken["vocabulary"] |= (ids >= len(self._vocabulary)).any(axis=1)
            broken["cls"] = ids[:, 0] != self._cls
            broken["sep"] = (_last(ids, lengths) != self._sep) | (
                (b_lengths > 0) & (_last(ids, a_lengths) != self._sep)
            )
        return broken

    def _check_rows(
        self, columns: Mapping[str, np.ndarray], lengths: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The rules of each of the row's sequences, and of how they make up a row."""
        num_rows = len(lengths)
        sequences, rows, _ = unpacked_columns(columns)
        of_sequences = self._check_sequences(
            sequences, sequences["input_mask"].sum(axis=1)
        )
        broken = {
            rule: np.bincount(rows[is_broken], minlength=num_rows) > 0
            for rule, is_broken in of_sequences.items()
        }
        is_token = columns["input_mask"] > 0
        in_front = np.arange(is_token.shape[1]) < lengths[:, None]
        broken["input_mask"] |= (columns["input_mask"] != in_front).any(axis=1)
        for rule, name in (("padding", "input_ids"), ("segments", "segment_ids")):
            broken[rule] |= ((columns[name] != 0) & ~is_token).any(axis=1)
        ids = columns["sequence_ids"]
        steps = np.diff(ids, axis=1, prepend=0)
        is_first = is_token & (steps == 1)
        is_kept = np.where(is_token, (steps == 0) | is_first, ids == 0)
        is_kept[:, 0] = ids[:, 0] == is_token[:, 0]
        slots = np.arange(1, columns["cls_positions"].shape[1] + 1)
        is_used = slots <= ids.max(axis=1, keepdims=True)
        begins = (is_first[:, :, None] & (ids[:, :, None] == slots)).argmax(axis=1)
        broken["rows"] = (
            ~is_kept.all(axis=1)
            | (columns["next_sentence_weights"] != is_used).any(axis=1)
            | (columns["cls_positions"] != np.where(is_used, begins, 0)).any(axis=1)
            | ((columns["next_sentence_labels"] != 0) & ~is_used).any(axis=1)
        )
        return broken

    def _check_predictions(
        self, columns: Mapping[str, np.ndarray], lengths: np.ndarray
    ) -> dict[str, np.ndarray]:
        positions, ids, weights = (
            columns[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")
        )
        is_prediction = weights > 0
        num_predictions = is_prediction.sum(axis=1)
        in_front = np.arange(weights.shape[1]) < num_predictions[:, None]
        outside = (positions < 0) | (positions >= lengths[:, None])
        falls = positions[:, 1:] <= positions[:, :-1]
        broken = {
            "predicted_ids": (ids < 0).any(axis=1),
            "weights": (weights != in_front).any(axis=1),
            "positions": (outside & is_prediction).any(axis=1)
            | (falls & is_prediction[:, 1:] & is_prediction[:, :-1]).any(axis=1),
            "unused_slots": (((positions != 0) | (ids != 0)) & ~is_prediction).any(
                axis=1
            ),
        }
        if self._vocabulary is not None:
            broken["predicted_ids"] |= (ids >= len(self._vocabulary)).any(axis=1)
            special = (ids == self._cls) | (ids == self._sep)
            broken["special"] = (special & is_prediction).any(axis=1)
        return broken

    def _check_mask(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        is_mask = columns["input_ids"] == self._mask
        if "masked_lm_positions" in columns:
            is_prediction = columns["masked_lm_weights"] > 0
            last = is_mask.shape[1] - 1
            places = columns["masked_lm_positions"].clip(0, last)[is_prediction]
            is_mask[np.nonzero(is_prediction)[0], places] = False
        return is_mask.any(axis=1)

    def to_values(self) -> dict[str, Any]:
        """Each broken rule's records and the first of them, for programs."""
        return {
            rule: dataclasses.asdict(self.violations[rule])
            for rule in RULES
            if rule in self.violations
        }

    def lines(self) -> list[str]:
        """A line for each rule that is broken, or one that says that none is."""
        lines = [
            f"{found.num_records:,} record{'s' * (found.num_records > 1)}: {text};"
            f" the first is {found.first}"
            for rule, text in RULES.items()
            if (found := self.violations.get(rule))
        ]
        if not lines:
            lines.append(f"all {self.num_records:,} records keep the rules")
        if self._vocabulary is None:
            lines.append("not checked without a vocabulary: ids, [CLS], [SEP], [MASK]")
        return lines


def _last(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The id at the end of each row's first `lengths` ids."""
    ends = (lengths - 1).clip(0, ids.shape[1] - 1)
    return ids[np.arange(len(ids)), ends]
