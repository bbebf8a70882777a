"""How records without masks are masked as they are read."""

from collections.abc import Iterator
from typing import Any

from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, declarations, option
from bert_tf.instances.settings import MASK_RATE, PIECE, RANDOM_RATE, SPAN, WORD

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
        """Rates that add up to more than all tokens."""
        yield from super().problems()
        if self.mask_rate + self.random_rate > 1.0:
            yield "`mask_rate` and `random_rate` must be at most 1 together."

    @property
    def given_masking(self) -> dict[str, Any]:
        """These options by name; None for those that are not given."""
        return {
            name: self.value_if_given(name) for name in declarations(MaskingOptions)
        }

    def refuse_where_unused(self, source: str, **others: Any) -> None:
        """Rejects options of masking for records that have their masks in them."""
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
