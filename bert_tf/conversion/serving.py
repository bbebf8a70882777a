"""Models that take raw text, as a SavedModel."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.conversion import names
from bert_tf.conversion.graph_tokenizer import GraphEncoding, GraphTokenizer
from bert_tf.conversion.loading import (
    load_classifier,
    load_encoder,
    load_multiple_choice,
    load_pretrainer,
    load_span_predictor,
    load_tagger,
)
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary

# A model's input from the ids of texts, in a TensorFlow graph.
#
# What `bert_tf.tasks` does record by record, for a batch: [CLS] A [SEP], or [CLS] A
# [SEP]
# B [SEP], cut as the original cuts. A batch is padded to its own longest sequence.
#
# Ragged tensors have int32 row splits. Shapes: B batch, S the longest sequence; (n)
# ragged.


Inputs = dict[str, tf.Tensor]


def cut_pair(
    tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor, max_length: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts pairs to `max_length` tokens together, always the longer one by its end.

    At equal lengths the second one gives way, as in the original: first the longer one
    comes down to the other's length, then both in turn.
    """
    length_a, length_b = lengths(tokens_a), lengths(tokens_b)
    excess = tf.maximum(0, length_a + length_b - max_length)
    cut_b = tf.minimum(excess, tf.maximum(0, length_b - length_a))
    cut_a = tf.minimum(excess, tf.maximum(0, length_a - length_b))
    rest = excess - cut_a - cut_b
    return (
        first(tokens_a, length_a - cut_a - rest // 2),
        first(tokens_b, length_b - cut_b - (rest + 1) // 2),
    )


def sequences(
    tokens_a: tf.RaggedTensor,
    tokens_b: tf.RaggedTensor | None,
    *,
    cls_id: int,
    sep_id: int,
    max_seq_length: int,
) -> Inputs:
    """The encoder's inputs of texts or pairs."""
    if tokens_b is None:
        ids_a = first(tokens_a, tf.minimum(lengths(tokens_a), max_seq_length - 2))
        ids = around(ids_a, cls_id, sep_id)
        segments = tf.zeros_like(ids)
    else:
        has_b = tf.cast(lengths(tokens_b) > 0, tf.int32)
        ids_a, ids_b = cut_pair(tokens_a, tokens_b, max_seq_length - 2 - has_b)
        # As in the original, a second text that is cut to nothing has no [SEP] either.
        has_b = tf.cast(lengths(ids_b) > 0, tf.int32)
        ends = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(has_b)], sep_id), has_b
        )
        part_a = around(ids_a, cls_id, sep_id)
        part_b = tf.concat([ids_b, ends], axis=1)
        ids = tf.concat([part_a, part_b], axis=1)
        segments = tf.concat([tf.zeros_like(part_a), tf.ones_like(part_b)], axis=1)
    return padded(ids, segments)


def padded(ids: tf.RaggedTensor, segments: tf.RaggedTensor) -> Inputs:
    """The encoder's inputs from whole sequences: int32 [B, S]."""
    return {
        "input_ids": ids.to_tensor(),
        "input_mask": tf.ones_like(ids).to_tensor(),
        "segment_ids": segments.to_tensor(),
    }


def around(tokens: tf.RaggedTensor, cls_id: int, sep_id: int) -> tf.RaggedTensor:
    """[CLS] tokens [SEP], by row."""
    rows = tokens.nrows(tf.int32)
    return tf.concat(
        [tf.fill([rows, 1], cls_id), tokens, tf.fill([rows, 1], sep_id)], axis=1
    )


def first(tokens: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """The first so many of each row."""
    places = tf.ragged.range(lengths(tokens), row_splits_dtype=tf.int32)
    keep = places.with_flat_values(
        places.flat_values < tf.gather(tf.maximum(counts, 0), places.value_rowids())
    )
    return tf.ragged.boolean_mask(tokens, keep)


def lengths(tokens: tf.RaggedTensor) -> tf.Tensor:
    """The rows' lengths, int32 [B]."""
    return tf.cast(tokens.row_lengths(), tf.int32)


def with_int32(tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """The same with int32 row splits: ragged tensors of both kinds do not mix."""
    return tokens.with_row_splits_dtype(tf.int32)


# Models that take raw text, for a SavedModel: one class a head.
#
# Each has signatures, functions of named tensors that return named tensors:
#
#     serving_default  texts, and the answer in words
#     tensors          the model's own inputs and outputs
#
# A batch may have any size; it is padded to its longest sequence. Texts are tokenized
# in
# the graph (`graph_tokenizer`), token for token as in training, and cut to
# `max_seq_length`. What is returned for each row has as many columns as the longest
# one
# needs; the rest of a row is "" or 0.
#
# Shapes: B batch, S the longest sequence, C labels, N choices, H hidden, M masks,
# W words.


Tensors = dict[str, tf.Tensor]
SERVING_DEFAULT = "serving_default"


def texts(name: str, *more_dimensions: None) -> tf.TensorSpec:
    """The specification of a batch of strings."""
    return tf.TensorSpec([None, *more_dimensions], tf.string, name)


class ServedModel(tf.Module):
    """A Keras model, its tokenizer and the signatures of both."""

    recognizes_special_tokens = False

    def __init__(
        self,
        model: keras.Model,
        vocabulary: Vocabulary | None,
        *,
        do_lower_case: bool = True,
        max_seq_length: int,
        labels: Sequence[str] | None = None,
    ):
        super().__init__()
        self._model = model
        # A SavedModel holds the variables that a module holds.
        self.weights = [variable.value for variable in model.weights]
        self.max_seq_length = max_seq_length
        self.labels = list(labels or ())
        self.tokenizer = None
        if vocabulary is not None:
            self.tokenizer = GraphTokenizer(
                vocabulary,
                do_lower_case=do_lower_case,
                recognize_special_tokens=self.recognizes_special_tokens,
            )
            self._cls_id, self._sep_id = vocabulary.cls_id, vocabulary.sep_id
            self._mask_id = vocabulary.mask_id
            self.tokens = tf.constant(vocabulary.tokens)

    def signatures(self) -> dict[str, Any]:
        """The signatures by name; without a vocabulary, `tensors` is the only one."""
        inputs = {
            name: tf.TensorSpec([None] * len(tensor.shape), tf.int32, name)
            for name, tensor in self._model.input.items()
        }
        given = {"tensors": tf.function(self._call, input_signature=[inputs])}
        if self.tokenizer is None:
            return {**given, SERVING_DEFAULT: given["tensors"]}
        for name, (function, specs) in self.text_signatures().items():
            given[name] = tf.function(function, input_signature=specs)
        return given

    def text_signatures(
        self,
    ) -> Mapping[str, tuple[Callable[..., Tensors], list[tf.TensorSpec]]]:
        """Functions of texts, and the specifications of their arguments."""
        raise NotImplementedError

    def _call(self, inputs: Tensors) -> Tensors:
        outputs = self._model(inputs, training=False)
        # A signature returns tensors: the layers' states come out one by one.
        flat: Tensors = {}
        for name, value in outputs.items():
            if isinstance(value, list | tuple):
                flat.update({f"{name}_{i}": part for i, part in enumerate(value)})
            else:
                flat[name] = value
        return flat

    def _tokens(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of texts, [B, (tokens)]."""
        assert self.tokenizer is not None
        return with_int32(self.tokenizer.encode(texts))

    def _inputs(self, text_a: tf.Tensor, text_b: tf.Tensor | None) -> Tensors:
        return sequences(
            self._tokens(text_a),
            None if text_b is None else self._tokens(text_b),
            cls_id=self._cls_id,
            sep_id=self._sep_id,
            max_seq_length=self.max_seq_length,
        )

    def _likeliest(self, probabilities: tf.Tensor) -> tf.Tensor:
        """The name of the likeliest label, or its number where labels have no names."""
        best = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return tf.gather(tf.constant(self.labels), best) if self.labels else best


class ServedMultipleChoice(ServedModel):
    """Takes text_a [B] and text_b [B, N], its continuations.

    Returns logits and probabilities [B, N], and choice [B], the likeliest's number.
    """

    def text_signatures(self) -> Mapping[str, Any]:
        """Of a text and its choices."""
        return {
            SERVING_DEFAULT: (
                self._of_choices,
                [texts("text_a"), texts("text_b", None)],
            )
        }

    def _of_choices(self, text_a: tf.Tensor, text_b: tf.Tensor) -> Tensors:
        number = tf.shape(text_b)[1]
        pairs = self._inputs(tf.repeat(text_a, number), tf.reshape(text_b, [-1]))
        inputs = {
            name: tf.reshape(value, [-1, number, tf.shape(value)[1]])
            for name, value in pairs.items()
        }
        logits = self._call(inputs)["logits"]
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
        }


class ServedTagger(ServedModel):
    """Takes text_a [B], split at white space into words; or words [B, W] ("" for none).

    Returns words, label [B, W] and probabilities [B, W, C]. A word's label is that of
    its first piece (Devlin et al. 2018, section 5.3). Words beyond the longest sequence
    have the label "" and probabilities of 0.
    """

    def text_signatures(self) -> Mapping[str, Any]:
        """Of texts, and of words."""
        return {
            SERVING_DEFAULT: (self._of_text, [texts("text_a")]),
            "words": (self._of_words, [texts("words", None)]),
        }

    def _of_text(self, text_a: tf.Tensor) -> Tensors:
        return self._of_words(tf.strings.split(text_a).to_tensor(""))

    def _of_words(self, words: tf.Tensor) -> Tensors:
        rows, most = tf.shape(words)[0], tf.shape(words)[1]
        pieces = self._tokens(tf.reshape(words, [-1]))
        counts = tf.reshape(lengths(pieces), [rows, most])
        # Where each word begins in its row; a word that the tokenizer removes has none.
        begins = tf.cumsum(counts, axis=1, exclusive=True)
        tokens = tf.RaggedTensor.from_row_lengths(
            pieces.flat_values, tf.reduce_sum(counts, axis=1)
        )
        tokens = first(tokens, tf.minimum(lengths(tokens), self.max_seq_length - 2))
        ids = around(tokens, self._cls_id, self._sep_id)
        logits = self._call(padded(ids, tf.zeros_like(ids)))["logits"]
        has_label = (counts > 0) & (begins < self.max_seq_length - 2)
        places = tf.where(has_label, begins + 1, 0)
        probabilities = tf.nn.softmax(tf.gather(logits, places, batch_dims=1))
        label = self._likeliest(probabilities)
        nothing = "" if label.dtype == tf.string else -1
        return {
            "words": words,
            "label": tf.where(has_label, label, nothing),
            "probabilities": tf.where(has_label[:, :, None], probabilities, 0.0),
        }


class ServedFillMask(ServedModel):
    """Takes text_a [B] with [MASK]s, and the number top_k [].

    Returns tokens and probabilities [B, M, top_k], the likeliest first, for the masks
    from left to right, and num_masks [B].
    """

    recognizes_special_tokens = True

    def text_signatures(self) -> Mapping[str, Any]:
        """With a number of guesses, and with 5."""
        return {
            SERVING_DEFAULT: (self._of_text, [texts("text_a")]),
            "top_k": (
                self._guesses,
                [texts("text_a"), tf.TensorSpec([], tf.int32, "top_k")],
            ),
        }

    def _of_text(self, text_a: tf.Tensor) -> Tensors:
        return self._guesses(text_a, tf.constant(5))

    def _guesses(self, text_a: tf.Tensor, top_k: tf.Tensor) -> Tensors:
        inputs = self._inputs(text_a, None)
        is_mask = inputs["input_ids"] == self._mask_id
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        positions = tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.where(is_mask)[:, 1], tf.int32), counts
        ).to_tensor()
        logits = self._call({**inputs, "masked_lm_positions": positions})[
            "masked_lm_logits"
        ]
        # An embedding table may have more rows than the vocabulary has tokens.
        probabilities = tf.nn.softmax(logits[:, :, : tf.size(self.tokens)])
        values, ids = tf.math.top_k(probabilities, k=top_k)
        there = (tf.range(tf.shape(positions)[1]) < counts[:, None])[:, :, None]
        return {
            "tokens": tf.where(there, tf.gather(self.tokens, ids), ""),
            "probabilities": tf.where(there, values, 0.0),
            "num_masks": counts,
        }


# Models that take a text, or a pair of texts: classifiers, and features.
#
# The conventions are those of `bert_tf.conversion.serving`.
#
# Shapes: B batch, S the longest sequence, C labels, L the most labels of a row, H
# hidden.


class OfTextOrPair(ServedModel):
    """What takes a text, or a pair of them.

    serving_default: text_a [B], text_b [B] ("" for none); one_text: text_a [B].
    """

    def text_signatures(self) -> Mapping[str, Any]:
        """Of texts alone, and of pairs."""
        return {
            SERVING_DEFAULT: (self._of_pair, [texts("text_a"), texts("text_b")]),
            "one_text": (self._of_text, [texts("text_a")]),
        }

    def _of_text(self, text_a: tf.Tensor) -> Tensors:
        return self._answer(self._inputs(text_a, None))

    def _of_pair(self, text_a: tf.Tensor, text_b: tf.Tensor) -> Tensors:
        return self._answer(self._inputs(text_a, text_b))

    def _answer(self, inputs: Tensors) -> Tensors:
        raise NotImplementedError


class ServedClassifier(OfTextOrPair):
    """Returns what the model's problem type asks for.

    One of several labels: logits and probabilities [B, C], label [B]. Any of them:
    logits and probabilities [B, C], each label's by itself, and labels [B, L], those of
    more than 0.5 (the rest of a row is "", or -1 where labels have no names). A number:
    score [B]. Several: scores [B, C].
    """

    def _answer(self, inputs: Tensors) -> Tensors:
        logits = self._call(inputs)["logits"]
        if self._model.problem_type == REGRESSION:
            if logits.shape[-1] == 1:
                return {"score": logits[:, 0]}
            return {"scores": logits}
        if self._model.problem_type == MULTI_LABEL:
            return {
                "logits": logits,
                "probabilities": tf.nn.sigmoid(logits),
                "labels": self._names(logits > 0),
            }
        probabilities = tf.nn.softmax(logits)
        return {
            "logits": logits,
            "probabilities": probabilities,
            "label": self._likeliest(probabilities),
        }

    def _names(self, is_there: tf.Tensor) -> tf.Tensor:
        """The names of the labels that are there, or their numbers: [B, L]."""
        number = is_there.shape[-1]
        every = tf.constant(self.labels) if self.labels else tf.range(number)
        rows = tf.tile(every[None], [tf.shape(is_there)[0], 1])
        return tf.ragged.boolean_mask(rows, is_there).to_tensor(
            "" if self.labels else -1
        )


class ServedFeatures(OfTextOrPair):
    """Returns the encoder's output for each token, and for each text.

    sequence_output [B, S, H]; pooled_output [B, H] where the model has a pooler;
    mean_output [B, H], over the tokens that are no padding, [CLS] and [SEP] included;
    tokens [B, S] in letters; input_mask [B, S].
    """

    def _answer(self, inputs: Tensors) -> Tensors:
        outputs = self._call(inputs)
        mask = tf.cast(inputs["input_mask"], tf.float32)[:, :, None]
        states = tf.cast(outputs["sequence_output"], tf.float32)
        return {
            **outputs,
            "mean_output": tf.reduce_sum(states * mask, 1) / tf.reduce_sum(mask, 1),
            "tokens": tf.where(
                inputs["input_mask"] == 1,
                tf.gather(self.tokens, inputs["input_ids"]),
                "",
            ),
            "input_mask": inputs["input_mask"],
        }


# A span predictor that takes a question and a context, for a SavedModel.
#
# A context that is too long for one sequence is read in windows, as run_squad does:
# each holds the question and the next `doc_stride` tokens. A token stands in several;
# the
# window where it has most context on its smaller side counts (Devlin et al.'s code,
# "max
# context"), the first one of equal ones. The answer is the span of the highest start
# +
# end, cut from the context by its offsets.
#
# Shapes: B batch, W windows of the whole batch, S the longest window.


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


# A checkpoint as a SavedModel, LiteRT or ONNX file.


FEATURES = "features"

# A head -> how its model is loaded and what serves it.
_SERVED: Mapping[str, tuple[Any, type[ServedModel]]] = {
    FEATURES: (load_encoder, ServedFeatures),
    names.MASKED_LM: (load_pretrainer, ServedFillMask),
    names.CLASSIFIER: (load_classifier, ServedClassifier),
    names.SPAN: (load_span_predictor, ServedSpanPredictor),
    names.MULTIPLE_CHOICE: (load_multiple_choice, ServedMultipleChoice),
    names.TAGGING: (load_tagger, ServedTagger),
}


def head_to_serve(source: Source) -> str:
    """What a checkpoint is for: its head, or features where it has none."""
    heads = names.heads_of(source.weights)
    served = [head for head in heads if head in _SERVED]
    if len(served) > 1:
        raise InputError(
            f"{source.path} has several heads: {', '.join(served)}. Choose by --heads."
        )
    return served[0] if served else FEATURES


def load_model(source: Source, head: str) -> keras.Model:
    """The model that computes a head's outputs, with its weights."""
    return _SERVED[head][0](source)


def write_saved_model(
    folder: str,
    source: Source,
    head: str,
    *,
    max_seq_length: int,
    **options: Any,
) -> dict[str, Any]:
    """Writes a SavedModel."""
    if head == names.MASKED_LM and source.require_config().left_to_right:
        raise InputError(
            f"{source.path} reads from left to right: it predicts the next token, and"
            " knows no [MASK]. Export its encoder: --heads=none."
        )
    load, served = _SERVED[head]
    module = served(
        load(source),
        source.tokenizer.vocabulary,
        do_lower_case=bool(source.tokenizer.do_lower_case),
        max_seq_length=max_seq_length,
        labels=source.labels,
        **options,
    )
    signatures = module.signatures()
    tf.saved_model.save(module, folder, signatures=signatures)
    return signatures


def write_by_keras(folder: str, source: Source, head: str, format_: str) -> str:
    """Writes the model for LiteRT or ONNX, by Keras' own export."""
    path = os.path.join(
        folder, {"litert": "model.tflite", "onnx": "model.onnx"}[format_]
    )
    model = load_model(source, head)
    # Keras exports to ONNX what has been called once.
    model(
        {name: np.zeros([1] * len(x.shape), "int32") for name, x in model.input.items()}
    )
    try:
        model.export(path, format=format_, verbose=False)
    except ImportError as error:
        raise InputError(
            f"--format={format_} needs a package that is not installed: {error}"
        ) from error
    return path
