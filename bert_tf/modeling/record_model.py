"""Models that are fed with whole parsed records."""

from collections.abc import Mapping
from typing import Any

import keras


class RecordModel(keras.Model):
    """A functional model with a dict of inputs that takes dicts with further entries.

    Keras pairs the values of a dict with the inputs by position, so a record's labels
    must be left out before it looks.
    """

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
