"""Creates masked language model and next sentence records for BERT's pre-training.

The flags of google-research/bert, their defaults and the records are as there. The
input is UTF-8 text, one sentence a line, with a blank line between documents, or what
wikiextractor, a JSON lines file or a TensorFlow dataset holds. Beside the records stand
NAME.manifest.json and NAME.vocab.txt, where NAME is the first output file without a
shard suffix such as -00000-of-00008.

The same command again finds its records done, or goes on where it was killed. It does
not write over others' files unless told to by --overwrite.
"""

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from bert_tf import cli, files, flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.instances.settings import (
    DYNAMIC_MASKING,
    MASKING,
    MIN_SEQ_LENGTH,
    NEXT_SENTENCE,
    NSP_LABELS,
    ORIGINAL_LABELS,
    PAIRS,
    InstanceSettings,
)
from bert_tf.records.tokenized_corpus import DEDUPLICATION
from bert_tf.text_flags import define_text_input, text_chunks


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values,
        "do_lower_case",
        "max_seq_length",
        "max_predictions_per_seq",
        required=("vocab_file",),
    )
    flag_rules.require_at_least(flag_values, MIN_SEQ_LENGTH, "max_seq_length")
    flag_rules.require_at_least(flag_values, 1, "max_predictions_per_seq")

    def define(kind: Any, name: str, default: Any, text: str, **bounds: Any) -> None:
        kind(name, default, text, flag_values=flag_values, **bounds)

    define_text_input(flag_values, splits_sentences=True)
    define(
        path_flags.define,
        "output_file",
        None,
        "TFRecord files to write, with commas between; records are dealt to them in"
        " turn. With --num_shards one name, to which -00000-of-00064 is added.",
    )
    flags.mark_flag_as_required("output_file", flag_values)
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
        "Passes over the documents, each with other pairs and masks. With"
        " --masking=dynamic the default is 1.",
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
        flags.DEFINE_integer,
        "num_shards",
        None,
        "Deal the documents into so many groups, each with a random stream and"
        " a record file of its own, made on any core. Random next sentences then come"
        " from the group. Unless given, all documents are one pool, as in the"
        " original.",
        lower_bound=1,
    )
    _define_enum(
        flag_values,
        "masking",
        MASKING,
        "dynamic: write the records unmasked; the training masks them, anew in"
        " each epoch.",
    )
    _define_enum(
        flag_values,
        "pairs",
        PAIRS,
        "What a sequence is: nsp: two segments, the second one the next or a"
        " random one; none: whole sentences in one segment, without a task (RoBERTa);"
        " sop: two neighbouring segments, in order or swapped (ALBERT).",
    )
    _define_enum(
        flag_values,
        "nsp_labels",
        NSP_LABELS,
        "exact: without the original's faults: a lone sentence does not always"
        " get a random next one, and a random one never comes from the same document.",
    )
    flags.register_multi_flags_validator(
        ["pairs", "nsp_labels"],
        lambda values: (
            values["pairs"] == NEXT_SENTENCE or values["nsp_labels"] == ORIGINAL_LABELS
        ),
        "--nsp_labels=exact is for --pairs=nsp alone",
        flag_values,
    )
    _define_enum(
        flag_values,
        "deduplicate",
        DEDUPLICATION,
        "Drop documents, or paragraphs, that were there before, exactly the same.",
    )
    define(
        flags.DEFINE_integer,
        "min_document_tokens",
        0,
        "Drop documents with fewer tokens.",
        lower_bound=0,
    )
    define(
        path_flags.define,
        "work_dir",
        None,
        "Folder for tokens until the records are finished, about half the text's"
        " size; unless given, the one of the records.",
    )
    define(
        flags.DEFINE_string,
        "runner",
        None,
        "Make the shards as an Apache Beam pipeline on this runner of Beam's:"
        " DirectRunner, FlinkRunner, SparkRunner, DataflowRunner, ...; unless given, on"
        " this machine, without Beam. The records are the same. Input and output must"
        " lie where all workers reach them.",
    )
    define(
        flags.DEFINE_multi_string,
        "beam_option",
        [],
        "An option of Beam's own, such as --beam_option=--direct_num_workers=2;"
        " may be given several times.",
    )
    define(
        flags.DEFINE_bool,
        "overwrite",
        False,
        "Replace records of other settings, and files that no manifest knows,"
        " under the names of --output_file.",
    )


def _define_enum(
    flag_values: flags.FlagValues, name: str, values: Sequence[str], text: str
) -> None:
    flags.DEFINE_enum(name, values[0], values, text, flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Writes the records that the flags ask for."""
    from bert_tf.records.manifest import manifest_path
    from bert_tf.records.writing import leftovers
    from bert_tf.text.vocabulary import Vocabulary

    create, own_arguments = _way_of_working(flag_values)
    vocabulary = Vocabulary.from_file(flag_values.vocab_file)
    vocabulary.require_special_tokens(flag_values.vocab_file)
    output_files = flag_values.output_file.split(",")
    # A pattern may take in what an earlier run of this command wrote beside its text,
    # and the vocabulary.
    ours = output_files if files.exists(manifest_path(output_files)) else []
    ours = [*ours, *leftovers(output_files)]
    chunks = text_chunks(flag_values, passed_over=[*ours, flag_values.vocab_file])
    dupe_factor = shared_flags.given(flag_values, "dupe_factor")
    if dupe_factor is None:
        is_dynamic = flag_values.masking == DYNAMIC_MASKING
        dupe_factor = 1 if is_dynamic else flag_values.dupe_factor
    settings = InstanceSettings(
        max_seq_length=flag_values.max_seq_length,
        max_predictions_per_seq=flag_values.max_predictions_per_seq,
        masked_lm_prob=flag_values.masked_lm_prob,
        short_seq_prob=flag_values.short_seq_prob,
        dupe_factor=dupe_factor,
        do_whole_word_mask=flag_values.do_whole_word_mask,
        random_seed=flag_values.random_seed,
        masking=flag_values.masking,
        pairs=flag_values.pairs,
        nsp_labels=flag_values.nsp_labels,
    )
    create(
        chunks,
        output_files,
        vocabulary,
        settings,
        do_lower_case=flag_values.do_lower_case,
        num_shards=flag_values.num_shards,
        deduplicate=flag_values.deduplicate,
        min_document_tokens=flag_values.min_document_tokens,
        overwrite=flag_values.overwrite,
        **own_arguments,
    )


def _way_of_working(
    flag_values: flags.FlagValues,
) -> tuple[Callable[..., object], dict[str, Any]]:
    """The function that makes the records, and those arguments that it alone has."""
    if flag_values.runner is not None:
        return _beam(flag_values)
    if flag_values.beam_option:
        raise InputError("--beam_option is for Apache Beam: give --runner too.")
    from bert_tf.parallel import available_cores
    from bert_tf.records.record_sets import create_pretraining_records

    return create_pretraining_records, {
        "num_workers": flag_values.num_workers or available_cores(),
        "work_dir": flag_values.work_dir,
    }


def _beam(
    flag_values: flags.FlagValues,
) -> tuple[Callable[..., object], dict[str, Any]]:
    runner = flag_values.runner
    if flag_values.num_shards is None:
        raise InputError(
            f"--runner={runner}: give --num_shards too, several for each worker; one "
            "pool of all documents is made on one machine."
        )
    if flag_values.num_workers is not None:
        raise InputError(
            f"--num_workers is for this machine alone; --runner={runner} has an option "
            "of its own, such as --beam_option=--direct_num_workers=2."
        )
    if flag_values.work_dir is not None:
        raise InputError(f"--work_dir: with --runner={runner} there is no such folder.")
    try:
        from bert_tf.records.beam import create_records_on_beam
    except ModuleNotFoundError as error:
        if error.name != "apache_beam":
            raise
        raise InputError(
            f"--runner={runner} needs Apache Beam: pip install 'bert-tf[beam]'"
        ) from error
    return create_records_on_beam, {
        "runner": runner,
        "beam_options": flag_values.beam_option,
    }


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
