"""A long output in parts, so that a run that was stopped goes on.

Each group of features is a file of its own in OUTPUT.parts, there when it is complete.
When all are there, they are put together, and the folder is removed. The same command
again finds the parts and makes the others; parts of other settings, another input or
other weights are thrown away.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

SETTINGS_NAME = "settings.json"

_PART = re.compile(r"part-(\d{6})$")


class Parts:
    """The parts of an output.

    Args:
        output: the output's path.
        settings: all that the output hangs on, for JSON.
        is_chief: whether this process writes; the others only look.
    """

    def __init__(
        self, output: str, settings: Mapping[str, Any], *, is_chief: bool = True
    ) -> None:
        self.folder = output.rstrip("/") + ".parts"
        self._settings = json.dumps(settings, indent=2, sort_keys=True) + "\n"
        self._done = self._found()
        if self._done:
            logging.info("Going on: %d groups are in %s.", len(self._done), self.folder)
        elif is_chief:
            self.remove()
            files.make_folder(self.folder)
            files.write_atomically(self._path(SETTINGS_NAME), self._settings)

    def _found(self) -> set[int]:
        path = self._path(SETTINGS_NAME)
        if not files.exists(path):
            return set()
        if files.read_text(path) != self._settings:
            logging.info("%s is of other settings or inputs: made anew.", self.folder)
            return set()
        names = map(_PART.match, files.names_in(self.folder))
        return {int(match[1]) for match in names if match}

    def is_done(self, number: int) -> bool:
        """Whether a part was there at the start."""
        return number in self._done

    @contextlib.contextmanager
    def writing(self, number: int) -> Iterator[IO[bytes]]:
        """A part to be written; it is there when the context is left."""
        path = self._path(f"part-{number:06d}")
        temporary = files.temporary_name(path)
        try:
            with files.open_binary(temporary, "wb") as file:
                yield file
            files.replace(temporary, path)
        finally:
            if files.exists(temporary):
                files.remove(temporary)

    def paths(self) -> list[str]:
        """All parts, in their order."""
        names = files.names_in(self.folder)
        return [self._path(name) for name in names if _PART.match(name)]

    def remove(self) -> None:
        """Removes the parts."""
        if files.exists(self.folder):
            files.remove(self.folder)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def refuse_folder(path: str) -> None:
    """Raises InputError if a file is to be written where a folder is."""
    if files.is_folder(path):
        raise InputError(f"The output file is a folder, not a file: {path}")


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file that takes its name, over an older one, when the context is left."""
    folder = os.path.dirname(path)
    if folder:
        files.make_folder(folder)
    temporary = files.temporary_name(path)
    try:
        with files.open_binary(temporary, "wb") as file:
            yield file
            if not files.is_remote(path):
                file.flush()
                os.fsync(file.fileno())
        files.replace(temporary, path)
    finally:
        if files.exists(temporary):
            files.remove(temporary)
