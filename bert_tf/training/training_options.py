"""How to run and to train: the options that commands share, and the phases of a run."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_tf import options
from bert_tf.errors import InputError
from bert_tf.options import REQUIRED, Options, Path, option

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_tf.records.pipeline import InputShard

# Position in the records, a worker's rows -> endless batches from there on.
TrainingData = Callable[[int, "InputShard"], "tf.data.Dataset"]

# Model -> metrics on held-out records.
Evaluate = Callable[["keras.Model"], Mapping[str, float]]

# Flags for where, how fast and how closely watched a run is, or how it begins.
_WITHOUT_EFFECT = (
    "reinitialize_layers",
    "init_head",
    "init_adapter",
    "init_layers",
    "second_checkpoint",
    "stack_layers",
    "gradient_accumulation_steps",
    "jit_compile",
    "recompute",
    "save_checkpoints_steps",
    "keep_checkpoint_max",
    "log_steps",
    "eval_steps",
    "best_metric",
    "patience",
    "profile_steps",
    "iterations_per_loop",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(Options, title=options.MODEL):
    """The model and its vocabulary."""

    bert_config_file: str | None = option(
        None, "bert_config.json: the architecture of the model.", path=Path.FILE
    )
    vocab_file: str | None = option(
        None, "The WordPiece vocabulary: one token per line.", path=Path.FILE
    )
    do_lower_case: bool = option(
        True,
        "Lower-case the text and strip accents: true for uncased vocabularies,"
        " false for cased ones. Default: the checkpoint's setting, else true.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointOptions(Options, title=options.MODEL):
    """What to start from."""

    init_checkpoint: str | None = option(
        None,
        "Weights to start from: an output_dir of bert_tf or a checkpoint in it, a"
        " released TF1 checkpoint (.../bert_model.ckpt), a Hugging Face folder, or"
        " a KerasHub preset; with its config, vocabulary and casing. A checkpoint"
        " in --output_dir takes precedence.",
        path=Path.CHECKPOINT,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitialLayers(Options, title=options.MODEL):
    """Some layers of what to start from."""

    init_layers: tuple[int, ...] | None = option(
        None,
        "For --init_checkpoint: the layers to take, by number from 0, for a"
        " --bert_config_file with as many, such as 0,2,4,7,9,11 (DistilBERT, Sanh et"
        " al. 2019). Default: all.",
        least=0,
    )

    def problems(self) -> Iterator[str]:
        """Layers of nothing."""
        yield from super().problems()
        yield from self.refuse_without("init_checkpoint", "init_layers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOptions(Options, title=options.TRAINING):
    """Whether the head is loaded too."""

    init_head: bool = option(
        True,
        "Load the head of --init_checkpoint too; false: only its encoder, such as"
        " after fine-tuning on a larger task (STILTs, Phang et al. 2018).",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthOptions(Options, title=options.LENGTHS):
    """The sequences' length."""

    max_seq_length: int = option(
        128,
        "Maximum length of a sequence in WordPieces, including [CLS] and [SEP]."
        " Longer ones are truncated, unless they are read in windows.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions(Options, title=options.WHAT_TO_DO):
    """The run's folder."""

    output_dir: str = option(
        REQUIRED,
        "Folder for checkpoints, logs and results. Started again with the same"
        " folder, a run resumes from its last checkpoint.",
        path=Path.OUTPUT,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trains(Options, title=options.WHAT_TO_DO):
    """Whether to train."""

    do_train: bool = option(False, "Train.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluates(Options, title=options.WHAT_TO_DO):
    """Whether to evaluate."""

    do_eval: bool = option(False, "Evaluate on the development data.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationBatchOptions(Options, title=options.TRAINING):
    """How to evaluate."""

    eval_batch_size: int = option(8, "Sequences per evaluation step.", least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions(options.BackendOptions, title=options.DEVICES):
    """Where to run."""

    distribution: str = option(
        "default",
        "Devices: the machine's default one, one_device, all its GPUs (mirrored),"
        " several processes as described by TF_CONFIG (multi_worker), or a TPU.",
        choices=("default", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    use_tpu: bool = option(False, "Run on a TPU: --distribution=tpu.")
    tpu_name: str | None = option(
        None, "Name of the Cloud TPU, its grpc:// address, or `local`."
    )
    tpu_zone: str | None = option(
        None, "GCE zone of the TPU. Default: from the metadata."
    )
    gcp_project: str | None = option(
        None, "Project of the TPU. Default: from the metadata."
    )
    master: str | None = option(
        None, "TensorFlow master URL: the TPU's address, if no --tpu_name."
    )
    num_tpu_cores: int = option(
        8, "Number of TPU cores; it is an error if the TPU has another number.", least=1
    )

    def problems(self) -> Iterator[str]:
        """Two kinds of devices."""
        yield from super().problems()
        if self.use_tpu and self.distribution not in ("default", "tpu"):
            yield (
                f"`use_tpu` and `distribution={self.distribution}` contradict each"
                " other: give one of them."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputingOptions(Options, title=options.TRAINING):
    """The number format, and how the model is compiled."""

    precision: str = option(
        "float32",
        "Type of the model's computations; weights, optimizer and losses are always"
        " float32. float16 uses loss scaling.",
        choices=("float32", "bfloat16", "float16"),
    )
    jit_compile: bool = option(
        False,
        "Compile the forward and backward pass as a whole with XLA. Slower on a"
        " CPU; always on for a TPU and with JAX.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(ComputingOptions, title=options.TRAINING):
    """The options of every command that trains."""

    train_batch_size: int = option(
        32, "Sequences per training step, over all devices.", least=1
    )
    learning_rate: float = option(
        5e-5, "Peak learning rate of AdamWeightDecay.", least=0.0
    )
    save_checkpoints_steps: int = option(1000, "Steps between checkpoints.", least=1)
    iterations_per_loop: int = option(
        1000, "Maximum number of training steps per call of the device.", least=1
    )
    keep_checkpoint_max: int = option(
        5, "Number of recent checkpoints to keep; 0 keeps all.", least=0
    )
    log_steps: int = option(
        100,
        "Steps between lines of metrics (log, TensorBoard, metrics.jsonl).",
        least=1,
    )
    optimizer: str = option(
        "adamw",
        "AdamWeightDecay, as in the original, or LAMB (You et al. 2020) for batches"
        " of many thousands.",
        choices=("adamw", "lamb"),
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
        1e-6, "What Adam adds to the root of the second moment.", above=0.0
    )
    weight_decay_rate: float = option(
        0.01,
        "Share of the weights, other than LayerNorm's and biases, that decays per step,"
        " times the learning rate.",
        least=0.0,
    )
    clip_norm: float = option(
        1.0, "Largest global norm of the gradient; a larger one is scaled.", above=0.0
    )
    learning_rate_schedule: str = option(
        "linear",
        "Shape of the learning rate after the warmup.",
        choices=("linear", "cosine", "polynomial", "inverse_sqrt", "constant"),
    )
    end_learning_rate: float = option(
        0.0, "Learning rate at the end of the schedule.", least=0.0
    )
    learning_rate_power: float = option(
        1.0, "Power of --learning_rate_schedule=polynomial.", above=0.0
    )
    decay_from: str = option(
        "start",
        "Where the learning rate's decay starts counting: at step 0, as in the"
        " original, so that the rate drops a little when the warmup ends; or at the"
        " end of the warmup.",
        choices=("start", "warmup"),
    )
    layerwise_learning_rate_decay: float = option(
        1.0,
        "Factor of the learning rate from a layer to the one below it (ULMFiT,"
        " ELECTRA: 0.8 or 0.9 in fine-tuning); 1 for none.",
        above=0.0,
        most=1.0,
    )
    frozen_layers: str = option(
        "",
        "What not to train, separated by commas: embeddings, layers by number"
        " (0-5), encoder, pooler.",
    )
    gradient_accumulation_steps: int = option(
        1,
        "Micro-batches that each device's part of a batch is divided into: less"
        " memory, the same step. --train_batch_size is always the total.",
        least=1,
    )
    recompute: bool = option(
        False,
        "Recompute each layer's activations in the backward pass instead of keeping"
        " them (gradient checkpointing): less memory, a third more work.",
    )
    profile_steps: str | None = option(
        None, "FIRST,LAST: profile these steps for TensorBoard's Profile page."
    )
    random_seed: int = option(
        12345, "Seed of initial weights, dropout and the order of the data.", least=0
    )

    def problems(self) -> Iterator[str]:
        """Options that the schedule does not use."""
        yield from super().problems()
        schedule = self.learning_rate_schedule
        useless = []
        if schedule != "polynomial" and self.learning_rate_power != 1.0:
            useless.append("learning_rate_power")
        if schedule in ("inverse_sqrt", "constant"):
            useless += ["end_learning_rate"] if self.end_learning_rate else []
            useless += ["decay_from"] if self.decay_from != "start" else []
        if useless:
            yield (
                f"`learning_rate_schedule={schedule}` has no use for `{useless[0]}`:"
                " leave it out, or give another schedule."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions(Options, title=options.TRAINING):
    """Evaluation while a run trains."""

    eval_steps: int = option(
        0,
        "Steps between evaluations on held-out data; the best checkpoint is kept in"
        " OUTPUT_DIR/best; 0 for none.",
        least=0,
    )
    best_metric: str | None = option(
        None,
        "The metric that chooses the best checkpoint. Default: the loss in"
        " pre-training, the task's own metric in fine-tuning.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig(TrainingOptions):
    """How to train: the engine's settings."""

    num_train_steps: int  # the step to train to, counted from the run's first start
    num_warmup_steps: int
    num_schedule_steps: int | None = None  # None for num_train_steps
    # How many top layers to re-initialize, with the pooler.
    reinitialize_layers: int = 0
    init_head: bool = True  # load the checkpoint's head too
    # LoRA's or adapters' weights to start from, on top of a checkpoint.
    init_adapter: str | None = None
    init_layers: tuple[int, ...] | None = None  # which of the checkpoint's; None: all
    second_checkpoint: str | None = None  # the second encoder's weights to start from
    stack_layers: bool = False  # of a checkpoint with fewer layers, several times
    eval_steps: int = 0  # steps between two evaluations; 0 for none
    best_metric: str = "loss"
    # Evaluations in a row without a better metric after which the run ends; 0: none.
    patience: int = 0

    def problems(self) -> Iterator[str]:
        """A schedule that ends before the training."""
        yield from super().problems()
        if (self.num_schedule_steps or self.num_train_steps) < self.num_train_steps:
            yield (
                f"`num_schedule_steps={self.num_schedule_steps}` must not be below the"
                f" {self.num_train_steps} steps of training, or the last ones would"
                " learn nothing."
            )

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide a run's result, by name."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in (*_WITHOUT_EFFECT, "given_names", "positional")
        }
        steps = values.pop("num_train_steps")
        values["num_schedule_steps"] = self.num_schedule_steps or steps
        return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run with its own records, length and batch size."""

    end_step: int  # its last step, counted from the run's first start
    batch_size: int  # sequences per step, over all devices
    # The records: a stream for each shape of batch, and which of them the next batch
    # comes from, by the number of records read.
    streams: Sequence[TrainingData]
    stream_of: Callable[[int], int] = lambda position: 0
    # Identifies sets of records, so that a run can check whether the records that it
    # has read are of this set; 0 if unknown.
    data_id: int = 0
    evaluate: Evaluate | None = None  # what to do every `eval_steps`
    # The best checkpoint is the best of evaluations on the same data.
    evaluation_id: int = 0
    name: str = ""


class Stage(NamedTuple):
    """One stage of --stacking: LAYERS:STEPS."""

    num_layers: int
    num_steps: int


class PhaseSpec(NamedTuple):
    """One phase of --phases: LENGTH:STEPS:BATCH."""

    max_seq_length: int
    num_steps: int  # of this phase alone
    batch_size: int


def parse_stacking(text: str) -> list[Stage]:
    """Parses "3:50000,6:70000" (Gong et al. 2019)."""
    wanted = "a stage must be LAYERS:STEPS, positive numbers, such as 3:50000"
    return [Stage(*numbers) for numbers in _numbers("stacking", text, 2, wanted)]


def parse_phases(text: str) -> list[PhaseSpec]:
    """Parses "128:900000:256,512:100000:256" (Devlin et al., appendix A.2)."""
    wanted = (
        "a phase must be LENGTH:STEPS:BATCH, positive numbers, such as 128:900000:256"
    )
    return [PhaseSpec(*numbers) for numbers in _numbers("phases", text, 3, wanted)]


def _numbers(flag: str, text: str, count: int, wanted: str) -> Iterator[list[int]]:
    """The numbers of each part of a flag's text."""
    for part in text.split(","):
        numbers = part.strip().split(":")
        if len(numbers) != count or not all(n.isdecimal() and int(n) for n in numbers):
            raise InputError(f'--{flag}={text}: {wanted}. Found: "{part.strip()}".')
        yield [int(number) for number in numbers]
