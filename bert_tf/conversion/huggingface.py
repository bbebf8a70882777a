"""Checkpoints of Hugging Face's transformers, read and written."""

import glob
import json
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.config import (
    CLASSIFIER_DROPOUT,
    MULTI_LABEL,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    BertConfig,
)
from bert_tf.conversion import names
from bert_tf.conversion.weights import (
    Tensor,
    Weights,
    check_against_config,
    listed,
)
from bert_tf.errors import InputError

# The file format safetensors: named arrays, and nothing that could run.
#
#     8 bytes         N, the header's length, little-endian
#     N bytes         the header, JSON: {name: {"dtype": "F32", "shape": [2, 3],
#                     "data_offsets": [begin, end]}}; "__metadata__" is no tensor
#     the rest        the arrays, row by row, little-endian; offsets count from here,
#     and
#                     leave neither gaps nor a rest
#
# Files are read and written a tensor at a time, local and remote ones alike, and half
# precision becomes float32, which numpy alone could not do for bfloat16. The format
# has
# no checksum: a file that was cut, or whose header was, shows; a changed number does
# not.


_METADATA = "__metadata__"
_LENGTH_BYTES = 8
# As the format's own reader has it.
_MOST_HEADER_BYTES = 100_000_000

# Only what float32 holds exactly.
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Bytes of an element, of the types that stand beside weights, such as position ids.
_SIZES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "I32": 4,
    "U32": 4,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


def read_tensors(path: str) -> dict[str, Tensor]:
    """The tensors of a file by name; only the header is read now."""
    if not files.exists(path):
        raise InputError(f"No such file: {path}")
    if files.is_folder(path):
        raise InputError(f"{path}: a folder, not a safetensors file.")
    size = files.size(path)
    with files.open_binary(path) as file:
        header, start = _read_header(path, file, size)
    tensors: dict[str, Tensor] = {}
    spans = []
    for name, entry in header.items():
        dtype, shape, begin, end = _checked_entry(path, name, entry)
        spans.append((begin, end))
        read = _reading(path, name, dtype, shape, start + begin)
        tensors[name] = Tensor(shape, read, _problem_of(name, dtype))
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise _damaged(path, "its tensors overlap or leave gaps")
        reached = end
    if start + reached != size:
        raise _damaged(
            path, f"by its header it has {start + reached} bytes, but there are {size}"
        )
    return tensors


def write_tensors(path: str, tensors: Mapping[str, Tensor]) -> None:
    """Writes a file as float32, under a temporary name until it is complete."""
    header: dict[str, Any] = {
        # transformers asks which framework's layout a file has.
        _METADATA: {"format": "pt"}
    }
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + 4 * math.prod(tensor.shape)
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    # Spaces: the arrays begin at a multiple of their elements' size.
    text += b" " * (-len(text) % _LENGTH_BYTES)
    temporary = files.temporary_name(path)
    try:
        with files.open_binary(temporary, "wb") as file:
            file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
            for name, tensor in tensors.items():
                array = tensor.read()
                assert array.shape == tuple(tensor.shape), name
                file.write(array.astype("<f4", copy=False).tobytes())
                del array
            if not files.is_remote(path):
                file.flush()
                os.fsync(file.fileno())
        files.replace(temporary, path)
    except BaseException:
        if files.exists(temporary):
            files.remove(temporary)
        raise


def _read_header(path: str, file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    """The header's tensors, and where the arrays begin."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    start = _LENGTH_BYTES + length
    if size < _LENGTH_BYTES or length > _MOST_HEADER_BYTES or start > size:
        raise _damaged(path, f"it ends inside its header ({size} bytes)")
    try:
        header = json.loads(file.read(length).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    header.pop(_METADATA, None)
    return header, start


def _checked_entry(
    path: str, name: str, entry: Any
) -> tuple[str, tuple[int, ...], int, int]:
    """A tensor's type, shape, first byte and last."""
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        count = math.prod(shape)
        sensible = isinstance(dtype, str) and all(
            type(number) is int and number >= 0
            for number in (*shape, begin, end, end - begin)
        )
    except (KeyError, TypeError, ValueError):
        sensible = False
    if not sensible:
        raise _damaged(path, f"its header says nothing sensible of {name}")
    # Of a type that is not known here, reading says so.
    if dtype in _SIZES and end - begin != count * _SIZES[dtype]:
        raise _damaged(
            path, f"{name} has {end - begin} bytes, too few or too many for its shape"
        )
    return dtype, shape, begin, end


def _reading(
    path: str, name: str, dtype: str, shape: tuple[int, ...], begin: int
) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        problem = _problem_of(name, dtype)
        if problem:
            raise InputError(f"{path}: {problem}.")
        length = math.prod(shape) * _SIZES[dtype]
        with files.open_binary(path) as file:
            file.seek(begin)
            data = file.read(length)
        if len(data) != length:
            raise _damaged(path, f"it ends inside {name}")
        array = np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
        if dtype == "BF16":
            # The upper half of a float32.
            return (array.astype("<u4") << np.uint32(16)).view("<f4")
        return array.astype(np.float32, copy=False)

    return read


def _problem_of(name: str, dtype: str) -> str | None:
    if dtype in _DTYPES:
        return None
    return f"{name} is of type {dtype}; only F32, F16 and BF16 are read"


def _damaged(path: str, what: str) -> InputError:
    return InputError(f"{path} is damaged or no safetensors file: {what}.")


# PyTorch's pickled weights: found, refused, and how to convert them.


WEIGHTS_NAME = "model.safetensors"

# What weights are called where they are pickled; the model's own first.
_PICKLES = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth")


def pickles_in(folder: str) -> list[str]:
    """Files of PyTorch's weights; the model's own first."""
    found: dict[str, None] = {}
    for pattern in _PICKLES:
        found |= dict.fromkeys(files.glob(os.path.join(glob.escape(folder), pattern)))
    return list(found)


def refuse_pickles(path: str) -> None:
    """Raises InputError if `path` is a pickle, or a folder with nothing but pickles.

    The message has the line that converts it: every tensor by its name, with a loader
    that runs no code.
    """
    if files.is_folder(path):
        found = pickles_in(path)
        if not found:
            return
        # A model may have several parts; of other files the first.
        parts = [
            name for name in found if os.path.basename(name).startswith("pytorch_model")
        ] or found[:1]
    elif path.endswith(tuple(ending.lstrip("*") for ending in _PICKLES[1:])):
        parts, path = [path], os.path.dirname(path)
    else:
        return
    target = os.path.join(path, WEIGHTS_NAME)
    code = (
        "import torch; from safetensors.torch import save_file;"
        " save_file({k: v.clone().contiguous()"
        f" for f in {json.dumps(parts)}"
        ' for k, v in torch.load(f, map_location="cpu", weights_only=True).items()},'
        f' {json.dumps(target)}, metadata={{"format": "pt"}})'
    )
    raise InputError(
        f"{parts[0]} is a pickle, which can run any code when it is opened, and is not"
        f" read. With torch and safetensors installed, this writes {target}:"
        f" python -c {shlex.quote(code)}"
    )


# config.json of Hugging Face's transformers, and a BertConfig: one from the other.


CONFIG_NAME = "config.json"

# transformers' name -> ours. Its "gelu" is the exact function; the tanh approximation
# has several names.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_THEIR_ACTIVATIONS = {
    "gelu": "gelu_new",
    "gelu_erf": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

# Fields with the same name and meaning in both.
_SAME_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
)
# What transformers assumes where a file does not say it, and BertConfig does not.
_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}

# What the computation depends on and BERT has in one way only.
_FIXED = {"position_embedding_type": "absolute", "add_cross_attention": False}

# Labels without names are called this and a number.
_NO_LABEL = "LABEL_"


class Architecture(NamedTuple):
    """A model class of transformers: its heads, and whether it has a pooler."""

    heads: tuple[str, ...]
    pooler: bool


ARCHITECTURES: Mapping[str, Architecture] = {
    "BertModel": Architecture((), True),
    "BertForPreTraining": Architecture((names.MASKED_LM, names.NEXT_SENTENCE), True),
    "BertForMaskedLM": Architecture((names.MASKED_LM,), False),
    "BertLMHeadModel": Architecture((names.MASKED_LM,), False),
    "BertForNextSentencePrediction": Architecture((names.NEXT_SENTENCE,), True),
    "BertForSequenceClassification": Architecture((names.CLASSIFIER,), True),
    "BertForQuestionAnswering": Architecture((names.SPAN,), False),
    "BertForMultipleChoice": Architecture((names.MULTIPLE_CHOICE,), True),
    "BertForTokenClassification": Architecture((names.TAGGING,), False),
}


def read_config(folder: str) -> tuple[BertConfig, dict[str, Any]]:
    """A BertConfig from config.json, and all that the file says."""
    path = os.path.join(folder, CONFIG_NAME)
    values = files.read_json(path, "Hugging Face config")
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold one JSON object of settings.")
    if values.get("model_type", "bert") != "bert":
        raise InputError(
            f"{path}: `model_type` must be 'bert'. Found: {values['model_type']!r}."
        )
    for key, wanted in _FIXED.items():
        if values.get(key, wanted) != wanted:
            raise InputError(
                f"{path}: `{key}` must be {wanted!r}, as BERT has it. Found:"
                f" {values[key]!r}."
            )
    fields = {**_DEFAULTS, **{k: values[k] for k in _SAME_FIELDS if k in values}}
    activation = values.get("hidden_act", fields["hidden_act"])
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise InputError(
            f"{path}: `hidden_act` must be one of {', '.join(_ACTIVATIONS)}."
            f" Found: {activation!r}."
        )
    problem_type = values.get("problem_type")
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise InputError(
            f"{path}: `problem_type` must be one of {', '.join(PROBLEM_TYPES)}. Found:"
            f" {problem_type!r}."
        )
    fields["hidden_act"] = _ACTIVATIONS[activation]
    fields["left_to_right"] = bool(values.get("is_decoder", False))
    return BertConfig.from_dict(fields, source=path), values


def named_architecture(values: Mapping[str, Any]) -> str | None:
    """The class of transformers that a config names; None where it names none."""
    classes = values.get("architectures")
    if isinstance(classes, list) and classes and isinstance(classes[0], str):
        return classes[0]
    return None


def problem_type_in(values: Mapping[str, Any]) -> str | None:
    """What a config's classifier predicts; None where nothing says it.

    One output is a number, as transformers has it, unless it is said to be a label.
    """
    if named_architecture(values) != "BertForSequenceClassification":
        return None
    problem_type = values.get("problem_type")
    if problem_type != MULTI_LABEL and _num_labels(values) == 1:
        return REGRESSION
    return problem_type


def labels_in(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A config's labels in the order of the outputs."""
    labels = values.get("id2label")
    if problem_type_in(values) == REGRESSION and _num_labels(values) == 1:
        return ()
    if not isinstance(labels, dict):
        return None
    found = [labels.get(str(i)) for i in range(len(labels))]
    ordered = tuple(label for label in found if isinstance(label, str))
    if len(ordered) < len(found):
        return None
    if all(label == f"{_NO_LABEL}{i}" for i, label in enumerate(ordered)):
        return None
    return ordered


def _num_labels(values: Mapping[str, Any]) -> Any:
    """How many labels a config has; None where it does not say it."""
    labels = values.get("id2label")
    return len(labels) if isinstance(labels, dict) else values.get("num_labels")


def architecture_of(weights: Iterable[str], config: BertConfig) -> str:
    """The class of transformers that has just these heads."""
    there = set(weights)
    heads = tuple(names.heads_of(there))
    if heads == (names.MASKED_LM,):
        return "BertLMHeadModel" if config.left_to_right else "BertForMaskedLM"
    for name, architecture in ARCHITECTURES.items():
        if architecture.heads == heads:
            return name
    raise InputError(
        f"transformers has no class with these heads: {', '.join(heads)}. Choose one by"
        " --heads."
    )


def to_config(
    config: BertConfig,
    architecture: str,
    *,
    labels: Iterable[str] | None = None,
    num_labels: int | None = None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """What config.json says of a model."""
    heads = ARCHITECTURES[architecture].heads
    if names.MASKED_LM in heads:
        _check_masked_lm(config, architecture)
    values: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": "bert",
        **{key: getattr(config, key) for key in _SAME_FIELDS},
        "hidden_act": _THEIR_ACTIVATIONS[config.hidden_act],
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.left_to_right:
        values["is_decoder"] = True
    if {names.CLASSIFIER, names.MULTIPLE_CHOICE, names.TAGGING} & set(heads):
        values["classifier_dropout"] = CLASSIFIER_DROPOUT
    if {names.CLASSIFIER, names.TAGGING} & set(heads):
        labels = tuple(labels or ())
        labels = labels or tuple(f"{_NO_LABEL}{i}" for i in range(num_labels or 1))
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if names.CLASSIFIER in heads:
        values["problem_type"] = problem_type or SINGLE_LABEL
    return values


def _check_masked_lm(config: BertConfig, architecture: str) -> None:
    """Refuses a masked LM's head with an activation or epsilon of its own."""
    for field, encoders in (
        ("masked_lm_hidden_act", "hidden_act"),
        ("masked_lm_layer_norm_eps", "layer_norm_eps"),
    ):
        own = getattr(config, field)
        if own is not None and own != getattr(config, encoders):
            raise InputError(
                f"transformers' {architecture} has one `{encoders}` for the encoder and"
                f" the masked LM's head; here `{field}` is {own!r} and `{encoders}`"
                f" {getattr(config, encoders)!r}. Leave the head out by --heads."
            )


# Hugging Face folders: config.json, model.safetensors and the tokenizer's files.
#
# A folder of transformers (any BERT with or without its head), or of
# sentence-transformers, whose first module is such a folder. Weights are read from
# safetensors alone: a pickle can run any code when it is opened.


__all__ = [
    "WEIGHTS_NAME",
    "architecture_of",
    "is_folder_of_hugging_face",
    "labels_in",
    "model_folder",
    "problem_type_in",
    "read_config",
    "read_weights",
    "refuse_pickles",
    "to_config",
    "write",
]

INDEX_NAME = "model.safetensors.index.json"
_MODULES_NAME = "modules.json"

# Tensors that repeat another: theirs -> whose values they must have.
_COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Buffers, no weights.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Older files have TensorFlow's names of these.
_OLD_ENDINGS = {
    "LayerNorm.gamma": "LayerNorm.weight",
    "LayerNorm.beta": "LayerNorm.bias",
}
# These share the name `classifier`; only the config tells whose it is.
_CLASSIFIERS = (names.CLASSIFIER, names.MULTIPLE_CHOICE, names.TAGGING)


def model_folder(folder: str) -> str:
    """The folder of the model itself; in one of sentence-transformers maybe another."""
    path = os.path.join(folder, _MODULES_NAME)
    if not files.exists(path):
        return folder
    modules = files.read_json(path)
    try:
        first = modules[0]["path"]
    except (KeyError, IndexError, TypeError):
        first = None
    if not isinstance(first, str):
        raise InputError(f"{path}: must list modules, each with its `path`.")
    return files.inside(folder, first, path) if first else folder


def is_folder_of_hugging_face(folder: str) -> bool:
    """Whether a folder's files are those of transformers or sentence-transformers."""
    known = (_MODULES_NAME, WEIGHTS_NAME, INDEX_NAME)
    return any(files.exists(os.path.join(folder, name)) for name in known) or bool(
        pickles_in(folder)
    )


def read_weights(folder: str, config: BertConfig, values: Mapping[str, Any]) -> Weights:
    """The weights of a folder by the original's names."""
    stored = _stored(folder)
    rows = dict(_rows(config, _classifier_in(values)))
    keys = [*rows, *_COPIES, *_BUFFERS]
    found: dict[str, Tensor] = {}
    left_over = []
    for name, tensor in stored.items():
        key = _current_name(name)
        if key not in keys or key in found:
            left_over.append(name)
        found[key] = tensor
    if left_over:
        if _classifier_in(values) is None and "classifier.weight" in left_over:
            raise InputError(
                f"{os.path.join(folder, CONFIG_NAME)}: `architectures` must say what"
                f" `classifier.weight` classifies: {', '.join(_classes(_CLASSIFIERS))}."
                f" Found: {values.get('architectures')!r}."
            )
        raise InputError(
            f"{folder}: tensors that have no place in BERT: {listed(left_over)}."
        )
    for key in rows:
        if key in found and found[key].problem:
            raise InputError(f"{folder}: {found[key].problem}.")
    copies = {copy: found.pop(copy) for copy in _COPIES if copy in found}
    for copy, tensor in copies.items():
        # A file may have the one or the other, or both.
        found.setdefault(_COPIES[copy], tensor)
    weights = Weights(
        folder,
        {
            row.original: _transposed(found[key], row)
            for key, row in rows.items()
            if key in found
        },
    )
    check_against_config(weights, config)
    _check_labels(weights, values, os.path.join(folder, CONFIG_NAME))
    for copy, tensor in copies.items():
        _check_same(folder, copy, tensor, found[_COPIES[copy]])
    return weights


def _rows(
    config: BertConfig, classifier: str | None
) -> Iterator[tuple[str, names.Name]]:
    """Hugging Face's names, without `bert.`, and their rows of the table."""
    for row in (*names.encoder_names(config), *names.POOLER):
        yield row.hugging_face, row
    for head, rows in names.HEADS.items():
        if head not in _CLASSIFIERS or head == classifier:
            for row in rows:
                yield row.hugging_face, row


def _classifier_in(values: Mapping[str, Any]) -> str | None:
    """Which head the config's class calls `classifier`; None where it has none."""
    architecture = ARCHITECTURES.get(named_architecture(values) or "")
    heads = architecture.heads if architecture else ()
    return next((head for head in heads if head in _CLASSIFIERS), None)


def _classes(heads: Iterable[str]) -> list[str]:
    """The classes of transformers with one of the heads."""
    return [
        name
        for name, architecture in ARCHITECTURES.items()
        if set(heads) & set(architecture.heads)
    ]


def _current_name(name: str) -> str:
    """A tensor's name as transformers has it today, the encoder's without `bert.`."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix(names.HUGGING_FACE_ENCODER)


def _transposed(tensor: Tensor, row: names.Name) -> Tensor:
    """A tensor in the other layout, where the two differ."""
    if not row.hugging_face_transposes:
        return tensor
    return Tensor(tensor.shape[::-1], lambda: tensor.read().T)


def _check_labels(weights: Weights, values: Mapping[str, Any], path: str) -> None:
    """Raises InputError if a classifier has not as many outputs as there are labels."""
    labels = values.get("id2label")
    for head in (names.CLASSIFIER, names.TAGGING):
        shape = weights.shapes.get(names.HEADS[head][0].original)
        if shape and isinstance(labels, dict) and len(labels) != shape[0]:
            raise InputError(
                f"{path}: `id2label` has {len(labels)} labels, but the {head} in"
                f" {weights.path} has {shape[0]} outputs."
            )


def _check_same(folder: str, copy: str, tensor: Tensor, other: Tensor) -> None:
    """Raises InputError unless a copy is one, bit for bit: NaN is equal to itself."""
    if tensor is other:
        return
    if tensor.shape != other.shape or not np.array_equal(
        tensor.read().view(np.int32), other.read().view(np.int32)
    ):
        raise InputError(
            f"{folder}: {copy} is not {_COPIES[copy]}: a BERT whose weights are not"
            " tied, which cannot be represented."
        )


def _stored(folder: str) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, by the names and layout there."""
    single = os.path.join(folder, WEIGHTS_NAME)
    index = os.path.join(folder, INDEX_NAME)
    if files.exists(single):
        return read_tensors(single)
    if not files.exists(index):
        refuse_pickles(folder)
        raise InputError(f"{folder}: no {WEIGHTS_NAME} in this folder.")
    content = files.read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(
        isinstance(part, str) for part in places.values()
    ):
        raise InputError(f"{index}: must have a `weight_map` from tensors to files.")
    stored: dict[str, Tensor] = {}
    for part in sorted(set(places.values())):
        stored |= read_tensors(files.inside(folder, part, index))
    missing = [name for name in places if name not in stored]
    if missing:
        raise InputError(
            f"{index} lists tensors that its files lack: {listed(missing)}."
        )
    return stored


def write(
    folder: str, weights: Weights, config: BertConfig, values: Mapping[str, Any]
) -> None:
    """Writes config.json and model.safetensors."""
    (name,) = values["architectures"]
    check_against_config(weights, config)
    rows = dict(_rows_of(name, config))
    missing = [row.original for row in rows.values() if row.original not in weights]
    if missing:
        raise InputError(
            f"{weights.path}: transformers' {name} has weights that are not there:"
            f" {listed(missing)}."
        )
    left_out = set(weights) - {row.original for row in rows.values()}
    if left_out:
        logging.info(
            "Left out, as transformers' %s has no place for them: %s.",
            name,
            listed(sorted(left_out)),
        )
    write_tensors(
        os.path.join(folder, WEIGHTS_NAME),
        {
            key: _transposed(_tensor(weights, row.original), row)
            for key, row in rows.items()
        },
    )
    files.write_atomically(
        os.path.join(folder, CONFIG_NAME), json.dumps(values, indent=2) + "\n"
    )


def _tensor(weights: Weights, name: str) -> Tensor:
    return Tensor(weights.shapes[name], lambda: weights[name])


def _rows_of(name: str, config: BertConfig) -> Iterator[tuple[str, names.Name]]:
    """The tensors' names in files of a class of transformers, and their rows."""
    architecture = ARCHITECTURES[name]
    prefix = "" if name == "BertModel" else names.HUGGING_FACE_ENCODER
    for row in names.encoder_names(config):
        yield prefix + row.hugging_face, row
    for row in names.POOLER if architecture.pooler else ():
        yield prefix + row.hugging_face, row
    for head in architecture.heads:
        for row in names.HEADS[head]:
            yield row.hugging_face, row
