"""Targets made as records are read: masks that differ in each epoch, or neighbours.

The masks are those of `bert_tf.instances.masking`, by a stream of the seed, the epoch
and the record: they depend on neither the batch, the order nor the workers. They are
drawn by compiled code in this process, so another host cannot run such a data set: see
`PretrainingRecords.check_hosts`.

Shapes: B batch, L tokens of a record, P predictions.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, declarations, option
from bert_tf.instances.settings import MASK_RATE, PIECE, RANDOM_RATE, SPAN, WORD

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.instances.masking import Masking
    from bert_tf.records.pipeline import RecordKeys

# How to make records that are masked as they are read.
UNMASKED = (
    "python -m bert_tf.tfrecords.create_pretraining_data --masking=dynamic"
    " --input_file=TEXT --vocab_file=VOCAB --output_file=RECORDS makes records without"
    " masks"
)
# Why a model of one direction has no use for options of masking.
ONE_DIRECTION = (
    "is for masking, but a model that reads in one direction predicts every token"
)


class MaskingOptions(Options, decides="numbers"):
    """Options of --masking=dynamic: records are masked as they are read."""

    masking_unit: str | None = option(
        None,
        "For records without masks: what is masked together: single pieces, whole"
        " words, or spans of whole words (SpanBERT). Default: word or piece, depending"
        " on the records' --do_whole_word_mask.",
        choices=(PIECE, WORD, SPAN),
    )
    masked_lm_prob: float | None = option(
        None,
        "For records without masks: share of a sequence's tokens to predict. Default:"
        " the records'.",
        above=0.0,
        most=1.0,
    )
    mask_rate: float = option(
        MASK_RATE,
        "For records without masks: share of the predicted tokens that become [MASK].",
        least=0.0,
    )
    random_rate: float = option(
        RANDOM_RATE,
        "For records without masks: share of the predicted tokens that become a random"
        " token. The remaining ones are unchanged.",
        least=0.0,
    )
    mask_token: str = option(
        "[MASK]",
        "For records without masks: the token to use instead of [MASK]. [UNK] makes the"
        " model read unknown words as blanks (Clinchant et al. 2019).",
        choices=("[MASK]", "[UNK]"),
    )

    def problems(self) -> Iterator[str]:
        """Yields a problem if the rates add up to more than all tokens."""
        yield from super().problems()
        if self.mask_rate + self.random_rate > 1.0:
            yield "`mask_rate` and `random_rate` must be at most 1 together."

    @property
    def given_masking(self) -> dict[str, Any]:
        """The options by name; None where not given."""
        return {
            name: self.value_if_given(name) for name in declarations(MaskingOptions)
        }

    def refuse_where_unused(self, source: str, **others: Any) -> None:
        """Rejects options of masking for records that contain their masks."""
        self.refuse_masking(
            f"is for records that are masked as they are read, but the masks of"
            f" {source} are in the records. {UNMASKED}",
            **others,
        )

    def refuse_masking(self, reason: str, **others: Any) -> None:
        """Rejects the options that are given, and others that are not None."""
        for name, value in {**self.given_masking, **others}.items():
            if value is not None:
                raise InputError(f"`{name}={value}` {reason}.")


_SLOTS = {
    "masked_lm_positions": np.int32,
    "masked_lm_ids": np.int32,
    "masked_lm_weights": np.float32,
}


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """Masks batches of unmasked records."""

    masking: "Masking"  # of a sequence
    max_predictions_per_seq: int  # slots of a record

    def compile(self) -> None:
        """Compiles the code of `__call__` in this thread, not in a reading thread."""
        from bert_tf.instances.compilation import log_compilation_of
        from bert_tf.instances.masking import mask_rows

        log_compilation_of(mask_rows)
        empty = np.zeros([0, 1], np.int32)
        self._masked(0, empty, empty, np.zeros(0, np.int64), np.zeros(0, np.int64))

    def __call__(
        self, batch: "Mapping[str, tf.Tensor]", keys: "RecordKeys", seed: int
    ) -> "dict[str, tf.Tensor]":
        """Returns a batch with its masks."""
        import tensorflow as tf

        ids = batch["input_ids"]
        input_ids, *slots = tf.numpy_function(
            functools.partial(self._masked, seed),
            [ids, batch.get("sequence_ids", batch["input_mask"]), *keys],
            [np.int32, *_SLOTS.values()],
            stateful=False,
        )
        shape = [ids.shape[0], self.max_predictions_per_seq]
        return {
            **batch,
            "input_ids": tf.ensure_shape(input_ids, ids.shape),
            **{
                name: tf.ensure_shape(values, shape)
                for name, values in zip(_SLOTS, slots, strict=True)
            },
        }

    def _masked(
        self,
        seed: int,
        input_ids: np.ndarray,
        owners: np.ndarray,
        epochs: np.ndarray,
        records: np.ndarray,
    ) -> list[np.ndarray]:
        from bert_tf.instances.masking import mask_rows

        rows = input_ids.copy()
        shape = [len(rows), self.max_predictions_per_seq]
        slots = tuple(np.zeros(shape, dtype) for dtype in _SLOTS.values())
        mask_rows(
            *(rows, owners, self.masking, np.uint64(seed % (1 << 64))),
            *(epochs.astype(np.uint64), records.astype(np.uint64), slots),
        )
        return [rows, *slots]


def neighbour_targets(
    batch: "Mapping[str, tf.Tensor]",
    _: "RecordKeys | None" = None,
    *,
    of_left_to_right: bool,
) -> "dict[str, tf.Tensor]":
    """Returns a one-way model's targets: at every token, the next one it reads."""
    # The ablation "LTR" of Devlin et al. 2018, section 5.1: nothing is masked. The
    # targets are stored as the masked LM's features, for its head and its loss.
    import tensorflow as tf

    first, targets = (0, slice(1, None)) if of_left_to_right else (1, slice(None, -1))
    ids, mask = batch["input_ids"], batch["input_mask"]
    has_next = mask[:, 1:] > 0
    if "sequence_ids" in batch:
        numbers = batch["sequence_ids"]
        has_next &= numbers[:, 1:] == numbers[:, :-1]
    labels = tf.where(has_next, ids[:, targets], 0)
    positions = tf.range(first, first + ids.shape[1] - 1)
    positions = tf.where(has_next, positions[None], 0)
    return {
        **batch,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.cast(has_next, tf.float32),
    }
