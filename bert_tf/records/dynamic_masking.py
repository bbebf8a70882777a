"""Masks drawn while training, from each record's seed: new ones in each epoch."""

import enum
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.instances.settings import MASK_RATE, RANDOM_RATE
from bert_tf.records.pipeline import RecordKeys
from bert_tf.text.vocabulary import Vocabulary

# Random numbers as functions of (seed, epoch, record) and a number: SplitMix64
# (Steele, Lea and Flood 2014). The n-th number of a stream is mix(key + n gamma). The
# key stands for (seed, epoch, record); n holds the purpose and, within it, the number's
# index. So they depend on neither the batch, the order nor earlier draws.
#
# Shapes: B batch, N numbers for each record.

_GAMMA = 0x9E3779B97F4A7C15


class Purpose(enum.IntEnum):
    """What numbers are for. Different purposes share no numbers."""

    ORDER = 0
    SPAN_LENGTH = 1
    TREATMENT = 2
    RANDOM_TOKEN = 3


class RecordNoise:
    """The random numbers of a batch's records."""

    def __init__(self, seed: int, epochs: tf.Tensor, records: tf.Tensor) -> None:
        # Each step is a bijection: no two records of an epoch have the same key.
        keys = _mix(_uint64(seed) + _uint64(_GAMMA))
        for numbers in (epochs, records):
            numbers = tf.cast(numbers, tf.uint64)
            keys = _mix(tf.bitwise.bitwise_xor(keys, numbers) + _uint64(_GAMMA))
        self._keys = keys[:, None]

    def bits(self, purpose: Purpose, numbers: tf.Tensor) -> tf.Tensor:
        """[B, N] uint64, uniform."""
        counters = tf.cast(numbers, tf.uint64) + _uint64((purpose << 32) + 1)
        return _mix(self._keys + counters * _uint64(_GAMMA))

    def uniform(self, purpose: Purpose, numbers: tf.Tensor) -> tf.Tensor:
        """[B, N] float32, uniform in [0, 1), of 24 bits; arguments as `bits`."""
        bits = _shifted(self.bits(purpose, numbers), 40)
        return tf.cast(tf.cast(bits, tf.int32), tf.float32) * 2.0**-24

    def below(self, purpose: Purpose, numbers: tf.Tensor, limit: int) -> tf.Tensor:
        """[B, N] int32, uniform in [0, limit); arguments as `bits`."""
        bits = _shifted(self.bits(purpose, numbers), 32)
        # The high half of the product: no division, and a bias of limit / 2**32.
        return tf.cast(_shifted(bits * _uint64(limit), 32), tf.int32)

    def order(self, length: int) -> tf.Tensor:
        """[B, length] int64, not negative: sort keys for a random order."""
        bits = self.bits(Purpose.ORDER, tf.range(length)[None])
        return tf.cast(_shifted(bits, 1), tf.int64)


def _mix(z: tf.Tensor) -> tf.Tensor:
    """SplitMix64's finalizer, a bijection that leaves no pattern."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = tf.bitwise.bitwise_xor(z, _shifted(z, shift)) * _uint64(factor)
    return tf.bitwise.bitwise_xor(z, _shifted(z, 31))


def _shifted(bits: tf.Tensor, shift: int) -> tf.Tensor:
    return tf.bitwise.right_shift(bits, _uint64(shift))


def _uint64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint64)


# Which tokens of a sequence are chosen, for a whole batch at once:
#
# - pieces: single tokens, uniformly.
# - words: whole words in a random order. One that no longer fits is passed over, and a
#   shorter one may follow. A piece with ## joins the word before it, even over a [SEP].
# - spans (SpanBERT, Joshi et al. 2020, section 3.1): sequences of whole words. The
#   length in words is geometric with p = 0.2, of at most 10 (mean 3.8); the first word
#   is drawn uniformly. A span ends before a [SEP], before a word already chosen, and
#   before the word that would exceed the number of tokens.
#
# Shapes: B batch, L sequence; a row's words are numbered, and have at most L numbers.

_SPAN_STOP_RATE = 0.2
_MAX_SPAN_WORDS = 10


class Sequences(NamedTuple):
    """A batch of sequences, with the properties that choosing depends on."""

    is_candidate: tf.Tensor  # [B, L] bool, tokens that may be chosen
    is_separator: tf.Tensor  # [B, L] bool, [CLS] and [SEP]
    is_continuation: tf.Tensor  # [B, L] bool, pieces with ##
    limits: tf.Tensor  # [B, 1] int32, how many tokens to choose, at least 1
    max_limit: int  # the largest that a limit can be


class Choice(NamedTuple):
    """The tokens chosen."""

    is_chosen: tf.Tensor  # [B, L] bool
    groups: tf.Tensor  # [B, L] int32: those of one number are treated alike


def choose_pieces(noise: RecordNoise, sequences: Sequences) -> Choice:
    """The tokens with the most noise, as many as the limit."""
    length = sequences.is_candidate.shape[1]
    order = tf.where(sequences.is_candidate, noise.order(length), -1)
    most = tf.math.top_k(order, min(sequences.max_limit, length)).values
    last = tf.minimum(sequences.limits, most.shape[1]) - 1
    is_chosen = order >= tf.gather(most, last, batch_dims=1)
    return Choice(is_chosen & sequences.is_candidate, _alone(order))


def choose_words(noise: RecordNoise, sequences: Sequences) -> Choice:
    """Words in the order of their noise, each if it fits after those before it.

    All rows at once: the first word that does not fit is rejected, together with all
    later ones that are larger than what is left at its turn, until the rest fits.
    """
    is_candidate, limits = sequences.is_candidate, sequences.limits
    length = is_candidate.shape[1]
    is_first = tf.cumsum(tf.cast(is_candidate, tf.int32), axis=1) == 1
    words, sizes = _words(
        is_candidate & (is_first | ~sequences.is_continuation),
        tf.cast(is_candidate, tf.int32),
    )
    order = tf.where(sizes > 0, noise.order(length), -1)
    order = tf.math.top_k(order, length).indices
    sizes = tf.gather(sizes, order, batch_dims=1)

    def reject(is_kept: tf.Tensor, totals: tf.Tensor) -> list[tf.Tensor]:
        fits = totals <= limits
        spent = tf.reduce_max(tf.where(fits, totals, 0), axis=1, keepdims=True)
        is_kept = is_kept & (fits | (sizes <= limits - spent))
        return [is_kept, tf.cumsum(tf.where(is_kept, sizes, 0), axis=1)]

    is_kept, _ = tf.while_loop(
        lambda _, totals: tf.reduce_any(totals > limits),
        reject,
        [sizes > 0, tf.cumsum(sizes, axis=1)],
    )
    # From the random order back to the words' numbers.
    is_kept = tf.scatter_nd(
        tf.reshape(order + _row_offsets(order), [-1, 1]),
        tf.reshape(tf.cast(is_kept, tf.int32), [-1]),
        tf.reshape(tf.size(order), [1]),
    )
    is_kept = tf.reshape(is_kept, tf.shape(order)) > 0
    is_chosen = is_candidate & tf.gather(is_kept, words, batch_dims=1)
    return Choice(is_chosen, _alone(words))


def choose_spans(noise: RecordNoise, sequences: Sequences) -> Choice:
    """Span after span, in all rows at once, until no word is left that fits.

    The next span's first word is, of those that can be, the one with the most noise.
    """
    is_candidate, is_separator = sequences.is_candidate, sequences.is_separator
    length = is_candidate.shape[1]
    index = tf.range(length)[None]
    follows = tf.pad(is_candidate[:, :-1], [[0, 0], [1, 0]])
    is_start = is_candidate & ~(sequences.is_continuation & follows)
    # A separator is a word that is too large for any limit: no span has it.
    words, sizes = _words(
        is_start | is_separator,
        tf.where(is_separator, length + 1, tf.cast(is_candidate, tf.int32)),
    )
    ends = tf.cumsum(sizes, axis=1)
    begins = ends - sizes
    order = noise.order(length)
    num_words = 1 + tf.raw_ops.Bucketize(
        input=noise.uniform(Purpose.SPAN_LENGTH, index),
        boundaries=_span_length_distribution(),
    )

    def can_begin(is_free: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return is_free & (sizes > 0) & (sizes <= left)

    def add_span(
        is_first: tf.Tensor, is_free: tf.Tensor, left: tf.Tensor, spans: tf.Tensor
    ) -> list[tf.Tensor]:
        first = tf.argmax(tf.where(is_first, order, -1), axis=1, output_type=tf.int32)
        first = first[:, None]
        stop = first + tf.gather(num_words, first, batch_dims=1)
        is_later_and_taken = ~is_free & (index > first)
        first_taken = tf.where(is_later_and_taken, index, length)
        first_taken = tf.reduce_min(first_taken, axis=1, keepdims=True)
        is_in_span = (
            tf.reduce_any(is_first, axis=1, keepdims=True)
            & (index >= first)
            & (index < stop)
            & (index < first_taken)
            & (ends - tf.gather(begins, first, batch_dims=1) <= left)
        )
        is_free = is_free & ~is_in_span
        spent = tf.reduce_sum(tf.where(is_in_span, sizes, 0), axis=1, keepdims=True)
        left = left - spent
        spans = tf.where(is_in_span, first, spans)
        return [can_begin(is_free, left), is_free, left, spans]

    is_free = tf.ones_like(is_candidate)
    _, is_free, _, spans = tf.while_loop(
        lambda is_first, *_: tf.reduce_any(is_first),
        add_span,
        [
            can_begin(is_free, sequences.limits),
            is_free,
            sequences.limits,
            tf.zeros_like(words),
        ],
    )
    is_chosen = is_candidate & ~tf.gather(is_free, words, batch_dims=1)
    return Choice(is_chosen, tf.gather(spans, words, batch_dims=1))


CHOOSERS = {"piece": choose_pieces, "word": choose_words, "span": choose_spans}


def _words(is_start: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Numbers the words of each row from 0."""
    words = tf.maximum(tf.cumsum(tf.cast(is_start, tf.int32), axis=1) - 1, 0)
    of_words = tf.math.unsorted_segment_sum(
        tf.reshape(sizes, [-1]),
        tf.reshape(words + _row_offsets(words), [-1]),
        tf.size(words),
    )
    of_words = tf.reshape(of_words, tf.shape(words))
    return words, tf.ensure_shape(of_words, words.shape)


def _alone(matrix: tf.Tensor) -> tf.Tensor:
    """[1, L] int32: each position is a group of its own."""
    return tf.range(matrix.shape[1])[None]


def _row_offsets(matrix: tf.Tensor) -> tf.Tensor:
    """[B, 1] int32, where each row begins in the flat matrix."""
    num_rows, num_columns = tf.unstack(tf.shape(matrix))
    return tf.range(num_rows)[:, None] * num_columns


def _span_length_distribution() -> list[float]:
    """P(words <= n) for n = 1, ..., 9: geometric, given that it is at most 10."""
    goes_on = 1.0 - _SPAN_STOP_RATE
    return [
        (1.0 - goes_on**words) / (1.0 - goes_on**_MAX_SPAN_WORDS)
        for words in range(1, _MAX_SPAN_WORDS)
    ]


def neighbour_targets(
    batch: Mapping[str, tf.Tensor],
    _: RecordKeys | None = None,
    *,
    of_left_to_right: bool,
) -> dict[str, tf.Tensor]:
    """Targets of a model of one direction: at every token, the next one it reads.

    The ablation "LTR" of Devlin et al. 2018, section 5.1: nothing is masked. The
    targets are in the masked LM's features, for its head and its loss.
    """
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


# Shapes: B rows of L tokens and N sequences; M sequences of the batch, S tokens each.


class RowSequences:
    """The sequences of a batch of rows, each as a row of its own: [M, S]."""

    def __init__(
        self, batch: Mapping[str, tf.Tensor], keys: RecordKeys, max_sequence_length: int
    ) -> None:
        length = batch["input_ids"].shape[1]
        num_slots = batch["cls_positions"].shape[1]
        slots = tf.where(batch["next_sentence_weights"] > 0)
        rows, numbers = tf.unstack(slots, num=2, axis=1)
        self._begins = tf.gather_nd(batch["cls_positions"], slots)[:, None]
        places = self._begins + tf.range(max_sequence_length)[None]
        is_inside = places < length
        offsets = tf.cast(rows, tf.int32)[:, None] * length
        self._places = tf.minimum(places, length - 1) + offsets
        owners = tf.gather(tf.reshape(batch["sequence_ids"], [-1]), self._places)
        own = tf.cast(numbers, tf.int32)[:, None] + 1
        self._is_token = is_inside & (owners == own)
        ids = tf.gather(tf.reshape(batch["input_ids"], [-1]), self._places)
        self.input_ids = tf.where(self._is_token, ids, 0)
        self.input_mask = tf.cast(self._is_token, tf.int32)
        self.keys = RecordKeys(
            tf.gather(keys.epochs, rows),
            tf.gather(keys.records, rows) * num_slots + numbers,
        )
        self._row_length = length
        self._num_rows = tf.shape(batch["input_ids"])[0]

    def in_rows(self, values: tf.Tensor) -> tf.Tensor:
        """[M, S] int32 to [B, L], 0 for padding."""
        flat = tf.scatter_nd(
            tf.boolean_mask(self._places, self._is_token)[:, None],
            tf.boolean_mask(values, self._is_token),
            tf.reshape(self._num_rows * self._row_length, [1]),
        )
        return tf.reshape(flat, [-1, self._row_length])

    def choice_in_rows(self, choice: Choice) -> Choice:
        """A choice of tokens of the sequences, as one of the rows' tokens."""
        # A group's number is that of a word or a token of its sequence.
        groups = tf.broadcast_to(choice.groups, tf.shape(self.input_ids))
        return Choice(
            self.in_rows(tf.cast(choice.is_chosen, tf.int32)) > 0,
            self.in_rows(self._begins + groups),
        )


# The procedure, and so the distribution, is that of `bert_tf.instances.masking`; the
# random stream is another one. In packed rows each sequence is masked as if it were
# alone, at the same rates.
#
# Shapes: B batch, L tokens of a record, P predictions.


class DynamicMasking:
    """Masks batches of unmasked records, using only TensorFlow's operations."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        max_sequence_length: int | None = None,
        max_predictions_per_sequence: int | None = None,
        masked_lm_prob: float = 0.15,
        unit: str = "piece",
        mask_rate: float = MASK_RATE,
        random_rate: float = RANDOM_RATE,
        mask_id: int | None = None,
        seed: int,
    ) -> None:
        self._vocabulary = vocabulary
        self._mask_id = vocabulary.mask_id if mask_id is None else mask_id
        self._max_predictions_per_seq = max_predictions_per_seq
        self._max_sequence_length = max_sequence_length or max_seq_length
        self._max_limit = max_predictions_per_sequence or max_predictions_per_seq
        self._choose = CHOOSERS[unit]
        self._mask_until = mask_rate
        self._random_until = mask_rate + random_rate
        self._seed = seed
        # How many to choose of that many tokens: rounded half to even, as in Python.
        shares = np.rint(np.arange(max_seq_length + 1) * masked_lm_prob)
        self._limits = np.clip(shares, 1, self._max_limit).astype(np.int32)
        self._is_continuation = np.zeros(len(vocabulary), bool)
        self._is_continuation[vocabulary.continuation_ids] = True

    def __call__(
        self, batch: Mapping[str, tf.Tensor], keys: RecordKeys
    ) -> dict[str, tf.Tensor]:
        """Masks a batch."""
        noise = RecordNoise(self._seed, *keys)
        input_ids = batch["input_ids"]
        if "sequence_ids" in batch:
            apart = RowSequences(batch, keys, self._max_sequence_length)
            sequences = self._sequences(apart.input_ids, apart.input_mask)
            choice = self._choose(RecordNoise(self._seed, *apart.keys), sequences)
            choice = apart.choice_in_rows(choice)
        else:
            sequences = self._sequences(input_ids, batch["input_mask"])
            choice = self._choose(noise, sequences)
        length = input_ids.shape[1]
        num_slots = min(self._max_predictions_per_seq, length)

        # The chosen positions in their order, then zeros.
        index = tf.range(length)[None]
        distances = tf.where(choice.is_chosen, length - index, 0)
        distances = tf.math.top_k(distances, num_slots).values
        is_used = distances > 0
        positions = tf.where(is_used, length - distances, 0)
        labels = tf.where(is_used, tf.gather(input_ids, positions, batch_dims=1), 0)
        groups = tf.broadcast_to(choice.groups, tf.shape(input_ids))
        groups = tf.gather(groups, positions, batch_dims=1)

        word_ids = self._vocabulary.word_ids
        # Each token of a replaced span gets its own random token.
        random_ids = tf.gather(
            tf.constant(word_ids, tf.int32),
            noise.below(Purpose.RANDOM_TOKEN, positions, len(word_ids)),
        )
        treatment = noise.uniform(Purpose.TREATMENT, groups)
        replacements = tf.where(
            treatment < self._mask_until,
            self._mask_id,
            tf.where(treatment < self._random_until, random_ids, labels),
        )
        rows = tf.broadcast_to(
            tf.range(tf.shape(positions)[0])[:, None], tf.shape(positions)
        )
        # Unused slots add nothing, at position 0.
        masked_ids = tf.tensor_scatter_nd_add(
            input_ids,
            tf.stack([rows, positions], axis=-1),
            tf.where(is_used, replacements - labels, 0),
        )
        padding = [[0, 0], [0, self._max_predictions_per_seq - num_slots]]
        return {
            **batch,
            "input_ids": masked_ids,
            "masked_lm_positions": tf.pad(positions, padding),
            "masked_lm_ids": tf.pad(labels, padding),
            "masked_lm_weights": tf.pad(tf.cast(is_used, tf.float32), padding),
        }

    def _sequences(self, input_ids: tf.Tensor, input_mask: tf.Tensor) -> Sequences:
        is_token = input_mask > 0
        cls_id, sep_id = self._vocabulary.cls_id, self._vocabulary.sep_id
        is_separator = is_token & ((input_ids == cls_id) | (input_ids == sep_id))
        limits = tf.gather(self._limits, tf.reduce_sum(input_mask, axis=1))
        return Sequences(
            is_candidate=is_token & ~is_separator,
            is_separator=is_separator,
            is_continuation=tf.gather(self._is_continuation, input_ids),
            limits=limits[:, None],
            max_limit=self._max_limit,
        )
