"""The optimizer of a run, with its schedule, by the names that the flags give them."""

from typing import Any

from bert_tf.optimization.adamw import AdamWeightDecay
from bert_tf.optimization.lamb import Lamb
from bert_tf.optimization.moment_optimizer import MomentOptimizer
from bert_tf.optimization.schedules import WarmupSchedule

OPTIMIZERS = ("adamw", "lamb")


def create_optimizer(
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
    *,
    optimizer: str = "adamw",
    learning_rate_schedule: str = "linear",
    end_learning_rate: float = 0.0,
    power: float = 1.0,
    decay_from: str = "start",
    bias_correction: bool = False,
    global_clipnorm: float | None = 1.0,
    **kwargs: Any,
) -> MomentOptimizer:
    """The original's optimizer and schedule, unless told otherwise.

    Args:
        learning_rate: the peak.
        num_train_steps: steps until the rate is `end_learning_rate`.
        num_warmup_steps: steps of warmup; 0 for none.
        optimizer: "adamw" or "lamb".
        learning_rate_schedule: "linear", "cosine", "polynomial", "inverse_sqrt" or
            "constant"; see WarmupSchedule.
        end_learning_rate: see WarmupSchedule.
        power: see WarmupSchedule.
        decay_from: see WarmupSchedule.
        bias_correction: AdamWeightDecay's; LAMB has it always.
        global_clipnorm: the largest global norm of the gradients; None where a training
            loop clips them itself (Keras clips each replica's before it adds them up).
        **kwargs: what both optimizers take: weight_decay_rate, layerwise_decay,
            skip_nonfinite, ...

    Raises:
        ValueError: an argument is out of its range.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"`optimizer` must be one of {', '.join(OPTIMIZERS)}. Received: {optimizer}"
        )
    schedule = WarmupSchedule(
        learning_rate,
        num_train_steps,
        num_warmup_steps,
        shape=learning_rate_schedule,
        end_learning_rate=end_learning_rate,
        power=power,
        decay_from=decay_from,
    )
    kwargs["global_clipnorm"] = global_clipnorm
    if optimizer == "lamb":
        return Lamb(schedule, **kwargs)
    return AdamWeightDecay(schedule, bias_correction=bias_correction, **kwargs)
