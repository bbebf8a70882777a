"""Which tokens of a sequence are chosen, for a whole batch at once.

What is chosen together:

- pieces: single tokens, uniformly.
- words: whole words in a random order. One that no longer fits is passed over, and a
  shorter one may follow. A piece with ## joins the word before it, even over a [SEP]:
  a second segment that was cut in front may begin within a word.
- spans (SpanBERT, Joshi et al. 2020, section 3.1): stretches of whole words. The length
  in words is geometric with p = 0.2, of at most 10 (mean 3.8); the first word is drawn
  uniformly. A span ends before a [SEP], before a word that is taken, and before the
  word with which there would be too many tokens; a first word that is too long by
  itself is passed over.

Pieces and words are chosen as `bert_tf.instances.masking` chooses them.

Shapes: B batch, L sequence; a row's words are numbered, and have at most L numbers.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.records.noise import Purpose, RecordNoise

_SPAN_STOP_RATE = 0.2
_MAX_SPAN_WORDS = 10


class Sequences(NamedTuple):
    """A batch of sequences, as far as choosing needs to know them.

    Attributes:
        is_candidate: [B, L] bool, tokens that may be chosen.
        is_separator: [B, L] bool, [CLS] and [SEP].
        is_continuation: [B, L] bool, pieces with ##.
        limits: [B, 1] int32, how many tokens to choose, at least 1.
        max_limit: the largest that a limit can be.
    """

    is_candidate: tf.Tensor
    is_separator: tf.Tensor
    is_continuation: tf.Tensor
    limits: tf.Tensor
    max_limit: int


class Choice(NamedTuple):
    """The tokens chosen.

    Attributes:
        is_chosen: [B, L] bool.
        groups: [B, L] int32. Tokens of a row with one number are masked, replaced or
            kept together.
    """

    is_chosen: tf.Tensor
    groups: tf.Tensor


def choose_pieces(noise: RecordNoise, sequences: Sequences) -> Choice:
    """Those with the most noise, as many as the limit."""
    length = sequences.is_candidate.shape[1]
    order = tf.where(sequences.is_candidate, noise.order(length), -1)
    most = tf.math.top_k(order, min(sequences.max_limit, length)).values
    last = tf.minimum(sequences.limits, most.shape[1]) - 1
    is_chosen = order >= tf.gather(most, last, batch_dims=1)
    return Choice(is_chosen & sequences.is_candidate, _alone(order))


def choose_words(noise: RecordNoise, sequences: Sequences) -> Choice:
    """Words in the order of their noise, each if it fits beside those before it.

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

    def has_overflow(is_kept: tf.Tensor, totals: tf.Tensor) -> tf.Tensor:
        del is_kept
        return tf.reduce_any(totals > limits)

    def reject(is_kept: tf.Tensor, totals: tf.Tensor) -> list[tf.Tensor]:
        fits = totals <= limits
        spent = tf.reduce_max(tf.where(fits, totals, 0), axis=1, keepdims=True)
        is_kept = is_kept & (fits | (sizes <= limits - spent))
        return [is_kept, tf.cumsum(tf.where(is_kept, sizes, 0), axis=1)]

    is_kept, _ = tf.while_loop(
        has_overflow, reject, [sizes > 0, tf.cumsum(sizes, axis=1)]
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

    The next span's first word is, of those that can be, the one with the most noise:
    the same as drawing words until one can be, since a word that cannot be a first word
    now cannot be one later.
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

    def is_any_left(is_first: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(is_first)

    def add_span(
        is_first: tf.Tensor, is_free: tf.Tensor, left: tf.Tensor, spans: tf.Tensor
    ) -> list[tf.Tensor]:
        first = tf.argmax(tf.where(is_first, order, -1), axis=1, output_type=tf.int32)
        first = first[:, None]
        stop = first + tf.gather(num_words, first, batch_dims=1)
        is_later_and_taken = ~is_free & (index > first)
        is_in_span = (
            tf.reduce_any(is_first, axis=1, keepdims=True)
            & (index >= first)
            & (index < stop)
            & (index < _first_index(is_later_and_taken))
            & (ends - tf.gather(begins, first, batch_dims=1) <= left)
        )
        is_free = is_free & ~is_in_span
        spent = tf.reduce_sum(tf.where(is_in_span, sizes, 0), axis=1, keepdims=True)
        left = left - spent
        spans = tf.where(is_in_span, first, spans)
        return [can_begin(is_free, left), is_free, left, spans]

    is_free = tf.ones_like(is_candidate)
    _, is_free, _, spans = tf.while_loop(
        is_any_left,
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


def _first_index(is_true: tf.Tensor) -> tf.Tensor:
    """[B, 1] int32, each row's first index that is true; L where none is."""
    length = is_true.shape[1]
    indices = tf.where(is_true, tf.range(length)[None], length)
    return tf.reduce_min(indices, axis=1, keepdims=True)


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
