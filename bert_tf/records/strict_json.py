"""JSON objects into frozen dataclasses, every key and type checked."""

import dataclasses
import types
import typing
from typing import Any

from bert_tf.errors import InputError

_WANTED = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    dict: "an object",
}


def from_values(kind: type, values: Any, source: str) -> Any:
    """A dataclass from the JSON object that `dataclasses.asdict` gives.

    Args:
        kind: a dataclass whose fields are str, bool, int, float, one of these or None,
            dict (of any JSON), or tuples of further such dataclasses. Fields with
            `compare=False` are not part of the JSON; those that have a default may be
            missing.
        values: the parsed JSON.
        source: where it comes from, for messages.

    Raises:
        InputError: a key is missing or unknown, or a value has another type.
    """
    fields = [field.name for field in dataclasses.fields(kind) if field.compare]
    if not isinstance(values, dict):
        raise InputError(f"{source}: must be a JSON object. Found: {values!r}")
    unknown = sorted(values.keys() - set(fields))
    missing = sorted(set(fields) - values.keys() - _optional(kind))
    if unknown or missing:
        raise InputError(
            f"{source}: must have the keys of {kind.__name__}, these alone. "
            f"Missing: {', '.join(missing) or 'none'}. "
            f"Unknown: {', '.join(unknown) or 'none'}."
        )
    wanted = typing.get_type_hints(kind)
    return kind(
        **{
            name: _value(wanted[name], values[name], source, name)
            for name in fields
            if name in values
        }
    )


def _optional(kind: type) -> set[str]:
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is not dataclasses.MISSING
        or field.default_factory is not dataclasses.MISSING
    }


def _value(wanted: Any, value: Any, source: str, name: str) -> Any:
    if typing.get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{source}: `{name}` must be a list. Found: {value!r}")
        item_type = typing.get_args(wanted)[0]
        return tuple(
            from_values(item_type, item, f"{source}: {name}") for item in value
        )
    if isinstance(wanted, types.UnionType):
        if value is None:
            return None
        (wanted,) = set(typing.get_args(wanted)) - {types.NoneType}
    # JSON writes 1.0 as 1.0, but a person may write 1; and True is an int to Python.
    allowed = (int, float) if wanted is float else wanted
    if not isinstance(value, allowed) or isinstance(value, bool) != (wanted is bool):
        raise InputError(
            f"{source}: `{name}` must be {_WANTED[wanted]}. Found: {value!r}"
        )
    return value
