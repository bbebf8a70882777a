"""Learns a WordPiece vocabulary from text, for BERT's pre-training.

google-research/bert has no such script; the vocabulary is laid out as its released ones
are: [PAD], [unused0] and so on, [UNK], [CLS], [SEP], [MASK], the characters, then the
pieces, frequent ones first. The text is read once, on all cores, and cut into words by
the tokenizer's own rules. The same text, flags and version give the same file, whatever
the number of workers.

The same command again finds its vocabulary done. It does not write over another file
unless told to by --overwrite.
"""

from typing import Any

from absl import flags

from bert_tf import cli, path_flags
from bert_tf import flags as shared_flags
from bert_tf.text_flags import define_text_input, text_chunks


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(flag_values, "do_lower_case")

    def define(kind: Any, name: str, default: Any, text: str, **bounds: Any) -> None:
        kind(name, default, text, flag_values=flag_values, **bounds)

    define_text_input(flag_values, splits_sentences=False)
    define(
        path_flags.define,
        "output_file",
        None,
        "The vocab.txt to write.",
    )
    flags.mark_flag_as_required("output_file", flag_values)
    define(
        flags.DEFINE_integer,
        "vocab_size",
        30522,
        "Number of tokens, special and unused ones included; the file has exactly so"
        " many.",
        lower_bound=1,
    )
    define(
        flags.DEFINE_integer,
        "num_unused",
        0,
        "Number of places to leave for tokens of one's own: [unused0] and so on. With"
        " 99, [UNK] has id 100 as in the released vocabularies.",
        lower_bound=0,
    )
    define(
        flags.DEFINE_integer,
        "min_frequency",
        2,
        "How often two pieces must stand side by side to become one.",
        lower_bound=1,
    )
    define(
        flags.DEFINE_float,
        "character_coverage",
        0.9999,
        "Share of the text's characters that the vocabulary must be able to spell."
        " Words with rarer ones become [UNK]; 1 keeps all characters.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    define(
        flags.DEFINE_integer,
        "max_words",
        5_000_000,
        "Number of different words to hold in memory, about 0.4 kB each. Where there"
        " are more, those that occurred once so far are forgotten, then those that"
        " occurred twice and so on, until half as many are left; what is forgotten is"
        " reported.",
        lower_bound=1000,
    )
    define(
        flags.DEFINE_bool,
        "overwrite",
        False,
        "Replace an --output_file with something else in it.",
    )


def run(flag_values: flags.FlagValues) -> None:
    """Learns the vocabulary that the flags ask for, and writes it."""
    from bert_tf.parallel import available_cores
    from bert_tf.text.learning import check_output_file, create_vocabulary

    # Before the text is looked for, which may prepare a whole dataset.
    check_output_file(
        flag_values.output_file,
        vocab_size=flag_values.vocab_size,
        num_unused=flag_values.num_unused,
        overwrite=flag_values.overwrite,
    )
    create_vocabulary(
        text_chunks(flag_values, passed_over=[flag_values.output_file]),
        flag_values.output_file,
        vocab_size=flag_values.vocab_size,
        do_lower_case=flag_values.do_lower_case,
        num_unused=flag_values.num_unused,
        min_frequency=flag_values.min_frequency,
        character_coverage=flag_values.character_coverage,
        max_words=flag_values.max_words,
        num_workers=flag_values.num_workers or available_cores(),
        overwrite=flag_values.overwrite,
    )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
