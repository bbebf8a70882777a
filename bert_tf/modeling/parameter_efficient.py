"""What is trained where the pre-trained weights are not: LoRA's and adapters' weights.

    LoRA        A and B of queries and values (`lora.py`)
    adapters    the adapters (`adapters.py`) and every LayerNorm, as Houlsby et al. 2019
    both        the head, the mixture of layers where there is one, and the pooler only
                where asked for: no paper trains it, but a checkpoint may have none

All other weights are frozen: no gradient, no weight decay, no moments.
"""

import re
from typing import Any

_ADDED = re.compile(
    r".*/(lora_kernel_[ab]|adapter/(down|up)/(kernel|bias)|layer_mixture/(scores|gamma))"
)
_LAYER_NORM = re.compile(r".*/LayerNorm/(gamma|beta)")
_POOLER = re.compile(r".*/pooler/.*")


def is_added(name: str) -> bool:
    """Whether fine-tuning adds a weight of this name to a pre-trained encoder."""
    return _ADDED.fullmatch(name) is not None


def freeze_pretrained(
    encoder: Any, *, train_layer_norms: bool, train_pooler: bool
) -> None:
    """Freezes an encoder's weights, apart from those that were added.

    Args:
        encoder: a BertEncoder with LoRA or adapters.
        train_layer_norms: whether LayerNorms are trained too.
        train_pooler: whether the pooler is.
    """
    # The choice is by weight: a layer that is not trainable at all would hide its own.
    for layer in encoder.layers:
        layer.trainable = True
    for variable in encoder.trainable_variables:
        variable.trainable = (
            is_added(variable.path)
            or (train_layer_norms and _LAYER_NORM.fullmatch(variable.path) is not None)
            or (train_pooler and _POOLER.fullmatch(variable.path) is not None)
        )
