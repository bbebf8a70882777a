"""Keeps the tokens of a checkpoint that a text needs, and removes the others.

WordPiece cuts a word by taking the longest token that begins it, then the longest one
that begins the rest, and so on. All tokens taken in the text are kept, and removing
others makes none of them second best, so the words of the text are cut as before. The
characters of the text are kept too, as far as the vocabulary has them: other words of
these characters are cut into other pieces, and are not [UNK].
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.base.options import DATA, REQUIRED, Path, option, with_default
from bert_tf.base.shared_options import ModelOptions
from bert_tf.records.learn_vocabulary import VocabularyOptions, count_words
from bert_tf.records.manifest import written_files
from bert_tf.text.sources import file_chunks, text_chunks
from bert_tf.text.vocabulary import CONTINUATION, Vocabulary
from bert_tf.text.wordpiece import UNUSED, WordPieceTokenizer

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

# [CLS] and the like, of any program.
_SPECIAL = re.compile(r"\[[^\[\]]+\]")


def count_tokens(
    words: Mapping[str, int], tokenizer: WordPieceTokenizer
) -> Counter[int]:
    """Returns how often each token occurs in a text of these words."""
    counts: Counter[int] = Counter()
    for word, count in words.items():
        for token_id in tokenizer.cut_word(word):
            counts[token_id] += count
    return counts


def kept_ids(
    vocabulary: Vocabulary,
    counts: Mapping[int, int],
    characters: Collection[str],
    min_frequency: int = 1,
) -> list[int]:
    """Returns the ids of the tokens to keep, in order.

    Args:
        vocabulary: of the checkpoint.
        counts: how often each of its tokens occurs in the text.
        characters: of the text.
        min_frequency: how often a token of several characters must occur.
    """
    kept = {0}  # padding, whatever its name
    for token, token_id in vocabulary.ids.items():
        is_special = _SPECIAL.fullmatch(token) and not UNUSED.fullmatch(token)
        is_character = token.removeprefix(CONTINUATION) in characters
        if is_special or is_character or counts.get(token_id, 0) >= min_frequency:
            kept.add(token_id)
    return sorted(kept)


def trimmed(source: "Source", ids: Sequence[int]) -> "Source":
    """Returns a completed source with these tokens alone, in this order."""
    from bert_tf.conversion.names import OF_VOCABULARY

    old = source.tokenizer.vocabulary
    assert old is not None
    vocabulary = Vocabulary([old.tokens[token_id] for token_id in ids])
    return dataclasses.replace(
        source,
        weights=source.weights.with_rows(OF_VOCABULARY, ids),
        config=dataclasses.replace(source.require_config(), vocab_size=len(ids)),
        tokenizer=source.tokenizer._replace(vocabulary=vocabulary),
    )


class TrimOptions(
    VocabularyOptions,
    ModelOptions,
    decides="numbers",
    hides=(
        *("segmenter", "output_file", "overwrite", "fewer_tokens"),
        *("vocab_size", "num_unused", "character_coverage"),
    ),
):
    """The checkpoint to trim, and the text whose tokens it keeps."""

    output_file: str = ""
    init_checkpoint: str = with_default(
        ModelOptions,
        "init_checkpoint",
        REQUIRED,
        help="The checkpoint to trim: an output_dir of bert_tf, a released TF1"
        " checkpoint (.../bert_model.ckpt), a Hugging Face folder, or a KerasHub"
        " preset.",
    )
    output_dir: str = option(
        REQUIRED,
        "The folder to write: a new or empty one.",
        path=Path.OUTPUT,
        decides="nothing",
    )
    min_frequency: int = option(
        1,
        "How often a token must occur to be kept. Characters of the text and special"
        " tokens are kept in any case.",
        least=1,
    )
    eval_input_file: str | None = option(
        None,
        "Held-out text of the same format: the log says how many of its words become"
        " [UNK], before and after.",
        path=Path.FILES,
        title=DATA,
        decides="nothing",
    )


def run(options: TrimOptions) -> None:
    """Writes a checkpoint with the text's tokens alone."""
    cli.import_tensorflow(options)
    from bert_tf.base.config import BertConfig
    from bert_tf.conversion import export
    from bert_tf.conversion.source import load_tokenizer, open_source

    folder = export.NewFolder(options.output_dir)
    source = open_source(options.init_checkpoint)
    config_file, vocab_file = options.bert_config_file, options.vocab_file
    if not vocab_file:
        source.tokenizer.require_same()
    model = export.completed(
        source,
        config=BertConfig.from_json_file(config_file) if config_file else None,
        vocabulary=Vocabulary.from_file(vocab_file) if vocab_file else None,
        do_lower_case=options.value_if_given("do_lower_case"),
    )
    tokenizer = load_tokenizer(model)
    others = [path for path in (source.tokenizer.path, vocab_file) if path]
    texts = {"The text": text_chunks(options, written_files, passed_over=others)}
    if held_out := options.eval_input_file:
        texts[held_out] = file_chunks(
            *(options, held_out, "eval_input_file", written_files), passed_over=others
        )
    found = {}
    for name, chunks in texts.items():
        reading = tokenizer.do_lower_case, tokenizer.segmenter
        found[name] = count_words(options, chunks, *reading)
        if not found[name].words:
            raise InputError(f"{name} must have words in it.")
    words, characters = found["The text"].words, found["The text"].characters()
    counts = count_tokens(words, tokenizer)
    vocabulary, least = tokenizer.vocabulary, options.min_frequency
    smaller = trimmed(model, kept_ids(vocabulary, counts, characters, least))
    _log_sizes(model, smaller)
    new_tokenizer = load_tokenizer(smaller)
    for name, text in found.items():
        _log_words(name, text.words, new_tokenizer, tokenizer)
    if folder.is_done(export.identity(smaller, {"format": "tf1"})):
        logging.info("All is done already: %s.", options.output_dir)
        return
    with folder as path:
        export.write_release(path, smaller)
        smaller.reading.write(path)
    logging.info("Wrote %s.", options.output_dir)


def _log_sizes(old: "Source", new: "Source") -> None:
    tokens, sizes = [], []
    for model in (new, old):
        tokens.append(model.require_config().vocab_size)
        sizes.append(sum(int(np.prod(s)) for s in model.weights.shapes.values()))
    megabytes = [size * 4e-6 for size in sizes]
    logging.info(
        "Tokens: %d, before: %d. Parameters: %d, before: %d; as float32 %.1f MB,"
        " before: %.1f MB",
        *(*tokens, *sizes, *megabytes),
    )


def _log_words(
    name: str,
    words: Mapping[str, int],
    new: WordPieceTokenizer,
    old: WordPieceTokenizer,
) -> None:
    num_words = sum(words.values())
    after, before = (count_tokens(words, tokenizer) for tokenizer in (new, old))
    unknown = after[new.vocabulary.unk_id], before[old.vocabulary.unk_id]
    logging.info(
        "%s: of %d words %d become [UNK] (%.4f%%), before: %d. Tokens per word: %.4f,"
        " before: %.4f",
        *(name, num_words, unknown[0], 100 * unknown[0] / num_words, unknown[1]),
        *(after.total() / num_words, before.total() / num_words),
    )
