"""Finished results and their inputs' digests in a file, so that none is made twice.

    {"format_version": 1,
     "results": {"records": {"made_from": SHA-256, "result": ...}}}

`made_from` is a digest of all that a result depends on: the content of its input, its
settings, and a number to increment when the same input gives another result.
After a kill, the same command finds the results that were finished, and makes only the
others. A file that is damaged, or of another version, counts as empty.
"""

import dataclasses
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.errors import InputError

FORMAT_VERSION = 1

T = TypeVar("T")


def digest(made_from: Any) -> str:
    """Returns the SHA-256 of a JSON value."""
    return files.sha256(json.dumps(made_from, sort_keys=True).encode())


class FinishedResults(Generic[T]):
    """Results by name in a file, or else in memory."""

    def __init__(self, path: str | None, kind: Any) -> None:
        self._path = path
        self._kind = kind
        self._lock = threading.Lock()
        self._entries = _read(path) if path and files.exists(path) else {}

    def find(self, name: str, made_from: Any) -> T | None:
        """Returns a result if it exists and was made from the same input."""
        entry = self._entries.get(name)
        if entry is None or entry.made_from != digest(made_from):
            return None
        try:
            return strict_json.checked(
                self._kind, entry.result, self._path or "", "result"
            )
        except InputError as error:
            logging.warning("%s It is made again.", error)
            return None

    def keep(self, name: str, made_from: Any, result: T) -> None:
        """Adds a result, and writes the file."""
        values: Any = result
        if dataclasses.is_dataclass(values) and not isinstance(values, type):
            values = dataclasses.asdict(values)
        with self._lock:
            self._entries[name] = _Entry(made_from=digest(made_from), result=values)
            if self._path:
                every = dataclasses.asdict(_File(FORMAT_VERSION, self._entries))
                files.write_atomically(self._path, json.dumps(every, indent=1) + "\n")


def keep_settings(
    path: str, values: Mapping[str, Any], what: str, remedy: str = ""
) -> None:
    """Writes a folder's settings. Raises InputError if it has other settings."""
    text = json.dumps(values, indent=1) + "\n"
    here = json.loads(text)
    there = files.read_object(path) if files.exists(path) else here
    differing = [
        f"`{name}={there.get(name)}` there, {here.get(name)} here"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    if differing:
        raise InputError(
            f"`output_dir={os.path.dirname(path)}` holds {what} with other settings:"
            f" {'; '.join(differing)}. Give another folder{remedy}."
        )
    files.make_folder(os.path.dirname(path))
    files.write_atomically(path, text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Entry:
    made_from: str
    result: Any


@dataclasses.dataclass(frozen=True)
class _File:
    format_version: int
    results: dict[str, _Entry]


def _read(path: str) -> dict[str, _Entry]:
    try:
        file = strict_json.read(_File, path)
    except InputError as error:
        logging.warning("%s What it held is made again.", error)
        return {}
    return file.results if file.format_version == FORMAT_VERSION else {}
