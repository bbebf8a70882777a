r"""Packs short pre-training records into rows of one length, several to a row.

python -m bert_tf.tfrecords.pack_pretraining_data --input_file=RECORDS \
        --output_file=ROWS

Padding costs a training step as much as text. In a packed row each sequence keeps its
[CLS], its positions and its next sentence label, and sees itself alone, so that the
losses are those of the records as they were. The records are those of
create_pretraining_data or of google-research/bert, masked or not; each lands in one
row. The same command again finds its rows done, or goes on where it was killed.
"""

import dataclasses
import math

from bert_tf import cli
from bert_tf.instances.settings import MIN_SEQ_LENGTH
from bert_tf.options import REQUIRED, Options, Path, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingOptions(Options):
    """Which rows are made of which records."""

    input_file: str = option(
        REQUIRED, "Record files: names or globs, with commas between.", path=Path.FILES
    )
    output_file: str = option(
        REQUIRED,
        "Where the rows go; -00000-of-00064 is added if there are several files.",
        path=Path.OUTPUT,
    )
    max_seq_length: int = option(
        512, "Tokens of a row, padding included.", least=MIN_SEQ_LENGTH
    )
    max_predictions_per_seq: int | None = option(
        None,
        "Masked-LM slots of a row; unless given, as many for each token as the records"
        " have.",
        least=1,
    )
    max_sequences_per_row: int | None = option(
        None,
        "The most sequences in a row; unless given, one for each 32 tokens.",
        least=1,
    )
    num_shards: int | None = option(
        None,
        "Files of rows; unless given, as many as there are record files.",
        least=1,
    )
    random_seed: int = option(12345, "Seed of the rows' order.", most=math.inf)
    vocab_file: str | None = option(
        None, "The records' vocabulary, if they have no manifest.", path=Path.FILE
    )
    do_lower_case: bool | None = option(
        None,
        "Its casing, if the records have no manifest; lower-cased unless given.",
    )
    num_workers: int | None = option(
        None,
        "Processes to work with; all cores unless given. The result is the same.",
        least=1,
    )
    work_dir: str | None = option(
        None,
        "Folder for notes until the rows are finished; unless given, that of the rows.",
        path=Path.OUTPUT,
    )
    overwrite: bool = option(
        False,
        "Replace rows of other settings, and files that no manifest knows, under the"
        " name of --output_file.",
    )


def run(options: PackingOptions) -> None:
    """Writes the rows that the flags ask for."""
    cli.import_tensorflow()
    from bert_tf.parallel import available_cores
    from bert_tf.records.packing import pack_pretraining_records

    pack_pretraining_records(
        options.input_file,
        options.output_file,
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        max_sequences_per_row=options.max_sequences_per_row,
        num_shards=options.num_shards,
        random_seed=options.random_seed,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
        num_workers=options.num_workers or available_cores(),
        work_dir=options.work_dir,
        overwrite=options.overwrite,
    )


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
