"""The flags of steadier fine-tuning, and of training few weights.

As `bert_tf.finetuning_flags`: a script calls the groups it needs, then `apply_recipe`
before anything reads a flag.
"""

from collections.abc import Mapping
from typing import Any

from absl import flags, logging

from bert_tf import flags as shared_flags
from bert_tf import path_flags
from bert_tf.flag_groups import TRAINING, belongs_to
from bert_tf.options import Path

# Flag -> its default, where a recipe differs from this program's (the original's).
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "devlin": {},
    "mosbach": {
        "num_train_epochs": 20.0,
        "warmup_proportion": 0.1,
        "bias_correction": True,
        "learning_rate": 2e-5,
        "train_batch_size": 16,
    },
}
# Of a selection, whose flags list what to try: where they have a default.
_LISTS = {"learning_rate": "learning_rates", "train_batch_size": "train_batch_sizes"}


@belongs_to(TRAINING)
def define_stability(flag_values: flags.FlagValues) -> None:
    """Defines the flags of steadier fine-tuning, for small sets of examples.

    --bias_correction and --layerwise_learning_rate_decay are among those of every
    script that trains (`bert_tf.flags`).
    """
    flags.DEFINE_enum(
        "recipe",
        "devlin",
        list(RECIPES),
        "Defaults of the flags that are not given: devlin, the original's;"
        " mosbach (Mosbach et al. 2021, steadier on small tasks): 20 epochs, 10 %"
        " warmup, bias correction, learning rate 2e-5, batch 16.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "reinitialize_layers",
        0,
        "Draw the pooler and so many top layers anew after loading the checkpoint"
        " (Zhang et al. 2021: steadier on few examples); 0 for neither.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "layer_mixture",
        False,
        "Classify a learned mixture of the embeddings and all layers, rather than"
        " the last layer (ELMo's, Peters et al. 2018; of BERT Tenney et al. 2019).",
        flag_values=flag_values,
    )
    shared_flags.define(flag_values, "init_head")


@belongs_to(TRAINING)
def define_parameter_efficient(flag_values: flags.FlagValues) -> None:
    """Defines the flags of training few weights beside the pre-trained ones."""
    flags.DEFINE_integer(
        "lora_rank",
        0,
        "Freeze the pre-trained weights, and train products of two matrices of"
        " this rank beside the kernels of queries and values (LoRA, Hu et al. 2021);"
        " 0 for none. Learning rates are higher than usual: 5e-4.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "adapter_size",
        0,
        "Freeze the pre-trained weights, and train two adapters a layer, networks"
        " with so many hidden units, and LayerNorms (Houlsby et al. 2019: 8 to 256,"
        " learning rate 3e-4); 0 for none.",
        lower_bound=0,
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "train_pooler",
        False,
        "Train the pooler too, with LoRA or adapters: for a checkpoint without"
        " one, or with one that was never trained.",
        flag_values=flag_values,
    )
    path_flags.define(
        "init_adapter",
        None,
        "Folder of LoRA's or adapters' weights and their head, OUTPUT_DIR/adapter"
        " of another run, to put on top of --init_checkpoint.",
        Path.FOLDER,
        flag_values=flag_values,
    )
    _refuse_useless_parameter_efficient_flags(flag_values)


def _refuse_useless_parameter_efficient_flags(flag_values: flags.FlagValues) -> None:
    def fits(values: dict[str, Any]) -> bool:
        rank, size = values["lora_rank"], values["adapter_size"]
        frozen = rank or size or values["init_adapter"]
        if rank and size:
            raise flags.ValidationError(
                "--lora_rank and --adapter_size are two ways to do the same: give one."
            )
        if frozen and values["reinitialize_layers"]:
            raise flags.ValidationError(
                "--reinitialize_layers draws weights anew that --lora_rank,"
                " --adapter_size and --init_adapter leave untrained: leave it out."
            )
        if values["train_pooler"] and not frozen:
            raise flags.ValidationError(
                "--train_pooler is for --lora_rank and --adapter_size: without them"
                " all is trained."
            )
        if values["init_adapter"] and not values["init_checkpoint"]:
            raise flags.ValidationError(
                "--init_adapter goes on top of a base: give --init_checkpoint."
            )
        return True

    names = [
        "lora_rank",
        "adapter_size",
        "train_pooler",
        "init_adapter",
        "init_checkpoint",
        "reinitialize_layers",
    ]
    flags.register_multi_flags_validator(names, fits, flag_values=flag_values)


def apply_recipe(flag_values: flags.FlagValues) -> None:
    """Gives the flags that the user has not given the defaults of --recipe, and logs.

    Call it before anything reads them. What results is in the run's flags.json.
    """
    changed, kept = [], []
    for name, value in RECIPES[flag_values.recipe].items():
        names = [each for each in (name, _LISTS.get(name, "")) if each in flag_values]
        given = [each for each in names if flag_values[each].present]
        kept += [flag_values[each].serialize() for each in given]
        if given:
            continue
        for each in names:
            default = flag_values[each].default
            if default is not None:
                is_list = isinstance(default, list)
                flag_values.set_default(each, [value] if is_list else value)
                changed.append(flag_values[each].serialize())
    if changed:
        logging.info("--recipe=%s: %s.", flag_values.recipe, " ".join(changed))
    if kept:
        logging.info("  As given, not as the recipe: %s.", " ".join(kept))
