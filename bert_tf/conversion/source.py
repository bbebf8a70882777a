"""A checkpoint of any format: its weights, its config, its tokenizer.

`--init_checkpoint` takes any of these; the files show which one it is:

    a run's output_dir, or a checkpoint in it     checkpoint, bert_config.json
    a TF1 release, its folder or prefix           bert_model.ckpt.*, bert_config.json;
                                                  ALBERT's: model.ckpt-best.*,
                                                  albert_config.json; ELECTRA's:
                                                  electra_small.*, no config
    Model Garden's, its folder or prefix          bert_model.ckpt.*, bert_config.json
    Hugging Face's or sentence-transformers'      model.safetensors or tf_model.h5,
                                                  config.json
    PEFT's LoRA on one of these                   adapter_config.json, which names it,
                                                  adapter_model.safetensors
    a KerasHub preset, its folder or its handle   model.weights.h5, config.json
    an ONNX export                                model.onnx, config.json, export.json

A folder with several of them counts as the first in this list.

An exported folder also has export.json, which records the model and the settings:

    {"made_from": {"format": "tf1", "model": SHA-256}, "names": ["bert_config.json",
     ...], "complete": true}

`names` are the folder's other files. `complete` is false until all are written; after a
kill, the same command fills the folder again.
"""

import dataclasses
import enum
import functools
import json
import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.addons import addon
from bert_tf.base.config import REGRESSION, SINGLE_LABEL, BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.options import BEST_FOLDER
from bert_tf.conversion import huggingface, names, tensorflow
from bert_tf.conversion.reading import Reading, read_reading
from bert_tf.conversion.tokenizer_files import (
    VOCAB_NAME,
    TokenizerFiles,
    read_labels,
    read_tokenizer,
)
from bert_tf.conversion.weights import Weights, listed, num_outputs
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.text.wordpiece import WordPieceTokenizer

CONFIG_NAME = "bert_config.json"
EXPORT_NAME = "export.json"

_OF_FLAX = (
    "is a file of transformers 4, and not read. Convert it there, with the class that"
    " config.json names: BertForPreTraining.from_pretrained(FOLDER, from_flax=True)"
    f".save_pretrained(NEW_FOLDER) writes {huggingface.WEIGHTS_NAME}."
)
_OF_KERAS = (
    "is a file of Keras, without a vocabulary, and not read. Load it by load_model or"
    " load_weights, and write a folder: bert_tf.save(model, FOLDER, tokenizer)."
)
ONNX_NAME = "model.onnx"
_EXPORTED = "is an exported model, and not read. Give the checkpoint it was made from."
# Files of other programs, or of export_model, that are not read.
_OTHERS = {
    "flax_model.msgpack": _OF_FLAX,
    **dict.fromkeys(("saved_model.pb", "model.tflite", ONNX_NAME), _EXPORTED),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """The content of export.json."""

    made_from: dict[str, Any]
    names: list[str]
    complete: bool

    @property
    def is_onnx(self) -> bool:
        """Whether it can be read without TensorFlow and Keras."""
        return ONNX_NAME in self.names

    def write(self, folder: str) -> None:
        """Writes the file, replacing an older one."""
        files.write_atomically(
            os.path.join(folder, EXPORT_NAME),
            json.dumps(dataclasses.asdict(self), indent=1) + "\n",
        )


def read_export(folder: str) -> Export | None:
    """Returns a folder's export.json, or None if it is missing or another program's."""
    path = os.path.join(folder, EXPORT_NAME)
    if not files.exists(path):
        return None
    try:
        return strict_json.read(Export, path)
    except InputError:
        return None


class Format(enum.StrEnum):
    """The program or kind of file that wrote a checkpoint."""

    RUN = "bert_tf run"
    TF1 = "TF1 release"
    MODEL_GARDEN = "Model Garden checkpoint"
    HUGGING_FACE = "Hugging Face folder"
    KERAS_HUB = "KerasHub preset"
    ONNX = "ONNX export"


OF_TENSORFLOW = (Format.RUN, Format.TF1, Format.MODEL_GARDEN)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """An opened checkpoint; its weights are read on demand."""

    path: str  # as given
    format: Format  # the kind of program that wrote it
    folder: str  # the folder of its files; the handle if it is one
    weights: Weights  # by the original's names
    config: BertConfig | None  # None if no file gives it
    tokenizer: TokenizerFiles
    # A classifier's or tagger's labels by output; None if unnamed, empty for a
    # regression of one number.
    labels: tuple[str, ...] | None = None
    # A classifier's problem type, of `bert_tf.base.config`; None if no file gives it.
    problem_type: str | None = None

    def __post_init__(self) -> None:
        if self.config:  # of the weights there are
            is_tied = names.UNTIED not in self.weights
            config = dataclasses.replace(self.config, tie_word_embeddings=is_tied)
            if names.POOLER[0].original not in self.weights:
                config = dataclasses.replace(config, pooler_hidden_act="tanh")
            object.__setattr__(self, "config", config)
        for head in names.heads_of(self.weights):
            if self.labels is None or not names.HEADS[head].has_labels:
                continue
            number = num_outputs(self.weights, head)
            if {len(self.labels) or 1, len({*self.labels}) or 1} != {number}:
                raise InputError(
                    f"{self.path}: its {head} head has {number} outputs, its labels are"
                    f" {', '.join(self.labels) or 'none, as of a regression'}: each"
                    " output needs one of its own."
                )

    @functools.cached_property
    def reading(self) -> Reading:
        """How the model reads texts."""
        return read_reading(self.folder, folder_of(self.path))

    @property
    def checkpoint(self) -> str:
        """The checkpoint's path, or else the folder of its weights."""
        is_one = self.format in OF_TENSORFLOW
        return tensorflow.find_checkpoint(self.path) if is_one else self.folder

    def classifier_problem_type(self) -> str | None:
        """Returns a classifier's problem type; None for other models."""
        if names.CLASSIFIER not in names.heads_of(self.weights):
            return None
        number = num_outputs(self.weights, names.CLASSIFIER)
        return self.problem_type or (REGRESSION if number == 1 else SINGLE_LABEL)

    def require_config(self) -> BertConfig:
        """Returns the config; raises InputError if there is none."""
        if self.config is None:
            raise InputError(
                f"{self.path}: {os.path.join(self.folder, CONFIG_NAME)} is missing;"
                " give `bert_config_file`."
            )
        return self.config


def with_new_labels(source: Source, head: str, labels: Sequence[str]) -> Source:
    """Returns a source with more labels; the old ones keep their outputs."""
    there = source.labels if head in names.heads_of(source.weights) else None
    if not (there and {*there} < {*labels}):
        return source
    logging.info(
        "The outputs of %s are those of %s; new: %s.",
        *(", ".join(there), source.path),
        ", ".join(label for label in labels if label not in there),
    )
    places = [there.index(label) if label in there else None for label in labels]
    of_head = [row.original for row in names.HEADS[head].weights]
    weights = source.weights.with_rows(of_head, places)
    return dataclasses.replace(source, weights=weights, labels=tuple(labels))


def _kerashub() -> Any:
    return addon("kerashub")


def find_format(path: str) -> Format:
    """Returns the format of a path, judged by file names alone."""
    if files.is_folder(path):
        export = read_export(path)
        if export is not None and not export.complete:
            raise InputError(
                f"{path}: its export was interrupted; give the same export_model"
                " command again."
            )
        released = (f"{prefix}.index" for prefix in tensorflow.RELEASED_PREFIXES)
        there = [os.path.join(path, name) for name in ("checkpoint", *released)]
        if not any(files.exists(p) and not files.is_folder(p) for p in there):
            if _kerashub().is_preset_folder(path):
                return Format.KERAS_HUB
            if export is not None and export.is_onnx:
                return Format.ONNX
            if huggingface.is_folder_of_hugging_face(path):
                return Format.HUGGING_FACE
            _refuse_others(path, sorted(files.names_in(path)))
            raise InputError(
                f"{path}: no checkpoint in this folder. Give a run's output_dir, or a"
                f" folder with {tensorflow.RELEASED_PREFIX}.index,"
                f" {huggingface.WEIGHTS_NAME} or {_kerashub().WEIGHTS_NAME}."
            )
    else:
        name = os.path.basename(path)
        if files.exists(path) and not path.endswith(".index"):
            _refuse_others(os.path.dirname(path), [name])
        if path.endswith((".safetensors", ".h5")):
            # A file stands for its folder, which has the config and vocabulary.
            of_hub = _kerashub().WEIGHTS_NAME
            known = (*huggingface.WEIGHTS_NAMES, of_hub)
            if name not in known or not files.exists(path):
                raise InputError(
                    f"{path}: give the folder of a checkpoint, or its"
                    f" {' or '.join(known)}."
                )
            return Format.KERAS_HUB if name == of_hub else Format.HUGGING_FACE
        if _kerashub().is_handle(path):
            return Format.KERAS_HUB
        if files.exists(path):
            huggingface.refuse_pickles(path)
    prefix = tensorflow.find_checkpoint(path)
    if tensorflow.is_of_a_run(prefix):
        return Format.RUN
    is_of_garden = tensorflow.is_of_model_garden(prefix)
    return Format.MODEL_GARDEN if is_of_garden else Format.TF1


def _refuse_others(folder: str, there: Sequence[str]) -> None:
    """Raises InputError, with advice, for files that are not read."""
    known = (_kerashub().WEIGHTS_NAME, huggingface.TF_WEIGHTS_NAME)
    for name in there:
        of_keras = name.endswith((".keras", ".h5", ".hdf5")) and name not in known
        if advice := _OF_KERAS if of_keras else _OTHERS.get(name):
            raise InputError(f"{os.path.join(folder, name)} {advice}")
    prefixes = [
        os.path.join(folder, name.removesuffix(".index"))
        for name in there
        if name.endswith(".index")
    ]
    if prefixes:
        raise InputError(
            f"{folder} has no file 'checkpoint' that says which checkpoint is meant."
            f" Give one: {listed(prefixes)}"
        )


def open_source(path: str) -> Source:
    """Opens a checkpoint of any format.

    Args:
        path: a folder, a file or prefix in it, or a KerasHub handle.

    Raises:
        InputError: there is no checkpoint, or a file is damaged or of another kind.

    Examples:
        >>> source = bert_tf.open_source("classifier")
        >>> source.config.hidden_size, source.labels
        (8, ('bad', 'good'))
    """
    path = files.expanded(path)
    labels = problem_type = None
    folder = folder_of(path)
    if files.is_folder(path) and folder != path:
        logging.info("%s holds several runs: the best one, %s, is read.", path, folder)
        path = folder
    format_ = find_format(path)
    if format_ == Format.KERAS_HUB:
        folder = path
        preset = _kerashub().preset_folder(_preset_of(path))
        config, weights = _kerashub().read_model(preset)
        tokenizer = _kerashub().read_tokenizer(preset)
    elif format_ in (Format.HUGGING_FACE, Format.ONNX):
        folder = huggingface.model_folder(folder)
        config, values = huggingface.read_config(folder)
        if format_ == Format.ONNX:
            weights = addon("onnx").read_weights(os.path.join(folder, ONNX_NAME))
        else:
            weights = huggingface.read_weights(folder, config, values)
        tokenizer = _tokenizer_of(folder)
        problem_type = huggingface.problem_type_in(values)
        if any(names.HEADS[head].has_labels for head in names.heads_of(weights)):
            labels = huggingface.labels_in(values)
    else:
        config = None
        for name in (CONFIG_NAME, "albert_config.json"):
            config_path = os.path.join(folder, name)
            if config is None and files.exists(config_path):
                config = BertConfig.from_json_file(config_path)
        labels, problem_type = read_labels(folder)
        # Only our own runs have LoRA's weights and standardization.
        weights = tensorflow.read_weights(path).merged().without_standardization()
        config = config or tensorflow.config_of_electra(path, weights)
        if format_ == Format.MODEL_GARDEN:
            config = tensorflow.config_of_model_garden(path, config)
        config = config and dataclasses.replace(config, cls_normalization=False)
        tokenizer = read_tokenizer(folder)
    return Source(
        path=path,
        format=format_,
        folder=folder,
        weights=weights,
        config=config,
        tokenizer=tokenizer,
        labels=labels,
        problem_type=problem_type,
    )


def open_tokenizer(path: str) -> TokenizerFiles:
    """Opens a checkpoint's vocabulary and casing, without its weights."""
    path = files.expanded(path)
    if _kerashub().is_handle(path) or _kerashub().is_preset_folder(folder_of(path)):
        return _kerashub().read_tokenizer(_kerashub().preset_folder(_preset_of(path)))
    return _tokenizer_of(huggingface.model_folder(folder_of(path)))


def _tokenizer_of(folder: str) -> TokenizerFiles:
    """Reads a model's tokenizer; of an adapter without one, its base's."""
    tokenizer = read_tokenizer(folder)
    if tokenizer.vocabulary is None and huggingface.is_of_peft(folder):
        return read_tokenizer(addon("peft").base_of(folder))
    return tokenizer


def open_reading(path: str) -> Reading:
    """Opens a checkpoint's reading, without its weights."""
    folder = folder_of(files.expanded(path))
    return read_reading(huggingface.model_folder(folder), folder)


def load_tokenizer(path: str | Source, **options: Any) -> WordPieceTokenizer:
    """Returns a checkpoint's tokenizer: its vocabulary, casing and segmenter.

    Args:
        path: as for `open_source`, or the opened checkpoint.
        **options: passed to WordPieceTokenizer, such as `do_lower_case`. Its default
            comes from the files, the folder's name, or upper-case letters in the
            vocabulary.

    Raises:
        InputError: there is no vocabulary, or the tokenizer splits texts differently.

    Examples:
        >>> tokenizer = bert_tf.load_tokenizer("pretrained")
        >>> tokenizer.tokenize("A good film")
        ['a', 'good', 'film']
    """
    if isinstance(path, Source):
        tokenizer, path = path.tokenizer, path.path
    else:
        tokenizer = open_tokenizer(path)
    tokenizer.require_same()
    if tokenizer.vocabulary is None:
        missing = os.path.join(folder_of(path), VOCAB_NAME)
        raise InputError(f"No such vocabulary file: {missing}. Copy the model's there.")
    if tokenizer.do_lower_case is not None:
        options.setdefault("do_lower_case", tokenizer.do_lower_case)
    elif tokenizer.vocabulary.has_upper_case:
        options.setdefault("do_lower_case", False)
    options.setdefault("segmenter", tokenizer.segmenter or NO_SEGMENTER)
    tokenizer.vocabulary.require_special_tokens(tokenizer.path or path)
    return WordPieceTokenizer(tokenizer.vocabulary, **options)


def _preset_of(path: str) -> str:
    return folder_of(path) if path.endswith(".h5") else path


def folder_of(path: str) -> str:
    """Returns the folder of a checkpoint's config and vocabulary, or the handle."""
    if not files.is_folder(path):
        return path if _kerashub().is_handle(path) else os.path.dirname(path)
    best = os.path.join(path, BEST_FOLDER)  # of several runs, if needed
    has_own, has_best = (
        files.exists(os.path.join(folder, "checkpoint")) for folder in (path, best)
    )
    return best if has_best and not has_own else path
