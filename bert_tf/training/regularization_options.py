"""What training minimises in addition to the task's own loss, in groups of options."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from bert_tf import options
from bert_tf.options import Options, Path, option

# Of `class_weights`.
BALANCED = "balanced"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmoothingOptions(Options, title=options.TRAINING):
    """Labels that are not certain."""

    label_smoothing: float = option(
        0.0,
        "Train with labels that have this share of their probability spread over all"
        " classes, such as 0.1 (Szegedy et al. 2016). Evaluation's loss is without.",
        least=0.0,
        below=1.0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassWeightOptions(Options, title=options.TRAINING):
    """Classes of different importance."""

    class_weights: tuple[str, ...] | None = option(
        None,
        "Weights of the classes in training: balanced, in inverse proportion to their"
        " examples; or LABEL:WEIGHT,..., 1 for the others. The loss is the weighted"
        " mean. Evaluation's loss is without.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegularizationOptions(Options, title=options.TRAINING):
    """Fine-tuning that stays near the pre-trained model, or is smooth."""

    smart_weight: float = option(
        0.0,
        "Weight of SMART's smoothness (Jiang et al. 2019: 1 to 5): how much the outputs"
        " change with small noise on the embeddings that is made to change them most;"
        " 0 for none. A step takes three times as long.",
        least=0.0,
    )
    smart_steps: int = option(1, "For --smart_weight: steps of the ascent.", least=1)
    smart_step_size: float = option(
        1e-3, "For --smart_weight: size of these steps.", above=0.0
    )
    smart_epsilon: float = option(
        1e-5, "For --smart_weight: the most that a number is changed by.", above=0.0
    )
    smart_noise: float = option(
        1e-5,
        "For --smart_weight: standard deviation of the noise to begin with.",
        above=0.0,
    )
    smart_proximal_weight: float = option(
        0.0,
        "Weight of SMART's proximal term (Jiang et al. 2019: 1): how far the outputs"
        " are from those of the weights' moving average; 0 for none.",
        least=0.0,
    )
    smart_momentum: float = option(
        0.99,
        "For --smart_proximal_weight: share of the average that a step keeps.",
        least=0.0,
        below=1.0,
    )
    smart_final_momentum: float | None = option(
        None,
        "For --smart_proximal_weight: the same after a tenth of the steps; 0.999 in the"
        " paper. Default: --smart_momentum throughout.",
        least=0.0,
        below=1.0,
    )
    mixout: float = option(
        0.0,
        "Train with this share of the neurons having their initial weights, chosen anew"
        " in each step, instead of dropout (Mixout, Lee et al. 2019: 0.7 to 0.9).",
        least=0.0,
        below=1.0,
    )

    def problems(self) -> Iterator[str]:
        """Options without effect."""
        yield from super().problems()
        yield from self.refuse_without(
            "smart_weight",
            *("smart_steps", "smart_step_size", "smart_epsilon", "smart_noise"),
        )
        yield from self.refuse_without(
            "smart_proximal_weight", "smart_momentum", "smart_final_momentum"
        )
        for name in ("lora_rank", "adapter_size", "init_adapter"):
            if self.mixout and getattr(self, name, None):
                yield f"`mixout` is of weights that `{name}` freezes: leave one out."


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationOptions(Options, title=options.TRAINING):
    """A larger model that teaches."""

    teacher_checkpoint: str | None = option(
        None,
        "A trained model with the same vocabulary and head, whose outputs the model"
        " learns from (knowledge distillation, Hinton et al. 2015).",
        path=Path.CHECKPOINT,
    )
    distill_labels: float = option(
        1.0,
        "For --teacher_checkpoint: weight of the labels' own loss; 0 for the teacher"
        " alone.",
        least=0.0,
    )
    distill_logits: float = option(
        1.0,
        "For --teacher_checkpoint: weight of the divergence from the teacher's"
        " predictions; of numbers half the squared difference.",
        least=0.0,
    )
    distill_temperature: float = option(
        2.0, "For --distill_logits: what both models' scores are divided by.", above=0.0
    )
    distill_cosine: float = option(
        0.0,
        "For --teacher_checkpoint: weight of the angle between the last layers' outputs"
        " (DistilBERT, Sanh et al. 2019).",
        least=0.0,
    )
    distill_hidden: float = option(
        0.0,
        "For --teacher_checkpoint: weight of the squared difference of the embeddings,"
        " and of each layer's output from that of every k-th one of the teacher's"
        " (TinyBERT, Jiao et al. 2019), through a learned projection if it is wider.",
        least=0.0,
    )
    distill_attention: float = option(
        0.0,
        "For --teacher_checkpoint: weight of the same of the attention's scores.",
        least=0.0,
    )

    def problems(self) -> Iterator[str]:
        """Options without effect, or without a loss."""
        yield from super().problems()
        weights = [name for name in _DISTILLED if getattr(self, name)]
        yield from self.refuse_without(
            "teacher_checkpoint", "distill_labels", *_DISTILLED, "distill_temperature"
        )
        if self.teacher_checkpoint and not weights:
            yield "`teacher_checkpoint` teaches nothing: all its weights are 0."
        if self.distill_attention and getattr(self, "recompute", False):
            yield "`recompute` forgets the scores of `distill_attention`: leave it out."


_DISTILLED = ("distill_logits", "distill_cosine", "distill_hidden", "distill_attention")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossOptions(
    SmoothingOptions, ClassWeightOptions, RegularizationOptions, DistillationOptions
):
    """All of them."""

    @classmethod
    def of(cls, given: Options) -> "LossOptions":
        """Those that a command has."""
        return given.as_kind(cls, given_names=None)

    @property
    def changed(self) -> dict[str, Any]:
        """Those that differ from their defaults: none, and the loss is the task's."""
        values = self.as_flags()
        return {name: values[name] for name in values if self.is_given(name)}
