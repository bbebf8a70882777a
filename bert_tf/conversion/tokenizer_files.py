"""The vocabulary and the casing that lie beside a checkpoint.

    vocab.txt              one token a line
    tokenizer_config.json  {"do_lower_case": true}

A TF1 release has no second file; its name says the casing.
"""

import json
import os
import re
from typing import NamedTuple

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary

VOCAB_NAME = "vocab.txt"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"


class TokenizerFiles(NamedTuple):
    """What a folder says of its tokenizer.

    Attributes:
        vocabulary: None where it has none.
        path: the vocabulary's file, for messages.
        do_lower_case: None where nothing says it.
    """

    vocabulary: Vocabulary | None
    path: str | None
    do_lower_case: bool | None


def read_tokenizer(folder: str) -> TokenizerFiles:
    """The tokenizer's files of a folder.

    Raises:
        InputError: a file is damaged.
    """
    path = os.path.join(folder, VOCAB_NAME)
    casing = casing_of(folder)
    if not files.exists(path):
        return TokenizerFiles(None, None, casing)
    return TokenizerFiles(Vocabulary.from_file(path), path, casing)


def write_tokenizer(folder: str, vocabulary: Vocabulary, do_lower_case: bool) -> None:
    """Writes vocab.txt and tokenizer_config.json."""
    vocabulary.save(os.path.join(folder, VOCAB_NAME))
    files.write_atomically(
        os.path.join(folder, TOKENIZER_CONFIG_NAME),
        json.dumps({"do_lower_case": do_lower_case}) + "\n",
    )


def casing_of(folder: str) -> bool | None:
    """A checkpoint folder's casing; None where nothing says it."""
    path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    if files.exists(path):
        try:
            return json.loads(files.read_text(path)).get("do_lower_case")
        except (json.JSONDecodeError, AttributeError) as error:
            raise InputError(f"{path}: must hold one JSON object.") from error
    name = os.path.basename(os.path.normpath(folder)) if folder else ""
    # The releases' names, such as multi_cased_L-12_H-768_A-12; the first multilingual
    # model and the Chinese one are lower-cased and do not say so.
    match = re.fullmatch(
        r"(?:wwm_)?(?:multi_)?(uncased|cased|multilingual|chinese)_L-\d+_H-\d+_A-\d+",
        name,
    )
    return None if match is None else match[1] != "cased"
