"""The names of what fine-tuning adds to a pre-trained encoder."""

import re

# What is trained while the pre-trained weights are frozen:
#
#     LoRA        A and B of queries and values
#     adapters    the adapters and every LayerNorm, as in Houlsby et al. 2019
#     both        the head, the mixture of layers if there is one, and the pooler only
#                 on request: no paper trains it, but a checkpoint may lack one
#
# All other weights are frozen: no gradient, no weight decay, no moments.

# The pooled output's mean and deviation: `cls_normalization`.
STANDARDIZATION = ("bert/standardization/mean", "bert/standardization/deviation")
ADDED = (
    r"lora_kernel_[ab]|adapter/(down|up)/(kernel|bias)|layer_mixture/(scores|gamma)"
    r"|bilstm/.*|standardization/.*"
)


def is_added(name: str) -> bool:
    """Whether fine-tuning adds a weight of this name to a pre-trained encoder."""
    return re.fullmatch(f".*/({ADDED}|second_encoder/.*)", name) is not None
