"""From text of any size to a vocabulary's file: counting, learning, reporting."""

import os
from collections.abc import Sequence

from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text.learning import count_unknown, first_tokens, learn_from_counts
from bert_tf.text.sources import Chunk
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.word_counts import WordCounts, count_words


def check_output_file(
    path: str, *, vocab_size: int, num_unused: int = 0, overwrite: bool = False
) -> None:
    """Finds out before the work whether its result could be kept; makes the folder."""
    tokens = first_tokens(vocab_size, num_unused)
    if not path or files.is_folder(path):
        raise InputError(f"--output_file: {path!r} is a folder; name a file in it.")
    folder = os.path.dirname(path)
    if folder:
        files.make_folder(folder)
    if not files.is_remote(path) and not os.access(folder or ".", os.W_OK):
        raise InputError(f"--output_file: nothing can be written to {folder or '.'}.")
    if overwrite or not files.exists(path):
        return
    content = files.read_bytes(path)
    beginning = "".join(f"{token}\n" for token in tokens).encode()
    if not content.startswith(beginning) or content.count(b"\n") != vocab_size:
        raise _refusal(path)
    logging.info("%s exists, and will be compared with what is learned.", path)


def create_vocabulary(
    chunks: Sequence[Chunk],
    output_file: str,
    *,
    vocab_size: int,
    do_lower_case: bool = True,
    num_unused: int = 0,
    min_frequency: int = 2,
    character_coverage: float = 0.9999,
    max_words: int | None = None,
    num_workers: int = 1,
    overwrite: bool = False,
) -> Vocabulary:
    """Learns a vocabulary from text and writes it."""
    settings = {"vocab_size": vocab_size, "num_unused": num_unused}
    check_output_file(output_file, **settings, overwrite=overwrite)
    with tqdm(
        total=sum(chunk.num_bytes for chunk in chunks),
        desc="Counting words",
        unit="B",
        unit_scale=True,
        disable=None,
    ) as bar:
        counts, dropped = count_words(
            chunks,
            do_lower_case=do_lower_case,
            max_words=max_words,
            num_workers=num_workers,
            progress=bar.update,
        )
    _report(counts, max_words)
    for what, number in sorted(dropped.items()):
        logging.info("Left out: %d %s", number, what)
    with tqdm(total=vocab_size, desc="Merging", unit=" tokens", disable=None) as bar:
        vocabulary = learn_from_counts(
            counts,
            **settings,
            min_frequency=min_frequency,
            character_coverage=character_coverage,
            progress=bar.update,
        )
    unknown = count_unknown(counts, vocabulary)
    logging.info(
        "%d words (%.4f%%) become [UNK]: the vocabulary cannot spell them",
        unknown,
        100 * unknown / counts.num_occurrences,
    )
    _save(vocabulary, output_file, overwrite)
    return vocabulary


def _report(counts: WordCounts, max_words: int | None) -> None:
    logging.info(
        "Counted %d words, %d different ones",
        counts.num_occurrences,
        len(counts.words),
    )
    if counts.num_forgotten:
        logging.warning(
            "There are more than --max_words=%d different words: %d words (%.3f%%), the"
            " rarest, were forgotten. No count is too low by more than %d.",
            max_words,
            counts.num_forgotten,
            100 * counts.num_forgotten / counts.num_occurrences,
            counts.max_error,
        )


def _save(vocabulary: Vocabulary, path: str, overwrite: bool) -> None:
    if files.exists(path):
        if files.sha256(files.read_bytes(path)) == vocabulary.sha256:
            logging.info("All is done already: %d tokens, %s", len(vocabulary), path)
            return
        if not overwrite:
            raise _refusal(path)
    vocabulary.save(path)
    logging.info("Wrote %d tokens, %s", len(vocabulary), path)


def _refusal(path: str) -> InputError:
    return InputError(
        f"--output_file: {path} exists and is another vocabulary, or none; give "
        "another name, or --overwrite."
    )
