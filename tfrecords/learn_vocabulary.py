"""Learns a WordPiece vocabulary from text, for BERT's pre-training.

google-research/bert has no such script; the vocabulary is laid out as its released ones
are: [PAD], [unused0] and so on, [UNK], [CLS], [SEP], [MASK], the characters, then the
pieces, frequent ones first. The text is read once, on all cores, and cut into words by
the tokenizer's own rules. The same text, flags and version give the same file, whatever
the number of workers.

The same command again finds its vocabulary done. It does not write over another file
unless told to by --overwrite.
"""

import os
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_tf import cli, files
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    from bert_tf.text.sources import Chunk


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(flag_values, "do_lower_case")

    def define(kind: Any, name: str, default: Any, text: str, **bounds: Any) -> None:
        kind(name, default, text, flag_values=flag_values, **bounds)

    define(
        flags.DEFINE_string,
        "input_file",
        None,
        "Files with text: names, globs or folders, with commas between; plain, or"
        " packed as .gz, .bz2 or .xz.",
    )
    flags.DEFINE_enum(
        "input_format",
        "auto",
        ["auto", "text", "wikiextractor", "jsonl"],
        "What the files are: plain text, wikiextractor's output, or a JSON object a"
        " line; auto tells by the name, then by the first line.",
        flag_values=flag_values,
    )
    define(
        flags.DEFINE_string,
        "text_field",
        "text",
        "Field of a JSON object, or of a dataset's examples, that holds the text.",
    )
    define(
        flags.DEFINE_string,
        "tfds_name",
        None,
        "A TensorFlow dataset to read instead of files: wikipedia/20230601.en, say.",
    )
    define(
        flags.DEFINE_string,
        "tfds_split",
        "train",
        "Split of the dataset, or a slice of it: train[:10%].",
    )
    define(
        flags.DEFINE_string,
        "tfds_data_dir",
        None,
        "Folder of prepared datasets; the library's own unless given.",
    )
    flags.register_multi_flags_validator(
        ["input_file", "tfds_name"],
        lambda values: (values["input_file"] is None) != (values["tfds_name"] is None),
        "give one of --input_file and --tfds_name",
        flag_values,
    )
    define(flags.DEFINE_string, "output_file", None, "The vocab.txt to write.")
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
        flags.DEFINE_integer,
        "num_workers",
        None,
        "Processes to read with; all cores unless given. The result is the same.",
        lower_bound=1,
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
    from bert_tf.text.vocabulary_creation import check_output_file, create_vocabulary

    # Before the text is looked for, which may prepare a whole dataset.
    check_output_file(
        flag_values.output_file,
        vocab_size=flag_values.vocab_size,
        num_unused=flag_values.num_unused,
        overwrite=flag_values.overwrite,
    )
    create_vocabulary(
        _dataset(flag_values) if flag_values.tfds_name else _files(flag_values),
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


def _dataset(flag_values: flags.FlagValues) -> "list[Chunk]":
    cli.import_tensorflow()
    from bert_tf.text.tfds import make_tfds_chunks

    return make_tfds_chunks(
        flag_values.tfds_name,
        split=flag_values.tfds_split,
        text_field=flag_values.text_field,
        data_dir=flag_values.tfds_data_dir,
        split_sentences=False,
    )


def _files(flag_values: flags.FlagValues) -> "list[Chunk]":
    from bert_tf.records.manifest import lies_beside_records
    from bert_tf.text.sources import find_sources, make_chunks

    paths = [
        path
        for path in find_sources(flag_values.input_file, "input_file")
        # A pattern may take in what an earlier command wrote beside its text.
        if not _is_same(path, flag_values.output_file) and not lies_beside_records(path)
    ]
    if not paths:
        raise InputError(
            f"--input_file: {flag_values.input_file!r} has nothing but vocabularies and"
            " manifests that were written here."
        )
    return make_chunks(
        paths,
        input_format=flag_values.input_format,
        text_field=flag_values.text_field,
        split_sentences=False,
    )


def _is_same(path: str, other: str) -> bool:
    if files.is_remote(path) or files.is_remote(other):
        return path == other
    return os.path.realpath(path) == os.path.realpath(other)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
