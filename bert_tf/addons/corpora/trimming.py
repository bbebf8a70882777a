"""Keeps the tokens of a checkpoint that a text needs, and removes the others.

WordPiece takes the longest token that begins a word, or the rest of one. Every token of
the text is kept, and no longer one, kept or not, begins the same rest: so the words of
the text are cut as before. Their characters are kept too, as far as the vocabulary has
them, so that other words of these characters are cut into other pieces, and are not
[UNK].
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import logging
from tqdm import tqdm

from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.base.options import DATA, REQUIRED, Path, option, with_default
from bert_tf.base.parallel import available_cores, ordered_map
from bert_tf.base.shared_options import ModelOptions
from bert_tf.records.manifest import written_files
from bert_tf.text.documents import Chunk, dropped_lines, read_chunk
from bert_tf.text.learning import WordCounts
from bert_tf.text.sources import TextOptions, file_chunks, text_chunks
from bert_tf.text.vocabulary import CONTINUATION, Vocabulary
from bert_tf.text.wordpiece import UNUSED, WordPieceTokenizer

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

# [CLS] and the like, of any program.
_SPECIAL = re.compile(r"\[[^\[\]]+\]")


class TextTokens(NamedTuple):
    """The tokens of a text, counted."""

    ids: Counter[int]
    characters: set[str]
    num_words: int
    num_unknown: int  # how many words are [UNK]

    @property
    def tokens_per_word(self) -> float:
        """The mean number of tokens per word; [UNK] is one."""
        return self.ids.total() / self.num_words


def count_tokens(
    chunks: Sequence[Chunk], tokenizer: WordPieceTokenizer, num_workers: int = 1
) -> TextTokens:
    """Counts a text's tokens on several cores; logs what was left out.

    Raises:
        InputError: the text has no words.
    """
    ids: Counter[int] = Counter()
    characters: set[str] = set()
    dropped: Counter[str] = Counter()
    num_words = 0
    results = ordered_map(
        _count_chunk,
        chunks,
        num_workers=max(1, min(num_workers, len(chunks))),
        shared=(tokenizer,),
    )
    num_bytes = sum(chunk.num_bytes for chunk in chunks)
    with tqdm(
        total=num_bytes, desc="Counting tokens", unit="B", unit_scale=True, disable=None
    ) as bar:
        for chunk, (words, some, some_ids, left_out) in zip(
            chunks, results, strict=True
        ):
            num_words += words
            characters |= some
            ids.update(some_ids)
            dropped.update(left_out)
            bar.update(chunk.num_bytes)
    for line in dropped_lines(dropped):
        logging.info("%s", line)
    if not num_words:
        raise InputError("The text must have words in it.")
    return TextTokens(ids, characters, num_words, ids[tokenizer.vocabulary.unk_id])


def _count_chunk(
    tokenizer: WordPieceTokenizer, chunk: Chunk
) -> tuple[int, set[str], Counter[int], Counter[str]]:
    counts = WordCounts()
    dropped: Counter[str] = Counter()
    lines = (line.text for line in read_chunk(chunk, dropped))
    counts.add_lines(lines, tokenizer.do_lower_case, tokenizer.segmenter)
    ids: Counter[int] = Counter()
    for word, count in counts.words.items():
        for token_id in tokenizer.cut_word(word):
            ids[token_id] += count
    return counts.num_occurrences, set().union(*counts.words), ids, dropped


def kept_ids(
    vocabulary: Vocabulary, text: TextTokens, min_frequency: int = 1
) -> list[int]:
    """Returns the ids of the tokens to keep, in order.

    Args:
        vocabulary: of the checkpoint.
        text: the text's tokens by this vocabulary.
        min_frequency: how often a token of several characters must occur.
    """
    kept = {0}  # padding, whatever its name
    for token, token_id in vocabulary.ids.items():
        is_special = _SPECIAL.fullmatch(token) and not UNUSED.fullmatch(token)
        is_character = token.removeprefix(CONTINUATION) in text.characters
        if is_special or is_character or text.ids[token_id] >= min_frequency:
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
    TextOptions,
    ModelOptions,
    decides="numbers",
    hides=("split_sentences", "language", "segmenter"),
):
    """The checkpoint to trim, and the text whose tokens it keeps."""

    split_sentences: bool | None = False
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
    num_workers = options.num_workers or available_cores()
    others = [path for path in (source.tokenizer.path, vocab_file) if path]
    chunks = text_chunks(options, written_files, passed_over=others)
    before = count_tokens(chunks, tokenizer, num_workers)
    smaller = trimmed(
        model, kept_ids(tokenizer.vocabulary, before, options.min_frequency)
    )
    _log_sizes(model, smaller)
    new_tokenizer = load_tokenizer(smaller)
    # With all tokens of the text, its words are cut as before.
    after = before
    if options.min_frequency > 1:
        after = count_tokens(chunks, new_tokenizer, num_workers)
    _log_words("The text", before, after)
    if held_out := options.eval_input_file:
        chunks = file_chunks(
            *(options, held_out, "eval_input_file", written_files), passed_over=others
        )
        before, after = (
            count_tokens(chunks, each, num_workers)
            for each in (tokenizer, new_tokenizer)
        )
        _log_words(held_out, before, after)
    if folder.is_done(export.identity(smaller, {"format": "tf1"})):
        logging.info("All is done already: %s.", options.output_dir)
        return
    with folder as path:
        export.write_release(path, smaller)
        smaller.reading.write(path)
    logging.info("Wrote %s.", options.output_dir)


def _log_sizes(old: "Source", new: "Source") -> None:
    sizes = [
        sum(int(np.prod(shape)) for shape in model.weights.shapes.values())
        for model in (new, old)
    ]
    numbers = [model.require_config().vocab_size for model in (new, old)]
    logging.info("Tokens: %d, before: %d", *numbers)
    logging.info(
        "Parameters: %d, before: %d; as float32 %.1f MB, before: %.1f MB",
        *(*sizes, *(size * 4e-6 for size in sizes)),
    )


def _log_words(name: str, before: TextTokens, after: TextTokens) -> None:
    share = 100 * after.num_unknown / after.num_words
    logging.info(
        "%s: %d of %d words become [UNK] (%.4f%%), before: %d. Tokens per word: %.4f,"
        " before: %.4f",
        *(name, after.num_unknown, after.num_words, share, before.num_unknown),
        *(after.tokens_per_word, before.tokens_per_word),
    )
