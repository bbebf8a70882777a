"""Sequences without their padding, and the rows that are made of them."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.errors import InputError
from bert_tf.instances.random_stream import compiled


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Some sequences, one after another; T tokens and M predictions in all.

    Attributes:
        lengths: int64 [num_sequences], tokens of each.
        input_ids: int32 [T].
        segment_ids: int32 [T].
        num_predictions: int64 [num_sequences]; all 0 where nothing is masked.
        positions: int32 [M], where in its sequence each prediction stands.
        labels: int32 [M], the ids to predict.
        next_sentence_labels: int32 [num_sequences].
    """

    lengths: np.ndarray
    input_ids: np.ndarray
    segment_ids: np.ndarray
    num_predictions: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    next_sentence_labels: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, np.ndarray], source: str
    ) -> "Sequences":
        """The sequences of a block of records that are not packed."""
        is_token = columns["input_mask"] > 0
        lengths = is_token.sum(axis=1)
        places = np.arange(is_token.shape[1])
        _check(
            (lengths > 0) & (is_token == (places < lengths[:, None])).all(axis=1),
            f"{source}: `input_mask` must be ones, then zeros",
        )
        if "masked_lm_positions" in columns:
            positions, weights = (
                columns[f"masked_lm_{name}"] for name in ("positions", "weights")
            )
            is_prediction = weights != 0
            _check(
                ((weights == 1) | ~is_prediction).all(axis=1),
                f"{source}: `masked_lm_weights` must be ones and zeros",
            )
            is_inside = (positions >= 0) & (positions < lengths[:, None])
            _check(
                (is_inside | ~is_prediction).all(axis=1),
                f"{source}: `masked_lm_positions` must be those of tokens",
            )
            num_predictions = is_prediction.sum(axis=1)
            positions = positions[is_prediction]
            labels = columns["masked_lm_ids"][is_prediction]
        else:
            num_predictions = np.zeros_like(lengths)
            positions = labels = np.empty(0, np.int32)
        return cls(
            lengths=lengths.astype(np.int64),
            input_ids=columns["input_ids"][is_token].astype(np.int32),
            segment_ids=columns["segment_ids"][is_token].astype(np.int32),
            num_predictions=num_predictions.astype(np.int64),
            positions=positions.astype(np.int32),
            labels=labels.astype(np.int32),
            next_sentence_labels=columns["next_sentence_labels"][:, 0].astype(np.int32),
        )

    @classmethod
    def joined(cls, parts: Sequence["Sequences"]) -> "Sequences":
        """All sequences of some others, at least one."""
        return cls(
            *(
                np.concatenate([getattr(part, field.name) for part in parts])
                for field in dataclasses.fields(cls)
            )
        )


def _check(is_right: np.ndarray, complaint: str) -> None:
    if not is_right.all():
        number = int(np.count_nonzero(~is_right))
        raise InputError(
            f"{complaint}. It is not in {number} records; python -m"
            " bert_tf.tfrecords.inspect_records shows them."
        )


def row_columns(
    sequences: Sequences,
    order: np.ndarray,
    starts: np.ndarray,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    max_sequences_per_row: int,
) -> dict[str, np.ndarray]:
    """The rows' features, as `packed_schema` describes them."""
    num_rows = len(starts) - 1
    tokens, predictions, slots = (
        (num_rows, length)
        for length in (max_seq_length, max_predictions_per_seq, max_sequences_per_row)
    )
    columns: dict[str, np.ndarray] = {
        "input_ids": np.zeros(tokens, np.int64),
        "input_mask": np.zeros(tokens, np.int64),
        "segment_ids": np.zeros(tokens, np.int64),
        "sequence_ids": np.zeros(tokens, np.int64),
        "cls_positions": np.zeros(slots, np.int64),
        "next_sentence_labels": np.zeros(slots, np.int64),
        "next_sentence_weights": np.zeros(slots, np.float32),
        "masked_lm_positions": np.zeros(predictions, np.int64),
        "masked_lm_ids": np.zeros(predictions, np.int64),
        "masked_lm_weights": np.zeros(predictions, np.float32),
    }
    _fill(
        order,
        starts,
        _starts(sequences.lengths),
        sequences.input_ids,
        sequences.segment_ids,
        _starts(sequences.num_predictions),
        sequences.positions,
        sequences.labels,
        sequences.next_sentence_labels,
        *columns.values(),
    )
    if not max_predictions_per_seq:
        for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
            del columns[name]
    return columns


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@compiled
def _fill(
    order,
    starts,
    token_starts,
    input_ids,
    segment_ids,
    prediction_starts,
    positions,
    labels,
    next_sentence_labels,
    row_ids,
    row_mask,
    row_segments,
    row_sequences,
    row_cls,
    row_labels,
    row_weights,
    row_positions,
    row_predicted,
    row_predicted_weights,
):
    for row in range(len(starts) - 1):
        place = slot = 0
        for number in range(starts[row + 1] - starts[row]):
            sequence = order[starts[row] + number]
            row_cls[row, number] = place
            row_labels[row, number] = next_sentence_labels[sequence]
            row_weights[row, number] = 1.0
            first, end = prediction_starts[sequence], prediction_starts[sequence + 1]
            for index in range(first, end):
                row_positions[row, slot] = place + positions[index]
                row_predicted[row, slot] = labels[index]
                row_predicted_weights[row, slot] = 1.0
                slot += 1
            for index in range(token_starts[sequence], token_starts[sequence + 1]):
                row_ids[row, place] = input_ids[index]
                row_mask[row, place] = 1
                row_segments[row, place] = segment_ids[index]
                row_sequences[row, place] = number + 1
                place += 1


def unpacked_columns(
    columns: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The sequences of some rows as records of their own: the way back."""
    ids = columns["sequence_ids"]
    num_slots = columns["cls_positions"].shape[1]
    is_used = columns["next_sentence_weights"] > 0
    is_used |= (ids[:, :, None] == np.arange(1, num_slots + 1)).any(axis=1)
    rows, numbers = np.nonzero(is_used)
    is_own = ids[rows] == numbers[:, None] + 1
    # A stable sort brings a sequence's tokens to the front, in their order.
    places = np.argsort(~is_own, axis=1, kind="stable")
    in_front = np.take_along_axis(is_own, places, axis=1)
    unpacked = {
        name: np.where(
            in_front, np.take_along_axis(columns[name][rows], places, axis=1), 0
        )
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    unpacked["next_sentence_labels"] = columns["next_sentence_labels"][rows, numbers][
        :, None
    ]
    if "masked_lm_positions" in columns:
        positions = columns["masked_lm_positions"][rows]
        inside = positions.clip(0, ids.shape[1] - 1)
        is_own = np.take_along_axis(is_own, inside, axis=1) & (
            columns["masked_lm_weights"][rows] > 0
        )
        begins = columns["cls_positions"][rows, numbers][:, None]
        slots = np.argsort(~is_own, axis=1, kind="stable")
        in_front = np.take_along_axis(is_own, slots, axis=1)
        for name, values in (
            ("masked_lm_positions", positions - begins),
            ("masked_lm_ids", columns["masked_lm_ids"][rows]),
            ("masked_lm_weights", columns["masked_lm_weights"][rows]),
        ):
            values = np.take_along_axis(values, slots, axis=1)
            unpacked[name] = np.where(in_front, values, 0).astype(values.dtype)
    return unpacked, rows, numbers
