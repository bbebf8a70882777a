"""A record in readable form: tokens instead of ids, words instead of labels."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.text.vocabulary import MASK, Vocabulary

# What the model sees where it is to predict a token.
MASKED = "masked"
RANDOM = "random"
KEPT = "kept"
# Masked or random, where nobody says which id is [MASK].
REPLACED = "replaced"

# By the manifest's `pairs`: what next_sentence_labels mean.
_NEXT_SENTENCE = {
    "nsp": ("B follows A", "B is random"),
    "sop": ("A and B are in order", "A and B are swapped"),
    "none": ("no pair", ""),
}


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A token to predict.

    Attributes:
        position: where it stands.
        seen: the token there.
        wanted: the token that the model must say.
        kind: MASKED, RANDOM, KEPT or REPLACED.
    """

    position: int
    seen: str
    wanted: str
    kind: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A readable record.

    Attributes:
        tokens: as the model sees them, without padding.
        num_tokens_a: those of the first segment, [CLS] and [SEP] included; the others
            are of the second one.
        max_seq_length: the record's length with padding.
        predictions: what is to be predicted.
        label: what `next_sentence_labels` or `label_ids` says, in words.
        has_words: whether tokens are WordPieces, not numbers.
    """

    tokens: tuple[str, ...]
    num_tokens_a: int
    max_seq_length: int
    predictions: tuple[Prediction, ...]
    label: str
    has_words: bool

    def to_values(self) -> dict[str, Any]:
        """The example as JSON can hold it."""
        values = dataclasses.asdict(self)
        del values["has_words"]
        return values


def read_example(
    columns: Mapping[str, np.ndarray],
    row: int,
    vocabulary: Vocabulary | None,
    pairs: str = "nsp",
) -> Example:
    """One record of a block, however broken it is.

    Args:
        columns: arrays [records, length] under the schema's names.
        row: which record.
        vocabulary: names the ids; without it they stay numbers.
        pairs: the manifest's field, which says what the label means.
    """
    record = {name: values[row] for name, values in columns.items()}
    ids = record["input_ids"]
    length = _last_nonzero(record["input_mask"], ids)
    second = np.flatnonzero(record["segment_ids"][:length])
    return Example(
        tokens=tuple(_token(token_id, vocabulary) for token_id in ids[:length]),
        num_tokens_a=int(second[0]) if len(second) else length,
        max_seq_length=len(ids),
        predictions=tuple(_predictions(record, vocabulary)),
        label=_label(record, pairs),
        has_words=vocabulary is not None,
    )


def _last_nonzero(*arrays: np.ndarray) -> int:
    """How many values there are up to the last one that is not 0 in all arrays."""
    return max((int(np.flatnonzero(a)[-1]) + 1 for a in arrays if a.any()), default=0)


def _token(token_id: int, vocabulary: Vocabulary | None) -> str:
    if vocabulary is None:
        return str(token_id)
    if 0 <= token_id < len(vocabulary):
        return vocabulary.tokens[token_id]
    return f"<id {token_id}?>"


def _predictions(
    record: Mapping[str, np.ndarray], vocabulary: Vocabulary | None
) -> list[Prediction]:
    if "masked_lm_positions" not in record:
        return []
    ids = record["input_ids"]
    mask_id = vocabulary.ids.get(MASK) if vocabulary is not None else None
    predictions = []
    for position, wanted, weight in zip(
        record["masked_lm_positions"].tolist(),
        record["masked_lm_ids"].tolist(),
        record["masked_lm_weights"].tolist(),
        strict=True,
    ):
        if weight > 0 and 0 <= position < len(ids):
            seen = int(ids[position])
            predictions.append(
                Prediction(
                    position,
                    _token(seen, vocabulary),
                    _token(wanted, vocabulary),
                    _kind(seen, wanted, mask_id),
                )
            )
    return predictions


def _kind(seen: int, wanted: int, mask_id: int | None) -> str:
    if seen == mask_id:
        return MASKED
    if seen == wanted:
        return KEPT
    return REPLACED if mask_id is None else RANDOM


def _label(record: Mapping[str, np.ndarray], pairs: str) -> str:
    if "label_ids" in record:
        labels = record["label_ids"].tolist()
        return f"label{'s' * (len(labels) > 1)} " + ", ".join(f"{x:g}" for x in labels)
    label = int(record["next_sentence_labels"][0])
    words = _NEXT_SENTENCE.get(pairs, _NEXT_SENTENCE["nsp"])
    if label in (0, 1) and words[label]:
        return words[label]
    return f"next sentence label {label}"
