"""Printed records, and statistics of record files."""

import shutil

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, Path, option


class InspectionOptions(Options, decides="nothing"):
    """The records to show, and how."""

    vocab_file: str | None = option(
        None, "The WordPiece vocabulary: one token per line.", path=Path.FILE
    )
    num_examples: int = option(3, "Number of records to print.", least=0)
    start: int = option(
        0, "The first record to print, counted from 0 over all files.", least=0
    )
    statistics: bool = option(
        True,
        "Read all records, count lengths, predictions and labels, and check each one.",
    )


def run(options: InspectionOptions) -> None:
    """Prints what the flags ask for."""
    if not options.positional:
        raise InputError("Give record files: inspect_records records/text.tfrecord")
    cli.import_tensorflow(options)
    from tqdm import tqdm

    from bert_tf.addons.study.inspection import examples, opened, survey
    from bert_tf.records.manifest import manifest_lines

    records = opened(options.positional, options.vocab_file)
    width = shutil.get_terminal_size().columns
    for manifest in records.manifests:
        print("\n".join([*manifest_lines(manifest), ""]))
    for lines in examples(records, options.start, options.num_examples, width):
        print("\n".join([*lines, ""]))
    if options.statistics:
        total = sum(files.size(path) for path in records.paths)
        with tqdm(
            total=total, desc="Reading", unit="B", unit_scale=True, disable=None
        ) as bar:
            lines = [*survey(records, bar.update)]
        print("\n".join(lines))
