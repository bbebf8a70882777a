"""The files of a folder that define its tokenizer and its labels.

    vocab.txt              one token per line
    tokenizer_config.json  {"do_lower_case": true, ...}; "segmenter" if there is one
    tokenizer.json         Hugging Face's vocabulary, casing and rules in one file;
                           newer versions write it instead of vocab.txt
    sentence_bert_config.json
                           "do_lower_case" of sentence-transformers
    special_tokens_map.json, added_tokens.json
                           older versions write these next to vocab.txt
    labels.txt             the labels, one per line, in the order of the outputs; empty
                           for a regression of one number. If a label has a line end in
                           it: a JSON list of the labels in one line
    problem_type.txt       Hugging Face's words: `multi_label_classification` if several
                           labels may hold at once, `regression` for several numbers.
                           Without it, one of several labels is chosen, or one number is
                           predicted
    words.json             properties of a tagger's training words (`TrainedWords`)

A TF1 release has only vocab.txt; its folder's name gives the casing. Hugging Face's
files may describe a tokenizer that splits text differently from the original's. Using
it is an error, which names the first setting that differs. One difference is in all of
them and is ignored: a word of 101 to 200 characters is [UNK] there.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.base import files, strict_json
from bert_tf.base.config import MULTI_LABEL, PROBLEM_TYPES, REGRESSION
from bert_tf.base.errors import InputError
from bert_tf.text.segmentation import NO_SEGMENTER, SEGMENTERS
from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.text.wordpiece import MAX_CHARACTERS_PER_WORD

LABELS_NAME = "labels.txt"
PROBLEM_TYPE_NAME = "problem_type.txt"
WORDS_NAME = "words.json"
VOCAB_NAME = "vocab.txt"
TOKENIZER_CONFIG_NAME = "tokenizer_config.json"
TOKENIZER_NAME = "tokenizer.json"
SENTENCES_NAME = "sentence_bert_config.json"
_SPECIAL_TOKENS_NAME = "special_tokens_map.json"
_ADDED_TOKENS_NAME = "added_tokens.json"

# SentencePiece models, as in ALBERT's releases.
_SENTENCE_PIECES = ("spiece.model", "30k-clean.model")

_SPECIAL_TOKENS = {
    "unk_token": UNK,
    "sep_token": SEP,
    "pad_token": PAD,
    "cls_token": CLS,
    "mask_token": MASK,
}
# Classes whose rules are the original's, or are given in tokenizer.json.
_CLASSES = (
    "BertTokenizer",
    "BertTokenizerFast",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
)
# Settings of tokenizer_config.json that must equal the original's.
_CONFIG_FIXED = {
    "tokenize_chinese_chars": True,
    "do_basic_tokenize": True,
    **_SPECIAL_TOKENS,
}
# Settings there, and in special_tokens_map.json, for words that are never split.
_ADDED_WORDS = (
    "added_tokens_decoder",
    "additional_special_tokens",
    "extra_special_tokens",
    "never_split",
)
# Settings of tokenizer.json -> the original's values. Others cannot matter: decoders,
# flags of the special tokens, and lengths and strategies that a call gives.
_JSON_FIXED: dict[tuple[str, str], Sequence[Any]] = {
    ("model", "type"): ("WordPiece",),
    ("model", "unk_token"): (UNK,),
    ("model", "continuing_subword_prefix"): (CONTINUATION,),
    ("model", "max_input_chars_per_word"): (
        None,
        *range(100, MAX_CHARACTERS_PER_WORD + 1),
    ),
    ("normalizer", "type"): ("BertNormalizer",),
    ("normalizer", "clean_text"): (True,),
    ("normalizer", "handle_chinese_chars"): (True,),
    ("pre_tokenizer", "type"): ("BertPreTokenizer",),
}
_OF_CASING = ("lowercase", "strip_accents")
# The post-processors of BERT: BertProcessing, and a template of a pair; a text's own is
# its beginning.
_ADDED_BY_BERT = (("cls", CLS), ("sep", SEP))
_TEMPLATE = (
    *(("SpecialToken", CLS, 0), ("Sequence", "A", 0), ("SpecialToken", SEP, 0)),
    *(("Sequence", "B", 1), ("SpecialToken", SEP, 1)),
)


def write_labels(
    folder: str, labels: Sequence[str] | None, problem_type: str | None
) -> None:
    """Writes the labels and problem type of a classifier or tagger."""
    if labels is not None:
        content = "".join(f"{label}\n" for label in labels)
        if _labels(content.encode("utf-8", "replace").decode()) != tuple(labels):
            content = json.dumps(list(labels)) + "\n"
        files.write_atomically(os.path.join(folder, LABELS_NAME), content)
    is_of_one_number = labels is not None and not labels
    if problem_type == MULTI_LABEL or (
        problem_type == REGRESSION and not is_of_one_number
    ):
        files.write_atomically(
            os.path.join(folder, PROBLEM_TYPE_NAME), f"{problem_type}\n"
        )


def read_labels(folder: str) -> tuple[tuple[str, ...] | None, str | None]:
    """Reads the labels and the problem type; None if no file gives them."""
    labels = problem_type = None
    labels_path, problem_path = (
        os.path.join(folder, name) for name in (LABELS_NAME, PROBLEM_TYPE_NAME)
    )
    if files.exists(labels_path):
        labels = _labels(files.read_text(labels_path))
    if files.exists(problem_path):
        problem_type = files.read_text(problem_path).strip()
        if problem_type not in PROBLEM_TYPES:
            raise InputError(
                f"{problem_path}: must be one of {', '.join(PROBLEM_TYPES)}. Received:"
                f" {problem_type!r}."
            )
    return labels, problem_type


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedWords:
    """Properties of a tagger's training words, used to split plain text."""

    longest: int | None = None  # number of pieces of the longest; None if unknown
    # Whether each ideograph is a word, as in the tokenizer: false if most of the words
    # with ideographs had several.
    splits_cjk: bool = True
    splits_punctuation: bool = False  # whether each punctuation character is a word


def write_words(folder: str, words: TrainedWords) -> None:
    """Writes the properties of a tagger's training words."""
    content = json.dumps(dataclasses.asdict(words)) + "\n"
    files.write_atomically(os.path.join(folder, WORDS_NAME), content)


def read_words(folder: str) -> TrainedWords:
    """Reads the properties of a tagger's training words, or returns the defaults."""
    path = os.path.join(folder, WORDS_NAME)
    return (
        strict_json.read(TrainedWords, path) if files.exists(path) else TrainedWords()
    )


def _labels(content: str) -> tuple[str, ...]:
    lines = content.split("\n")[:-1]
    if len(lines) == 1 and lines[0].startswith("["):
        try:
            return strict_json.checked(
                tuple[str, ...], json.loads(lines[0]), LABELS_NAME, "labels"
            )
        except (ValueError, RecursionError):
            pass  # A label that begins with a bracket.
    return tuple(lines)


class TokenizerFiles(NamedTuple):
    """A folder's tokenizer; None: not given by any file."""

    vocabulary: Vocabulary | None
    path: str | None  # the vocabulary's file, for messages
    do_lower_case: bool | None
    difference: str | None = None  # the first setting that differs from ours
    segmenter: str | None = None

    @property
    def has_segmenter(self) -> bool:
        """Whether a segmenter splits text into words first, as in no other program."""
        return self.segmenter not in (None, NO_SEGMENTER)

    def require_same(self) -> None:
        """Raises InputError if the folder's tokenizer differs from ours."""
        if self.difference:
            raise InputError(
                f"{self.difference} The tokenizer here cannot do that: give"
                " `vocab_file` and `do_lower_case` to use the weights with this"
                " tokenizer anyway."
            )


def read_tokenizer(folder: str) -> TokenizerFiles:
    """Reads a folder's tokenizer files."""
    vocab_path = os.path.join(folder, VOCAB_NAME)
    json_path = os.path.join(folder, TOKENIZER_NAME)
    vocabulary = path = tokenizer = None
    if files.exists(vocab_path):
        vocabulary, path = Vocabulary.from_file(vocab_path), vocab_path
    if files.exists(json_path):
        tokenizer = files.read_object(json_path)
        theirs = _vocabulary_in(tokenizer, json_path)
        if theirs and vocabulary is None:
            tokens = sorted(theirs, key=theirs.__getitem__)
            if [theirs[token] for token in tokens] != list(range(len(tokens))):
                raise InputError(
                    f"{json_path}: `model.vocab` must number its tokens from 0 on,"
                    " without gaps."
                )
            try:
                vocabulary, path = Vocabulary(tokens), json_path
            except ValueError as error:
                raise InputError(f"{json_path}: `model.vocab`: {error}") from error
        elif vocabulary and theirs.items() - vocabulary.ids.items():
            raise InputError(
                f"{json_path} has other tokens than {vocab_path}; remove the one that"
                " does not belong to the weights."
            )
    return TokenizerFiles(
        vocabulary,
        path,
        casing_of(folder),
        next(_differences(folder, tokenizer, vocabulary), None),
        segmenter_of(folder),
    )


def write_tokenizer(
    folder: str,
    vocabulary: Vocabulary,
    do_lower_case: bool,
    max_length: int | None = None,
    segmenter: str | None = None,
) -> None:
    """Writes vocab.txt and tokenizer_config.json, which transformers also reads."""
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        **_SPECIAL_TOKENS,
    }
    if max_length is not None:
        settings["model_max_length"] = max_length
    if segmenter not in (None, NO_SEGMENTER):
        settings["segmenter"] = segmenter
    vocabulary.save(os.path.join(folder, VOCAB_NAME))
    files.write_atomically(
        os.path.join(folder, TOKENIZER_CONFIG_NAME),
        json.dumps(settings, indent=2) + "\n",
    )


def write_tokenizer_json(
    folder: str, vocabulary: Vocabulary, do_lower_case: bool
) -> None:
    """Writes tokenizer.json, with which the `tokenizers` library returns our ids."""
    # As with `recognize_special_tokens`, a [MASK] in the text is the special token.
    special = [
        {"id": vocabulary.ids[token], "content": token, "single_word": False}
        | {"lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for token in (PAD, UNK, CLS, SEP, MASK)
        if token in vocabulary
    ]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "BertProcessing",
            "sep": [SEP, vocabulary.sep_id],
            "cls": [CLS, vocabulary.cls_id],
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNK,
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": MAX_CHARACTERS_PER_WORD,
            "vocab": dict(vocabulary.ids),
        },
    }
    files.write_atomically(
        os.path.join(folder, TOKENIZER_NAME),
        json.dumps(content, indent=2, ensure_ascii=False) + "\n",
    )


def casing_of(folder: str) -> bool | None:
    """Returns a checkpoint folder's casing, or None if it is not given."""
    for name, part, key in (
        (TOKENIZER_CONFIG_NAME, None, "do_lower_case"),
        (TOKENIZER_NAME, "normalizer", "lowercase"),
    ):
        path = os.path.join(folder, name)
        values = files.read_object(path) if files.exists(path) else {}
        casing = (_part(values, part) if part else values).get(key)
        if not isinstance(casing, bool | None):
            raise InputError(
                f"{path}: `{key}` must be true or false. Received: {casing!r}."
            )
        if casing is not None:
            return casing
    name = os.path.basename(os.path.normpath(files.absolute(folder or ".")))
    # The releases' names, such as multi_cased_L-12_H-768_A-12; the first multilingual
    # model and the Chinese one are lower-cased, though their names do not say so.
    match = re.fullmatch(
        r"(?:wwm_)?(?:multi_)?(uncased|cased|multilingual|chinese)_L-\d+_H-\d+_A-\d+",
        name,
    )
    return None if match is None else match[1] != "cased"


def segmenter_of(folder: str) -> str | None:
    """Returns a checkpoint folder's segmenter, or None if it is not given."""
    path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    if not files.exists(path):
        return None
    segmenter = files.read_object(path).get("segmenter", NO_SEGMENTER)
    if segmenter not in SEGMENTERS:
        raise InputError(
            f"{path}: `segmenter` must be one of {', '.join(SEGMENTERS)}. Received:"
            f" {segmenter!r}."
        )
    return segmenter


def _differences(
    folder: str, tokenizer: dict[str, Any] | None, vocabulary: Vocabulary | None
) -> Iterator[str]:
    """Yields settings in the files that the original's tokenizer cannot have."""
    json_path = os.path.join(folder, TOKENIZER_NAME)
    names = (TOKENIZER_CONFIG_NAME, _SPECIAL_TOKENS_NAME, _ADDED_TOKENS_NAME)
    paths = [os.path.join(folder, name) for name in (*names, SENTENCES_NAME)]
    config_path, special_path, added_path, sentences_path = paths
    config, special, added, sentences = (
        files.read_object(path) if files.exists(path) else {} for path in paths
    )
    casing = casing_of(folder)
    pieces = [os.path.join(folder, name) for name in _SENTENCE_PIECES]
    if not files.exists(os.path.join(folder, VOCAB_NAME)):
        for path in filter(files.exists, pieces):
            yield (
                f"{path} is a SentencePiece vocabulary: the weights can be read and"
                " written, but text needs a WordPiece vocabulary of your own."
            )
    # (file, setting, value, values equal to the original's)
    found: list[tuple[str, str, Any, Sequence[Any]]] = []
    for key, wanted in _CONFIG_FIXED.items():
        for path, settings in ((config_path, config), (special_path, special)):
            found.append((path, key, _content(settings.get(key, wanted)), (wanted,)))
    if casing is False or (casing is None and vocabulary and vocabulary.has_upper_case):
        lowers = bool(sentences.get("do_lower_case"))
        found.append((sentences_path, "do_lower_case", lowers, (False,)))
    allowed = {"tokenizer_class": (None, *_CLASSES), "strip_accents": (None, casing)}
    for key, known in allowed.items():
        found.append((config_path, key, config.get(key), known))
    if tokenizer is not None:
        of_casing = {("normalizer", k): (None, casing) for k in _OF_CASING}
        for (part, key), fixed in (_JSON_FIXED | of_casing).items():
            value = _part(tokenizer, part).get(key)
            found.append((json_path, f"{part}.{key}", value, fixed))
    for part in ("padding", "truncation"):
        key, side = f"{part}_side", _part(tokenizer or {}, part).get("direction")
        path = config_path if key in config else json_path
        side = str(config.get(key, side or "right")).lower()
        found.append((path, key, side, ("right",)))
    for path, key, value, values in found:
        if value not in values:
            yield (
                f"{path} sets {key}={json.dumps(value)}; BERT's tokenizer has"
                f" {json.dumps(values[-1])}."
            )
    if tokenizer is not None and not _adds_cls_and_sep(tokenizer):
        yield (
            f"{json_path}: its `post_processor` does not make {CLS} A {SEP} of a text,"
            f" and {CLS} A {SEP} B {SEP} of a pair, as BERT's tokenizer does."
        )
    added_words = [
        (json_path, (tokenizer or {}).get("added_tokens")),
        (added_path, [*added]),
    ]
    for path, settings in ((config_path, config), (special_path, special)):
        added_words += [(path, settings.get(key)) for key in _ADDED_WORDS]
    for path, words in added_words:
        # A list, or an object of words by name or number.
        words = [*words.values()] if isinstance(words, dict) else words
        for word in map(_content, words if isinstance(words, list) else ()):
            if isinstance(word, str) and word not in _SPECIAL_TOKENS.values():
                yield f"{path} adds words that are never split: {word!r}."


def _adds_cls_and_sep(tokenizer: dict[str, Any]) -> bool:
    """Whether a tokenizer.json adds the special tokens, and numbers texts, as BERT."""
    post, ids = _part(tokenizer, "post_processor"), _part(tokenizer, "model")
    ids = _part(ids, "vocab")
    if post.get("type") == "BertProcessing":
        return all(post.get(k) == [t, ids.get(t)] for k, t in _ADDED_BY_BERT)
    pair = [{kind: {"id": name, "type_id": n}} for kind, name, n in _TEMPLATE]
    wanted = {"type": "TemplateProcessing", "single": pair[:3], "pair": pair}
    added = _part(post, "special_tokens")
    return {**post, **wanted} == post and all(
        _part(added, t).get("ids") == [ids.get(t)] for _, t in _ADDED_BY_BERT
    )


def _content(token: Any) -> Any:
    """Returns a token's text, which may be inside an object."""
    return token.get("content") if isinstance(token, dict) else token


def _vocabulary_in(tokenizer: dict[str, Any], path: str) -> dict[str, int]:
    """Returns the tokens and ids of a tokenizer.json; {} if it is not WordPiece."""
    model = _part(tokenizer, "model")
    if model.get("type") != "WordPiece":
        return {}
    ids = model.get("vocab")
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        raise InputError(f"{path}: `model.vocab` must map tokens to their ids.")
    # White space around a token is not part of it, as in vocab.txt.
    return {token.strip(): number for token, number in ids.items()}


def _part(tokenizer: dict[str, Any], name: str) -> dict[str, Any]:
    part = tokenizer.get(name)
    return part if isinstance(part, dict) else {}
