"""Record files: found by pattern, written so that a name means a complete file.

A set's files get their records in turn, as the original deals them, under temporary
names (FILE.tmp-NUMBER), and their own names when the last record is in. A run that is
killed leaves nothing but temporary files, which the next one removes.
"""

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import IO

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records.manifest import is_companion, is_temporary
from bert_tf.records.tfrecord_files import write_records


def record_files(patterns: str | Iterable[str], flag: str) -> list[str]:
    """The record files that comma-separated patterns name, in the patterns' order.

    The manifests, vocabularies and temporary files beside the records are left out, so
    that a pattern as wide as NAME* means the records alone.
    """
    found = files.expand_globs(patterns, flag)
    records = [path for path in found if not is_companion(path)]
    if not records:
        raise InputError(
            f"`{flag}`: no record file, only {found[0]}"
            f"{' and the like' if len(found) > 1 else ''}."
        )
    return records


def leftovers(paths: Iterable[str]) -> Iterator[str]:
    """What killed writers of some files left under temporary names."""
    for path in paths:
        yield from filter(is_temporary, files.glob(glob.escape(path) + ".tmp-*"))


def remove_leftovers(path: str) -> None:
    """Removes what killed writers of a file left under temporary names."""
    for leftover in leftovers([path]):
        files.remove(leftover)


class ShardWriter:
    """Deals records to several TFRecord files in turn: record i to file i modulo n.

    A context manager. Leaving it gives the files their names; leaving it by an
    exception removes what was written, and files of these names stay as they were.
    """

    def __init__(self, paths: Sequence[str], *, is_alone: bool = True) -> None:
        if not paths or len(set(paths)) != len(paths):
            raise ValueError(f"`paths` must be different files. Received: {paths}")
        self.paths = tuple(paths)
        self.num_records = [0] * len(paths)
        self._temporary = [files.temporary_name(path) for path in paths]
        self._is_alone = is_alone
        self._files: list[IO[bytes]] = []
        self._next = 0

    def __enter__(self) -> "ShardWriter":
        for path, temporary in zip(self.paths, self._temporary, strict=True):
            folder = os.path.dirname(path)
            if folder:
                files.make_folder(folder)
            if self._is_alone:
                remove_leftovers(path)
            with file_errors(path):
                self._files.append(files.open_binary(temporary, "wb"))
        return self

    def write(self, records: Sequence[bytes]) -> None:
        """Writes records, each to the file whose turn it is."""
        num_files = len(self.paths)
        for index in range(num_files):
            turn = records[(index - self._next) % num_files :: num_files]
            with file_errors(self.paths[index]):
                write_records(self._files[index], turn)
            self.num_records[index] += len(turn)
        self._next = (self._next + len(records)) % num_files

    def close(self) -> list[int]:
        """Brings all records to the disk, still under the temporary names."""
        for file, path in zip(self._files, self.paths, strict=True):
            with file_errors(path):
                if not files.is_remote(path):
                    file.flush()
                    os.fsync(file.fileno())
                file.close()
        self._files = []
        return [files.size(temporary) for temporary in self._temporary]

    def publish(self) -> None:
        """Gives the files their names, over files that have them now."""
        if self._files:
            self.close()
        while self._temporary:
            path = self.paths[-len(self._temporary)]
            files.replace(self._temporary[0], path)
            del self._temporary[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.publish()
        finally:
            self._discard()

    def _discard(self) -> None:
        for file in self._files:
            # What cannot be flushed now is being thrown away.
            with contextlib.suppress(OSError, *files.remote_errors()):
                file.close()
        self._files = []
        for temporary in self._temporary:
            if files.exists(temporary):
                files.remove(temporary)
        self._temporary = []


@contextlib.contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Names the file where an error does not, and says errors of remote files alike."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error
    except files.remote_errors() as error:
        raise OSError(f"{path} cannot be written: {error}") from error
