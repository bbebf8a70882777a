"""What the flags make of a classifier: LoRA, adapters, a mixture of layers."""

from typing import Any

from absl import flags

from bert_tf import flags as shared_flags
from bert_tf.config import BertConfig
from bert_tf.conversion.adapter_files import (
    MODEL_OPTIONS,
    AdapterFiles,
    open_adapter,
    refuse_other_base,
)
from bert_tf.errors import InputError


def opened_adapter(
    flag_values: flags.FlagValues, config: BertConfig
) -> AdapterFiles | None:
    """What --init_adapter names; None where it is not given."""
    if not flag_values.init_adapter:
        return None
    adapter = open_adapter(flag_values.init_adapter)
    refuse_other_base(adapter, config)
    return adapter


def model_options(
    flag_values: flags.FlagValues, adapter: AdapterFiles | None = None
) -> dict[str, Any]:
    """BertClassifier's arguments, as `bert_tf.tasks.classification.task` takes them."""
    if adapter is None:
        return {name: flag_values[name].value for name in MODEL_OPTIONS}
    for name in MODEL_OPTIONS:
        given = shared_flags.given(flag_values, name)
        if given is not None and given != adapter.model[name]:
            raise InputError(
                f"--{name}={given}, but --init_adapter={flag_values.init_adapter} was"
                f" trained with {adapter.model[name]}. Leave --{name} out."
            )
    return dict(adapter.model)


def is_parameter_efficient(options: dict[str, Any]) -> bool:
    """Whether the pre-trained weights are frozen, so that an adapter is to be saved."""
    return bool(options["lora_rank"] or options["adapter_size"])
