"""Models that are fed with whole parsed records."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.config import BertConfig
from bert_tf.errors import InputError


class RecordModel(keras.Model):
    """A functional model with a dict of inputs that takes dicts with further entries.

    Keras pairs the values of a dict with the inputs by position, so a record's labels
    must be left out before it looks.

    Arrays and eager tensors are checked before the model sees them: a device may look
    up another row than an id's, or none.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model; InputError where an input does not fit it."""
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; InputError where an input does not fit the model."""
        self._check(x)
        return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; InputError where an input does not fit the model."""
        self._check(x)
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; InputError where an input does not fit the model."""
        self._check(x)
        return super().predict(x, *args, **kwargs)

    def _check(self, inputs: Any) -> None:
        """Raises InputError for ids out of range, or more tokens than positions."""
        config: BertConfig | None = getattr(self, "bert_config", None)
        if config is None or not isinstance(inputs, Mapping):
            return
        for name, limit in (
            ("input_ids", config.vocab_size),
            ("segment_ids", config.type_vocab_size),
            ("position_ids", config.max_position_embeddings),
        ):
            if name in inputs:
                check_range(inputs[name], limit, name)
        # Otherwise positions do not follow from the length.
        if {"position_ids", "sequence_ids"}.isdisjoint(self.input):
            length = np.shape(inputs.get("input_ids", ()))[-1:]
            if length and (length[0] or 0) > config.max_position_embeddings:
                raise InputError(
                    "`input_ids` must not be longer than the model's"
                    f" {config.max_position_embeddings} positions. Received:"
                    f" {length[0]} ids a sequence"
                )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Runs the model on its own inputs among `inputs`."""
        return super().call(self._own_inputs(inputs), training=training, mask=mask)

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Any:
        """As `call`, on symbolic inputs."""
        return super().compute_output_spec(
            self._own_inputs(inputs), training=training, mask=mask
        )

    def _own_inputs(self, inputs: Any) -> Any:
        if not isinstance(inputs, Mapping):
            return inputs
        return {name: inputs[name] for name in self.input}


def check_range(ids: Any, limit: int, name: str) -> None:
    """Raises InputError unless ids are in [0, limit); in a graph they are unknown."""
    if not isinstance(ids, np.ndarray | list | tuple) and not hasattr(ids, "numpy"):
        return
    ids = np.asarray(ids)
    if ids.size and (ids.min() < 0 or ids.max() >= limit):
        outside = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"`{name}` must be in [0, {limit}). Received: {outside}")
