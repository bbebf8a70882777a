"""Models that take a text, or a pair of texts: classifiers, and features.

The conventions are those of `bert_tf.conversion.serving`.

Shapes: B batch, S the longest sequence, C labels, L the most labels of a row, H hidden.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.conversion.serving import (
    SERVING_DEFAULT,
    ServedModel,
    Tensors,
    texts,
)


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
