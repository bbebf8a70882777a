"""Models and tokenizers from a checkpoint of any format.

Weights are matched by name. An encoder weight without a tensor, or a tensor without a
weight, is an error that lists them; a head may be new, and is then logged.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import keras
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.source import CONFIG_NAME, Source, open_source
from bert_tf.conversion.tokenizer_files import VOCAB_NAME, casing_of, segmenter_of
from bert_tf.conversion.weights import (
    Weights,
    added_options,
    listed,
    num_outputs,
    refuse_foreign,
)
from bert_tf.modeling import heads
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.weight_names import is_added, weights_by_name
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer, added_tokens

Model = TypeVar("Model", bound=keras.Model)

# Fields that change the outputs of a model with the same weights.
_FUNCTION: tuple[str, ...] = (
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "pooler_hidden_act",
    "left_to_right",
    "right_to_left",
    "attention_window",
)
_MASKED_LM_FUNCTION = ("masked_lm_hidden_act", "masked_lm_layer_norm_eps")

_NEW_HEAD = "`init_head=False` begins with its encoder and a new head."
_USE_ITS_CONFIG = f" Use the {CONFIG_NAME} that belongs to the checkpoint."


def load_weights(
    model: keras.Model, checkpoint: str | Source, *, init_head: bool = True
) -> list[str]:
    """Loads a checkpoint's weights into a model.

    Args:
        model: a model of `bert_tf.modeling`.
        checkpoint: a path as for `open_source`, or the opened checkpoint.
        init_head: whether the checkpoint's heads are loaded, or only its encoder.

    Returns:
        The names of the model's weights that the checkpoint lacks: heads, the pooler,
        and additions for fine-tuning, such as LoRA's matrices. They keep their initial
        values, and are logged in one line.

    Raises:
        InputError: there is no readable checkpoint, a shape differs, an encoder weight
            is missing, or a tensor matches no weight. No weight is changed then.

    Examples:
        >>> config = bert_tf.open_source("pretrained").config
        >>> model = bert_tf.BertClassifier(config, num_labels=2)
        >>> sorted(bert_tf.load_weights(model, "pretrained"))  # these are new
        ['output_bias', 'output_weights']
    """
    source = opened(checkpoint)
    weights = source.weights if init_head else source.weights.with_heads(())
    variables = weights_by_name(model)
    refuse_other_function(source, model.bert_config)
    _refuse_what_does_not_fit(weights, variables)
    missing = [name for name in variables if name not in weights]
    unused = [name for name in weights if name not in variables]
    # Tensor by tensor, so that the checkpoint is never whole in memory.
    found = [name for name in variables if name in weights]
    for name in found:
        variables[name].assign(weights[name])
    logging.info("Initialized %d weights from %s.", len(found), weights.path)
    if missing:
        logging.info("Not taken from it, so new: %s.", listed(missing))
    heads = names.heads_of(unused)
    heads += [n for n in unused if n.startswith(names.FOREIGN)]
    if heads:
        logging.info("In the checkpoint, and not used: the %s head.", ", ".join(heads))
    return missing


def _refuse_what_does_not_fit(
    weights: Weights, variables: dict[str, keras.Variable]
) -> None:
    of_heads = {row.original for one in names.HEADS.values() for row in one.weights}
    # A model without next sentence prediction has no pooler.
    optional = {*of_heads, *(row.original for row in names.POOLER)}
    wrong = {
        name: f"{name} is {list(there)} there, {list(variables[name].shape)} here"
        for name, there in weights.shapes.items()
        if name in variables and there != tuple(variables[name].shape)
    }
    known = {*variables, *optional, *filter(names.is_of_a_generator, weights)}
    left_over = [
        n
        for n in weights
        if not (n in known or n.startswith(names.FOREIGN) or names.has_global([n]))
    ]
    if not all(name.startswith("bert/") for name in variables):
        refuse_foreign(weights, _NEW_HEAD)
    of_encoder = [n for n in variables if n.startswith("bert/") and not is_added(n)]
    missing = [n for n in of_encoder if n not in weights and n not in optional]
    if wrong and wrong.keys() <= of_heads:
        problem = (
            f"has a {names.heads_of(wrong)[0]} head of another size:"
            f" {listed(wrong.values())}. To begin with its encoder and a new head, give"
            " `init_head=False`."
        )
    elif wrong:
        problem = f"does not fit the model: {listed(wrong.values())}." + _USE_ITS_CONFIG
    elif missing:
        problem = (
            f"lacks {len(missing)} weights of the encoder: a checkpoint of another"
            f" model? {listed(missing)}."
        )
    elif added := [name for name in left_over if is_added(name)]:
        options = added_options(weights).items()
        problem = (
            f"was trained with {' '.join(f'`{o}={value}`' for o, value in options)};"
            f" this model lacks {listed(added)}. Give the same."
        )
    elif left_over:
        problem = (
            f"has {len(left_over)} weights that the model lacks: {listed(left_over)}."
            + _USE_ITS_CONFIG
        )
    else:
        return
    raise InputError(f"{weights.path} {problem}")


def refuse_other_function(
    source: Source, config: BertConfig, said_by: str = "the model's config"
) -> None:
    """Raises InputError if a config would change the outputs for a source's weights."""
    if source.config is None:
        return
    fields = _FUNCTION
    if names.MASKED_LM in names.heads_of(source.weights):
        fields += (*_MASKED_LM_FUNCTION, "tie_word_embeddings")
    if config.shares_layers and source.config.shares_layers:
        fields += ("num_hidden_layers",)  # which the weights do not show
    for field in fields:
        old, new = getattr(source.config, field), getattr(config, field)
        # A window may be added or changed, with `attention_window`, but not lost.
        if old != new and not (field == "attention_window" and (new or not old)):
            raise InputError(
                f"{source.path} was trained with {field}={old}; {said_by} has {new}."
                + _USE_ITS_CONFIG
            )


def opened(checkpoint: str | Source) -> Source:
    """Opens a checkpoint, unless it is already open."""
    return open_source(checkpoint) if isinstance(checkpoint, str) else checkpoint


def load_encoder(path: str | Source, **options: Any) -> BertEncoder:
    """Returns the encoder of a checkpoint.

    Args:
        path: as for `open_source`: a run's output_dir, a TF1 release, a Hugging Face
            folder, or a KerasHub preset.
        **options: passed to BertEncoder, such as `output_hidden_states=True`.

    Examples:
        >>> encoder = bert_tf.load_encoder("pretrained", output_hidden_states=True)
        >>> encoder.bert_config.hidden_size
        8
    """
    source = opened(path)
    options.setdefault("use_pooler", names.POOLER[0].original in source.weights)
    return _loaded(BertEncoder, source, **options)


def load_pretrainer(
    path: str | Source, *, init_head: bool = True, **options: Any
) -> heads.BertPretrainer:
    """Returns the model of a pre-training checkpoint, with the checkpoint's heads.

    Args:
        path: as for `open_source`, or the opened checkpoint.
        init_head: whether to load the checkpoint's heads, or to start with new ones.
        **options: passed to BertPretrainer, such as `output_hidden_states=True`.

    Raises:
        InputError: as for `load_weights`, or the checkpoint has no masked LM.

    Examples:
        >>> model = bert_tf.load_pretrainer("pretrained")
        >>> sorted(model.output)
        ['masked_lm_logits', 'next_sentence_logits']
    """
    source = opened(path)
    if not init_head:
        return _loaded(heads.BertPretrainer, source, init_head=False, **options)
    has_pairs = names.NEXT_SENTENCE in names.heads_of(source.weights)
    options.setdefault("next_sentence", has_pairs)
    if has_pairs:
        num_labels = num_outputs(source.weights, names.NEXT_SENTENCE)
        options.setdefault("num_pair_labels", num_labels)
    return _with_head(heads.BertPretrainer, names.MASKED_LM, source, True, **options)


def load_classifier(
    path: str | Source,
    num_labels: int | None = None,
    problem_type: str | None = None,
    *,
    init_head: bool = True,
    **options: Any,
) -> heads.BertClassifier:
    """Returns a classifier from a checkpoint.

    Args:
        path: as for `open_source`: a fine-tuned classifier, or an encoder.
        num_labels: the number of outputs. Default: the checkpoint's own.
        problem_type: as for BertClassifier. Default: the checkpoint's own.
        init_head: whether to load the checkpoint's classifier, or to start a new one.
        **options: passed to BertClassifier, such as `output_hidden_states=True`.

    Raises:
        InputError: as for `load_weights`, or `num_labels` is not given and the
            checkpoint has no classifier.

    Examples:
        >>> model = bert_tf.load_classifier("pretrained", num_labels=3)
        >>> model.num_labels
        3
    """
    source = opened(path)
    if num_labels is None:
        num_labels = _outputs(source, names.CLASSIFIER)
    if init_head:
        problem_type = problem_type or source.classifier_problem_type()
        options.setdefault("window_pooling", names.window_pooling(source.weights))
    return _loaded(
        heads.BertClassifier,
        source,
        init_head=init_head,
        num_labels=num_labels,
        problem_type=problem_type,
        **options,
    )


def load_span_predictor(
    path: str | Source, *, init_head: bool = True, **options: Any
) -> heads.BertSpanPredictor:
    """Returns a model for SQuAD; arguments and errors as for `load_pretrainer`.

    Examples:
        >>> model = bert_tf.load_span_predictor("squad_model")
        >>> sorted(model.output)
        ['end_logits', 'start_logits']
    """
    return _with_head(
        heads.BertSpanPredictor, names.SPAN, opened(path), init_head, **options
    )


def load_multiple_choice(
    path: str | Source, *, init_head: bool = True, **options: Any
) -> heads.BertMultipleChoice:
    """Returns a model for SWAG; arguments and errors as for `load_pretrainer`.

    Examples:
        >>> model = bert_tf.load_multiple_choice("swag_model")
        >>> model.name
        'bert_multiple_choice'
    """
    return _with_head(
        heads.BertMultipleChoice,
        names.MULTIPLE_CHOICE,
        opened(path),
        init_head,
        **options,
    )


def load_tagger(
    path: str | Source,
    num_labels: int | None = None,
    *,
    init_head: bool = True,
    **options: Any,
) -> heads.BertTagger:
    """Returns a tagger; arguments and errors as for `load_classifier`.

    Examples:
        >>> model = bert_tf.load_tagger("tagger")
        >>> model.num_labels
        3
    """
    source = opened(path)
    if num_labels is None:
        num_labels = _outputs(source, names.TAGGING)
    return _loaded(
        heads.BertTagger, source, init_head=init_head, num_labels=num_labels, **options
    )


def load_model(source: Source, head: str, **options: Any) -> keras.Model:
    """Returns a checkpoint's model with this head; errors as for `load_pretrainer`."""
    build: Callable[..., keras.Model] = names.HEADS[head].code("model")
    if isinstance(build, type):
        return _with_head(build, head, source, True, **options)
    return build(source, **options)


def _with_head(
    build: Callable[..., Model],
    head: str,
    source: Source,
    init_head: bool,
    **options: Any,
) -> Model:
    """Builds a model with a head that is in the checkpoint, or is to be new."""
    for row in names.head_names(head, source.require_config()):
        if init_head and row.original not in source.weights:
            refuse_foreign(source.weights, _NEW_HEAD)
            raise InputError(
                f"{source.path}: no checkpoint with a {head} head ({row.original} is"
                " missing). To begin with its encoder and a new head, give"
                " `init_head=False`."
            )
    return _loaded(build, source, init_head=init_head, **options)


def _loaded(
    build: Callable[..., Model],
    source: Source,
    *,
    init_head: bool = True,
    **options: Any,
) -> Model:
    """Loads a model, with the checkpoint's adapters or mixture of layers."""
    model = build(source.require_config(), **(added_options(source.weights) | options))
    load_weights(model, source, init_head=init_head)
    return model


def _outputs(source: Source, head: str) -> int:
    """Returns the number of outputs of a checkpoint's head."""
    if head not in names.heads_of(source.weights):
        refuse_foreign(source.weights, f"{_NEW_HEAD} Give `num_labels`.")
        raise InputError(
            f"{source.path}: no checkpoint with a {head} head; give `num_labels` to"
            " start one from it."
        )
    return num_outputs(source.weights, head)


class ModelFiles(NamedTuple):
    """A model's config and tokenizer, and the checkpoint, if any."""

    config: BertConfig
    vocabulary: Vocabulary
    do_lower_case: bool
    segmenter: str
    source: Source | None

    @property
    def tokenizer(self) -> WordPieceTokenizer:
        """The tokenizer of this vocabulary, casing and segmenter."""
        return WordPieceTokenizer(
            self.vocabulary,
            do_lower_case=self.do_lower_case,
            segmenter=self.segmenter,
        )


def read_model_files(options: Any, output_dir: str) -> ModelFiles:
    """Reads the model that a command's options or the checkpoint's files describe."""
    start, config_file = options.init_checkpoint, options.bert_config_file
    source = open_source(start) if start else None
    if config_file:
        config = BertConfig.from_json_file(config_file)
        if source is not None:
            refuse_other_function(source, config, f"`bert_config_file={config_file}`")
    elif source is not None:
        config = source.require_config()
    else:
        path = own_file(output_dir, CONFIG_NAME, "bert_config_file")
        config = BertConfig.from_json_file(path)
    do_lower_case = options.value_if_given("do_lower_case")
    if options.vocab_file:
        path = options.vocab_file
        vocabulary = Vocabulary.from_file(path)
    elif source is not None and source.tokenizer.vocabulary is not None:
        source.tokenizer.require_same()
        vocabulary = source.tokenizer.vocabulary
        path = source.tokenizer.path or source.path
    else:
        if not files.exists(os.path.join(output_dir, VOCAB_NAME)) and source:
            source.tokenizer.require_same()
        path = own_file(output_dir, VOCAB_NAME, "vocab_file")
        vocabulary = Vocabulary.from_file(path)
        if do_lower_case is None:
            do_lower_case = casing_of(output_dir)
    vocabulary.require_special_tokens(path)
    if source is not None:
        source, config = extended(source, config, vocabulary, "`vocab_file`")
    source, config = resized(options, source, config)
    config.check_vocabulary(len(vocabulary), path)
    casing = checked_casing(source, vocabulary, do_lower_case)
    found = segmenter_of(output_dir) if source is None else source.tokenizer.segmenter
    return ModelFiles(config, vocabulary, casing, found or NO_SEGMENTER, source)


def own_file(output_dir: str, name: str, flag: str) -> str:
    """Returns a file of the run's folder; raises InputError if there is none."""
    path = os.path.join(output_dir, name)
    if not files.exists(path):
        raise InputError(
            f"`{flag}` is not given, and there is no {path}. Give `init_checkpoint`, a"
            f" trained model with a {name} next to it; or `{flag}`, for random weights."
        )
    return path


def extended(
    source: Source, config: BertConfig, vocabulary: Vocabulary, vocabulary_said_by: str
) -> tuple[Source, BertConfig]:
    """Returns a checkpoint and config with the tokens that a vocabulary adds.

    A new token's weights are the mean of its pieces' weights in the old vocabulary.

    Raises:
        InputError: the vocabulary changes more than by added tokens.
    """
    own = source.tokenizer.vocabulary
    if own is None or own.sha256 == vocabulary.sha256:
        return source, config
    try:
        added = added_tokens(own, vocabulary)
    except ValueError as error:
        raise InputError(
            f"{vocabulary_said_by} has other tokens than {source.tokenizer.path}, which"
            f" the checkpoint {source.path} was trained with: {error}. Take the"
            " checkpoint's, or one that extends it."
        ) from error
    size = max(len(vocabulary), source.weights.shapes[names.OF_VOCABULARY[0]][0])
    logging.info(
        "%s adds %d tokens to those of %s: each begins as the mean of its old pieces.",
        *(vocabulary_said_by, len(added), source.path),
    )
    own_config = source.config and dataclasses.replace(source.config, vocab_size=size)
    source = dataclasses.replace(
        source,
        weights=source.weights.with_tokens(added, size),
        config=own_config,
        tokenizer=source.tokenizer._replace(vocabulary=vocabulary),
    )
    size = max(size, config.vocab_size)
    return source, dataclasses.replace(config, vocab_size=size)


def resized(
    options: Any, source: Source | None, config: BertConfig
) -> tuple[Source | None, BertConfig]:
    """Returns a checkpoint and config with the length and window that are given."""
    if not options.has("attention_window"):
        return source, config
    changed = options.resized(config)
    if source is not None and (changed != config or changed.attention_window):
        source = addon("long_texts")(source, changed)
    return source, changed


def checked_casing(
    source: Source | None,
    vocabulary: Vocabulary,
    do_lower_case: bool | None,
    vocabulary_said_by: str = "`vocab_file`",
    given_by: str = "Received:",
) -> bool:
    """Returns whether to lower-case: the user's choice, or else the checkpoint's."""
    said_by, there = vocabulary_said_by, None
    if source is not None:
        said_by, there = source.path, source.tokenizer.do_lower_case
    if there is None and vocabulary.has_upper_case:
        logging.info(
            "%s has upper-case letters: text keeps its case unless `do_lower_case` is"
            " given.",
            said_by,
        )
        return bool(do_lower_case)
    if do_lower_case is None:
        return True if there is None else there
    if there is not None and there != do_lower_case:
        raise InputError(
            f"{given_by} `do_lower_case={do_lower_case}`, but the checkpoint {said_by}"
            f" was trained with {there}."
        )
    return do_lower_case


def checked_segmenter(
    source: Source | None, segmenter: str | None, said_by: str = "The records have"
) -> str:
    """Returns the segmenter of the records or flags, or else the checkpoint's."""
    there = source and source.tokenizer.segmenter
    if source and there and segmenter and segmenter != there:
        raise InputError(
            f"{said_by} `segmenter={segmenter}`, but the checkpoint {source.path} was"
            f" trained with {there}."
        )
    return segmenter or there or NO_SEGMENTER
