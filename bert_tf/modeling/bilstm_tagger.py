"""A BiLSTM over features that stay as they are: BERT without fine-tuning.

Devlin et al. 2018, section 5.3: vectors of words, taken from layers of BERT, are the
input of a two-layer 768-dimensional BiLSTM before the classification layer. The paper
does not say how sums of layers are weighted; here the weights are learned, as ELMo's
(`bert_tf.modeling.layer_mixture`).

Shapes: B batch, S words, L layers, F a vector's width, H hidden, C labels.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.head_layers import OutputProjection, TokenDropout
from bert_tf.modeling.layer_mixture import LayerMixture
from bert_tf.modeling.record_model import RecordModel

HIDDEN_SIZE = 768
NUM_LAYERS = 2
DROPOUT = 0.1

_HEAD_INITIALIZER_RANGE = 0.02
# Adam moves a score by about the learning rate a step, here some 1e-3.
_SCORE_SCALE = 1.0


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLstmTagger(RecordModel):
    """A label for every word, from its features and those of the words around it.

    Inputs: features [B, S, L, F], and input_mask [B, S], 1 for words and 0 for padding
    behind them. Output, in float32: logits [B, S, C].

    Args:
        num_vectors: L; several are mixed.
        width: F.
        num_labels: C.
        hidden_size: H, of both directions together.
        num_layers: of the BiLSTM.
        dropout: dropout rate of what goes into each layer, and into the last one.
        dtype: Keras dtype policy.
        name: the model's name.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        num_vectors: int,
        width: int,
        num_labels: int,
        *,
        hidden_size: int = HIDDEN_SIZE,
        num_layers: int = NUM_LAYERS,
        dropout: float = DROPOUT,
        dtype: Any = None,
        name: str = "bilstm_tagger",
        **kwargs: Any,
    ):
        if min(num_vectors, width, num_labels, num_layers) < 1:
            raise ValueError(
                "`num_vectors`, `width`, `num_labels` and `num_layers` must be"
                f" positive. Received: {num_vectors}, {width}, {num_labels},"
                f" {num_layers}"
            )
        if hidden_size < 2 or hidden_size % 2:
            raise ValueError(
                "`hidden_size` must be even, half of it for each direction. Received:"
                f" {hidden_size}"
            )

        # === Layers ===
        mixture = None
        if num_vectors > 1:
            mixture = LayerMixture(score_scale=_SCORE_SCALE, dtype=dtype)
        dropouts = [
            TokenDropout(dropout, dtype=dtype, name=f"dropout_{number}")
            for number in range(num_layers + 1)
        ]
        recurrent = [
            keras.layers.Bidirectional(
                keras.layers.LSTM(
                    hidden_size // 2, return_sequences=True, dtype=dtype, name="lstm"
                ),
                dtype=dtype,
                name=f"bilstm_{number}",
            )
            for number in range(num_layers)
        ]
        projection = OutputProjection(
            num_labels, _HEAD_INITIALIZER_RANGE, dtype=dtype, name="tagging"
        )
        # Padding has scores like any word, and nobody looks at them.
        projection.supports_masking = True

        # === Functional Model ===
        features = keras.Input((None, num_vectors, width), name="features")
        input_mask = keras.Input((None,), dtype="int32", name="input_mask")
        is_word = ops.cast(input_mask, "bool")
        vectors = [features[:, :, number] for number in range(num_vectors)]
        # The scope of all heads, for the weights' names in checkpoints.
        with keras.name_scope("cls"):
            x = mixture(vectors) if mixture else vectors[0]
            for dropped, layer in zip(dropouts, recurrent, strict=False):
                x = layer(dropped(x), mask=is_word)
            logits = projection(dropouts[-1](x))

        # === Config ===
        super().__init__(
            inputs={"features": features, "input_mask": input_mask},
            outputs={"logits": logits},
            name=name,
            **kwargs,
        )
        self._arguments = {
            "num_vectors": num_vectors,
            "width": width,
            "num_labels": num_labels,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "dropout": dropout,
        }

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for .keras files."""
        return {**self._arguments, "name": self.name, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BiLstmTagger":
        """The model that `get_config` describes."""
        return cls(**config)
