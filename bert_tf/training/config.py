"""How to train: the engine's settings, and the phases of a run."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import flags

from bert_tf.errors import InputError
from bert_tf.records.pipeline import InputShard

# What decides where, how fast and how closely watched a run is made, or how it begins.
_WITHOUT_EFFECT = (
    "reinitialize_layers",
    "init_head",
    "init_adapter",
    "gradient_accumulation_steps",
    "jit_compile",
    "save_checkpoints_steps",
    "keep_checkpoint_max",
    "log_steps",
    "eval_steps",
    "best_metric",
    "profile_steps",
    "iterations_per_loop",
)

# Position in the records, a worker's rows -> endless batches from there on.
TrainingData = Callable[[int, InputShard], tf.data.Dataset]

# Model -> metrics on held-out records.
Evaluate = Callable[[keras.Model], Mapping[str, float]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train.

    Attributes:
        num_train_steps: the step to train to, counted from the run's first start.
        num_warmup_steps: steps of rising learning rate.
        learning_rate: the peak.
        train_batch_size: sequences a step, over all devices.
        num_schedule_steps: steps of the learning-rate schedule; None for
            `num_train_steps`.
        learning_rate_schedule: its shape: see `bert_tf.optimization.schedules`.
        end_learning_rate: the rate that it ends with.
        learning_rate_power: of the shape "polynomial".
        decay_from: "start": the decay counts from step 0, as the original's; "warmup":
            from the warmup's end.
        optimizer: "adamw" or "lamb".
        bias_correction: Adam's, which the original leaves out; LAMB has it always.
        layerwise_learning_rate_decay: factor of the learning rate from layer to layer
            downwards.
        frozen_layers: what is not trained: see `bert_tf.optimization.layerwise`.
        reinitialize_layers: how many top layers begin anew, with the pooler: see
            `bert_tf.optimization.layerwise`.
        init_head: whether a checkpoint to start from gives its head too.
        init_adapter: LoRA's or adapters' weights to start from, beside a checkpoint:
            see `bert_tf.conversion.adapter_files`.
        gradient_accumulation_steps: micro-batches of each device's part of a batch.
        precision: "float32", "bfloat16" or "float16".
        jit_compile: whether XLA compiles forward and backward as a whole.
        save_checkpoints_steps: steps between two checkpoints.
        keep_checkpoint_max: checkpoints to keep; 0 for all.
        log_steps: steps between two lines of metrics.
        eval_steps: steps between two evaluations; 0 for none.
        best_metric: the evaluation's metric whose best checkpoint is kept.
        profile_steps: "FIRST,LAST" steps to profile; None for none.
        iterations_per_loop: the most steps in one call of the device.
        random_seed: of initial weights, dropout and the order of the data.
    """

    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    train_batch_size: int
    num_schedule_steps: int | None = None
    learning_rate_schedule: str = "linear"
    end_learning_rate: float = 0.0
    learning_rate_power: float = 1.0
    decay_from: str = "start"
    optimizer: str = "adamw"
    bias_correction: bool = False
    layerwise_learning_rate_decay: float = 1.0
    frozen_layers: str = ""
    reinitialize_layers: int = 0
    init_head: bool = True
    init_adapter: str | None = None
    gradient_accumulation_steps: int = 1
    precision: str = "float32"
    jit_compile: bool = False
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    log_steps: int = 100
    eval_steps: int = 0
    best_metric: str = "loss"
    profile_steps: str | None = None
    iterations_per_loop: int = 1000
    random_seed: int = 12345

    def __post_init__(self) -> None:
        if (self.num_schedule_steps or self.num_train_steps) < self.num_train_steps:
            raise InputError(
                f"--num_schedule_steps={self.num_schedule_steps} must not be below the"
                f" {self.num_train_steps} steps of training, or the last ones would"
                " learn nothing."
            )

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide how a run comes out, by name."""
        values = dataclasses.asdict(self)
        steps = values.pop("num_train_steps")
        values["num_schedule_steps"] = self.num_schedule_steps or steps
        return {name: values[name] for name in values if name not in _WITHOUT_EFFECT}

    @classmethod
    def from_flags(
        cls,
        flag_values: flags.FlagValues,
        **others: Any,
    ) -> "TrainingConfig":
        """The config from a script's flags of the same names, and from arguments.

        Args:
            flag_values: the script's flags.
            **others: fields that are no flags, or go before them.
        """
        given: dict[str, Any] = {
            field.name: flag_values[field.name].value
            for field in dataclasses.fields(cls)
            if field.name in flag_values
        }
        return cls(**(given | others))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of a run with records, a length and a batch of its own.

    Attributes:
        end_step: the step that it ends with, counted from the run's first start.
        batch_size: sequences a step, over all devices.
        streams: the records; several streams where batches differ in shape: one for
            each shape.
        stream_of: the number of records read -> the stream that the next batch comes
            from.
        data_id: tells sets of records apart, so that a run knows whether the records
            that it has read are of this set; 0 where nobody knows.
        evaluate: what to do every `eval_steps`; None for nothing.
        evaluation_id: tells what it evaluates on apart: the best checkpoint is the best
            of evaluations on the same data; 0 where it is the same in all phases.
        name: for messages.
    """

    end_step: int
    batch_size: int
    streams: Sequence[TrainingData]
    stream_of: Callable[[int], int] = lambda position: 0
    data_id: int = 0
    evaluate: Evaluate | None = None
    evaluation_id: int = 0
    name: str = ""


@dataclasses.dataclass(frozen=True)
class PhaseSpec:
    """One phase as --phases has it: LENGTH:STEPS:BATCH.

    Attributes:
        max_seq_length: of its records.
        num_steps: steps of this phase alone.
        batch_size: sequences a step, over all devices.
    """

    max_seq_length: int
    num_steps: int
    batch_size: int


def parse_phases(text: str) -> list[PhaseSpec]:
    """Parses "128:900000:256,512:100000:256" (Devlin et al., appendix A.2)."""
    specs = []
    for part in text.split(","):
        numbers = part.strip().split(":")
        if len(numbers) != 3 or not all(n.isdecimal() and int(n) for n in numbers):
            raise InputError(
                f"--phases={text}: a phase must be LENGTH:STEPS:BATCH, positive"
                f' numbers, such as 128:900000:256. Found: "{part.strip()}".'
            )
        specs.append(PhaseSpec(*(int(number) for number in numbers)))
    return specs
