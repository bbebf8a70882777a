r"""Packs short pre-training records into rows of one length, several to a row.

python -m bert_tf.tfrecords.pack_pretraining_data --input_file=RECORDS \
        --output_file=ROWS

Padding costs a training step as much as text. In a packed row each sequence keeps its
[CLS], its positions and its next sentence label, and sees itself alone, so that the
losses are those of the records as they were. The records are those of
create_pretraining_data or of google-research/bert, masked or not; each lands in one
row. The same command again finds its rows done, or goes on where it was killed.
"""

from absl import flags

from bert_tf import cli, flag_rules, path_flags
from bert_tf.instances.settings import MIN_SEQ_LENGTH
from bert_tf.path_flags import Path


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""

    def define_string(name: str, text: str) -> None:
        flags.DEFINE_string(name, None, text, flag_values=flag_values)

    def path(name: str, help_text: str, kind: Path) -> None:
        path_flags.define(name, None, help_text, kind, flag_values=flag_values)

    def define_integer(name: str, default: int | None, text: str) -> None:
        flags.DEFINE_integer(name, default, text, flag_values=flag_values)

    path("input_file", "Record files: names or globs, with commas between.", Path.FILES)
    path(
        "output_file",
        "Where the rows go; -00000-of-00064 is added where there are several files.",
        Path.OUTPUT,
    )
    flags.mark_flags_as_required(["input_file", "output_file"], flag_values)
    define_integer("max_seq_length", 512, "Tokens of a row, padding included.")
    define_integer(
        "max_predictions_per_seq",
        None,
        "Masked-LM slots of a row; unless given, as many for each token as the records"
        " have.",
    )
    define_integer(
        "max_sequences_per_row",
        None,
        "The most sequences in a row; unless given, one for each 32 tokens.",
    )
    define_integer(
        "num_shards",
        None,
        "Files of rows; unless given, as many as there are record files.",
    )
    define_integer("random_seed", 12345, "Seed of the rows' order.")
    path(
        "vocab_file", "The records' vocabulary, where they have no manifest.", Path.FILE
    )
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "Its casing, where the records have no manifest; lower-cased unless given.",
        flag_values=flag_values,
    )
    define_integer(
        "num_workers",
        None,
        "Processes to work with; all cores unless given. The result is the same.",
    )
    path(
        "work_dir",
        "Folder for notes until the rows are finished; unless given, that of the rows.",
        Path.OUTPUT,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Replace rows of other settings, and files that no manifest knows, under the"
        " name of --output_file.",
        flag_values=flag_values,
    )
    flag_rules.require_at_least(flag_values, MIN_SEQ_LENGTH, "max_seq_length")
    flag_rules.require_at_least(
        flag_values,
        1,
        "max_predictions_per_seq",
        "max_sequences_per_row",
        "num_shards",
        "num_workers",
    )


def run(flag_values: flags.FlagValues) -> None:
    """Writes the rows that the flags ask for."""
    cli.import_tensorflow()
    from bert_tf.parallel import available_cores
    from bert_tf.records.packing import pack_pretraining_records

    pack_pretraining_records(
        flag_values.input_file,
        flag_values.output_file,
        max_seq_length=flag_values.max_seq_length,
        max_predictions_per_seq=flag_values.max_predictions_per_seq,
        max_sequences_per_row=flag_values.max_sequences_per_row,
        num_shards=flag_values.num_shards,
        random_seed=flag_values.random_seed,
        vocab_file=flag_values.vocab_file,
        do_lower_case=flag_values.do_lower_case,
        num_workers=flag_values.num_workers or available_cores(),
        work_dir=flag_values.work_dir,
        overwrite=flag_values.overwrite,
    )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
