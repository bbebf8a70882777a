"""How unmasked records are to be masked: what the user says, or else the records."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf.errors import InputError
from bert_tf.instances.settings import MASK_RATE, RANDOM_RATE
from bert_tf.records.manifest import Manifest
from bert_tf.records.mixing import agreed


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """What the user says, under the flags' names; None where nothing was said.

    Attributes:
        masking_unit: "piece", "word" or "span"; else "word" where the records' manifest
            has do_whole_word_mask, "piece" where it has not.
        masked_lm_prob: share of a sequence's tokens to choose; else the records' own.
        mask_rate: share of these that become [MASK]; else 0.8.
        random_rate: share of these that become a random token; else 0.1.
    """

    masking_unit: str | None = None
    masked_lm_prob: float | None = None
    mask_rate: float | None = None
    random_rate: float | None = None

    def refuse_where_unused(self, source: str) -> None:
        """Refuses what is said of records that have their masks in them."""
        for name, value in self._said():
            raise InputError(
                f"`{name}={value}` is for records that are masked as they are read, but"
                f" the masks of {source} are in the records. Make them by"
                " create_pretraining_data --masking=dynamic."
            )

    def refuse_where_left_to_right(self) -> None:
        """Refuses what is said where nothing is masked."""
        for name, value in self._said():
            raise InputError(
                f"`{name}={value}` is for masking, but a left-to-right model predicts"
                " every token."
            )

    def _said(self) -> list[tuple[str, Any]]:
        values = dataclasses.asdict(self).items()
        return [(name, value) for name, value in values if value is not None]

    def settled(self, manifests: Sequence[Manifest]) -> dict[str, Any]:
        """The arguments of DynamicMasking of these names, for some sets of records."""
        unit = self.masking_unit
        if unit is None:
            is_whole = agreed(manifests, "do_whole_word_mask", "masking_unit")
            unit = "word" if is_whole else "piece"
        share = self.masked_lm_prob
        if share is None:
            share = agreed(manifests, "masked_lm_prob")
        return {
            "unit": unit,
            "masked_lm_prob": share,
            "mask_rate": MASK_RATE if self.mask_rate is None else self.mask_rate,
            "random_rate": (
                RANDOM_RATE if self.random_rate is None else self.random_rate
            ),
        }


def log_masking(
    *,
    unit: str,
    masked_lm_prob: float,
    mask_rate: float,
    random_rate: float,
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> None:
    """Says how records are masked, and warns where there are too few slots for it."""
    logging.info(
        "The records are masked as they are read: %ss, %g of the tokens, of these %g"
        " [MASK] and %g random.",
        unit,
        masked_lm_prob,
        mask_rate,
        random_rate,
    )
    wanted = max(1, round(max_seq_length * masked_lm_prob))
    if max_predictions_per_seq < wanted:
        logging.warning(
            "--max_predictions_per_seq=%d is few for --max_seq_length=%d: long"
            " sequences mask less than --masked_lm_prob=%g of their tokens. A full one"
            " needs %d.",
            max_predictions_per_seq,
            max_seq_length,
            masked_lm_prob,
            wanted,
        )
