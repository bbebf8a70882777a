"""Shows what is in record files: some records as text, and statistics of all.

python -m bert_tf.tfrecords.inspect_records records/text.tfrecord

A token to predict is marked: [MASK→river] where the model sees [MASK] and must say
"river", [the→river] where it sees another token, [river=] where it sees the token
itself. Vocabulary and settings come from the manifest beside the records. Broken files
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
    from bert_tf.records.inspection import InspectedRecords
    from bert_tf.records.survey import Survey


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
        "color",
        "auto",
        ["auto", "always", "never"],
        "Colours beside the marks; auto: on a terminal, unless NO_COLOR is set.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "format",
        "text",
        ["text", "json"],
        "json: one object a line: the manifests, each record, the statistics.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Prints what the flags ask for."""
    if not flag_values.positional:
        raise InputError("Give record files: inspect_records records/text.tfrecord")
    cli.import_tensorflow()
    from bert_tf.records.inspection import InspectedRecords

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that has no arrow shows its escape rather than nothing at all.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        records = InspectedRecords(flag_values.positional, flag_values.vocab_file)
        show = _print_json if flag_values.format == "json" else _print_text
        show(records, flag_values)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough. Python flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_text(records: "InspectedRecords", flag_values: flags.FlagValues) -> None:
    from bert_tf.records.manifest import manifest_lines
    from bert_tf.records.rendering import render
    from bert_tf.records.survey import show_records

    for manifest in records.manifests:
        print("\n".join([*manifest_lines(manifest), ""]))
    width = shutil.get_terminal_size().columns
    color = wants_color(flag_values.color)
    for shown in show_records(records, flag_values.start, flag_values.num_examples):
        sequence = f", sequence {shown.sequence}" if shown.sequence else ""
        title = (
            f"record {shown.number}{sequence}"
            f" (record {shown.number_in_file} of {shown.path})"
        )
        print(
            *render(shown.example, title, shown.remarks, width=width, color=color),
            sep="\n",
            end="\n\n",
        )
    if flag_values.statistics:
        print("\n".join(_survey(records).lines()))


def _print_json(records: "InspectedRecords", flag_values: flags.FlagValues) -> None:
    from bert_tf.records.survey import show_records

    for manifest in records.manifests:
        values = json.loads(manifest.to_json_string())
        _print_object({"manifest": {"path": manifest.path, **values}})
    for shown in show_records(records, flag_values.start, flag_values.num_examples):
        _print_object(
            {
                "record": shown.number,
                "file": shown.path,
                "record_in_file": shown.number_in_file,
                **({"sequence": shown.sequence} if shown.sequence else {}),
                **shown.example.to_values(),
                "violations": shown.remarks,
            }
        )
    if flag_values.statistics:
        survey = _survey(records)
        _print_object({**survey.to_values(), "problems": records.problems})


def _print_object(values: dict[str, Any]) -> None:
    print(json.dumps(values, ensure_ascii=False))


def _survey(records: "InspectedRecords") -> "Survey":
    """Reads all records, or as many as there is patience for."""
    from tqdm import tqdm

    from bert_tf.records.survey import Survey

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


def wants_color(choice: str) -> bool:
    """Whether to print colours; see https://no-color.org for NO_COLOR."""
    if choice == "auto":
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return sys.stdout.isatty() and not is_plain
    return choice == "always"


def main() -> None:
    """The command line."""
    cli.main(define_flags, run, arguments="files", argument_kind=Path.FILES)


if __name__ == "__main__":
    main()
