"""A span predictor that takes a question and a context, for a SavedModel.

A context that is too long for one sequence is read in windows, as run_squad does:
each holds the question and the next `doc_stride` tokens. A token stands in several; the
window where it has most context on its smaller side counts (Devlin et al.'s code, "max
context"), the first one of equal ones. The answer is the span of the highest start +
end, cut from the context by its offsets.

Shapes: B batch, W windows of the whole batch, S the longest window.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.conversion.graph_tokenizer import GraphEncoding
from bert_tf.conversion.serving import (
    SERVING_DEFAULT,
    ServedModel,
    Tensors,
    texts,
)
from bert_tf.conversion.serving_inputs import around, first, lengths, padded, with_int32

# Below any sum of two logits.
_NEVER = -1e30


class _Windows(NamedTuple):
    """Parts of contexts, of all rows one after the other: int32 [W].

    Attributes:
        rows: which context.
        starts: its first token there.
        sizes: its tokens.
    """

    rows: tf.Tensor
    starts: tf.Tensor
    sizes: tf.Tensor


class ServedSpanPredictor(ServedModel):
    """Takes question and context [B].

    Returns, each [B]: answer; start and end, its place in the context in characters
    (code points), half open; score, the sum of its start's and end's logits;
    null_score, that of [CLS] (SQuAD 2.0: no answer where null_score - score is above
    the threshold found on the development set). The answer is "" where the context has
    no token.
    """

    def __init__(
        self,
        *args: Any,
        doc_stride: int = 128,
        max_query_length: int = 64,
        max_answer_length: int = 30,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self._doc_stride = doc_stride
        self._max_query_length = max_query_length
        self._max_answer_length = max_answer_length

    def text_signatures(self) -> Mapping[str, Any]:
        """Of a question and its context."""
        specs = [texts("question"), texts("context")]
        return {SERVING_DEFAULT: (self._of_question, specs)}

    def _of_question(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        assert self.tokenizer is not None
        query = self._tokens(question)
        query = first(query, tf.minimum(lengths(query), self._max_query_length))
        encoding = GraphEncoding(
            *map(with_int32, self.tokenizer.encode_with_offsets(context))
        )
        counts, query_lengths = lengths(encoding.ids), lengths(query)
        room = self.max_seq_length - 3 - query_lengths
        windows = _windows(counts, room, self._doc_stride)
        outputs = self._call(self._window_inputs(query, encoding.ids, windows))
        # [CLS] and [SEP] stand round the question.
        offsets = tf.gather(query_lengths, windows.rows) + 2
        start_logits, end_logits = outputs["start_logits"], outputs["end_logits"]
        best = self._best_spans(windows, counts, offsets, start_logits, end_logits)
        score, first_token, last_token = best
        null_scores = tf.math.unsorted_segment_min(
            start_logits[:, 0] + end_logits[:, 0], windows.rows, tf.size(counts)
        )
        return {
            **_answers(context, encoding, first_token, last_token, counts > 0),
            "score": score,
            "null_score": null_scores,
        }

    def _window_inputs(
        self, query: tf.RaggedTensor, tokens: tf.RaggedTensor, windows: _Windows
    ) -> Tensors:
        row_starts = tokens.row_starts()
        begins = tf.gather(row_starts, windows.rows) + windows.starts
        places = tf.ragged.range(
            begins, begins + windows.sizes, row_splits_dtype=tf.int32
        )
        parts = tf.gather(tokens.flat_values, places)
        part_a = around(tf.gather(query, windows.rows), self._cls_id, self._sep_id)
        part_b = tf.concat(
            [parts, tf.fill([tf.size(windows.rows), 1], self._sep_id)], axis=1
        )
        return padded(
            tf.concat([part_a, part_b], axis=1),
            tf.concat([tf.zeros_like(part_a), tf.ones_like(part_b)], axis=1),
        )

    def _best_spans(
        self,
        windows: _Windows,
        counts: tf.Tensor,
        offsets: tf.Tensor,
        start_logits: tf.Tensor,
        end_logits: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Each context's highest score, and the span's first and last token: [B]."""
        length = tf.shape(start_logits)[1]
        place = tf.range(length)[None, :] - offsets[:, None]
        inside = (place >= 0) & (place < windows.sizes[:, None])
        token = place + windows.starts[:, None]
        most = tf.reduce_max(counts)
        may_start = inside & _has_most_context(windows, place, token, inside, most)
        starts = tf.where(may_start, start_logits, _NEVER)[:, :, None]
        ends = tf.where(inside, end_logits, _NEVER)[:, None, :]
        # The diagonals from 0 on: an end at its start or up to the longest answer on.
        pairs = tf.linalg.band_part(
            tf.ones([length, length]),
            0,
            tf.minimum(self._max_answer_length, length) - 1,
        )
        scores = tf.where(pairs > 0, starts + ends, 2 * _NEVER)
        flat = tf.reshape(scores, [-1, length * length])
        best, best_scores = tf.argmax(flat, 1, tf.int32), tf.reduce_max(flat, 1)
        begin = windows.starts - offsets
        first_token = begin + best // length
        last_token = begin + best % length
        # The first window of each row that has the row's best score.
        rows = tf.size(counts)
        row_scores = tf.math.unsorted_segment_max(best_scores, windows.rows, rows)
        number = tf.range(tf.size(windows.rows))
        is_best = best_scores == tf.gather(row_scores, windows.rows)
        chosen = tf.math.unsorted_segment_min(
            tf.where(is_best, number, tf.size(number)), windows.rows, rows
        )
        return row_scores, tf.gather(first_token, chosen), tf.gather(last_token, chosen)


def _windows(counts: tf.Tensor, room: tf.Tensor, doc_stride: int) -> _Windows:
    """The windows of contexts of so many tokens, where each has room for so many."""
    stride = tf.minimum(room, doc_stride)
    further = tf.maximum(0, counts - room)
    numbers = 1 + (further + stride - 1) // stride
    number = tf.ragged.range(numbers, row_splits_dtype=tf.int32)
    rows = number.value_rowids()
    starts = number.flat_values * tf.gather(stride, rows)
    sizes = tf.minimum(tf.gather(room, rows), tf.gather(counts, rows) - starts)
    return _Windows(rows, starts, sizes)


def _has_most_context(
    windows: _Windows,
    place: tf.Tensor,
    token: tf.Tensor,
    inside: tf.Tensor,
    most: tf.Tensor,
) -> tf.Tensor:
    """Whether no other window, nor an earlier one as good, is better: bool [W, S].

    A window's worth to a token is min(tokens before, tokens after) + 0.01 * its size.
    """
    before = place
    after = windows.sizes[:, None] - 1 - place
    worth = tf.cast(tf.minimum(before, after), tf.float32) + 0.01 * tf.cast(
        windows.sizes[:, None], tf.float32
    )
    # One number for each token of the batch; what is no token has the last one.
    slots = (tf.reduce_max(windows.rows) + 1) * most
    slot = tf.where(inside, windows.rows[:, None] * most + token, slots)
    best = tf.math.unsorted_segment_max(
        tf.reshape(worth, [-1]), tf.reshape(slot, [-1]), slots + 1
    )
    number = tf.range(tf.size(windows.rows))[:, None] + tf.zeros_like(slot)
    as_good = inside & (worth == tf.gather(best, slot))
    earliest = tf.math.unsorted_segment_min(
        tf.reshape(tf.where(as_good, number, tf.int32.max), [-1]),
        tf.reshape(slot, [-1]),
        slots + 1,
    )
    return as_good & (number == tf.gather(earliest, slot))


def _answers(
    context: tf.Tensor,
    encoding: GraphEncoding,
    first_token: tf.Tensor,
    last_token: tf.Tensor,
    has_tokens: tf.Tensor,
) -> Tensors:
    """The text and the place of spans of tokens: [B]."""

    def of(offsets: tf.RaggedTensor, token: tf.Tensor) -> tf.Tensor:
        place = tf.where(has_tokens, offsets.row_starts() + token, 0)
        # A context without tokens, in a batch of such, has nothing to gather from.
        values = tf.concat([offsets.flat_values, [0]], axis=0)
        return tf.where(has_tokens, tf.gather(values, place), 0)

    begin, end = (
        of(encoding.byte_starts, first_token),
        of(encoding.byte_ends, last_token),
    )
    return {
        "answer": tf.strings.substr(context, begin, end - begin),
        "start": of(encoding.starts, first_token),
        "end": of(encoding.ends, last_token),
    }
