"""The original's variable names for a model's weights.

A weight's Keras path already is its name, except for two things that this file removes:
a scope around the model or another name than "bert" for the encoder, and the layer that
owns the classifier's output_weights and output_bias, which the original keeps at the
top.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras

# The names of weights that fine-tuning adds to a pre-trained encoder.
#
# The pooled output's mean and deviation: `cls_normalization`.
STANDARDIZATION = ("bert/standardization/mean", "bert/standardization/deviation")
ADDED = (
    r"lora_kernel_[ab]|adapter/(down|up)/(kernel|bias)|layer_mixture/(scores|gamma)"
    r"|bilstm/.*|standardization/.*"
)


def weights_by_name(model: "keras.Model") -> dict[str, "keras.Variable"]:
    """Returns the weights of a BertEncoder, or a model with one, by original name.

    Args:
        model: a BertEncoder, BertPretrainer, BertClassifier, ...; or a lone head on
            an encoder's features.

    Returns:
        Name in the original's checkpoints -> the variable. Shapes are the original's
        too: kernels [inputs, outputs], output_weights [outputs, inputs].

    Raises:
        ValueError: a weight has no name, or two weights have the same name.

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> weights = bert_tf.weights_by_name(bert_tf.BertEncoder(config))
        >>> weights["bert/embeddings/word_embeddings"].shape
        TensorShape([9, 8])
    """
    import keras_hub

    encoder: Any = model if isinstance(model, keras_hub.models.Backbone) else None
    encoder = encoder or getattr(model, "encoder", None)
    encoder_ids = {id(weight) for weight in encoder.weights} if encoder else set()
    names: dict[str, keras.Variable] = {}
    for weight in model.weights:
        if id(weight) in encoder_ids:
            name = "bert/" + _after(weight.path, encoder.name)
        elif "/cls/" in f"/{weight.path}":
            name = "cls/" + _after(weight.path, "cls")
        else:
            name = _after(weight.path, "classifier")
        if name in names:
            raise ValueError(
                f"Two weights must not have one name. Received: {name!r} for "
                f"{names[name].path} and {weight.path}"
            )
        names[name] = weight
    return names


def _after(path: str, scope: str) -> str:
    """Returns the part of `path` after `scope`."""
    _, found, rest = f"/{path}".partition(f"/{scope}/")
    if not found:
        raise ValueError(
            f"A weight must stand in the scope {scope!r} to have a name of the "
            f"original. Received: {path}"
        )
    return rest


def is_added(name: str) -> bool:
    """Whether fine-tuning adds a weight of this name to a pre-trained encoder."""
    return re.fullmatch(f".*/({ADDED})", name) is not None
