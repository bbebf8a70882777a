"""Frozen dataclasses from JSON objects, with every key and type checked.

A file that was edited or damaged thus causes an InputError where it is read, and no
other exception where its values are used.
"""

import collections.abc
import dataclasses
import reprlib
import types
import typing
from typing import Any, TypeVar

from bert_tf.base import files
from bert_tf.base.errors import InputError

# A type's name in messages -> the type that Python's `json` returns for it.
_WANTED: dict[Any, tuple[str, Any]] = {
    str: ("a string", str),
    bool: ("true or false", bool),
    int: ("an integer", int),
    float: ("a number", (int, float)),
    tuple: ("a list", list),
    list: ("a list", list),
    dict: ("an object", dict),
    collections.abc.Mapping: ("an object", dict),
}
# Larger integers are not sizes, counts or steps, and fit in no array.
_LARGEST_INTEGER = 2**63 - 1


_T = TypeVar("_T")


def read(kind: type[_T], path: str, what: str = "file") -> _T:
    """Returns a dataclass from a JSON file; see `from_values`."""
    return from_values(kind, files.read_json(path, what), path)


def from_values(kind: type[_T], values: Any, source: str) -> _T:
    """Returns a dataclass from a JSON object as `dataclasses.asdict` makes it."""
    assert dataclasses.is_dataclass(kind)
    fields = [field.name for field in dataclasses.fields(kind) if field.compare]
    if not isinstance(values, dict):
        raise InputError(f"{source}: must be a JSON object. Received: {_shown(values)}")
    unknown = sorted(values.keys() - set(fields))
    missing = sorted(set(fields) - values.keys() - _optional(kind))
    if unknown or missing:
        raise InputError(
            f"{source}: its keys are wrong. "
            f"Missing: {', '.join(missing) or 'none'}. "
            f"Unknown: {', '.join(unknown)[:200] or 'none'}."
        )
    wanted = typing.get_type_hints(kind)
    return kind(
        **{
            name: checked(wanted[name], values[name], source, name)
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


def checked(wanted: Any, value: Any, source: str, name: str) -> Any:
    """Returns a value of a JSON object if it has the expected type."""
    if isinstance(wanted, types.UnionType):
        if value is None:
            return None
        (wanted,) = set(typing.get_args(wanted)) - {types.NoneType}
    if wanted is Any:
        return value
    if dataclasses.is_dataclass(wanted):
        return from_values(wanted, value, f"{source}: {name}")  # type: ignore[arg-type]
    of = typing.get_args(wanted)
    wanted = typing.get_origin(wanted) or wanted
    words, allowed = _WANTED[wanted]
    is_right = isinstance(value, allowed) and isinstance(value, bool) == (
        wanted is bool
    )
    if is_right and isinstance(value, int):
        is_right = abs(value) <= _LARGEST_INTEGER
    if not is_right:
        # Commands turn names in backticks into flags of that name.
        raise InputError(
            f'{source}: "{name}" must be {words}. Received: {_shown(value)}'
        )
    if wanted in (tuple, list):
        return wanted(checked(of[0], item, source, name) for item in value)
    if of:
        return {key: checked(of[1], item, source, name) for key, item in value.items()}
    # JSON writes 1.0 as 1.0, but a person may write 1.
    return float(value) if wanted is float else value


def _shown(value: Any) -> str:
    """Returns a value in a few words, however long or nested it is."""
    shorter = reprlib.Repr()
    shorter.maxstring = shorter.maxother = 100
    return shorter.repr(value)
