"""Record files: found by pattern, written so that a name means a complete file.

A set's files get their records in turn, as the original deals them, under temporary
names (FILE.tmp-PID), and their own names when the last record is in. A run that is
killed leaves nothing but temporary files, which the next one removes.
"""

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

import tensorflow as tf

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.records.manifest import is_companion, is_temporary, size


def record_files(patterns: str | Iterable[str], flag: str) -> list[str]:
    """The record files that comma-separated patterns name, in the patterns' order.

    The manifests, vocabularies and temporary files beside the records are left out, so
    that a pattern as wide as NAME* means the records alone.

    Args:
        patterns: the flag's value: comma-separated globs, or the globs themselves.
        flag: the flag's name, for messages.

    Raises:
        InputError: a pattern matches no file, or all that they match is left out.
    """
    found = files.expand_globs(patterns, flag)
    records = [path for path in found if not is_companion(path)]
    if not records:
        raise InputError(
            f"--{flag}: no record file, only {found[0]}"
            f"{' and the like' if len(found) > 1 else ''}."
        )
    return records


class ShardWriter:
    """Deals records to several TFRecord files in turn: record i to file i modulo n.

    A context manager. Leaving it gives the files their names; leaving it by an
    exception removes what was written, and files of these names stay as they were.

    Args:
        paths: the files to write, local or remote; folders are created.

    Raises:
        ValueError: no path, or one twice.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        if not paths or len(set(paths)) != len(paths):
            raise ValueError(f"`paths` must be different files. Received: {paths}")
        self.paths = tuple(paths)
        self.num_records = [0] * len(paths)
        self._temporary = [f"{path}.tmp-{os.getpid()}" for path in paths]
        self._writers: list[tf.io.TFRecordWriter] = []
        self._next = 0

    def __enter__(self) -> "ShardWriter":
        for path, temporary in zip(self.paths, self._temporary, strict=True):
            folder = os.path.dirname(path)
            if folder:
                files.make_folder(folder)
            for leftover in files.glob(glob.escape(path) + ".tmp-*"):
                if is_temporary(leftover):
                    files.remove(leftover)
            with _file_errors(path):
                self._writers.append(tf.io.TFRecordWriter(temporary))
        return self

    def write(self, record: bytes) -> None:
        """Writes one record to the file whose turn it is.

        Raises:
            OSError: the file cannot be written, such as on a full disk.
        """
        index = self._next
        with _file_errors(self.paths[index]):
            self._writers[index].write(record)
        self.num_records[index] += 1
        self._next = (index + 1) % len(self.paths)

    def close(self) -> list[int]:
        """Brings all records to the disk, still under the temporary names.

        Returns:
            The size of each file in bytes.

        Raises:
            OSError: a file cannot be written.
        """
        for writer, path in zip(self._writers, self.paths, strict=True):
            with _file_errors(path):
                writer.close()
        self._writers = []
        for temporary in self._temporary:
            if not files.is_remote(temporary):
                with open(temporary, "rb") as file:
                    os.fsync(file.fileno())
        return [size(temporary) for temporary in self._temporary]

    def publish(self) -> None:
        """Gives the files their names, over files that have them now."""
        if self._writers:
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
        for writer in self._writers:
            # What cannot be flushed now is being thrown away.
            with contextlib.suppress(tf.errors.OpError):
                writer.close()
        self._writers = []
        for temporary in self._temporary:
            if files.exists(temporary):
                files.remove(temporary)
        self._temporary = []


@contextlib.contextmanager
def _file_errors(path: str) -> Iterator[None]:
    """Turns TensorFlow's file errors into Python's, which name the file."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"{path} cannot be written: {error.message}") from error
