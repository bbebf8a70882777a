"""Learns a WordPiece vocabulary from text, for BERT's pre-training.

google-research/bert has no such script. The vocabulary has the layout of the released
ones: [PAD], [unused0] and so on, [UNK], [CLS], [SEP], [MASK], the characters, then the
pieces, most frequent first. The text is read once, on all cores, and split into words
by the tokenizer's own rules. The same text, flags and version give the same file for
any number of workers.

The same command again finds its vocabulary done. It overwrites another file only with
--overwrite.
"""

import dataclasses

from bert_tf import cli
from bert_tf.options import REQUIRED, Path, option, with_default
from bert_tf.records.text_input import TextOptions, text_chunks
from bert_tf.training.training_options import ModelOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions(TextOptions):
    """The vocabulary to learn, and its text."""

    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    output_file: str = option(
        REQUIRED, "The vocab.txt file to write.", path=Path.OUTPUT
    )
    vocab_size: int = option(
        30522,
        "Number of tokens, including special and unused ones; the file has exactly"
        " that many.",
        least=1,
    )
    num_unused: int = option(
        0,
        "Number of places reserved for your own tokens: [unused0] and so on. With"
        " 99, [UNK] has id 100 as in the released vocabularies.",
        least=0,
    )
    min_frequency: int = option(
        2, "How often two pieces must occur next to each other to be merged.", least=1
    )
    character_coverage: float = option(
        0.9999,
        "Share of the text's characters that the vocabulary must cover. Words with"
        " rarer ones become [UNK]; 1 keeps all characters.",
        least=0.0,
        most=1.0,
    )
    max_words: int = option(
        5_000_000,
        "Maximum number of different words in memory, about 0.4 kB each. If there"
        " are more, those that have occurred once are dropped, then twice and so"
        " on, until half as many are left; the number of dropped words is reported.",
        least=1000,
    )
    overwrite: bool = option(
        False, "Overwrite an --output_file with different content."
    )


def run(options: VocabularyOptions) -> None:
    """Learns the vocabulary that the flags ask for, and writes it."""
    from bert_tf.parallel import available_cores
    from bert_tf.text.learning import check_output_file, create_vocabulary

    # Before the text is looked for, which may prepare a whole dataset.
    check_output_file(
        options.output_file,
        vocab_size=options.vocab_size,
        num_unused=options.num_unused,
        overwrite=options.overwrite,
    )
    create_vocabulary(
        text_chunks(options, passed_over=[options.output_file]),
        options.output_file,
        vocab_size=options.vocab_size,
        do_lower_case=options.do_lower_case,
        num_unused=options.num_unused,
        min_frequency=options.min_frequency,
        character_coverage=options.character_coverage,
        max_words=options.max_words,
        num_workers=options.num_workers or available_cores(),
        overwrite=options.overwrite,
    )


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
