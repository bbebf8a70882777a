"""One object of JSON lines: a sentence's words and their labels."""

import json
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import InputError
from bert_tf.text.documents import whole_characters


def read_object(
    line: str,
    source: str,
    *,
    word_names: Sequence[str],
    label_names: Sequence[str],
    document_name: str,
    has_labels: bool | None,
    names_of_numbers: Sequence[str] | None,
) -> tuple[list[str], list[str] | None, Any]:
    """Reads a line."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source}: it must be one JSON object on one line."
        ) from error
    if not isinstance(values, dict):
        raise InputError(
            f"{source}: it must be a JSON object. Found: {type(values).__name__}."
        )
    words = _field(values, word_names, "--word_column", source)
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"{source}: words must be text; one is a number, or null.")
    words = [whole_characters(word) for word in words]
    document = values.get(document_name)
    is_labelled = has_labels
    if has_labels is None:
        is_labelled = any(values.get(name) is not None for name in label_names)
    if not is_labelled:
        return words, None, document
    labels = _field(values, label_names, "--label_column", source)
    if len(labels) != len(words):
        raise InputError(f"{source}: {len(words)} words, but {len(labels)} labels.")
    return (
        words,
        [label_name(label, names_of_numbers, source) for label in labels],
        document,
    )


def label_name(label: object, names: Sequence[str] | None, source: str) -> str:
    """A label as a word."""
    if isinstance(label, str) and label and not any(map(str.isspace, label)):
        return whole_characters(label)
    if isinstance(label, int) and not isinstance(label, bool):
        if names is None:
            raise InputError(
                f"{source}: the labels are numbers; --labels=O,B-PER,... says what 0, 1"
                " and so on stand for."
            )
        if 0 <= label < len(names):
            return names[label]
        hint = " -1 mostly stands for a label that is kept back." if label < 0 else ""
        raise InputError(f"{source}: --labels has no name for the label {label}.{hint}")
    raise InputError(
        f"{source}: a label must be a word without blanks, or a number. Found:"
        f" {label!r}."
    )


def _field(
    values: dict[str, Any], names: Sequence[str], flag: str, source: str
) -> list[Any]:
    for name in names:
        if name in values:
            if isinstance(values[name], list):
                return values[name]
            raise InputError(f"{source}: {name!r} must be a list, an entry a word.")
    raise InputError(
        f"{source}: it has no {' or '.join(map(repr, names))}; {flag} names one of its"
        f" own: {', '.join(values)}."
    )
