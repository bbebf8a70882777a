"""Models that take raw text, for a SavedModel: one class a head.

Each has signatures, functions of named tensors that return named tensors:

    serving_default  texts, and the answer in words
    tensors          the model's own inputs and outputs

A batch may have any size; it is padded to its longest sequence. Texts are tokenized in
the graph (`graph_tokenizer`), token for token as in training, and cut to
`max_seq_length`. What is returned for each row has as many columns as the longest one
needs; the rest of a row is "" or 0.

Shapes: B batch, S the longest sequence, C labels, N choices, H hidden, M masks,
W words.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.conversion.graph_tokenizer import GraphTokenizer
from bert_tf.conversion.serving_inputs import (
    around,
    first,
    lengths,
    padded,
    sequences,
    with_int32,
)
from bert_tf.text.vocabulary import Vocabulary

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
