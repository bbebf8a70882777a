"""The names of what fine-tuning adds to a pre-trained encoder."""

import re

# The pooled output's mean and deviation: `cls_normalization`.
STANDARDIZATION = ("bert/standardization/mean", "bert/standardization/deviation")
ADDED = (
    r"lora_kernel_[ab]|adapter/(down|up)/(kernel|bias)|layer_mixture/(scores|gamma)"
    r"|bilstm/.*|standardization/.*"
)


def is_added(name: str) -> bool:
    """Whether fine-tuning adds a weight of this name to a pre-trained encoder."""
    return re.fullmatch(f".*/({ADDED})", name) is not None
