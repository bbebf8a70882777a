"""The encoder as a model of features: only the layers that are asked for, combined.

Layers above the highest one that is asked for are not computed.

Shapes: B batch, S sequence, H hidden, L vectors a token, W their width (H, or several
times H of a concatenation).

Outputs, float32:
    vectors  [B, S, L, W]  of each token; [B, S, 0, W] where none are wanted
    pooled   [B, H]        the pooler's output
    cls      [B, L, W]     of [CLS]
    mean     [B, L, W]     the mean over the tokens, [CLS] and [SEP] included
the last three where they are asked for.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.features.choices import (
    CLS,
    CONCAT,
    MEAN,
    MEAN_OF_TOKENS,
    NONE,
    POOLED,
    SENTENCE_VECTORS,
    WEIGHTED,
)
from bert_tf.features.layers import LayerSelection
from bert_tf.modeling.encoder import BertEncoder, RecordModel

VECTORS = "vectors"


def feature_model(
    encoder: BertEncoder,
    selection: LayerSelection,
    *,
    token_vectors: bool = True,
    sentence_vectors: Sequence[str] = (),
) -> RecordModel:
    """A model of an encoder's features.

    Args:
        encoder: made with `output_hidden_states=True`; for `pooled` with a pooler.
        selection: the layers.
        token_vectors: whether the tokens' vectors are wanted.
        sentence_vectors: which of SENTENCE_VECTORS are.

    Raises:
        ValueError: a name of `sentence_vectors` is unknown, or nothing is wanted.
    """
    unknown = set(sentence_vectors) - set(SENTENCE_VECTORS)
    if unknown or not (token_vectors or sentence_vectors):
        raise ValueError(
            f"`sentence_vectors` must be of {', '.join(SENTENCE_VECTORS)}, and at least"
            f" one without `token_vectors`. Received: {list(sentence_vectors)}"
        )
    inputs, states = encoder.input, encoder.output
    outputs: dict[str, Any] = {}
    vectors: Any = None
    if token_vectors or set(sentence_vectors) - {POOLED}:
        hidden_states = [
            states["hidden_states"][place] for place in selection.hidden_states
        ]
        vectors = combined(hidden_states, selection)
    if token_vectors:
        outputs[VECTORS] = vectors
    if POOLED in sentence_vectors:
        outputs[POOLED] = ops.cast(states["pooled_output"], "float32")
    if CLS in sentence_vectors:
        outputs[CLS] = vectors[:, 0]
    if MEAN_OF_TOKENS in sentence_vectors:
        is_token = ops.cast(inputs["input_mask"], "float32")[:, :, None, None]
        # A row of padding has no token.
        count = ops.maximum(ops.sum(is_token, axis=1), 1.0)
        outputs[MEAN_OF_TOKENS] = ops.sum(vectors * is_token, axis=1) / count
    return RecordModel(inputs=inputs, outputs=outputs, name="features")


def combined(hidden_states: Sequence[Any], selection: LayerSelection) -> Any:
    """Layers' outputs [B, S, H] to [B, S, L, W], float32."""
    layers = [ops.cast(states, "float32") for states in hidden_states]
    if selection.combine == NONE:
        return ops.stack(layers, axis=2)
    if selection.combine == CONCAT:
        return ops.concatenate(layers, axis=-1)[:, :, None]
    if selection.combine == WEIGHTED:
        layers = [
            layer * weight
            for layer, weight in zip(layers, selection.weights, strict=True)
        ]
    total = layers[0]
    for layer in layers[1:]:
        total = total + layer
    if selection.combine == MEAN:
        total = total / float(len(layers))
    return total[:, :, None]


def weights_digest(model: keras.Model) -> str:
    """A digest of a model's weights: equal where the features are."""
    digest = hashlib.sha256()
    for weight in sorted(model.weights, key=lambda weight: weight.path):
        value = ops.convert_to_numpy(weight)
        digest.update(f"{weight.path} {value.shape} {value.dtype}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
