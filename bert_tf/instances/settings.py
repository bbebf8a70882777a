"""The settings that determine instances, in addition to the text."""

import math
from collections.abc import Iterator

from bert_tf.base.options import Options, option

# [CLS], [SEP], [SEP]
NUM_SPECIAL_TOKENS = 3
# Both segments must keep a token.
MIN_SEQ_LENGTH = NUM_SPECIAL_TOKENS + 2

# The contents of a sequence: a segment and the next or a random one (Devlin et al.
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

# The shares of the tokens to predict that become [MASK] or a random token (Devlin et
# al. 2018, appendix A.1).
MASK_RATE = 0.8
RANDOM_RATE = 0.1
# The units that are chosen together.
PIECE = "piece"
WORD = "word"
SPAN = "span"

# The masks are in the instances, or drawn anew in each epoch of the training.
STATIC_MASKING = "static"
DYNAMIC_MASKING = "dynamic"
MASKING = (STATIC_MASKING, DYNAMIC_MASKING)

# A packed row has one slot for a sequence per 32 tokens, or per quarter of the
# longest sequence if that is less.
_TOKENS_PER_SLOT = 32


class InstanceSettings(Options, decides="numbers"):
    """The settings that instances depend on, besides the text."""

    max_seq_length: int = option(
        128,
        "Maximum length of a sequence in WordPieces, including [CLS] and [SEP]."
        " Longer ones are truncated, unless they are read in windows.",
        least=MIN_SEQ_LENGTH,
        decides="reading",
    )
    max_predictions_per_seq: int = option(
        20,
        "Masked-LM slots per sequence; must equal the records', unless these are"
        " masked while they are read.",
        least=1,
    )
    masked_lm_prob: float = option(
        0.15, "Share of a sequence's tokens to predict.", above=0.0, most=1.0
    )
    short_seq_prob: float = option(
        0.1,
        "Probability that the sequences of a document are made shorter than"
        " --max_seq_length.",
        least=0.0,
        most=1.0,
    )
    dupe_factor: int = option(
        10,
        "Passes over the documents, each with different pairs and masks. The default is"
        " 1 with --masking=dynamic.",
        least=1,
    )
    do_whole_word_mask: bool = option(
        False, "Mask whole words: all pieces of a word or none."
    )
    random_seed: int = option(12345, "Seed of the random stream.", most=math.inf)
    masking: str = option(
        STATIC_MASKING,
        "static: mask the records now, as in the original; dynamic: write them"
        " unmasked, and training masks them differently in each epoch.",
        choices=MASKING,
    )
    pairs: str = option(
        NEXT_SENTENCE,
        "What a sequence consists of. nsp: two segments, the second one the next or a"
        " random one; none: whole sentences in one segment (RoBERTa); sop: two"
        " consecutive segments, in order or swapped (ALBERT); previous: the second one"
        " is the next, a random or the previous one, three labels (StructBERT).",
        choices=PAIRS,
    )
    nsp_labels: str = option(
        ORIGINAL_LABELS,
        "original: as in the original; exact: without its flaws. With exact, a single"
        " sentence does not always get a random next one, and a random one never comes"
        " from the same document.",
        choices=NSP_LABELS,
    )
    packed_length: int | None = option(
        None,
        "Pack several sequences into each record, a row of this many tokens, because"
        " padding costs a training step as much as text. Each sequence keeps its"
        " positions and its label, and attends only to itself.",
        least=MIN_SEQ_LENGTH,
    )

    def problems(self) -> Iterator[str]:
        """Yields problems with labels without pairs, and with too short rows."""
        yield from super().problems()
        if self.pairs != NEXT_SENTENCE and self.nsp_labels != ORIGINAL_LABELS:
            yield "`nsp_labels=exact` is only for `pairs=nsp`."
        if self.packed_length and self.packed_length < self.max_seq_length:
            yield (
                f"`packed_length={self.packed_length}` of a row must not be less than"
                f" `max_seq_length={self.max_seq_length}` of a sequence."
            )

    @property
    def record_length(self) -> int:
        """Tokens of a record: a row or a sequence."""
        return self.packed_length or self.max_seq_length

    @property
    def max_predictions_per_record(self) -> int:
        """Masked-LM slots of a record, in proportion to its tokens."""
        slots = self.max_predictions_per_seq * self.record_length
        return -(-slots // self.max_seq_length)

    @property
    def max_sequences_per_record(self) -> int:
        """Slots for sequences in a record."""
        tokens_per_slot = min(_TOKENS_PER_SLOT, self.max_seq_length // 4)
        return max(1, (self.packed_length or 0) // tokens_per_slot)

    @property
    def least_documents(self) -> int:
        """The documents that a corpus needs: exact labels need another one."""
        needs_another = self.pairs == NEXT_SENTENCE and self.nsp_labels == EXACT_LABELS
        return 2 if needs_another else 1
