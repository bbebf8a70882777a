"""Writes a checkpoint of any format in any other format."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import huggingface, names, tensorflow
from bert_tf.conversion.loading import (
    checked_casing,
    extended,
    refuse_other_function,
    resized,
)
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import (
    CONFIG_NAME,
    EXPORT_NAME,
    Export,
    Format,
    Source,
    open_source,
    read_export,
)
from bert_tf.conversion.tokenizer_files import (
    TokenizerFiles,
    TrainedWords,
    read_words,
    write_labels,
    write_tokenizer,
    write_tokenizer_json,
    write_words,
)
from bert_tf.conversion.weights import (
    Tensor,
    Weights,
    added_options,
    check_against_config,
    num_outputs,
    refuse_foreign,
)
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer


def completed(
    source: Source,
    *,
    config: BertConfig | None = None,
    vocabulary: Vocabulary | None = None,
    do_lower_case: bool | None = None,
    heads: Sequence[str] | None = None,
) -> Source:
    """Returns a checked source, with the user's options applied."""
    weights = source.weights
    if config is not None:
        refuse_other_function(source, config, "`bert_config_file`")
    config = config or source.require_config()
    check_against_config(weights, config)
    if heads is not None:
        there = names.heads_of(weights)
        if missing := [head for head in heads if head not in there]:
            raise InputError(
                f"{source.path} has no {missing[0]} head; it has:"
                f" {', '.join(there) or 'none'}."
            )
        weights = weights.with_heads(heads)
    refuse_foreign(weights, "`heads=none` exports its encoder alone.")
    path = "`vocab_file`"
    if vocabulary is None and source.tokenizer.vocabulary is not None:
        source.tokenizer.require_same()
        vocabulary = source.tokenizer.vocabulary
        path = source.tokenizer.path or source.path
    source = dataclasses.replace(source, weights=weights)
    if vocabulary is not None:
        source, config = extended(source, config, vocabulary, "`vocab_file`")
        config.check_vocabulary(len(vocabulary), path)
        vocabulary.require_special_tokens(path)
        do_lower_case = checked_casing(source, vocabulary, do_lower_case)
    return dataclasses.replace(
        source,
        config=config,
        tokenizer=TokenizerFiles(
            vocabulary, path, do_lower_case, segmenter=source.tokenizer.segmenter
        ),
    )


def source_of(options: Any, heads: Sequence[str] | None = None) -> Source:
    """Returns the source at `checkpoint`, completed by a command's other options."""
    path, vocabulary = options.bert_config_file, options.vocab_file
    source = open_source(options.checkpoint)
    config = BertConfig.from_json_file(path) if path else source.require_config()
    resized_source, config = resized(options, source, config)
    return completed(
        resized_source or source,
        config=config,
        vocabulary=Vocabulary.from_file(vocabulary) if vocabulary else None,
        do_lower_case=options.value_if_given("do_lower_case"),
        heads=heads,
    )


def identity(model: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all that an export depends on: the model's content, and the settings."""
    digest = hashlib.sha256()
    for name in sorted(model.weights):
        weight = np.asarray(model.weights[name])
        digest.update(f"{name} {weight.dtype} {weight.shape}".encode())
        digest.update(weight.tobytes())
    vocabulary = model.tokenizer.vocabulary
    described = [
        model.require_config().to_dict(),
        vocabulary and vocabulary.sha256,
        model.tokenizer.do_lower_case,
        model.labels,
        model.problem_type,
    ]
    if model.tokenizer.has_segmenter:
        described.append(model.tokenizer.segmenter)
    digest.update(json.dumps(described).encode())
    # Converted like the values that are read back.
    return json.loads(json.dumps({**settings, "model": digest.hexdigest()}))


class NewFolder:
    """A folder for one export, marked complete by export.json.

    As a context manager, it locks the folder while it is filled. After an error, the
    folder is emptied, or removed if new; after a kill, the same command fills it again.
    """

    def __init__(self, folder: str) -> None:
        if not folder:
            raise InputError("`output_dir` must not be empty.")
        self._folder = folder.rstrip("/") or folder
        self._made_from: dict[str, Any] = {}
        self._is_new = not files.exists(folder)
        self._look()

    def _refuse(self) -> NoReturn:
        raise InputError(
            f"`output_dir={self._folder}` is not empty, and nothing is overwritten."
            " Give another folder, or remove this one."
        )

    def _look(self) -> Export | None:
        """Returns export.json; raises InputError if the folder has other files."""
        there_is = files.is_folder(self._folder)
        names = set(files.names_in(self._folder)) if there_is else set()
        there = read_export(self._folder)
        if there is None:
            names = {n for n in names if not n.startswith(f"{EXPORT_NAME}.tmp-")}
            if names:
                self._refuse()
        elif there.complete and names != {EXPORT_NAME, *there.names}:
            self._refuse()
        return there

    def is_done(self, made_from: dict[str, Any]) -> bool:
        """Whether the same export already exists."""
        self._made_from = made_from
        there = self._look()
        if there is not None and there.made_from != made_from:
            self._refuse()
        return there is not None and there.complete

    def __enter__(self) -> str:
        files.make_folder(self._folder)
        with contextlib.ExitStack() as stack:
            if not files.is_remote(self._folder):
                in_use = "another export is being written; wait for it, or stop it."
                stack.callback(os.close, files.lock(self._folder, in_use))
            if self.is_done(self._made_from):  # by another process, meanwhile
                self._refuse()
            self._empty()
            self._record([], complete=False)
            self._unlocking = stack.pop_all()
        return self._folder

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._unlocking:
            if error is None:
                names = [n for n in files.names_in(self._folder) if n != EXPORT_NAME]
                self._record(names, complete=True)
            elif issubclass(error, Exception):  # otherwise as after a kill
                self._empty()
                if self._is_new:
                    files.remove(self._folder)

    def _record(self, names: list[str], *, complete: bool) -> None:
        export = Export(made_from=self._made_from, names=names, complete=complete)
        export.write(self._folder)

    def _empty(self) -> None:
        # Removed last: without export.json, other files would count as the user's.
        names = files.names_in(self._folder)
        for name in sorted(names, key=lambda name: name == EXPORT_NAME):
            files.remove(os.path.join(self._folder, name))


def write_tf1(folder: str, model: Source) -> None:
    """Writes the original's files: bert_config.json, vocab.txt, bert_model.ckpt."""
    config = model.require_config()
    refuse_added(model)
    as_electras = names.is_electra(config, names.heads_of(model.weights))
    beyond = config.beyond_the_original()
    if as_electras:  # its "gelu" is the exact function
        beyond = {k: x for k, x in beyond.items() if k != "embedding_size"}
        if not beyond.pop("hidden_act", None) and config.hidden_act == "gelu":
            beyond["hidden_act"] = "gelu"
    if beyond:
        other = ", ".join(f"{name}={value}" for name, value in beyond.items())
        raise InputError(
            f"{model.weights.path}: the original's code cannot compute this model"
            f" ({other}). Export it as huggingface or saved_model."
        )
    if model.tokenizer.has_segmenter:
        logging.warning(
            "Words are separated with `segmenter=%s` by bert_tf alone: other programs"
            " that read the folder cut them otherwise.",
            model.tokenizer.segmenter,
        )
    write_release(folder, model, as_electras=as_electras)
    _write_reading(folder, model)


def write_release(folder: str, model: Source, *, as_electras: bool = False) -> None:
    """Writes a release's files for any model, without reading.json."""
    prefix = os.path.join(folder, tensorflow.RELEASED_PREFIX)
    tensorflow.write(prefix, model.weights, as_electras=as_electras)
    config = model.require_config()
    files.write_atomically(os.path.join(folder, CONFIG_NAME), config.to_json_string())
    _write_tokenizer(folder, model)
    write_labels(folder, model.labels, model.classifier_problem_type())


def save(
    model: keras.Model,
    output_dir: str,
    tokenizer: WordPieceTokenizer,
    *,
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
) -> None:
    """Writes a Keras model as a checkpoint.

    The folder has the format of the original's releases; `load`, `export`, the loaders
    and `--init_checkpoint` take it.

    Args:
        model: an encoder or a model with a head, of this package.
        output_dir: a new or empty folder.
        tokenizer: the tokenizer that made the model's inputs.
        labels: the names of a classifier's or tagger's outputs, in order.
        max_length: maximum tokens of a text in training; `load` cuts texts there.

    Raises:
        InputError: the folder has other files, the number of labels or tokens is not
            the model's, or the model is not of this package.

    Examples:
        >>> model = bert_tf.load_classifier("pretrained", num_labels=2)
        >>> tokenizer = bert_tf.load_tokenizer("pretrained")
        >>> bert_tf.save(model, "saved", tokenizer, labels=["no", "yes"])
        >>> bert_tf.load("saved").labels
        ('no', 'yes')
    """
    config = getattr(model, "bert_config", None)
    if config is None:
        raise InputError(
            f"{model.name} is no model of bert_tf, which `save` writes; its encoder"
            ' is one. Keras keeps the whole: model.save("model.keras").'
        )
    tensors = {
        name: Tensor(tuple(variable.shape), functools.partial(_as_float32, variable))
        for name, variable in weights_by_name(model).items()
    }
    weights = Weights(model.name, tensors).merged().without_standardization()
    vocabulary = tokenizer.vocabulary
    config.check_vocabulary(len(vocabulary), "`tokenizer`")
    config = dataclasses.replace(config, cls_normalization=False)
    source = Source(
        path=model.name,
        format=Format.TF1,
        folder=output_dir,
        weights=weights,
        config=config,
        tokenizer=TokenizerFiles(
            vocabulary, "", tokenizer.do_lower_case, segmenter=tokenizer.segmenter
        ),
        labels=None if labels is None else tuple(labels),
        problem_type=getattr(model, "problem_type", None),
    )
    reading = Reading(max_seq_length=max_length)
    new = NewFolder(output_dir)
    if new.is_done(identity(source, {"format": "tf1", **reading.known()})):
        return
    with new as path:
        write_release(path, source)
        reading.write(path)


def _as_float32(variable: keras.Variable) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable).astype(np.float32)


def write_huggingface(folder: str, model: Source) -> None:
    """Writes a folder that transformers reads, head included."""
    refuse_segmenter(model)
    refuse_added(model)
    values = hugging_face_config(model)
    huggingface.write(folder, model.weights, model.require_config(), values)
    write_hugging_face_tokenizer(folder, model)


def hugging_face_config(model: Source) -> dict[str, Any]:
    """Returns the content of config.json, with the labels."""
    config = model.require_config()
    architecture = huggingface.architecture_of(model.weights, config)
    labels: dict[str, Any] = {}
    for head in names.heads_of(model.weights):
        if names.HEADS[head].has_labels:
            labels = {
                "labels": model.labels,
                "num_labels": num_outputs(model.weights, head),
                "problem_type": model.classifier_problem_type(),
            }
    return huggingface.to_config(config, architecture, **labels)


def write_hugging_face_tokenizer(folder: str, model: Source) -> None:
    """Writes the tokenizer's files and reading.json."""
    most = model.require_config().max_position_embeddings
    _write_tokenizer(folder, model, model.reading.length(most))
    _write_reading(folder, model)
    if (vocabulary := model.tokenizer.vocabulary) is not None:
        write_tokenizer_json(folder, vocabulary, bool(model.tokenizer.do_lower_case))


def _write_reading(folder: str, model: Source) -> None:
    """Writes reading.json, without window attention if the weights lack it."""
    reading = model.reading
    attends = names.WINDOWS in names.heads_of(model.weights)
    if reading.window_pooling == "attention" and not attends:
        reading = reading.without_windows()
    reading.write(folder)


def write_kerashub(folder: str, model: Source) -> None:
    """Writes the encoder as a preset for KerasHub's BertBackbone."""
    refuse_segmenter(model)
    refuse_added(model)
    heads = names.heads_of(model.weights)
    if heads:
        logging.info(
            "Left out, as a preset of BertBackbone has none: the %s head.",
            ", ".join(heads),
        )
    addon("kerashub").write(
        folder,
        model.weights.with_heads(()),
        model.require_config(),
        model.tokenizer.vocabulary,
        model.tokenizer.do_lower_case,
    )


def refuse_added(model: Source) -> None:
    """Raises InputError for weights that no other program can use."""
    config = model.require_config()
    ours = ("right_to_left", "bilstm")
    options = [*added_options(model.weights), *(n for n in ours if getattr(config, n))]
    if options:
        raise InputError(
            f"{model.path} was trained with {' and '.join(options)}, which no other"
            " program computes. Export it as saved_model or litert."
        )


def refuse_segmenter(model: Source) -> None:
    """Raises InputError for a tokenizer that other programs do not have."""
    if model.tokenizer.has_segmenter:
        raise InputError(
            f"{model.path} was trained with segmenter={model.tokenizer.segmenter}, with"
            " which no other program's tokenizer separates words. Export it as"
            " saved_model or litert, which take ids, or load it with bert_tf.load."
        )


def _write_tokenizer(folder: str, model: Source, max_length: int | None = None) -> None:
    tokenizer = model.tokenizer
    if tokenizer.vocabulary is not None:
        most = max_length or model.require_config().max_position_embeddings
        casing, segmenter = bool(tokenizer.do_lower_case), tokenizer.segmenter
        write_tokenizer(folder, tokenizer.vocabulary, casing, most, segmenter)
    if (words := read_words(model.folder)) != TrainedWords():
        write_words(folder, words)
