"""Names the format of a file that a command does not read, from its beginning."""

import contextlib
import re
from collections.abc import Iterator

from bert_tf.base import files, unpacking
from bert_tf.base.errors import InputError

_NUM_CHARACTERS = 20_000
_OFFSETS = r'\[\s*[\[(]\s*\d+\s*,\s*\d+\s*,\s*["\']'
# Spans as written by Label Studio, Prodigy, spaCy and doccano.
_SPANS = (
    r'\s*\[?\s*\{.*("(annotations|completions)"\s*:\s*\[.*"result"\s*:'
    r'|"_(input|task)_hash"|"spans"\s*:\s*\[\s*\{|"start_offset"\s*:'
    rf'|"(labels?|entities)"\s*:\s*{_OFFSETS})'
    rf'|.*\{{\s*["\']entities["\']\s*:\s*({_OFFSETS}|\[\s*\])'
)

# Commands without this hint, the format's beginning, its description.
_FORMATS = tuple(
    (commands, re.compile(pattern, re.DOTALL), said)
    for commands, pattern, said in (
        (
            "run_squad",
            r'\s*[{\[].*"(paragraphs|qas)"\s*:',
            "SQuAD's JSON, which run_squad reads if its name ends in .json",
        ),
        ("run_ner", _SPANS, "texts with spans, which run_ner reads"),
        (
            "run_ner",
            r'\s*\{.*"(tokens|words)"\s*:\s*\[',
            "JSON lines of words, which run_ner reads with `format=jsonl`",
        ),
        (
            "run_swag",
            r'\s*\{.*"endings"\s*:\s*\[',
            "JSON lines of choices, which run_swag reads",
        ),
        (
            "run_classifier run_ner run_swag table",
            r"(?i)(?=[^\n]*\bquestion\b)(?=[^\n]*[,\t])[^\n{\[]*\b(context|answers?)\b",
            "a table of questions, which run_squad reads if its name ends in .csv, .tsv"
            " or .jsonl",
        ),
    )
)


def format_of(text: str, command: str) -> str:
    """Names the apparent format of a text; "" if unknown or the command's own."""
    for commands, pattern, said in _FORMATS:
        if pattern.match(text):
            return "" if command in commands.split() else said
    return ""


@contextlib.contextmanager
def naming(path: str, command: str) -> Iterator[None]:
    """Adds the file's apparent format to an InputError."""
    try:
        yield
    except InputError as error:
        if not files.exists(path) or files.is_folder(path):
            raise
        beginning = next(iter(unpacking.read_pieces(path)), b"").decode(
            errors="replace"
        )
        said = format_of(beginning.lstrip("\ufeff")[:_NUM_CHARACTERS], command)
        if not said:
            raise
        raise InputError(f"{error} The file looks like {said}.") from error
