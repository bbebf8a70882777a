"""Models that take a dict of inputs, such as a whole parsed record."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.base import keras_backend
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.modeling.layers import freeze_parts, frozen_parts, linked_embeddings

# Models that take whole parsed records.


class DictInputModel(keras.Model):
    """A functional model with a dict of inputs that ignores further entries.

    Keras matches the values of a dict with the inputs by position, so a record's labels
    must be removed first.

    Arrays and eager tensors are checked before the model gets them: a device may look
    up a wrong row for an invalid id, or none.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model; InputError if an input does not fit it."""
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' own, like the two below; InputError if an input or label is wrong."""
        keras_backend.refuse_fork()
        self._check(x)
        if isinstance(kwargs.get("validation_data"), tuple | list):
            held_x, *others = kwargs["validation_data"]
            self._check(held_x)
            labels = map(self._labels, others[:1])
            kwargs["validation_data"] = (held_x, *labels, *others[1:])
        return super().fit(x, self._labels(y), *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluates as Keras does, with the inputs of `fit`."""
        keras_backend.refuse_fork()
        self._check(x)
        return super().evaluate(x, self._labels(y), *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Predicts as Keras does, with the inputs of `fit`."""
        keras_backend.refuse_fork()
        self._check(x)
        return super().predict(x, *args, **kwargs)

    def make_train_function(self, force: bool = False) -> Any:
        """Keras' own, for an optimizer whose variables exist: a step is traced once."""
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and not optimizer.built and self.trainable_variables:
            optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _constructor_arguments(self) -> dict[str, Any]:
        """Returns the arguments in `get_config`, without `trainable`."""
        raise NotImplementedError

    def _labels(self, y: Any) -> Any:
        """Targets in Keras' form; a head checks them."""
        return y

    def _check(self, inputs: Any) -> None:
        """Raises InputError for ids out of range, or more tokens than positions."""
        config: BertConfig | None = getattr(self, "bert_config", None)
        if config is None or not isinstance(inputs, Mapping):
            return
        if missing := [name for name in self.input if name not in inputs]:
            hint = ""
            if {"attention_mask", "token_type_ids"} & inputs.keys():
                hint = (
                    " Hugging Face's `attention_mask` is `input_mask` here, and"
                    " `token_type_ids` is `segment_ids`."
                )
            raise InputError(
                f"{self.name} reads {', '.join(self.input)}; {', '.join(missing)} is"
                f" missing.{hint}"
            )
        for name, limit in (
            ("input_ids", config.vocab_size),
            ("segment_ids", config.type_vocab_size),
            ("position_ids", config.max_position_embeddings),
        ):
            if name in inputs:
                check_range(inputs[name], limit, name)
        # Otherwise positions do not depend on the length.
        if {"position_ids", "sequence_ids"}.isdisjoint(self.input):
            length = np.shape(inputs.get("input_ids", ()))[-1:]
            if length and (length[0] or 0) > config.max_position_embeddings:
                raise InputError(
                    "`input_ids` must not be longer than the model's"
                    f" {config.max_position_embeddings} positions. Received:"
                    f" {length[0]} ids per sequence"
                )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and which parts are trained."""
        return {
            **self._constructor_arguments(),
            "trainable": self.trainable,
            "frozen_parts": frozen_parts(self),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DictInputModel":
        """The model that `get_config` describes."""
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        if "embeddings" in config:
            config["embeddings"] = linked_embeddings(
                config["embeddings"],
                config["name"],
                BertConfig(**config["config"]),
                config["dtype"],
            )
        is_trainable = config.pop("trainable", True)
        flags = config.pop("frozen_parts", None)
        model = cls(**config)
        # Files of earlier versions lack them; True would thaw what LoRA has frozen.
        if flags is not None:
            freeze_parts(model, is_trainable, flags)
        elif not is_trainable:
            model.trainable = False
        return model

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Runs the model on its own inputs among `inputs`."""
        return super().call(self._own_inputs(inputs), training=training, mask=mask)

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return super().compute_output_spec(
            self._own_inputs(inputs), training=training, mask=mask
        )

    def _own_inputs(self, inputs: Any) -> Any:
        if not isinstance(inputs, Mapping):
            return inputs
        return {name: inputs[name] for name in self.input}


def check_range(ids: Any, limit: int, name: str) -> None:
    """Raises InputError unless ids are in [0, limit); while traced they are unknown."""
    is_known = isinstance(ids, np.ndarray | list | tuple) or hasattr(ids, "numpy")
    if not is_known and not _is_array_of_jax(ids):
        return
    ids = np.asarray(ids)
    if ids.size and (ids.min() < 0 or ids.max() >= limit):
        outside = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"`{name}` must be in [0, {limit}). Received: {outside}")


def _is_array_of_jax(ids: Any) -> bool:
    if not keras_backend.is_jax():
        return False
    import jax

    return isinstance(ids, jax.Array) and not isinstance(ids, jax.core.Tracer)
