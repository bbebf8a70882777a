"""JSON objects into frozen dataclasses, every key and type checked."""

import dataclasses
import typing
from typing import Any

from bert_tf.errors import InputError

_WANTED = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
}


def from_values(kind: type, values: Any, source: str) -> Any:
    """A dataclass from the JSON object that `dataclasses.asdict` gives.

    Args:
        kind: a dataclass whose fields are str, bool, int, float, or tuples of further
            such dataclasses. Fields with `compare=False` are not part of the JSON.
        values: the parsed JSON.
        source: where it comes from, for messages.

    Raises:
        InputError: a key is missing or unknown, or a value has another type.
    """
    fields = [field.name for field in dataclasses.fields(kind) if field.compare]
    if not isinstance(values, dict):
        raise InputError(f"{source}: must be a JSON object. Found: {values!r}")
    unknown = sorted(values.keys() - set(fields))
    missing = sorted(set(fields) - values.keys())
    if unknown or missing:
        raise InputError(
            f"{source}: must have the keys of {kind.__name__}, these alone. "
            f"Missing: {', '.join(missing) or 'none'}. "
            f"Unknown: {', '.join(unknown) or 'none'}."
        )
    types = typing.get_type_hints(kind)
    return kind(
        **{name: _value(types[name], values[name], source, name) for name in fields}
    )


def _value(wanted: Any, value: Any, source: str, name: str) -> Any:
    if typing.get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{source}: `{name}` must be a list. Found: {value!r}")
        item_type = typing.get_args(wanted)[0]
        return tuple(
            from_values(item_type, item, f"{source}: {name}") for item in value
        )
    # JSON writes 1.0 as 1.0, but a person may write 1; and True is an int to Python.
    allowed = (int, float) if wanted is float else wanted
    if not isinstance(value, allowed) or isinstance(value, bool) != (wanted is bool):
        raise InputError(
            f"{source}: `{name}` must be {_WANTED[wanted]}. Found: {value!r}"
        )
    return value
