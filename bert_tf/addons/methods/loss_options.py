"""Options of the training loss, which `regularization` computes.

Commands that train have them: the core's options name them in `bert_tf.base.addons`.
"""

from collections.abc import Iterator
from typing import Any

from bert_tf.base import options
from bert_tf.base.options import Options, Path, option

BALANCED = "balanced"  # a value of `class_weights`
_DISTILLED = ("distill_logits", "distill_cosine", "distill_hidden", "distill_attention")


class LossOptions(Options, title=options.METHODS, decides="numbers"):
    """Every option that changes the training loss."""

    label_smoothing: float = option(
        0.0,
        "Spread this share of each label's probability over all classes in training,"
        " such as 0.1 (Szegedy et al. 2016). The loss in evaluation is not smoothed.",
        least=0.0,
        below=1.0,
        title=options.TRAINING,
    )
    class_weights: tuple[str, ...] | None = option(
        None,
        "Weights of the classes in training: balanced, in inverse proportion to their"
        " examples; or LABEL:WEIGHT,..., where other labels have weight 1. The loss is"
        " the weighted mean. The loss in evaluation is not weighted.",
        title=options.TRAINING,
    )
    smart_weight: float = option(
        0.0,
        "Weight of SMART's smoothness term (Jiang et al. 2019: 1 to 5): how much the"
        " outputs change under small noise on the embeddings that is chosen to change"
        " them most; 0 for none. A step takes three times as long.",
        least=0.0,
    )
    smart_steps: int = option(
        1,
        "For --smart_weight: number of gradient ascent steps that choose the noise.",
        least=1,
    )
    smart_step_size: float = option(
        1e-3, "For --smart_weight: size of each of these steps.", above=0.0
    )
    smart_epsilon: float = option(
        1e-5,
        "For --smart_weight: the largest change of any component of the embeddings.",
        above=0.0,
    )
    smart_noise: float = option(
        1e-5, "For --smart_weight: standard deviation of the initial noise.", above=0.0
    )
    smart_proximal_weight: float = option(
        0.0,
        "Weight of SMART's proximal term (Jiang et al. 2019: 1): how far the outputs"
        " are from those of the weights' moving average; 0 for none.",
        least=0.0,
    )
    smart_momentum: float = option(
        0.99,
        "For --smart_proximal_weight: share of the moving average that each step"
        " keeps.",
        least=0.0,
        below=1.0,
    )
    smart_final_momentum: float | None = option(
        None,
        "For --smart_proximal_weight: the same share after a tenth of the steps; 0.999"
        " in the paper. Default: --smart_momentum throughout.",
        least=0.0,
        below=1.0,
    )
    mixout: float = option(
        0.0,
        "Train with the initial weights in this share of the neurons, drawn again in"
        " each step, instead of dropout (Mixout, Lee et al. 2019: 0.7 to 0.9).",
        least=0.0,
        below=1.0,
    )
    teacher_checkpoint: str | None = option(
        None,
        "A trained model with the same vocabulary and head, whose outputs the model"
        " learns from (knowledge distillation, Hinton et al. 2015).",
        path=Path.CHECKPOINT,
    )
    distill_labels: float = option(
        1.0,
        "For --teacher_checkpoint: weight of the labels' own loss; with 0 the model"
        " learns only from the teacher.",
        least=0.0,
    )
    distill_logits: float = option(
        1.0,
        "For --teacher_checkpoint: weight of the divergence from the teacher's"
        " predictions; for numbers, of half the squared difference.",
        least=0.0,
    )
    distill_temperature: float = option(
        2.0,
        "For --distill_logits: the number by which both models' scores are divided.",
        above=0.0,
    )
    distill_cosine: float = option(
        0.0,
        "For --teacher_checkpoint: weight of the angle between the last layers' outputs"
        " (DistilBERT, Sanh et al. 2019).",
        least=0.0,
    )
    distill_hidden: float = option(
        0.0,
        "For --teacher_checkpoint: weight of the squared difference between the"
        " embeddings, and between each layer's output and that of every k-th layer of"
        " the teacher, through a learned projection if it is wider (TinyBERT, Jiao et"
        " al. 2019).",
        least=0.0,
    )
    distill_attention: float = option(
        0.0,
        "For --teacher_checkpoint: weight of the squared difference between the"
        " attention scores of the same layers.",
        least=0.0,
    )

    def problems(self) -> Iterator[str]:
        """Yields options without effect, or without their loss."""
        yield from super().problems()
        yield from self.require_for(
            ("smart_steps", "smart_step_size", "smart_epsilon", "smart_noise"),
            needs="smart_weight",
        )
        yield from self.require_for(
            ("smart_momentum", "smart_final_momentum"), needs="smart_proximal_weight"
        )
        weights = [name for name in _DISTILLED if getattr(self, name)]
        yield from self.require_for(
            ("distill_labels", *_DISTILLED, "distill_temperature"),
            needs="teacher_checkpoint",
        )
        if self.teacher_checkpoint and not weights:
            yield "`teacher_checkpoint` teaches nothing: all its weights are 0."
        if self.distill_attention and getattr(self, "recompute", False):
            yield (
                "`distill_attention` needs scores that `recompute` does not keep:"
                " leave one out."
            )

        for name in ("lora_rank", "adapter_size", "init_adapter"):
            if self.mixout and getattr(self, name, None):
                yield f"`mixout` changes weights that `{name}` freezes: leave one out."

    @classmethod
    def of(cls, given: Options) -> "LossOptions":
        """Returns the loss options among a command's options."""
        return given.to(cls)

    @property
    def changed(self) -> dict[str, Any]:
        """The options with other values than their defaults, by name."""
        default = LossOptions()
        values = self.as_flags()
        return {
            name: values[name]
            for name in values
            if getattr(self, name) != getattr(default, name)
        }
