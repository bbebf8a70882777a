"""Models that take raw text, as SavedModels: one class per head.

Each has signatures, functions of named tensors that return named tensors:

    serving_default  takes texts, and returns the prediction in words
    tensors          takes and returns the model's own inputs and outputs

A batch may have any size; it is padded to its longest sequence. Texts are tokenized in
the graph (`graph_tokenizer`), token for token as in training. They are cut to
`max_seq_length`, or read in windows if the task's command does so. A result has as many
columns as its longest row; shorter rows are padded with "" or 0.

Shapes: B batch, S the longest sequence, C labels, L the most labels of a row, N
choices, H hidden, M masks, W words, or windows of all texts. Ragged tensors have int32
row splits.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from bert_tf.addons.serving import runtimes
from bert_tf.addons.serving.graph_tokenizer import GraphEncoding, GraphTokenizer
from bert_tf.base import files, options
from bert_tf.base.config import MULTI_LABEL, REGRESSION
from bert_tf.base.errors import InputError, first_line
from bert_tf.conversion import loading, names
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import Source
from bert_tf.conversion.tokenizer_files import TrainedWords
from bert_tf.tasks.data_set_options import is_own_table
from bert_tf.tasks.glue import TASKS
from bert_tf.tasks.long_texts import ATTENTION
from bert_tf.tasks.squad.squad_options import SquadOptions
from bert_tf.tasks.tables import TableSplit
from bert_tf.text.normalization import CJK_RANGES
from bert_tf.text.vocabulary import Vocabulary

_Tensors = dict[str, tf.Tensor]
# A signature's function, and the specifications of its arguments.
_Signature = tuple[Callable[..., _Tensors], list[tf.TensorSpec]]

SERVING_DEFAULT = "serving_default"
FEATURES = "features"

# Below any sum of two logits.
_NEVER = -1e30


def _texts(name: str, *more_dimensions: None) -> tf.TensorSpec:
    return tf.TensorSpec([None, *more_dimensions], tf.string, name)


def _lengths(tokens: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(tokens.row_lengths(), tf.int32)


def _slices(
    tokens: tf.RaggedTensor, begins: tf.Tensor, sizes: tf.Tensor
) -> tf.RaggedTensor:
    """Returns rows of `sizes` tokens, from `begins` among the tokens of all rows."""
    places = tf.ragged.range(begins, begins + sizes, row_splits_dtype=tf.int32)
    return tf.gather(tokens.flat_values, places)


def _cut(tokens: tf.RaggedTensor, most: tf.Tensor) -> tf.RaggedTensor:
    """Cuts each row to `most` tokens."""
    return _slices(tokens, tokens.row_starts(), tf.minimum(_lengths(tokens), most))


def _cut_pair(
    tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor, max_length: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts pairs as `wordpiece.truncate_pair` does."""
    length_a, length_b = _lengths(tokens_a), _lengths(tokens_b)
    excess = tf.maximum(0, length_a + length_b - max_length)
    cut_b = tf.minimum(excess, tf.maximum(0, length_b - length_a))
    cut_a = tf.minimum(excess, tf.maximum(0, length_a - length_b))
    rest = excess - cut_a - cut_b
    return (
        _cut(tokens_a, length_a - cut_a - rest // 2),
        _cut(tokens_b, length_b - cut_b - (rest + 1) // 2),
    )


def _encoder_inputs(*segments: tf.RaggedTensor) -> _Tensors:
    """Returns the encoder's inputs, int32 [B, S], from segments of whole sequences."""
    ids = tf.concat(segments, axis=1)
    numbers = [tf.ones_like(part) * number for number, part in enumerate(segments)]
    # The model needs a column even for a batch without texts.
    padding = [[0, 0], [0, tf.cast(ids.nrows() == 0, tf.int32)]]
    inputs = {
        "input_ids": ids,
        "input_mask": tf.ones_like(ids),
        "segment_ids": tf.concat(numbers, axis=1),
    }
    return {name: tf.pad(part.to_tensor(), padding) for name, part in inputs.items()}


class _Windows(NamedTuple):
    """The windows of all texts, in order: int32 [W]."""

    rows: tf.Tensor  # the number of the text
    starts: tf.Tensor  # the window's first token in the text
    sizes: tf.Tensor  # the number of its tokens


def _windows(counts: tf.Tensor, room: tf.Tensor, stride: int | None) -> _Windows:
    """Splits texts with `counts` tokens as `long_texts.windows` does."""
    steps = tf.minimum(room, stride or tf.maximum(1, room // 2))
    numbers = 1 + (tf.maximum(0, counts - room) + steps - 1) // steps
    number = tf.ragged.range(numbers, row_splits_dtype=tf.int32)
    rows = number.value_rowids()
    starts = number.flat_values * tf.gather(steps, rows)
    sizes = tf.minimum(tf.gather(room, rows), tf.gather(counts, rows) - starts)
    return _Windows(rows, starts, sizes)


class _BestPlaces(NamedTuple):
    """The window with the most context for each token."""

    is_best: tf.Tensor  # bool [W, S]
    most: tf.Tensor  # token t of text b has this number in `of_token`: b * most + t
    of_token: tf.Tensor  # int32 [B * most + 1], places in [W * S]


def _best_places(
    windows: _Windows, counts: tf.Tensor, offsets: tf.Tensor, length: tf.Tensor
) -> _BestPlaces:
    """Returns each token's window, as `long_texts.best_windows` does."""
    # In a window of `length` tokens, `offsets` [W] others precede the part of the text.
    place = tf.range(length)[None, :] - offsets[:, None]
    sizes = windows.sizes[:, None]
    inside = (place >= 0) & (place < sizes)
    # The original's arithmetic, which decides ties.
    worth = tf.cast(tf.minimum(place, sizes - 1 - place), tf.float64)
    worth += 0.01 * tf.cast(sizes, tf.float64)
    # Numbers each token of the batch; all other places share the last number.
    most = tf.maximum(0, tf.reduce_max(counts))
    slots = tf.size(counts) * most
    token = place + windows.starts[:, None]
    slot = tf.where(inside, windows.rows[:, None] * most + token, slots)
    best = tf.math.unsorted_segment_max(worth, slot, slots + 1)
    number = tf.reshape(tf.range(tf.size(slot)), tf.shape(slot))
    as_good = inside & (worth == tf.gather(best, slot))
    earliest = tf.math.unsorted_segment_min(
        tf.where(as_good, number, tf.int32.max), slot, slots + 1
    )
    return _BestPlaces(as_good & (number == tf.gather(earliest, slot)), most, earliest)


def _flat_outputs(model: keras.Model, inputs: _Tensors) -> _Tensors:
    """Returns a model's outputs as tensors, with the layers' states one by one."""
    flat: _Tensors = {}
    for name, value in model(inputs, training=False).items():
        if isinstance(value, list | tuple):
            flat.update({f"{name}_{i}": part for i, part in enumerate(value)})
        else:
            flat[name] = value
    return flat


def _function_of(model: keras.Model, batch_size: int | None = None) -> Any:
    """Returns a model as a function of its own inputs, of any length."""
    specs = {
        name: tf.TensorSpec([batch_size, *tensor.shape[1:]], tf.int32, name)
        for name, tensor in model.input.items()
    }
    call = functools.partial(_flat_outputs, model)
    return tf.function(call, input_signature=[specs])


class ServedModel(tf.Module):
    """A Keras model, its tokenizer, and the signatures."""

    recognizes_special_tokens = False
    reads: tuple[str, ...] = ()  # fields of `Reading` used besides the length

    @classmethod
    def reading_of(cls, source: Source) -> Reading:
        """Returns how a graph reads texts: like the run's predictions."""
        return source.reading

    @classmethod
    def reads_of(cls, reading: Reading) -> tuple[str, ...]:
        """Returns the fields of a reading that have an effect, besides the length."""
        del reading
        return cls.reads

    @classmethod
    def fitted(cls, reading: Reading, given: Sequence[str]) -> Reading:
        """Returns a reading, of known length, with parts that fit into it."""
        del given
        return reading

    def __init__(
        self,
        model: keras.Model,
        vocabulary: Vocabulary | None,
        *,
        do_lower_case: bool,
        reading: Reading,
        labels: Sequence[str] | None,
    ):
        super().__init__()
        self._model = model  # a SavedModel holds its variables
        self._reading = reading
        positions = model.bert_config.max_position_embeddings
        self.max_seq_length = reading.length(positions)
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
        """Returns the signatures by name; only `tensors` if there is no vocabulary."""
        found: dict[str, Any] = {"tensors": _function_of(self._model)}
        if self.tokenizer is None:
            return {**found, SERVING_DEFAULT: found["tensors"]}
        for name, (function, specs) in self._text_signatures().items():
            found[name] = tf.function(function, input_signature=specs)
        return found

    def _text_signatures(self) -> dict[str, _Signature]:
        """Returns functions of texts or pairs: text_a [B], text_b [B], "" for none."""
        return {
            SERVING_DEFAULT: (
                self._of_texts,
                [_texts("text_a"), _texts("text_b")],
            ),
            "one_text": (lambda text_a: self._of_texts(text_a), [_texts("text_a")]),
        }

    def _of_texts(self, text_a: tf.Tensor, text_b: tf.Tensor | None = None) -> _Tensors:
        return self._answer(self._inputs(text_a, text_b))

    def _answer(self, inputs: _Tensors) -> _Tensors:
        raise NotImplementedError

    def _call(self, inputs: _Tensors) -> _Tensors:
        return _flat_outputs(self._model, inputs)

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts: [B, (tokens)]."""
        assert self.tokenizer is not None
        return self.tokenizer.encode(texts).with_row_splits_dtype(tf.int32)

    def _ended(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        rows = ids.nrows(tf.int32)
        return tf.concat([ids, tf.fill([rows, 1], self._sep_id)], axis=1)

    def _first_segment(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        rows = ids.nrows(tf.int32)
        return self._ended(tf.concat([tf.fill([rows, 1], self._cls_id), ids], axis=1))

    def _inputs(self, text_a: tf.Tensor, text_b: tf.Tensor | None = None) -> _Tensors:
        """Returns [CLS] A [SEP], or [CLS] A [SEP] B [SEP], cut as in the original."""
        ids_a, most = self._ids(text_a), self.max_seq_length - 2
        if text_b is None:
            return _encoder_inputs(self._first_segment(_cut(ids_a, most)))
        ids_b = self._ids(text_b)
        has_b = tf.cast(_lengths(ids_b) > 0, tf.int32)
        ids_a, ids_b = _cut_pair(ids_a, ids_b, most - has_b)
        # As in the original, a second text that is cut to nothing has no [SEP] either.
        length_b = tf.where(_lengths(ids_b) > 0, _lengths(ids_b) + 1, 0)
        segment_b = _cut(self._ended(ids_b), length_b)
        return _encoder_inputs(self._first_segment(ids_a), segment_b)

    def _likeliest(self, probabilities: tf.Tensor) -> tf.Tensor:
        """Returns the likeliest label's name, or its number if labels have no names."""
        best = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return tf.gather(tf.constant(self.labels), best) if self.labels else best


class ServedClassifier(ServedModel):
    """Classifies text_a [B], or pairs with text_b [B].

    For one of several labels it returns logits and probabilities [B, C] and label [B];
    for several labels at once, logits and probabilities [B, C] of each label and labels
    [B, L], those above 0.5 (padded with "", or -1 if labels have no names); for a
    regression score [B], or scores [B, C] of several numbers.

    With `window_pooling` long texts are read in windows, as with --long_text=window.
    """

    reads = ("doc_stride",)

    @classmethod
    def reading_of(cls, source: Source) -> Reading:
        """Returns the run's reading; InputError if the weights attend to windows."""
        found = super().reading_of(source)
        if not found.in_windows:
            return found
        if names.WINDOWS in names.heads_of(source.weights):
            raise InputError(
                f"{source.path} reads long texts with attention to their windows, which"
                " a SavedModel cannot. `heads=classifier` leaves that out, and longer"
                " texts are truncated."
            )
        attends = found.window_pooling == ATTENTION
        return found.without_windows() if attends else found

    @classmethod
    def reads_of(cls, reading: Reading) -> tuple[str, ...]:
        """Returns () if texts are cut."""
        return cls.reads if reading.in_windows else ()

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._pooling = None
        if self._reading.in_windows:
            self._pooling = self._reading.window_pooling or "mean"

    def _text_signatures(self) -> dict[str, _Signature]:
        """Leaves out `text_b` if the task has one text."""
        found = super()._text_signatures()
        has_segments = self._model.bert_config.type_vocab_size > 1
        if not has_segments or not _takes_pairs(self._reading):
            found[SERVING_DEFAULT] = found["one_text"]
        return found

    def _of_texts(self, text_a: tf.Tensor, text_b: tf.Tensor | None = None) -> _Tensors:
        if self._pooling is None:
            return self._answer(self._inputs(text_a, text_b))
        windows, inputs = self._windows_of_pairs(text_a, text_b)
        logits = self._call(inputs)["logits"]
        pool = {"mean": tf.math.segment_mean, "max": tf.math.segment_max}[self._pooling]
        return self._results(pool(logits, windows.rows))

    def _windows_of_pairs(
        self, text_a: tf.Tensor, text_b: tf.Tensor | None
    ) -> tuple[_Windows, _Tensors]:
        """Returns the longer text's windows, each with the other text."""
        ids_a = self._ids(text_a)
        ids_b = self._ids(tf.fill(tf.shape(text_a), "") if text_b is None else text_b)
        length_a, length_b = _lengths(ids_a), _lengths(ids_b)
        has_b = tf.cast(length_b > 0, tf.int32)
        room = self.max_seq_length - 2 - has_b
        whole = tf.minimum(tf.minimum(length_a, length_b), room // 2)
        windows = _windows(
            tf.maximum(length_a, length_b), room - whole, self._reading.doc_stride
        )
        is_split = tf.gather(length_a > length_b, windows.rows)
        whole = tf.gather(whole, windows.rows)

        def part(ids: tf.RaggedTensor, is_split: tf.Tensor) -> tf.RaggedTensor:
            begins = tf.gather(ids.row_starts(), windows.rows)
            begins += tf.where(is_split, windows.starts, 0)
            return _slices(ids, begins, tf.where(is_split, windows.sizes, whole))

        segment_b = self._ended(part(ids_b, ~is_split))
        ended = tf.where(tf.gather(has_b, windows.rows) > 0, _lengths(segment_b), 0)
        first = self._first_segment(part(ids_a, is_split))
        return windows, _encoder_inputs(first, _cut(segment_b, ended))

    def _answer(self, inputs: _Tensors) -> _Tensors:
        return self._results(self._call(inputs)["logits"])

    def _results(self, logits: tf.Tensor) -> _Tensors:
        if self._model.problem_type == REGRESSION:
            if logits.shape[-1] == 1:
                return {"score": logits[:, 0]}
            return {"scores": logits}
        if self._model.problem_type == MULTI_LABEL:
            numbers = tf.range(logits.shape[-1])
            every = tf.constant(self.labels) if self.labels else numbers
            rows = tf.tile(every[None], [tf.shape(logits)[0], 1])
            labels = tf.ragged.boolean_mask(rows, logits > 0)
            return {
                "logits": logits,
                "probabilities": tf.nn.sigmoid(logits),
                "labels": labels.to_tensor("" if self.labels else -1),
            }
        probabilities = tf.nn.softmax(logits)
        return {
            "logits": logits,
            "probabilities": probabilities,
            "label": self._likeliest(probabilities),
        }


def _takes_pairs(reading: Reading) -> bool:
    """Whether a classifier's inputs may be pairs, as far as known."""
    if "text_a_column" not in reading.columns:
        return True
    if is_own_table(reading.data_set):
        return "text_b_column" in reading.columns
    if reading.data_set not in TASKS:
        return True
    splits = TASKS[reading.data_set].splits.values()
    return any(isinstance(one, TableSplit) and one.text_b is not None for one in splits)


class ServedFeatures(ServedModel):
    """Returns the encoder's outputs for tokens and whole texts.

    sequence_output [B, S, H]; pooled_output [B, H] if the model has a pooler;
    mean_output [B, H], the mean over all tokens but padding; tokens [B, S] as strings;
    input_mask [B, S]. A folder of sentence-transformers, or a run of run_embeddings,
    may add cls_output or max_output [B, H], and normalize the vectors of whole texts
    to length 1.
    """

    @classmethod
    def reading_of(cls, source: Source) -> Reading:
        """Returns how vectors are made, if they are computed here."""
        source.reading.of_vectors()
        return source.reading

    def _answer(self, inputs: _Tensors) -> _Tensors:
        outputs = self._call(inputs)
        mask = tf.cast(inputs["input_mask"], tf.float32)[:, :, None]
        states = tf.cast(outputs["sequence_output"], tf.float32)
        tokens = tf.gather(self.tokens, inputs["input_ids"])
        of_texts = {
            "mean_output": tf.reduce_sum(states * mask, 1) / tf.reduce_sum(mask, 1)
        }
        if "pooled_output" in outputs:
            of_texts["pooled_output"] = outputs["pooled_output"]
        if self._reading.pooling == "cls":
            of_texts["cls_output"] = states[:, 0]
        if self._reading.pooling == "max":
            of_texts["max_output"] = tf.reduce_max(
                tf.where(mask > 0, states, -1e9), axis=1
            )
        if self._reading.normalize:
            of_texts = {
                name: tf.math.l2_normalize(x, -1) for name, x in of_texts.items()
            }
        return {
            **outputs,
            **of_texts,
            "tokens": tf.where(inputs["input_mask"] == 1, tokens, ""),
            "input_mask": inputs["input_mask"],
        }


class ServedMultipleChoice(ServedModel):
    """Chooses among text_b [B, N], the continuations of text_a [B].

    Returns logits and probabilities [B, N], and choice [B], the likeliest's number.
    """

    def _text_signatures(self) -> dict[str, _Signature]:
        specs = [_texts("text_a"), _texts("text_b", None)]
        return {SERVING_DEFAULT: (self._of_choices, specs)}

    def _of_choices(self, text_a: tf.Tensor, text_b: tf.Tensor) -> _Tensors:
        number = tf.shape(text_b)[1]
        pairs = self._inputs(tf.repeat(text_a, number), tf.reshape(text_b, [-1]))
        inputs = {
            name: tf.reshape(value, [tf.size(text_a), number, tf.shape(value)[1]])
            for name, value in pairs.items()
        }
        logits = self._call(inputs)["logits"]
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
        }


class ServedTagger(ServedModel):
    """Labels the words of text_a [B], or words [B, W] ("" for none).

    A text is split at white space, and before and after each CJK ideograph unless words
    of the training data had several; also at punctuation, if the data had spans.
    Returns words, label [B, W] and probabilities [B, W, C]. A word has the label of its
    first piece (Devlin et al. 2018, section 5.3); a word without a piece is [UNK].
    A text that is too long for one sequence is read in windows, as in run_ner.
    """

    reads = ("doc_stride",)

    def _text_signatures(self) -> dict[str, _Signature]:
        return {
            SERVING_DEFAULT: (
                lambda text_a: self._of_words(_split(text_a, self._reading.words)),
                [_texts("text_a")],
            ),
            "words": (self._of_words, [_texts("words", None)]),
        }

    def _of_words(self, words: tf.Tensor) -> _Tensors:
        assert self.tokenizer is not None
        pieces = self._ids(tf.reshape(words, [-1]))
        is_word = words != ""
        flat_is_word = tf.reshape(is_word, [-1])
        is_removed = flat_is_word & (_lengths(pieces) == 0)
        unknown = tf.RaggedTensor.from_row_lengths(
            tf.repeat(self.tokenizer.unknown_id, tf.math.count_nonzero(is_removed)),
            tf.cast(is_removed, tf.int32),
        )
        pieces = tf.concat([pieces, unknown], axis=1)
        counts = tf.reshape(_lengths(pieces), tf.shape(words))
        # The place in the row where each word begins.
        begins = tf.cumsum(counts, axis=1, exclusive=True)
        sums = tf.reduce_sum(counts, axis=1)
        tokens = tf.RaggedTensor.from_row_lengths(pieces.flat_values, sums)
        room = self.max_seq_length - 2
        stride = self._reading.doc_stride
        windows = _windows(sums, tf.fill(tf.shape(sums), room), stride)
        # The last window is moved back to be as long as the others.
        ends = tf.gather(sums, windows.rows)
        starts = tf.where(
            windows.starts + windows.sizes == ends,
            tf.maximum(0, ends - room),
            windows.starts,
        )
        windows = _Windows(windows.rows, starts, tf.minimum(room, ends - starts))
        begin = tf.gather(tokens.row_starts(), windows.rows) + windows.starts
        part = _slices(tokens, begin, windows.sizes)
        logits = self._call(_encoder_inputs(self._first_segment(part)))["logits"]
        length = tf.shape(logits)[1]
        best = _best_places(windows, sums, tf.ones_like(windows.rows), length)
        token = tf.range(tf.size(sums))[:, None] * best.most + begins
        places = tf.gather(best.of_token, tf.where(is_word, token, 0))
        flat = tf.reshape(logits, [-1, logits.shape[-1]])
        probabilities = tf.nn.softmax(tf.gather(flat, tf.where(is_word, places, 0)))
        label = self._likeliest(probabilities)
        return {
            "words": words,
            "label": tf.where(is_word, label, "" if self.labels else -1),
            "probabilities": tf.where(is_word[:, :, None], probabilities, 0.0),
        }


def _split(texts: tf.Tensor, trained: TrainedWords) -> tf.Tensor:
    """Splits texts into words as `words_of_text` does: [B, W]."""
    if trained.splits_punctuation:
        texts = tf.strings.regex_replace(texts, r"([\pP$+<=>^`|~])", r" \1 ")
    if trained.splits_cjk:
        ranges = "".join(rf"\x{{{first:x}}}-\x{{{end:x}}}" for first, end in CJK_RANGES)
        texts = tf.strings.regex_replace(texts, f"([{ranges}])", r" \1 ")
    spaces = tf.strings.regex_replace(texts, r"[\pZ\t-\r\x1c-\x1f\x{85}]", " ")
    return tf.strings.split(spaces).to_tensor("")


class ServedFillMask(ServedModel):
    """Fills the [MASK]s of text_a [B] with the top_k [] likeliest tokens.

    Returns tokens and probabilities [B, M, top_k], the likeliest first, for the masks
    from left to right, and num_masks [B].
    """

    recognizes_special_tokens = True

    @classmethod
    def reading_of(cls, source: Source) -> Reading:
        """Returns an empty reading; InputError for a left-to-right model."""
        if not source.require_config().is_bidirectional:
            raise InputError(
                f"{source.path} reads in one direction: it predicts the next token, and"
                " knows no [MASK]. Export its encoder: `heads=none`."
            )
        return Reading()

    def _text_signatures(self) -> dict[str, _Signature]:
        return {
            SERVING_DEFAULT: (
                lambda text_a: self._guesses(text_a, tf.constant(5)),
                [_texts("text_a")],
            ),
            "top_k": (
                self._guesses,
                [_texts("text_a"), tf.TensorSpec([], tf.int32, "top_k")],
            ),
        }

    def _guesses(self, text_a: tf.Tensor, top_k: tf.Tensor) -> _Tensors:
        inputs = self._inputs(text_a)
        is_mask = inputs["input_ids"] == self._mask_id
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        positions = tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.where(is_mask)[:, 1], tf.int32), counts
        ).to_tensor()
        outputs = self._call({**inputs, "masked_lm_positions": positions})
        # An embedding table may have more rows than the vocabulary has tokens.
        logits = outputs["masked_lm_logits"][:, :, : tf.size(self.tokens)]
        values, ids = tf.math.top_k(tf.nn.softmax(logits), k=top_k)
        there = (tf.range(tf.shape(positions)[1]) < counts[:, None])[:, :, None]
        return {
            "tokens": tf.where(there, tf.gather(self.tokens, ids), ""),
            "probabilities": tf.where(there, values, 0.0),
            "num_masks": counts,
        }


class ServedSpanPredictor(ServedModel):
    """Answers question [B] from context [B].

    Returns, each [B]: answer; start and end, its place in the context in characters
    (code points), half open; score, the sum of its start and end logits; null_score,
    the same sum at [CLS] (SQuAD 2.0: there is no answer if null_score - score is above
    the threshold found on the development set). The answer is "" if the context has no
    token.

    A context that is too long for one sequence is read in windows, as in run_squad:
    each starts `doc_stride` tokens after the one before. Of the windows that share a
    token, the one with the most context on the token's shorter side counts ("max
    context" in the original), the first of equal ones. The answer is the span with the
    highest start + end, cut from the context by its offsets.
    """

    reads = ("doc_stride", "max_query_length", "max_answer_length")

    @classmethod
    def fitted(cls, reading: Reading, given: Sequence[str]) -> Reading:
        """Returns a reading whose questions leave room for a context."""
        length = reading.max_seq_length
        assert length is not None
        # [CLS], two [SEP] and at least one token of the context.
        most = length - 4
        asked = reading.max_query_length
        if (asked or options.default_of(SquadOptions, "max_query_length")) <= most:
            return reading
        if "max_query_length" in given:
            raise InputError(
                f"`max_query_length={asked}` must leave room for a context in sequences"
                f" of {length}: at most {most}."
            )
        logging.info("  Questions are cut to %d tokens.", max(1, most // 2))
        return dataclasses.replace(reading, max_query_length=max(1, most // 2))

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._doc_stride, self._max_query_length, self._max_answer_length = (
            getattr(self._reading, name) or options.default_of(SquadOptions, name)
            for name in self.reads
        )

    def _text_signatures(self) -> dict[str, _Signature]:
        specs = [_texts("question"), _texts("context")]
        return {SERVING_DEFAULT: (self._of_question, specs)}

    def _of_question(self, question: tf.Tensor, context: tf.Tensor) -> _Tensors:
        assert self.tokenizer is not None
        query = _cut(self._ids(question), self._max_query_length)
        parts = self.tokenizer.encode_with_offsets(context)
        encoding = GraphEncoding(*(x.with_row_splits_dtype(tf.int32) for x in parts))
        tokens, counts = encoding.ids, _lengths(encoding.ids)
        room = self.max_seq_length - 3 - _lengths(query)
        windows = _windows(counts, room, self._doc_stride)
        begins = tf.gather(tokens.row_starts(), windows.rows) + windows.starts
        inputs = _encoder_inputs(
            self._first_segment(tf.gather(query, windows.rows)),
            self._ended(_slices(tokens, begins, windows.sizes)),
        )
        outputs = self._call(inputs)
        start_logits, end_logits = outputs["start_logits"], outputs["end_logits"]
        # [CLS] and [SEP] surround the question.
        offsets = tf.gather(_lengths(query), windows.rows) + 2
        score, first, last = self._best_spans(
            windows, counts, offsets, start_logits, end_logits
        )
        null_scores = start_logits[:, 0] + end_logits[:, 0]
        has_tokens = counts > 0

        def place(offsets: tf.RaggedTensor, token: tf.Tensor) -> tf.Tensor:
            number = tf.where(has_tokens, offsets.row_starts() + token, 0)
            # A batch of contexts without tokens has nothing to gather from.
            values = tf.concat([offsets.flat_values, [0]], axis=0)
            return tf.where(has_tokens, tf.gather(values, number), 0)

        begin, end = place(encoding.byte_starts, first), place(encoding.byte_ends, last)
        return {
            "answer": tf.strings.substr(context, begin, end - begin),
            "start": place(encoding.starts, first),
            "end": place(encoding.ends, last),
            "score": score,
            "null_score": tf.math.unsorted_segment_min(
                null_scores, windows.rows, tf.size(counts)
            ),
        }

    def _best_spans(
        self,
        windows: _Windows,
        counts: tf.Tensor,
        offsets: tf.Tensor,
        start_logits: tf.Tensor,
        end_logits: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns each context's highest score, and the span's ends: [B]."""
        length = tf.shape(start_logits)[1]
        place = tf.range(length)[None, :] - offsets[:, None]
        inside = (place >= 0) & (place < windows.sizes[:, None])
        may_start = _best_places(windows, counts, offsets, length).is_best
        starts = tf.where(may_start, start_logits, _NEVER)[:, :, None]
        ends = tf.where(inside, end_logits, _NEVER)[:, None, :]
        # Diagonals: the end is at the start, or less than the longest answer after it.
        width = tf.minimum(self._max_answer_length, length) - 1
        pairs = tf.linalg.band_part(tf.ones([length, length]), 0, width)
        scores = tf.where(pairs > 0, starts + ends, 2 * _NEVER)
        flat = tf.reshape(scores, [-1, length * length])
        best, best_scores = tf.argmax(flat, 1, tf.int32), tf.reduce_max(flat, 1)
        # The first window of each row that has the row's best score.
        rows = tf.size(counts)
        row_scores = tf.math.unsorted_segment_max(best_scores, windows.rows, rows)
        number = tf.range(tf.size(windows.rows))
        is_best = best_scores == tf.gather(row_scores, windows.rows)
        chosen = tf.math.unsorted_segment_min(
            tf.where(is_best, number, tf.size(number)), windows.rows, rows
        )
        begin = tf.gather(windows.starts - offsets, chosen)
        span = tf.gather(best, chosen)
        return row_scores, begin + span // length, begin + span % length


def _load(source: Source, head: str) -> keras.Model:
    """Returns the model to serve: a classifier without attention to other windows."""
    if head == FEATURES:
        return loading.load_encoder(source)
    if names.WINDOWS in names.heads_of(source.weights):
        weights = source.weights.with_heads([head])
        source = dataclasses.replace(source, weights=weights)
    return loading.load_model(source, head)


def server_of(head: str) -> type[ServedModel]:
    """Returns the class with the signatures of a head."""
    return ServedFeatures if head == FEATURES else names.HEADS[head].code("server")


def head_to_serve(source: Source) -> str:
    """Returns a checkpoint's head, or FEATURES if it has none."""
    heads = names.heads_of(source.weights)
    served = [head for head in heads if names.HEADS[head].server]
    if len(served) > 1:
        raise InputError(
            f"{source.path} has several heads: {', '.join(served)}. Choose by `heads`."
        )
    return served[0] if served else FEATURES


def write_saved_model(
    folder: str, source: Source, head: str, reading: Reading
) -> dict[str, Any]:
    """Writes a SavedModel, and returns its signatures by name."""
    model = _load(source, head)
    # A graph cannot separate words, so it takes ids.
    has_text = not source.tokenizer.has_segmenter
    module = server_of(head)(
        model,
        source.tokenizer.vocabulary if has_text else None,
        do_lower_case=bool(source.tokenizer.do_lower_case),
        reading=reading,
        labels=source.labels,
    )
    signatures = module.signatures()
    tf.saved_model.save(module, folder, signatures=signatures)
    runtimes.check(folder, "saved_model", model)
    return signatures


def write_litert(
    folder: str, source: Source, head: str, quantize: str | None = None
) -> None:
    """Writes the model for LiteRT, using only LiteRT's built-in operations.

    Its inputs and outputs have the Keras model's names. The interpreter resizes batch
    and length; with a BiLSTM the batch is 1, as LiteRT's lists have rows of one size.

    Args:
        folder: the folder to write to.
        source: a checkpoint with this head.
        head: a head of `names`, or FEATURES.
        quantize: "float16" for weights; "int8" for weights, scaled per output, and for
            activations, scaled per call. None: float32.

    Raises:
        InputError: LiteRT lacks an operation of the model.
    """
    from tensorflow.lite.python.convert import ConverterError  # it has no public name

    model = _load(source, head)
    function = _function_of(model, 1 if model.bert_config.bilstm else None)
    # From a Keras model the converter takes no variables.
    variables = tf.Module()
    variables.values = [variable.value for variable in model.variables]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], variables
    )
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        content = converter.convert()
    except ConverterError as error:
        # The message follows the place in the code.
        reason = first_line(error).rpartition("error: ")[2]
        raise InputError(
            f"`format=litert` cannot express this model: {reason}"
        ) from error
    path = os.path.join(folder, runtimes.LITERT_NAME)
    files.write_atomically(path, content)
    runtimes.check(path, "litert", model, quantize)
