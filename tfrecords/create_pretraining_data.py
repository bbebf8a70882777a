"""Creates masked language model and next sentence records for BERT's pre-training.

The flags, their defaults and the records are those of google-research/bert. The input
is UTF-8 text, one sentence a line, with a blank line between documents. Beside the
records stand NAME.manifest.json and NAME.vocab.txt, where NAME is the first output file
without a shard suffix such as -00000-of-00008.

The same command again finds its records done. It does not write over others' files
unless told to by --overwrite.
"""

from typing import Any

from absl import flags

from bert_tf import cli, files
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.instances.pairs import MIN_SEQ_LENGTH


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values,
        "do_lower_case",
        "max_seq_length",
        "max_predictions_per_seq",
        required=("vocab_file",),
    )
    shared_flags.require_at_least(flag_values, MIN_SEQ_LENGTH, "max_seq_length")
    shared_flags.require_at_least(flag_values, 1, "max_predictions_per_seq")

    def define(kind: Any, name: str, default: Any, text: str, **bounds: Any) -> None:
        kind(name, default, text, flag_values=flag_values, **bounds)

    define(
        flags.DEFINE_string,
        "input_file",
        None,
        "Text files: one sentence a line, a blank line between documents; globs with"
        " commas between.",
    )
    define(
        flags.DEFINE_string,
        "output_file",
        None,
        "TFRecord files to write, with commas between; records are dealt to them in"
        " turn.",
    )
    flags.mark_flags_as_required(["input_file", "output_file"], flag_values)
    define(
        flags.DEFINE_bool,
        "do_whole_word_mask",
        False,
        "Mask all pieces of a word or none, rather than each piece on its own.",
    )
    define(flags.DEFINE_integer, "random_seed", 12345, "Seed of the random stream.")
    define(
        flags.DEFINE_integer,
        "dupe_factor",
        10,
        "Passes over the documents, each with other pairs and masks.",
        lower_bound=1,
    )
    define(
        flags.DEFINE_float,
        "masked_lm_prob",
        0.15,
        "Share of a sequence's tokens to predict.",
    )
    flags.register_validator(
        "masked_lm_prob",
        lambda value: 0.0 < value <= 1.0,
        "must be above 0 and at most 1",
        flag_values,
    )
    define(
        flags.DEFINE_float,
        "short_seq_prob",
        0.1,
        "Chance that a document's sequences aim at a shorter length.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    define(
        flags.DEFINE_bool,
        "overwrite",
        False,
        "Ours. Replace records of other settings, and files that no manifest knows,"
        " under the names of --output_file.",
    )


def run(flag_values: flags.FlagValues) -> None:
    """Writes the records that the flags ask for."""
    from bert_tf.instances.pretraining import InstanceSettings
    from bert_tf.records.manifest import lies_beside_records, manifest_path
    from bert_tf.text.vocabulary import Vocabulary

    output_files = flag_values.output_file.split(",")
    # A pattern may take in what an earlier run of this command wrote beside its text.
    ours = output_files if files.exists(manifest_path(output_files)) else []
    input_files = [
        path
        for path in files.expand_globs(flag_values.input_file, "input_file")
        if path not in ours and not lies_beside_records(path)
    ]
    if not input_files:
        raise InputError(
            f"--input_file: {flag_values.input_file!r} matches nothing but records."
        )
    vocabulary = Vocabulary.from_file(flag_values.vocab_file)
    vocabulary.require_special_tokens(flag_values.vocab_file)
    settings = InstanceSettings(
        max_seq_length=flag_values.max_seq_length,
        max_predictions_per_seq=flag_values.max_predictions_per_seq,
        masked_lm_prob=flag_values.masked_lm_prob,
        short_seq_prob=flag_values.short_seq_prob,
        dupe_factor=flag_values.dupe_factor,
        do_whole_word_mask=flag_values.do_whole_word_mask,
        random_seed=flag_values.random_seed,
    )
    cli.import_tensorflow()
    from bert_tf.records.pretraining import create_pretraining_records

    create_pretraining_records(
        input_files,
        output_files,
        vocabulary,
        settings,
        do_lower_case=flag_values.do_lower_case,
        overwrite=flag_values.overwrite,
    )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
