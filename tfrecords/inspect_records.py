"""Shows what is in record files: some records as text, and statistics of all.

python -m bert_tf.tfrecords.inspect_records records/text.tfrecord

A token to predict is marked: [MASK→river] where the model sees [MASK] and must say
"river", [the→river] where it sees another token, [river=] where it sees the token
itself. Vocabulary and settings come from the manifest next to the records. Broken files
and sets that are not complete are shown as far as they go.
"""

import io
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_tf import cli, files, flag_rules
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.path_flags import Path

if TYPE_CHECKING:
    from bert_tf.records.inspection import InspectedRecords, Survey


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(flag_values, "vocab_file")
    flags.DEFINE_integer(
        "num_examples", 3, "Records to print.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "start",
        0,
        "The first record to print, counted from 0 over all files.",
        flag_values=flag_values,
    )
    flag_rules.require_at_least(flag_values, 0, "num_examples", "start")
    flags.DEFINE_bool(
        "statistics",
        True,
        "Read all records, count lengths, predictions and labels, and check each one.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "format",
        "text",
        ["text", "json"],
        "json: one object per line: the manifests, each record, the statistics.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Prints what the flags ask for."""
    if not flag_values.positional:
        raise InputError("Give record files: inspect_records records/text.tfrecord")
    cli.import_tensorflow()
    from bert_tf.records.inspection import InspectedRecords, examples
    from bert_tf.records.manifest import manifest_lines

    def say(values: dict[str, Any]) -> None:
        print(json.dumps(values, ensure_ascii=False))

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that has no arrow shows its escape rather than nothing at all.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        records = InspectedRecords(flag_values.positional, flag_values.vocab_file)
        is_text = flag_values.format == "text"
        for manifest in records.manifests:
            if is_text:
                print("\n".join([*manifest_lines(manifest), ""]))
            else:
                values = json.loads(manifest.to_json_string())
                say({"manifest": {"path": manifest.path, **values}})
        width = shutil.get_terminal_size().columns
        for each in examples(records, flag_values.start, flag_values.num_examples):
            if is_text:
                print("\n".join([*each.lines(width), ""]))
            else:
                say(each.to_values())
        if flag_values.statistics:
            survey = _survey(records)
            if is_text:
                print("\n".join(survey.lines()))
            else:
                say({**survey.to_values(), "problems": records.problems})
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough. Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _survey(records: "InspectedRecords") -> "Survey":
    """Reads all records; an interrupt ends the reading."""
    from tqdm import tqdm

    from bert_tf.records.inspection import Survey

    survey = Survey(records)
    total = sum(files.size(path) for path in records.paths)
    bar = tqdm(total=total, desc="Reading", unit="B", unit_scale=True, disable=None)
    with bar:
        try:
            for block in records.blocks():
                survey.add(block)
                bar.update(block.num_bytes)
        except KeyboardInterrupt:
            records.warn("Interrupted: these are figures of the records until here.")
    return survey


def main() -> None:
    """The command line."""
    cli.main(define_flags, run, arguments="files", argument_kind=Path.FILES)


if __name__ == "__main__":
    main()
