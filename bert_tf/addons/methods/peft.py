"""LoRA adapters of PEFT, whose matrices are added to the weights of their base.

A folder has adapter_config.json, which names the base, and adapter_model.safetensors:

    base_model.model.X.lora_A.weight     [r, inputs], and X.lora_B.weight [outputs, r]:
                                         X.weight becomes W + s B A
    base_model.model.X.lora_embedding_A  [r, tokens], and X.lora_embedding_B [size, r]:
                                         W + s (B A)^T
    base_model.model.X.weight            replaces a weight of the base, or is of a new
                                         head (`modules_to_save`, `bias`)

The scale s is lora_alpha / r (Hu et al. 2021), or lora_alpha / sqrt(r) with use_rslora
(Kalajdzievski 2023); X is a layer by transformers' name.
"""

import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.errors import InputError
from bert_tf.base.options import flags_of_run
from bert_tf.conversion import export, huggingface, tensorflow
from bert_tf.conversion.huggingface import (
    ADAPTER_NAME,
    ADAPTER_WEIGHTS_NAME,
    CONFIG_NAME,
    named_architecture,
)
from bert_tf.conversion.source import Format, Source
from bert_tf.conversion.weights import Tensor, listed, shown

_PREFIX = "base_model.model."
_WHOLE = (
    "Load it with peft, and write the whole:"
    " model.merge_and_unload().save_pretrained(NEW_FOLDER), and the tokenizer's files."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Settings:
    """The fields of adapter_config.json that are obeyed."""

    peft_type: str | None = None
    base_model_name_or_path: str | None = None
    task_type: str | None = None
    auto_mapping: dict[str, Any] | None = None
    r: int = 8
    lora_alpha: float = 8.0
    use_rslora: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None


_OBEYED = {field.name for field in dataclasses.fields(_Settings)}
# Fields that cannot change the outputs here.
_WITHOUT_EFFECT = {
    # Which layers were trained: the file has exactly their tensors.
    *("target_modules", "exclude_modules", "modules_to_save", "bias"),
    *("layers_to_transform", "layers_pattern"),
    # Of training.
    *("inference_mode", "lora_dropout", "eva_config"),
    # Of other layers (Conv1D, Megatron, GPTQ), or of a base that is downloaded.
    *("fan_in_fan_out", "megatron_core", "qalora_group_size"),
    *("peft_version", "revision"),
}
# The values of all other fields that change nothing. Initializations that are not
# listed change the base's weights.
_UNSET: tuple[Any, ...] = (None, False, [], {})
_HARMLESS = {"init_lora_weights": (None, False, True, "gaussian", "orthogonal", "eva")}

# transformers' model types -> the beginnings of their classes, and the masked LM's
# output layer, whose matrix is the word embeddings.
_MODELS = {
    "bert": ("Bert", "cls.predictions.decoder.weight"),
    "albert": ("Albert", "predictions.decoder.weight"),
    "electra": ("Electra", None),
    "distilbert": ("DistilBert", "vocab_projector.weight"),
    "longformer": ("Longformer", "lm_head.decoder.weight"),
}
_WORDS = "embeddings.word_embeddings.weight"
_SEGMENTS = "embeddings.token_type_embeddings.weight"
_QUESTIONS = "QUESTION_ANS"
# The ends of classes by `task_type`; other types say nothing of the class.
_TASKS = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    _QUESTIONS: "ForQuestionAnswering",
}
_MASKED_LMS = ("ForPreTraining", "ForMaskedLM", "LMHeadModel")
_OUTPUTS = ("classifier.weight", "classifier.out_proj.weight")


def base_of(folder: str) -> str:
    """Returns the folder of an adapter's base."""
    path = os.path.join(folder, ADAPTER_NAME)
    name = _read_settings(folder).base_model_name_or_path or ""
    base = files.expanded(name)
    if not name or not files.is_folder(base):
        raise InputError(
            f"{path}: its base, {name!r}, is not a folder here. Download it (hf"
            f" download {name or 'NAME'} --local-dir FOLDER), and write the folder's"
            ' path as "base_model_name_or_path".'
        )
    base = huggingface.model_folder(base)
    is_theirs = huggingface.is_folder_of_hugging_face(base)
    if not is_theirs or huggingface.is_of_peft(base):
        raise InputError(
            f"{path}: its base, {name!r}, must be a model of transformers. A checkpoint"
            " of another format becomes one by export_model, `format=huggingface`."
        )
    return base


def config_of(folder: str) -> tuple[str, dict[str, Any]]:
    """Returns the base's config.json, its path first, with the adapter's class."""
    settings, own = _read_settings(folder), _read_own(folder)
    path = os.path.join(base_of(folder), CONFIG_NAME)
    values = files.read_object(path, "Hugging Face config")
    model_type = values.get("model_type", "bert")
    kind, _ = _MODELS.get(str(model_type), ("", None))
    own_class = (settings.auto_mapping or {}).get("base_model_class")
    if own_class is None and settings.task_type in _TASKS:
        own_class = kind + _TASKS[settings.task_type]
    elif own_class is None and not any(n.startswith(f"{model_type}.") for n in own):
        own_class = f"{kind}Model"  # a model with a head has this prefix
    if own_class is not None:
        values["architectures"] = [own_class]
    for name in own.keys() & _OUTPUTS:
        number = own[name].shape[0] if own[name].shape else None
        if huggingface.num_labels_in(values) != number:
            values = {**values, "id2label": None, "num_labels": number}
    return path, values


def stored_tensors(folder: str) -> tuple[str, dict[str, Tensor]]:
    """Returns an adapter's file, and its model's tensors, as of a whole model."""
    settings, own = _read_settings(folder), _read_own(folder)
    path = os.path.join(folder, ADAPTER_WEIGHTS_NAME)
    config_path, values = config_of(folder)
    base_values = files.read_object(config_path, "Hugging Face config")
    classes = [named_architecture(x) or "" for x in (base_values, values)]
    model_type = values.get("model_type", "bert")
    prefix = f"{model_type}."
    _, found = huggingface.stored_tensors(os.path.dirname(config_path))
    is_masked_lm = all(name.endswith(_MASKED_LMS) for name in classes)
    if classes[0] != classes[1] and not is_masked_lm:  # the base's head is another
        encoder = {name: x for name, x in found.items() if name.startswith(prefix)}
        found = encoder or found
    # A model without a head has no prefix.
    names = {name.removeprefix(prefix): name for name in found}
    _, matrix = _MODELS.get(str(model_type), ("", None))
    if is_masked_lm and matrix and matrix not in names and _WORDS in names:
        # Changes of one of the two leave the other as it is.
        found[matrix], names[matrix] = found[names[_WORDS]], matrix
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in own.items():
        layer, _, part = name.partition(".lora_")
        if part:
            pairs.setdefault(layer, {})[part] = tensor
        else:
            name = name.replace(".base_layer.", ".")
            found[names.get(name.removeprefix(prefix), name)] = tensor
    for layer, pair in pairs.items():
        name = names.get(f"{layer}.weight".removeprefix(prefix), "")
        is_dense = pair.keys() == {"A.weight", "B.weight"}
        if not name or not (is_dense or pair.keys() == {"embedding_A", "embedding_B"}):
            problem = ", ".join(sorted(pair)) if name else "no such weight in its base"
            raise InputError(f"{path}: {layer} is not read: {problem}. {_WHOLE}")
        a, b = (pair[key] for key in sorted(pair))
        rank, scale = _rank_and_scale(settings, layer, path)
        old = found[name]
        outputs, inputs = old.shape if is_dense else old.shape[::-1]
        if (a.shape, b.shape) != ((rank, inputs), (outputs, rank)):
            raise InputError(
                f"{path}: the matrices of {layer} are {shown(a.shape)} and"
                f" {shown(b.shape)}, by the config and the base"
                f" {shown((rank, inputs))} and {shown((outputs, rank))}."
            )
        read = functools.partial(_sum, old, a, b, scale, is_dense)
        found[name] = Tensor(old.shape, read)
    if settings.task_type == _QUESTIONS and _SEGMENTS in names:
        # PEFT's model of questions does not give `token_type_ids` to its base.
        logging.info("As in PEFT, all tokens are of the first segment: %s.", path)
        table = found[names[_SEGMENTS]]
        found[names[_SEGMENTS]] = table._replace(
            read=lambda: table.read()[[0] * table.shape[0]]
        )
    return path, found


def _sum(old: Tensor, a: Tensor, b: Tensor, scale: float, is_dense: bool) -> np.ndarray:
    product = scale * (b.read().astype(np.float64) @ a.read())
    return (old.read() + (product if is_dense else product.T)).astype(np.float32)


def write(folder: str, model: Source) -> None:
    """Writes the matrices of a run with --lora_rank, with its pooler and head."""
    export.refuse_segmenter(model)
    export.refuse_added(model)
    config, values = model.require_config(), export.hugging_face_config(model)
    if config.attention_window:
        raise InputError(f"{model.path}: peft opens no model with `attention_window`.")
    is_run = model.format is Format.RUN
    stored = tensorflow.read_weights(model.checkpoint).tensors if is_run else {}
    model_type, (own_class,) = values["model_type"], values["architectures"]
    rank = 0
    layers, saved = set(), set()
    tensors = {}
    rows = huggingface.rows_in_class(model.weights, config, values)
    for key, row in rows.items():
        layer = key.removeprefix(f"{model_type}.").removesuffix(".weight").split(".")
        matrix = row.original.replace("/kernel", "/lora_kernel_")
        if f"{matrix}a" in stored:
            rank = stored[f"{matrix}a"].shape[1]
            for ours, theirs in (("a", "A"), ("b", "B")):
                name = key.replace(".weight", f".lora_{theirs}.weight")
                tensors[_PREFIX + name] = huggingface.turned(stored[matrix + ours])
            layers.add(layer[-1])
        elif layer[0] not in ("embeddings", "embeddings_project", "encoder"):
            tensor = model.weights.tensors[row.original]
            tensors[_PREFIX + key] = huggingface.transposed(tensor, row)
            saved.add(layer[0])
    if not rank:
        raise InputError(f"{model.path}: no run with `lora_rank`, which peft can read.")
    ends = {end: task for task, end in _TASKS.items() if task != _QUESTIONS}
    settings = {
        "peft_type": "LORA",
        "task_type": ends.get(own_class[own_class.find("For") :]),
        "auto_mapping": {
            "base_model_class": own_class,
            "parent_library": f"transformers.models.{model_type}.modeling_{model_type}",
        },
        "base_model_name_or_path": flags_of_run(model.folder).get("init_checkpoint"),
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted(layers),
        "modules_to_save": sorted(saved),
    }
    huggingface.write_tensors(os.path.join(folder, ADAPTER_WEIGHTS_NAME), tensors)
    files.write_atomically(
        os.path.join(folder, ADAPTER_NAME), json.dumps(settings, indent=2) + "\n"
    )
    export.write_hugging_face_tokenizer(folder, model)


def _rank_and_scale(settings: _Settings, layer: str, path: str) -> tuple[int, float]:
    rank = _of_layer(settings.rank_pattern, layer, settings.r, path)
    alpha = _of_layer(settings.alpha_pattern, layer, settings.lora_alpha, path)
    if rank < 1:
        raise InputError(f"{path}: the rank of {layer} must be at least 1.")
    return rank, alpha / (math.sqrt(rank) if settings.use_rslora else rank)


def _of_layer(
    patterns: Mapping[str, Any] | None, layer: str, default: Any, path: str
) -> Any:
    """Returns the value of the first pattern that is a layer's name, or its end."""
    for pattern, value in (patterns or {}).items():
        try:
            if re.fullmatch(rf"(?:.*\.)?(?:{pattern})", layer):
                return value
        except re.error as error:
            raise InputError(
                f"{path}: {ADAPTER_NAME} has the pattern {pattern!r}, which is no"
                f" regular expression: {error}."
            ) from error
    return default


def _read_settings(folder: str) -> _Settings:
    path = os.path.join(folder, ADAPTER_NAME)
    values = files.read_object(path)
    if (kind := values.get("peft_type")) != "LORA":
        raise InputError(
            f'{path}: of PEFT\'s adapters "LORA" is read. Received: "peft_type"'
            f" {kind!r}. {_WHOLE}"
        )
    others = [
        name
        for name in values.keys() - _OBEYED - _WITHOUT_EFFECT
        if values[name] not in _HARMLESS.get(name, _UNSET)
    ]
    if others:
        raise InputError(
            f"{path}: not computed here: {listed(sorted(others))}. {_WHOLE}"
        )
    obeyed = {name: values[name] for name in values.keys() & _OBEYED}
    return strict_json.from_values(_Settings, obeyed, path)


def _read_own(folder: str) -> dict[str, Tensor]:
    """Returns an adapter's tensors, by names without the common prefix."""
    path = os.path.join(folder, ADAPTER_WEIGHTS_NAME)
    if not files.exists(path):
        raise InputError(
            f"{path} is missing; pickles are not read. peft writes it:"
            " PeftModel.from_pretrained(BASE, FOLDER).save_pretrained(NEW_FOLDER)."
        )
    tensors = huggingface.read_tensors(path)
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}
