"""BiLSTMs on the outputs of BERT: in the encoder, and on its frozen features."""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.encoder import DictInputModel
from bert_tf.modeling.heads import HEAD_INITIALIZER_RANGE, HeadDropout, OutputProjection
from bert_tf.modeling.layers import Stored
from bert_tf.modeling.pooling import LayerMixture, PooledTokens


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLstm(Stored, keras.layers.Bidirectional):
    """A bidirectional LSTM that keeps its input's width."""

    def __init__(self, width: int, dtype: Any = None):
        lstm = keras.layers.LSTM(
            width // 2, return_sequences=True, dtype=dtype, name="lstm"
        )
        super().__init__(lstm, dtype=dtype, name="bilstm")
        self._last = PooledTokens(True, dtype=dtype, name="last_token")

    def ends(self, states: Any, input_mask: Any) -> Any:
        """Returns the states after whole sequences: [B, S, H] to [B, H]."""
        half = states.shape[-1] // 2
        ahead = self._last(states[:, :, :half], input_mask)
        return ops.concatenate([ahead, states[:, 0, half:]], axis=-1)


HIDDEN_SIZE = 768
NUM_LAYERS = 2
DROPOUT = 0.1
# Adam changes a score by about the learning rate per step, here about 1e-3.
_MIXTURE_SCORE_SCALE = 1.0


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLstmTagger(DictInputModel):
    """A model that labels words by their own and their neighbours' features.

    BERT without fine-tuning (Devlin et al. 2018, section 5.3): word vectors from layers
    of BERT are the input of a two-layer 768-dimensional BiLSTM before the
    classification layer. The paper does not give the weights of its weighted sums; here
    they are learned, like ELMo's (`LayerMixture`).

    Inputs: features [B, S, num_vectors, width], and input_mask [B, S], 1 for words and
    0 for padding after them. Output, in float32: logits [B, S, C].
    """

    def __init__(
        self,
        num_vectors: int,
        width: int,
        num_labels: int,
        *,
        hidden_size: int = HIDDEN_SIZE,  # of both directions together
        num_layers: int = NUM_LAYERS,
        dropout: float = DROPOUT,
        dtype: Any = None,
        name: str = "bilstm_tagger",
        **kwargs: Any,
    ):
        # === Layers ===
        mixture = None
        if num_vectors > 1:
            mixture = LayerMixture(score_scale=_MIXTURE_SCORE_SCALE, dtype=dtype)
        dropouts = [
            HeadDropout(dropout, dtype=dtype, name=f"dropout_{number}")
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
            num_labels, HEAD_INITIALIZER_RANGE, dtype=dtype, name="tagging"
        )

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

    def _constructor_arguments(self) -> dict[str, Any]:
        return {**self._arguments, "name": self.name}
