"""The optimizer of the original's recipe, as one call."""

from typing import Any

from bert_tf.optimization.adamw import AdamWeightDecay
from bert_tf.optimization.schedules import WarmupLinearDecay


def create_optimizer(
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    *,
    global_clipnorm: float | None = 1.0,
    **kwargs: Any,
) -> AdamWeightDecay:
    """AdamWeightDecay with warmup, linear decay and clipping at a global norm of 1.

    Args:
        learning_rate: the peak.
        num_train_steps: steps until the rate is 0.
        num_warmup_steps: steps of warmup; 0 for none.
        global_clipnorm: the largest global norm of the gradients; None where a training
            loop clips them itself (Keras clips each replica's before it adds them up).
        **kwargs: further arguments of AdamWeightDecay.
    """
    return AdamWeightDecay(
        WarmupLinearDecay(learning_rate, num_train_steps, num_warmup_steps),
        global_clipnorm=global_clipnorm,
        **kwargs,
    )
