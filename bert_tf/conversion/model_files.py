"""What model a command is about: what its flags say, or else the checkpoint's files.

Config, vocabulary and casing come along with --init_checkpoint. What a flag says beside
that must agree with it: another vocabulary or casing would feed the model ids that mean
something else, and nothing would show it.
"""

import os
from typing import NamedTuple

from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.conversion.checkpoint import refuse_other_function
from bert_tf.conversion.source import CONFIG_NAME, Source, open_source
from bert_tf.conversion.tokenizer_files import VOCAB_NAME, casing_of
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary


class ModelFiles(NamedTuple):
    """A model's config and tokenizer, and where they come from.

    Attributes:
        config: the architecture.
        vocabulary: the vocabulary.
        do_lower_case: its casing.
        source: the opened checkpoint, where there is one.
    """

    config: BertConfig
    vocabulary: Vocabulary
    do_lower_case: bool
    source: Source | None


def model_files(
    init_checkpoint: str | None,
    *,
    bert_config_file: str | None,
    vocab_file: str | None,
    do_lower_case: bool | None,
    output_dir: str,
) -> ModelFiles:
    """Resolves the flags of those names."""
    source = open_source(init_checkpoint) if init_checkpoint else None
    if bert_config_file:
        config = BertConfig.from_json_file(bert_config_file)
        if source is not None and source.config is not None:
            said_by = f"--bert_config_file={bert_config_file}"
            refuse_other_function(source, config, said_by)
    elif source is not None:
        config = source.require_config()
    else:
        path = _own_file(output_dir, CONFIG_NAME, "bert_config_file")
        config = BertConfig.from_json_file(path)
    own_casing = None
    if vocab_file:
        vocabulary, path = Vocabulary.from_file(vocab_file), vocab_file
    elif source is not None and source.tokenizer.vocabulary is not None:
        source.tokenizer.require_same()
        vocabulary = source.tokenizer.vocabulary
        path = source.tokenizer.path or source.path
    else:
        path = _own_file(output_dir, VOCAB_NAME, "vocab_file")
        vocabulary, own_casing = Vocabulary.from_file(path), casing_of(output_dir)
    vocabulary.require_special_tokens(path)
    has_own = source is not None and source.tokenizer.vocabulary is not None
    config.check_vocabulary(
        len(vocabulary),
        path,
        "Leave --vocab_file out: the checkpoint has its own."
        if vocab_file and has_own
        else "Give those of one model.",
    )
    if do_lower_case is None:
        do_lower_case = own_casing
    casing = checked_casing(source, vocabulary, do_lower_case, "--vocab_file")
    return ModelFiles(config, vocabulary, casing, source)


def _own_file(output_dir: str, name: str, flag: str) -> str:
    path = os.path.join(output_dir, name)
    if not files.exists(path):
        raise InputError(
            f"Give --{flag}, or an --init_checkpoint that has a {name} beside it."
        )
    return path


def checked_casing(
    source: Source | None,
    vocabulary: Vocabulary,
    do_lower_case: bool | None,
    vocabulary_said_by: str,
) -> bool:
    """Whether to lower-case: what the user says, or else the checkpoint.

    A checkpoint tells it by its tokenizer's files, or by the name of a release
    (cased_..., uncased_...). Where it does not, a vocabulary with upper-case letters
    does: such as that of a TF1 release in a folder of another name.
    """
    said_by, there = vocabulary_said_by, None
    if source is not None:
        own = source.tokenizer.vocabulary
        if own is not None and own.sha256 != vocabulary.sha256:
            raise InputError(
                f"{vocabulary_said_by} has other tokens than {source.tokenizer.path},"
                f" which the checkpoint {source.path} was trained with."
            )
        said_by, there = source.path, source.tokenizer.do_lower_case
    if there is None and vocabulary.has_upper_case:
        logging.log(
            logging.WARNING if do_lower_case else logging.INFO,
            "%s does not say whether text keeps its case; the vocabulary has upper-case"
            " letters, so it does unless --do_lower_case=True.",
            said_by,
        )
        return bool(do_lower_case)
    if do_lower_case is None:
        return True if there is None else there
    if there is not None and there != do_lower_case:
        raise InputError(
            f"--do_lower_case={do_lower_case}, but the checkpoint {said_by} was"
            f" trained with {there}."
        )
    return do_lower_case
