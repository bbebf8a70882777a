"""A vocabulary, learned from text."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from absl import logging

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Path, option, with_default
from bert_tf.base.shared_options import ModelOptions
from bert_tf.records.manifest import written_files
from bert_tf.text.documents import Chunk, dropped_lines
from bert_tf.text.sources import TextOptions, text_chunks

if TYPE_CHECKING:
    from bert_tf.text.learning import WordCounts
    from bert_tf.text.vocabulary import Vocabulary


class VocabularyOptions(
    TextOptions, decides="numbers", hides=("split_sentences", "language")
):
    """The vocabulary to learn, its text, and the file to write."""

    split_sentences: bool | None = False
    output_file: str = option(
        REQUIRED, "The vocab.txt file to write.", path=Path.OUTPUT, decides="nothing"
    )
    max_words: int = option(
        5_000_000,
        "Maximum number of different words in memory, about 0.4 kB each. If there are"
        " more, those that occurred once are dropped, then those that occurred twice,"
        " and so on, until half as many are left. The number of dropped words is"
        " reported.",
        least=1000,
    )
    fewer_tokens: bool = option(
        False,
        "If the text supports fewer tokens than are asked for, write as many as it"
        " supports.",
    )
    overwrite: bool = option(
        False,
        "Overwrite an --output_file with different content.",
        decides="nothing",
    )
    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    vocab_size: int = option(
        30522,
        "Number of tokens, including special and unused ones; the file has exactly"
        " that many.",
        least=1,
    )
    num_unused: int = option(
        0,
        "Number of places reserved for your own tokens: [unused0] and so on. With 99"
        " places, [UNK] has id 100 as in the released vocabularies.",
        least=0,
    )
    min_frequency: int = option(
        2, "How often two pieces must occur next to each other to be merged.", least=1
    )
    character_coverage: float = option(
        0.9999,
        "Share of the text's characters that the vocabulary must cover. Words with"
        " rarer characters become [UNK]; 1 keeps all characters.",
        least=0.0,
        most=1.0,
    )


def run(options: VocabularyOptions) -> None:
    """Learns the vocabulary that the flags ask for, and writes it."""
    cli.show_log()
    from bert_tf.text import learning

    # Before looking for the text, which may prepare a whole dataset.
    first_tokens = learning.first_tokens(options.vocab_size, options.num_unused)
    beginning = "".join(f"{token}\n" for token in first_tokens).encode()
    check_output_file(
        options,
        lambda content: (
            content.startswith(beginning)
            and (options.fewer_tokens or content.count(b"\n") == options.vocab_size)
        ),
    )
    chunks = text_chunks(options, written_files, passed_over=[options.output_file])
    counts = count_words(options, chunks, options.do_lower_case, options.segmenter)
    vocabulary = learning.learn_from_counts(
        counts,
        vocab_size=options.vocab_size,
        fewer_tokens=options.fewer_tokens,
        num_unused=options.num_unused,
        min_frequency=options.min_frequency,
        character_coverage=options.character_coverage,
    )
    unknown = learning.count_unknown(counts, vocabulary)
    share = 100 * unknown / counts.num_occurrences
    logging.info("%d words (%.4f%%) become [UNK]", unknown, share)
    write(vocabulary, options)


def count_words(
    options: VocabularyOptions,
    chunks: Sequence[Chunk],
    do_lower_case: bool,
    segmenter: str,
) -> "WordCounts":
    """Returns a text's words; logs their number and what was left out."""
    from bert_tf.base.parallel import available_cores
    from bert_tf.text import learning

    counts, dropped = learning.count_words(
        chunks,
        do_lower_case=do_lower_case,
        segmenter=segmenter,
        max_words=options.max_words,
        num_workers=options.num_workers or available_cores(),
    )
    num_words = counts.num_occurrences
    logging.info("Counted %d words, %d different ones", num_words, len(counts.words))
    if counts.num_forgotten:
        logging.warning(
            "There are more than `max_words=%d` different words: %d words, the rarest,"
            " were dropped. No count is too low by more than %d.",
            *(options.max_words, counts.num_forgotten, counts.max_error),
        )
    for line in dropped_lines(dropped):
        logging.info("%s", line)
    return counts


def write(vocabulary: "Vocabulary", options: VocabularyOptions) -> None:
    """Writes a vocabulary, unless it is there."""
    path = options.output_file
    # The file may have been written in the meantime.
    if files.exists(path):
        if files.sha256(files.read_bytes(path)) == vocabulary.sha256:
            logging.info("All is done already: %d tokens, %s", len(vocabulary), path)
            return
        if not options.overwrite:
            raise _refusal(path)
    vocabulary.save(path)
    logging.info("Wrote %d tokens, %s", len(vocabulary), path)


def check_output_file(
    options: VocabularyOptions, may_be_wanted: Callable[[bytes], bool]
) -> None:
    """Checks, before the work, that its result can be written; makes the folder."""
    path = options.output_file
    if not path or files.is_folder(path):
        raise InputError(f"`output_file`: {path!r} is a folder; name a file in it.")
    if folder := os.path.dirname(path):
        files.make_folder(folder)
    if not files.is_remote(path) and not os.access(folder or ".", os.W_OK):
        raise InputError(f"`output_file`: nothing can be written to {folder or '.'}.")
    if options.overwrite or not files.exists(path):
        return
    if not may_be_wanted(files.read_bytes(path)):
        raise _refusal(path)
    logging.info("%s exists, and will be compared with the new vocabulary.", path)


def _refusal(path: str) -> InputError:
    return InputError(
        f"`output_file`: {path} exists and is another vocabulary, or none; give "
        "another name, or `overwrite`."
    )
