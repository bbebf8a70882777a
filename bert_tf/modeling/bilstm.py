"""A BiLSTM on the outputs of the encoder."""

from typing import Any

import keras
from keras import ops

from bert_tf.modeling.layers import Stored
from bert_tf.modeling.pooling import PooledTokens


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
