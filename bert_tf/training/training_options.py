"""Options of running and training, shared by commands."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from absl import logging

from bert_tf.base import options
from bert_tf.base.addons import addon
from bert_tf.base.options import Options, Path, option

# Endings of metrics that fall as a model improves.
_LOWER_IS_BETTER = ("loss", "perplexity", "entropy", "error", "per_byte")


def is_better(value: float, than: float, name: str) -> bool:
    """Whether a value is better: lower for losses and errors, higher for others."""
    if math.isnan(value) or math.isnan(than):
        return not math.isnan(value)
    return value < than if name.endswith(_LOWER_IS_BETTER) else value > than


class TrainingConfig(Options, title=options.TRAINING, decides="numbers"):
    """Settings of the engine, and options of the commands."""

    precision: str = option(
        "float32",
        "Type of the model's computations; weights, optimizer and losses are always"
        " float32. float16 uses loss scaling.",
        choices=("float32", "bfloat16", "float16"),
        title=options.TRAINING,
        in_summary=True,
    )
    jit_compile: bool = option(
        False,
        "Compile the forward and backward pass as a whole with XLA. Slower on a"
        " CPU; always on for a TPU and with JAX.",
        title=options.TRAINING,
        decides="nothing",
    )
    train_batch_size: int = option(
        32,
        "Sequences per training step, over all devices.",
        least=1,
        decides="setting",
        in_summary=True,
    )
    learning_rate: float = option(
        5e-5,
        "Peak learning rate of AdamWeightDecay.",
        least=0.0,
        decides="setting",
        in_summary=True,
    )
    save_checkpoints_steps: int = option(
        1000, "Steps between checkpoints.", least=1, decides="nothing"
    )
    iterations_per_loop: int = option(
        1000,
        "Maximum number of training steps per call of the device.",
        least=1,
        decides="nothing",
    )
    keep_checkpoint_max: int = option(
        5,
        "Number of recent checkpoints to keep; 0 keeps all.",
        least=0,
        decides="nothing",
    )
    log_steps: int = option(
        100,
        "Steps between lines of metrics (log, TensorBoard, metrics.jsonl).",
        least=1,
        decides="nothing",
    )
    report_to: tuple[str, ...] = option(
        (),
        "Also report the metrics to experiment trackers, separated by commas: wandb,"
        " mlflow, trackio. Their servers and keys are set as usual, such as by"
        " WANDB_MODE or MLFLOW_TRACKING_URI. A run that is resumed continues its run"
        " there.",
        choices=("wandb", "mlflow", "trackio"),
        decides="nothing",
    )
    optimizer: str = option(
        "adamw",
        "adamw: AdamWeightDecay, as in the original; lamb, for batches of many"
        " thousands (You et al. 2020); muon, for pre-training in little time (Jordan et"
        " al. 2024): the layers' matrices by Muon, all else by AdamW.",
        choices=("adamw", "lamb", "muon"),
        in_summary=True,
    )
    bias_correction: bool = option(
        False,
        "Use Adam's bias correction, which the original omits (Zhang et al. 2021,"
        " Mosbach et al. 2021: more stable on small tasks).",
    )
    beta_1: float = option(0.9, "Decay of Adam's first moment.", least=0.0, below=1.0)
    beta_2: float = option(
        0.999, "Decay of Adam's second moment.", least=0.0, below=1.0
    )
    epsilon: float = option(
        1e-6, "What Adam adds to the square root of the second moment.", above=0.0
    )
    weight_decay_rate: float = option(
        0.01,
        "Share of the weights, other than LayerNorm's and biases, by which they decay"
        " per step, times the learning rate.",
        least=0.0,
    )
    clip_norm: float = option(
        1.0,
        "Largest global norm of the gradient; a larger gradient is scaled down to it.",
        above=0.0,
    )
    learning_rate_schedule: str = option(
        "linear",
        "Shape of the learning rate after the warmup.",
        choices=("linear", "cosine", "polynomial", "wsd", "inverse_sqrt", "constant"),
    )
    end_learning_rate: float = option(
        0.0, "Learning rate at the end of the schedule.", least=0.0
    )
    learning_rate_power: float = option(
        1.0, "Power of --learning_rate_schedule=polynomial.", above=0.0
    )
    decay_from: str = option(
        "start",
        "Where the decay of the learning rate starts to count. start: at step 0, as in"
        " the original, so that the rate drops a little when the warmup ends. warmup:"
        " at the end of the warmup.",
        choices=("start", "warmup"),
    )
    decay_share: float = option(
        0.2,
        "For --learning_rate_schedule=wsd (warmup, stable, decay; Hu et al. 2024): the"
        " share of the steps, at the end, in which the rate falls.",
        above=0.0,
        most=1.0,
    )
    layerwise_learning_rate_decay: float = option(
        1.0,
        "Factor of the learning rate from each layer to the one below it (ULMFiT,"
        " ELECTRA: 0.8 or 0.9 in fine-tuning); 1 for none.",
        above=0.0,
        most=1.0,
        title=options.METHODS,
    )
    frozen_layers: str = option(
        "",
        "What not to train, separated by commas: embeddings, layers by number"
        " (0-5), encoder, pooler.",
        title=options.METHODS,
    )
    gradient_accumulation_steps: int = option(
        1,
        "Micro-batches that each device's part of a batch is divided into: less"
        " memory, the same step. --train_batch_size is always the total.",
        least=1,
        decides="nothing",
    )
    recompute: bool = option(
        False,
        "Recompute each layer's activations in the backward pass instead of keeping"
        " them (gradient checkpointing): less memory, a third more work.",
        decides="nothing",
    )
    profile_steps: str | None = option(
        None,
        "FIRST,LAST: profile these steps for TensorBoard's Profile page.",
        decides="nothing",
    )
    random_seed: int = option(
        12345,
        "Seed of initial weights, dropout and the order of the data.",
        least=0,
        decides="setting",
    )
    num_train_steps: int = option(
        100_000,
        "The step to train to, counted from the first start.",
        least=1,
        in_summary=True,
    )
    num_warmup_steps: int = option(
        10_000, "Steps during which the learning rate rises linearly.", least=0
    )
    num_schedule_steps: int | None = option(
        None,
        "Steps of the learning-rate schedule, if more than --num_train_steps: for"
        " example for the first of two phases, which ends before the rate reaches 0.",
        least=1,
    )
    max_train_hours: float | None = option(
        None,
        "Train for this many hours, over all starts, including the last evaluation and"
        " checkpoint. --num_train_steps does not limit the training; warmup and decay"
        " take the same shares of the hours as of these steps.",
        above=0.0,
    )
    eval_steps: int = option(
        0,
        "Steps between evaluations on held-out data; the best checkpoint is kept in"
        " OUTPUT_DIR/best; 0 for none.",
        least=0,
        decides="result",
    )
    best_metric: str = option(
        "loss",
        "The metric that chooses the best checkpoint. Default: the loss in"
        " pre-training, the task's own metric in fine-tuning.",
        decides="nothing",
    )
    patience: int = option(
        0,
        "For --eval_steps: end the run after this many evaluations in a row without a"
        " better --best_metric; 0 for none.",
        least=0,
        only_with="eval_steps",
        decides="result",
    )
    stop_if: tuple[str, ...] = option(
        (),
        "End the run if it has not reached what it should by then: METRIC>VALUE@STEP,"
        " such as loss>6@5000, or after hours of training over all starts, such as"
        " loss>6@3h; < for a metric that should be high; several separated by commas."
        " The metric is one of training, or of the evaluations in training, such as"
        " bits_per_byte. The run saves a checkpoint and exits with 2. The same command"
        " then ends at once; with other conditions, or none, it resumes.",
        decides="result",
    )
    # The start of a new run, in addition to a checkpoint.
    init_head: bool = option(
        True,
        "Also load the head of --init_checkpoint. If false, load only its encoder, such"
        " as after fine-tuning on a larger task (STILTs, Phang et al. 2018).",
        decides="result",
    )
    init_layers: tuple[int, ...] | None = option(
        None,
        "The layers of --init_checkpoint to take, by number from 0, such as"
        " 0,2,4,7,9,11 (DistilBERT, Sanh et al. 2019). --bert_config_file must have as"
        " many layers. Default: all.",
        least=0,
        only_with="init_checkpoint",
        title=options.METHODS,
        decides="result",
    )
    reinitialize_layers: int = option(
        0,
        "Reinitialize the pooler and this many top layers after loading the"
        " checkpoint (Zhang et al. 2021: more stable on few examples); 0 for none.",
        least=0,
        decides="result",
        title=options.METHODS,
    )
    init_adapter: str | None = option(
        None,
        "Folder with the weights of LoRA or adapters and their head (another run's"
        " OUTPUT_DIR/adapter), to add to --init_checkpoint.",
        path=Path.FOLDER,
        decides="result",
        title=options.METHODS,
    )
    stack_layers: bool = option(
        False,
        "Stack the layers of --init_checkpoint, which has fewer: layer i of the model"
        " begins as layer i modulo that number (Gong et al. 2019).",
        decides="result",
    )

    def problems(self) -> Iterator[str]:
        """Yields options without effect, and schedules that end too early."""
        yield from super().problems()
        schedule = self.schedule
        useless = []
        if schedule != "polynomial" and self.learning_rate_power != 1.0:
            useless.append("learning_rate_power")
        if schedule in ("inverse_sqrt", "constant"):
            useless += ["end_learning_rate"] if self.end_learning_rate else []
        if schedule in ("inverse_sqrt", "constant", "wsd"):
            useless += ["decay_from"] if self.decay_from != "start" else []
        if schedule != "wsd" and self.is_given("decay_share"):
            useless.append("decay_share")
        if useless:
            yield (
                f"`learning_rate_schedule={schedule}` has no use for `{useless[0]}`:"
                " leave it out, or give another schedule."
            )
        if self.num_schedule_steps and self.num_schedule_steps < self.last_step:
            yield (
                f"`num_schedule_steps={self.num_schedule_steps}` must not be below the"
                f" {self.last_step} steps of training, or the last ones would learn"
                " nothing."
            )
        if self.stop_if:
            yield from addon("stop_if").problems(self)

    @property
    def schedule(self) -> str:
        """The schedule of the learning rate; recipes may override it."""
        return self.learning_rate_schedule

    @property
    def last_step(self) -> int:
        """The last step of the training."""
        return self.num_train_steps

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide a run's steps, by name."""
        names = options.deciding(
            TrainingConfig, "numbers", "reading", "model", "setting"
        )
        values = {name: getattr(self, name) for name in names}
        steps = values.pop("num_train_steps")
        values["num_schedule_steps"] = self.num_schedule_steps or steps
        return values


# Options that their add-on declares: no module of the core reads one.
if TYPE_CHECKING:
    LossOptions = Options
else:
    LossOptions = addon("losses")


# Values for options that are not given: a recipe's, or those of an earlier training.

T = TypeVar("T", bound=Options)

# Options for the same setting: those of a selection list the values to try (if they
# have a default), and those of pre-training are given by phases.
_SAME = {
    "learning_rate": ("learning_rates",),
    "train_batch_size": ("train_batch_sizes", "phases"),
    "num_train_steps": ("phases",),
}


def with_recipe(given: T, recipes: Mapping[str, Mapping[str, Any]]) -> T:
    """Returns the options, with a recipe's values for those not given; logs them.

    A function as value is called with the options and the values before it; None
    leaves the default.
    """
    recipe: str | None = given.recipe  # type: ignore[attr-defined]
    if recipe is None:
        return given
    changed: dict[str, Any] = {}
    kept: dict[str, None] = {}  # flags, each once
    defaults = type(given).__dataclass_fields__
    for name, value in recipes[recipe].items():
        if callable(value):
            value = value(given.with_defaults(**changed))
        if value is None:
            continue
        names = [each for each in (name, *_SAME.get(name, ())) if each in defaults]
        if overrides := [each for each in names if given.is_given(each)]:
            kept |= {_as_flag(each, getattr(given, each)): None for each in overrides}
            continue
        for each in names:
            if each != name and defaults[each].default is None:
                continue  # this option is not in use
            is_list = isinstance(defaults[each].default, tuple)
            changed[each] = (value,) if is_list else value
    flags = " ".join(_as_flag(name, value) for name, value in changed.items())
    if flags or kept:
        logging.info("`recipe=%s`: %s.", recipe, flags or "all of it is given")
    if kept:
        logging.info("  Given, so not from the recipe: %s.", " ".join(kept))
    return given.with_defaults(**changed)


def with_flags_of(
    given: T, names: Iterable[str], trained: Mapping[str, Any], folder: str
) -> T:
    """Takes options that are not given from a training's flags, and logs them."""
    changed = {
        name: trained[name]
        for name in names
        if name in trained
        and not given.is_given(name)
        and trained[name] != getattr(given, name)
    }
    if changed:
        shown = ", ".join(f"{name}={value}" for name, value in changed.items())
        logging.info("As in the training of %s: %s.", folder, shown)
    return given.with_defaults(**changed)


def _as_flag(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"`{name}={value}`"
