"""The layers of the heads: rows at masked positions, and scores of tokens and labels.

Shapes: B batch, S sequence, P predictions, N choices, H hidden, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling import fused
from bert_tf.modeling.dropout import dropout, next_seed
from bert_tf.modeling.layers import (
    Embeddings,
    activation,
    dense,
    layer_norm,
    truncated_normal,
)

# The original writes this into the heads of fine-tuning, whatever the config's
# initializer_range.
HEAD_INITIALIZER_RANGE = 0.02


class GatherPositions(keras.layers.Layer):
    """The hidden states at some positions of each sequence."""

    def call(self, sequence_output: Any, positions: Any) -> Any:
        """[B, S, H] and positions [B, P] to [B, P, H]."""
        # One lookup of whole rows in the flattened batch: quick on a CPU, and the form
        # that the original ran on TPUs.
        batch, length, hidden_size = ops.shape(sequence_output)
        first_rows = ops.arange(batch, dtype="int32")[:, None] * length
        rows = ops.reshape(sequence_output, (-1, hidden_size))
        return ops.take(rows, ops.cast(positions, "int32") + first_rows, axis=0)

    def compute_output_shape(
        self, sequence_output_shape: tuple, positions_shape: tuple
    ) -> tuple:
        """[B, P, H]."""
        return (*positions_shape, sequence_output_shape[-1])


class MaskedLMHead(keras.layers.Layer):
    """Scores of every token at the masked positions.

    LayerNorm(act(Dense(x))), then the product with the word embeddings, which the head
    shares with the encoder, plus a bias of its own.
    """

    def __init__(
        self,
        config: BertConfig,
        embeddings: Embeddings,
        dtype: Any = None,
        name: str = "predictions",
    ):
        super().__init__(dtype=dtype, name=name)
        self.bert_config = config
        self.embeddings = embeddings
        self.activation = activation(config.masked_lm_hidden_act or config.hidden_act)
        self.dense = dense(config, config.hidden_size, self.dtype_policy)
        self.layer_norm = layer_norm(
            config.masked_lm_layer_norm_eps or config.layer_norm_eps, self.dtype_policy
        )

    def build(self, input_shape: tuple) -> None:
        """Makes the transform and the bias."""
        with keras.name_scope("transform"):
            self.dense.build(input_shape)
            self.layer_norm.build(input_shape)
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.bert_config.vocab_size,),
            initializer="zeros",
            autocast=False,
        )
        self.built = True

    def call(self, x: Any, training: bool | None = None) -> Any:
        """[B, P, H] to logits [B, P, V] in float32."""
        x = self.layer_norm(self.activation(self.dense(x)))
        table = ops.cast(self.embeddings.word_embeddings, x.dtype)
        if not training:
            return _project(x, table, self.output_bias)
        rows = ops.reshape(x, (-1, x.shape[-1]))
        logits = fused.add_bias(fused.scores_of_rows(rows, table), self.output_bias)
        return ops.reshape(logits, (*ops.shape(x)[:-1], self.bert_config.vocab_size))


class PooledDropout(keras.layers.Dropout):
    """Dropout of the pooled output, with masks of each replica's own."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """[B, H] to [B, H]."""
        if not training:
            return inputs
        return dropout(inputs, next_seed(self), self.rate)


class TokenDropout(keras.layers.Dropout):
    """Dropout of every token's output, with masks of each replica's own."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """[B, S, H] to [B, S, H]."""
        if not training:
            return inputs
        return fused.dropped(inputs, next_seed(self), self.rate)


class MergeChoices(keras.layers.Layer):
    """The choices of all questions one after the other, each a sequence of its own."""

    def call(self, x: Any) -> Any:
        """Integers [B, N, ...] to [B N, ...]."""
        return ops.reshape(x, (-1, *ops.shape(x)[2:]))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """[B N, ...]."""
        batch, choices, *rest = input_shape
        return (batch and choices and batch * choices, *rest)


class SplitChoices(keras.layers.Layer):
    """Each question's scores of its choices."""

    def __init__(self, dtype: Any = None, name: str | None = None):
        # Scores stay in float32 under any policy.
        super().__init__(autocast=False, dtype=dtype, name=name)

    def call(self, scores: Any, input_ids: Any) -> Any:
        """Scores [B N, 1] and ids [B, N, S], whose shape tells N, to [B, N]."""
        return ops.reshape(scores, ops.shape(input_ids)[:2])

    def compute_output_spec(self, scores: Any, input_ids: Any) -> Any:
        """As `call`, on symbolic inputs."""
        return keras.KerasTensor(tuple(input_ids.shape[:2]), scores.dtype)


class OutputProjection(keras.layers.Layer):
    """A dense layer whose kernel is stored as the original's: [outputs, inputs]."""

    def __init__(
        self, units: int, initializer_range: float, dtype: Any = None, name: str = ""
    ):
        super().__init__(dtype=dtype, name=name or None)
        self.units = units
        self.initializer_range = initializer_range

    def build(self, input_shape: tuple) -> None:
        """Makes the kernel and the bias."""
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(self.units, input_shape[-1]),
            initializer=truncated_normal(self.initializer_range),
            autocast=False,
        )
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.units,),
            initializer="zeros",
            autocast=False,
        )
        self.built = True

    def call(self, x: Any) -> Any:
        """[..., H] to [..., units] in float32."""
        return _project(x, self.output_weights, self.output_bias)


def _project(x: Any, table: Any, bias: Any) -> Any:
    """The rows of `table` as scores of x, in float32."""
    logits = ops.matmul(x, ops.transpose(ops.cast(table, x.dtype)))
    return ops.cast(logits, "float32") + bias
