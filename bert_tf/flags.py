"""The flags that scripts share: name, type, default and help stand here once.

A script calls the groups it needs from its `define_flags(flag_values)`, hands over the
defaults that differ, and defines only what is its own. Names and defaults are those of
google-research/bert, where it has the flag.
"""

import functools
from collections.abc import Callable
from typing import Any

from absl import flags

from bert_tf import flag_groups, flag_rules, path_flags
from bert_tf.path_flags import Path


def _string(help_text: str, default: str | None = None) -> tuple[Callable, Any, str]:
    return flags.DEFINE_string, default, help_text


def _path(help_text: str, kind: Path) -> tuple[Callable, Any, str]:
    return functools.partial(path_flags.define, kind=kind), None, help_text


def _boolean(help_text: str, default: bool = False) -> tuple[Callable, Any, str]:
    return flags.DEFINE_bool, default, help_text


def _integer(help_text: str, default: int | None = None) -> tuple[Callable, Any, str]:
    return flags.DEFINE_integer, default, help_text


def _float(help_text: str, default: float | None = None) -> tuple[Callable, Any, str]:
    return flags.DEFINE_float, default, help_text


def _choice(help_text: str, *values: str) -> tuple[Callable, Any, str]:
    """One of several words; the first one is the default."""

    def define(name, default, help_text, **kwargs):
        return flags.DEFINE_enum(name, default, list(values), help_text, **kwargs)

    return define, values[0], help_text


# name -> (how absl defines it, default, help). `None` for a default means: not given.
_FLAGS: dict[str, tuple[Callable, Any, str]] = {
    # The model and its vocabulary.
    "bert_config_file": _path(
        "bert_config.json: the architecture of the model.", Path.FILE
    ),
    "vocab_file": _path("The WordPiece vocabulary: one token a line.", Path.FILE),
    "do_lower_case": _boolean(
        "Lower-case the text and strip accents: true for uncased vocabularies, false"
        " for cased ones. Default: as the checkpoint says, where there is one, else"
        " true.",
        True,
    ),
    "init_checkpoint": _path(
        "Weights to start from: an output_dir of bert_tf or a checkpoint in it, a"
        " released TF1 checkpoint (.../bert_model.ckpt), a Hugging Face folder, or a"
        " KerasHub preset. Its config, vocabulary and casing come along. A checkpoint"
        " in --output_dir goes before it.",
        Path.CHECKPOINT,
    ),
    "init_head": _boolean(
        "Take the head of --init_checkpoint too; false: its encoder alone, such"
        " as after fine-tuning on a larger task (STILTs, Phang et al. 2018).",
        True,
    ),
    # The shape of the data.
    "max_seq_length": _integer(
        "The most WordPieces of a sequence, [CLS] and [SEP] included. Longer ones are"
        " cut, unless they are read in windows.",
        128,
    ),
    "max_predictions_per_seq": _integer(
        "Masked-LM slots of a sequence; must be that of the records, unless these are"
        " masked as they are read.",
        20,
    ),
    # What to do.
    "output_dir": _path(
        "Folder of checkpoints, logs and results. Started again with the same folder, a"
        " run continues from its last checkpoint.",
        Path.OUTPUT,
    ),
    "do_train": _boolean("Train."),
    "do_eval": _boolean("Evaluate on the development data."),
    "do_predict": _boolean("Predict on the test data."),
    # How to train.
    "train_batch_size": _integer("Sequences a training step, over all devices.", 32),
    "eval_batch_size": _integer("Sequences an evaluation step.", 8),
    "predict_batch_size": _integer("Sequences a prediction step.", 8),
    "learning_rate": _float("Peak learning rate of AdamWeightDecay.", 5e-5),
    "num_train_epochs": _float("Passes over the training examples.", 3.0),
    "warmup_proportion": _float(
        "Share of the training steps during which the learning rate rises linearly.",
        0.1,
    ),
    "save_checkpoints_steps": _integer("Steps between two checkpoints.", 1000),
    "iterations_per_loop": _integer(
        "At most so many training steps in one call of the device.", 1000
    ),
    "keep_checkpoint_max": _integer(
        "Number of recent checkpoints to keep; 0 keeps all.", 5
    ),
    "log_steps": _integer(
        "Steps between two lines of metrics (log, TensorBoard, metrics.jsonl).",
        100,
    ),
    "optimizer": _choice(
        "AdamWeightDecay, the original's, or LAMB (You et al. 2020) for batches"
        " of many thousands.",
        "adamw",
        "lamb",
    ),
    "bias_correction": _boolean(
        "Adam with bias correction, which the original leaves out (Zhang et al."
        " 2021, Mosbach et al. 2021: steadier on small tasks)."
    ),
    "learning_rate_schedule": _choice(
        "The learning rate after the warmup.",
        "linear",
        "cosine",
        "polynomial",
        "inverse_sqrt",
        "constant",
    ),
    "end_learning_rate": _float("The learning rate that the schedule ends with.", 0.0),
    "learning_rate_power": _float("Power of --learning_rate_schedule=polynomial.", 1.0),
    "decay_from": _choice(
        "Where the decay of the learning rate counts from: step 0, as the"
        " original's, which falls a little at the warmup's end, or that end.",
        "start",
        "warmup",
    ),
    "num_schedule_steps": _integer(
        "Steps of the learning-rate schedule, where it goes on beyond"
        " --num_train_steps: the first of two phases ends before the rate is 0."
    ),
    "layerwise_learning_rate_decay": _float(
        "Factor of the learning rate from a layer to the one below it (ULMFiT,"
        " ELECTRA: 0.8 or 0.9 in fine-tuning); 1 for none.",
        1.0,
    ),
    "frozen_layers": _string(
        "What is not trained, with commas between: embeddings, layers by number"
        " (0-5), encoder, pooler.",
        "",
    ),
    "gradient_accumulation_steps": _integer(
        "Deal each device's part of a batch out over so many micro-batches, one"
        " after the other: less memory, the same step. --train_batch_size is always"
        " the total.",
        1,
    ),
    "precision": _choice(
        "Numbers that the model computes in; weights, optimizer and losses are"
        " float32 always. float16 scales the loss.",
        "float32",
        "bfloat16",
        "float16",
    ),
    "jit_compile": _boolean(
        "Let XLA compile forward and backward pass as a whole. On a CPU that is"
        " slower than what is compiled in any case; a TPU always does it."
    ),
    "recompute": _boolean(
        "Keep no activations of a layer for the backward pass, but compute them"
        " again (gradient checkpointing): less memory, a third more work."
    ),
    "eval_steps": _integer(
        "Evaluate on held-out records every so many steps, and keep the best"
        " checkpoint in OUTPUT_DIR/best; 0 for never.",
        0,
    ),
    "best_metric": _string(
        "The metric of --eval_steps whose best checkpoint is kept. Default: the loss in"
        " pre-training, the task's own metric in fine-tuning.",
        "loss",
    ),
    "profile_steps": _string(
        "FIRST,LAST: profile these steps for TensorBoard's Profile page."
    ),
    "random_seed": _integer(
        "Seed of initial weights, dropout and the order of the data.", 12345
    ),
    # Where to run.
    "distribution": _choice(
        "Devices: the machine's default one, one_device, all its GPUs"
        " (mirrored), several processes that TF_CONFIG names (multi_worker), a TPU.",
        "default",
        "one_device",
        "mirrored",
        "multi_worker",
        "tpu",
    ),
    "use_tpu": _boolean("Run on a TPU: --distribution=tpu."),
    "tpu_name": _string("Name of the Cloud TPU, its grpc:// address, or `local`."),
    "tpu_zone": _string("GCE zone of the TPU; found in the metadata if not given."),
    "gcp_project": _string("Project of the TPU; found in the metadata if not given."),
    "master": _string("TensorFlow master URL: the TPU's address, if no --tpu_name."),
    "num_tpu_cores": _integer(
        "Number of TPU cores; the TPU itself says how many it has, and a contradiction"
        " is an error.",
        8,
    ),
}


# Each group's first flag above.
_FIRST_OF_GROUP = {
    "bert_config_file": flag_groups.MODEL,
    "max_seq_length": flag_groups.LENGTHS,
    "output_dir": flag_groups.WHAT_TO_DO,
    "train_batch_size": flag_groups.TRAINING,
    "distribution": flag_groups.DEVICES,
}
_GROUPS: dict[str, str] = {}
for _name in _FLAGS:
    _GROUPS[_name] = _FIRST_OF_GROUP.get(_name) or list(_GROUPS.values())[-1]


def define(
    flag_values: flags.FlagValues,
    *names: str,
    required: tuple[str, ...] = (),
    **defaults: Any,
) -> None:
    """Defines shared flags on `flag_values`."""
    for name in (*required, *names, *defaults):
        define_function, default, help_text = _FLAGS[name]
        define_function(
            name, defaults.get(name, default), help_text, flag_values=flag_values
        )
        flag_groups.put(flag_values[name], _GROUPS[name])
    for name in required:
        flags.mark_flag_as_required(name, flag_values)


def define_training(
    flag_values: flags.FlagValues, *, without: tuple[str, ...] = (), **defaults: Any
) -> None:
    """The flags of every script that trains: batches, optimizer, device, ..."""
    names = (
        "init_checkpoint",
        "do_train",
        "do_eval",
        "train_batch_size",
        "eval_batch_size",
        "learning_rate",
        "save_checkpoints_steps",
        "iterations_per_loop",
        "keep_checkpoint_max",
        "log_steps",
        "optimizer",
        "bias_correction",
        "learning_rate_schedule",
        "end_learning_rate",
        "learning_rate_power",
        "decay_from",
        "layerwise_learning_rate_decay",
        "frozen_layers",
        "gradient_accumulation_steps",
        "precision",
        "jit_compile",
        "recompute",
        "profile_steps",
        "random_seed",
        "distribution",
        "use_tpu",
        "tpu_name",
        "tpu_zone",
        "gcp_project",
        "master",
        "num_tpu_cores",
    )
    passed_over = {*without, *defaults}
    define(
        flag_values, *(name for name in names if name not in passed_over), **defaults
    )
    if "eval_batch_size" not in without:
        flag_rules.require_at_least(flag_values, 1, "eval_batch_size")
    flag_rules.require_at_least(
        flag_values,
        1,
        "train_batch_size",
        "save_checkpoints_steps",
        "iterations_per_loop",
        "log_steps",
        "gradient_accumulation_steps",
        "num_tpu_cores",
    )
    flag_rules.require_at_least(flag_values, 0, "keep_checkpoint_max", "random_seed")
    flag_rules.require_at_least(flag_values, 0.0, "learning_rate", "end_learning_rate")
    _refuse_useless_schedule_flags(flag_values)
    flags.register_validator(
        "layerwise_learning_rate_decay",
        lambda factor: 0.0 < factor <= 1.0,
        message="must be above 0 and at most 1",
        flag_values=flag_values,
    )


def _refuse_useless_schedule_flags(flag_values: flags.FlagValues) -> None:
    """Makes what the schedule has no use for a usage error."""

    def fits(values: dict[str, Any]) -> bool:
        schedule = values["learning_rate_schedule"]
        power = values["learning_rate_power"]
        if power <= 0.0:
            raise flags.ValidationError("--learning_rate_power must be above 0.")
        useless = []
        if schedule != "polynomial" and power != 1.0:
            useless.append("learning_rate_power")
        if schedule in ("inverse_sqrt", "constant"):
            useless += ["end_learning_rate"] if values["end_learning_rate"] else []
            useless += ["decay_from"] if values["decay_from"] != "start" else []
        if not useless:
            return True
        raise flags.ValidationError(
            f"--learning_rate_schedule={schedule} has no use for --{useless[0]}: leave"
            " it out, or give another schedule."
        )

    flags.register_multi_flags_validator(
        [
            "learning_rate_schedule",
            "learning_rate_power",
            "end_learning_rate",
            "decay_from",
        ],
        fits,
        flag_values=flag_values,
    )


def given(flag_values: flags.FlagValues, name: str) -> Any:
    """A flag's value if the user gave it; None where it only has its default."""
    flag = flag_values[name]
    return flag.value if flag.present else None
