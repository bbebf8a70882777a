"""What instances depend on in addition to the text."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError
from bert_tf.options import Options, declarations, option

# [CLS], [SEP], [SEP]
NUM_SPECIAL_TOKENS = 3
# Both segments must keep a token.
MIN_SEQ_LENGTH = NUM_SPECIAL_TOKENS + 2

# What a sequence is made of: a segment and the next or a random one (Devlin et al.
# 2018); whole sentences in one segment (Liu et al. 2019, RoBERTa, arXiv:1907.11692,
# "FULL-SENTENCES"); two neighbouring segments, in order or swapped (Lan et al. 2019);
# a segment and the next, a random or the previous one (Wang et al. 2019, StructBERT).
NEXT_SENTENCE = "nsp"
FULL_SENTENCES = "none"
SENTENCE_ORDER = "sop"
PREVIOUS_OR_NEXT = "previous"
PAIRS = (NEXT_SENTENCE, FULL_SENTENCES, SENTENCE_ORDER, PREVIOUS_OR_NEXT)

ORIGINAL_LABELS = "original"
EXACT_LABELS = "exact"
NSP_LABELS = (ORIGINAL_LABELS, EXACT_LABELS)

# Of the tokens that are chosen to be predicted (Devlin et al. 2018, appendix A.1): the
# share that becomes [MASK], and that becomes a random token.
MASK_RATE = 0.8
RANDOM_RATE = 0.1

# The masks are in the instances, or drawn again in each epoch of the training.
STATIC_MASKING = "static"
DYNAMIC_MASKING = "dynamic"
MASKING = (STATIC_MASKING, DYNAMIC_MASKING)

# A packed row has one slot for a sequence per 32 tokens, or per quarter of the
# longest sequence if that is less.
_TOKENS_PER_SLOT = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """What instances depend on in addition to the text, by the original's flags."""

    max_seq_length: int = 128  # tokens of a sequence, specials and padding included
    max_predictions_per_seq: int = 20  # masked-LM slots of a sequence
    masked_lm_prob: float = 0.15  # share of a sequence's tokens to predict
    short_seq_prob: float = 0.1  # chance that a document's pairs aim at fewer tokens
    dupe_factor: int = 10  # passes over the documents, each with other pairs and masks
    do_whole_word_mask: bool = False  # mask all pieces of a word or none
    random_seed: int = 12345  # of the one random stream
    masking: str = STATIC_MASKING
    pairs: str = NEXT_SENTENCE
    nsp_labels: str = ORIGINAL_LABELS
    # Tokens of a row of several sequences; None where each is a record of its own.
    packed_length: int | None = None

    @property
    def record_length(self) -> int:
        """Tokens of a record: of a row, or of a sequence."""
        return self.packed_length or self.max_seq_length

    @property
    def max_predictions_per_record(self) -> int:
        """Masked-LM slots of a record: the same ratio to tokens as in a sequence."""
        slots = self.max_predictions_per_seq * self.record_length
        return -(-slots // self.max_seq_length)

    @property
    def max_sequences_per_record(self) -> int:
        """Slots for sequences in a record."""
        tokens_per_slot = min(_TOKENS_PER_SLOT, self.max_seq_length // 4)
        return max(1, (self.packed_length or 0) // tokens_per_slot)

    @property
    def least_documents(self) -> int:
        """How many documents a corpus needs: exact labels need another one."""
        needs_another = self.pairs == NEXT_SENTENCE and self.nsp_labels == EXACT_LABELS
        return 2 if needs_another else 1


class MaskingOptions(Options):
    """Options of --masking=dynamic: records are masked as they are read."""

    masking_unit: str | None = option(
        None,
        "For records without masks: what is masked together, single pieces, whole"
        " words, or spans of whole words (SpanBERT). Default: word or piece,"
        " depending on the records' --do_whole_word_mask.",
        choices=("piece", "word", "span"),
    )
    masked_lm_prob: float | None = option(
        None,
        "For records without masks: share of a sequence's tokens to predict."
        " Default: the records' own.",
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
        "For records without masks: share of the predicted tokens that become a"
        " random token; the others are unchanged.",
        least=0.0,
    )
    mask_token: str = option(
        "[MASK]",
        "For records without masks: what stands in the place of [MASK]; [UNK] makes"
        " the model read unknown words as blanks (Clinchant et al. 2019).",
        choices=("[MASK]", "[UNK]"),
    )

    def problems(self) -> Iterator[str]:
        """Rates that add up to more than all tokens."""
        yield from super().problems()
        if self.mask_rate + self.random_rate > 1.0:
            yield "`mask_rate` and `random_rate` must be at most 1 together."

    @property
    def given_masking(self) -> dict[str, Any]:
        """These options by name; None for those that are not given."""
        return {name: self.given(name) for name in declarations(MaskingOptions)}

    def refuse_where_unused(self, source: str) -> None:
        """Rejects options of masking for records that have their masks in them."""
        self.refuse_masking(
            f"is for records that are masked as they are read, but the masks of"
            f" {source} are in the records. Make them by create_pretraining_data"
            " --masking=dynamic"
        )

    def refuse_masking(self, reason: str, **others: Any) -> None:
        """Rejects the options that are given, and others that are not None."""
        for name, value in {**self.given_masking, **others}.items():
            if value is not None:
                raise InputError(f"`{name}={value}` {reason}.")
