"""How many records files have, counted once and remembered; how they are compressed.

A manifest says it already. Where there is none, the lengths in the files' framing do
(`bert_tf.records.tfrecord_files`), through gzip or zlib where need be: all bytes are
read. The counts are kept in a JSON file, which any change of a file outdates:

    {"/data/a.tfrecord": {"size": 81, "mtime_ns": 1712345678900000000, "records": 3}}

with `mtime_ns` null for remote files.
"""

import concurrent.futures
import dataclasses
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.parallel import available_cores
from bert_tf.records.tfrecord_files import masked_checksum
from bert_tf.strict_json import checked

CACHE_NAME = "record_counts.json"

_HEADER = struct.Struct("<8s4s")  # the length, its checksum
_LENGTH = struct.Struct("<Q")
_FRAME_BYTES = 16
_CHECKSUM_BYTES = 4
_CHUNK_BYTES = 1 << 20
# The first bytes of gzip's deflate streams, and of zlib's at its levels.
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZLIB_MAGIC = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}  # zlib's, which also say the container
_MOST_PER_PACKED_BYTE = 1032  # deflate's limit
_SECONDS_PER_SAVE = 10.0

Progress = Callable[[int], object]


def compression_of(path: str) -> str:
    """How a TFRecord file is compressed, by its first bytes, whatever its name."""
    with files.open_binary(path) as file:
        return _compression(file.read(_HEADER.size))


def first_record(path: str) -> bytes | None:
    """The first record of a TFRecord file, compressed or not; None in an empty one.

    TensorFlow's reader takes memory for as many bytes as a record says it has, however
    few the file has, and may end the process.
    """
    with files.open_binary(path) as file:
        is_packed = bool(_compression(file.read(_HEADER.size)))
    limit = files.size(path) * (_MOST_PER_PACKED_BYTE if is_packed else 1)
    content = bytearray()
    end = _HEADER.size
    complaint = ""
    try:
        for chunk in _chunks(path):
            content += chunk
            if end == _HEADER.size <= len(content):
                length, checksum = _HEADER.unpack_from(content)
                if masked_checksum(length) != checksum:
                    complaint = "its first record's length is damaged"
                    break
                end = _FRAME_BYTES + _LENGTH.unpack(length)[0]
            if end > limit or len(content) >= end:
                break
    except (zlib.error, EOFError) as error:
        complaint = str(error)
    if not content and not complaint:
        return None
    record = bytes(content[_HEADER.size : end - _CHECKSUM_BYTES])
    if not complaint and len(content) < end:
        complaint = "it breaks off in record 1"
    elif (
        not complaint
        and masked_checksum(record) != content[end - _CHECKSUM_BYTES : end]
    ):
        complaint = "record 1 does not match its checksum"
    if complaint:
        raise InputError(f"{path}: not a TFRecord file: {complaint}.")
    return record


def count_records(path: str, progress: Progress = lambda num_bytes: None) -> int:
    """The number of records in a TFRecord file, compressed or not."""
    count = 0
    rest = b""  # what is read and not counted yet
    position = 0  # of the next record, from the beginning of `rest`
    complaint = ""
    try:
        for chunk in _chunks(path, progress):
            if position >= len(rest):
                position -= len(rest)
                rest = chunk
            else:
                rest = rest[position:] + chunk
                position = 0
            last = len(rest) - _HEADER.size
            while position <= last:
                length, checksum = _HEADER.unpack_from(rest, position)
                if masked_checksum(length) != checksum:
                    complaint = f"the length of record {count + 1} is damaged"
                    break
                position += _FRAME_BYTES + _LENGTH.unpack(length)[0]
                count += 1
            if complaint:
                break
    except (zlib.error, EOFError) as error:
        complaint = f"{error} after record {count}"
    if not complaint and position != len(rest):
        # A record whose header alone is there was counted already.
        broken = count if position > len(rest) else count + 1
        complaint = f"it breaks off in record {broken}"
    if complaint:
        raise InputError(
            f"{path}: not a whole TFRecord file ({complaint}); write the records again."
        )
    return count


class RecordCounts:
    """The number of records in files, remembered from one start to the next."""

    def __init__(self, cache_path: str | None = None) -> None:
        self._cache_path = cache_path
        self._known = _read_cache(cache_path) if cache_path else {}
        self._lock = threading.Lock()

    def count(self, path: str) -> int:
        """The number of records in one file; see `counts`."""
        return self.counts([path])[0]

    def counts(self, paths: Sequence[str]) -> list[int]:
        """The number of records in each file.

        Files that are not known, or have changed, are counted, several at a time.
        """
        states = {path: _state(path) for path in paths}
        unknown = [path for path in states if self._remembered(states, path) is None]
        if unknown:
            logging.info("Counting records: %d file(s).", len(unknown))
            self._count(unknown, states)
        return [self._remembered(states, path) or 0 for path in paths]

    def _remembered(self, states: dict[str, dict[str, Any]], path: str) -> int | None:
        entry = self._known.get(files.absolute(path), {})
        same = all(entry.get(key) == value for key, value in states[path].items())
        return entry["records"] if same else None

    def _count(self, paths: list[str], states: dict[str, dict[str, Any]]) -> None:
        num_bytes = sum(states[path]["size"] for path in paths)
        # Threads do: unpacking and reading leave Python to others.
        executor = concurrent.futures.ThreadPoolExecutor(available_cores())
        with tqdm(
            total=num_bytes,
            desc="Counting records",
            unit="B",
            unit_scale=True,
            disable=None,
            delay=1.0,
        ) as bar:

            def progress(more: int) -> None:
                with self._lock:
                    bar.update(more)

            def remember(path: str) -> None:
                entry = states[path] | {"records": count_records(path, progress)}
                with self._lock:
                    self._known[files.absolute(path)] = entry

            futures = [executor.submit(remember, path) for path in paths]
            saved = time.monotonic()
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
                    if time.monotonic() - saved > _SECONDS_PER_SAVE:
                        self._save()
                        saved = time.monotonic()
            finally:
                executor.shutdown(cancel_futures=True)
                self._save()

    def _save(self) -> None:
        if self._cache_path:
            with self._lock:
                content = json.dumps(self._known, indent=1, sort_keys=True)
            files.write_atomically(self._cache_path, content)


def _compression(header: bytes) -> str:
    """The compression of a file that begins so."""
    if len(header) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        # A record's length may have the very bytes that zlib begins with.
        if masked_checksum(length) == checksum:
            return ""
    if header.startswith(_GZIP_MAGIC):
        return "GZIP"
    return "ZLIB" if header.startswith(_ZLIB_MAGIC) else ""


def _chunks(path: str, progress: Progress = lambda num_bytes: None) -> Iterator[bytes]:
    """A file's bytes, uncompressed."""
    with files.open_binary(path) as file:
        chunk = file.read(_CHUNK_BYTES)
        compression = _compression(chunk[: _HEADER.size])
        chunks = _read_on(file, chunk, progress)
        yield from _unpacked(chunks, compression) if compression else chunks


def _read_on(file: IO[bytes], chunk: bytes, progress: Progress) -> Iterator[bytes]:
    while chunk:
        yield chunk
        progress(len(chunk))
        chunk = file.read(_CHUNK_BYTES)


def _unpacked(chunks: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """The streams, one after another, that compressed bytes hold."""
    stream = None
    for chunk in chunks:
        while chunk:
            if stream is None:
                stream = zlib.decompressobj(_WINDOW_BITS[compression])
            data = stream.decompress(chunk, _CHUNK_BYTES)
            if data:
                yield data
            chunk = stream.unconsumed_tail
            if stream.eof:
                chunk, stream = stream.unused_data, None
    if stream is not None:
        raise EOFError("it breaks off")


def _state(path: str) -> dict[str, Any]:
    """What a file's change changes."""
    if files.is_remote(path):
        return {"size": files.size(path), "mtime_ns": None}
    status = os.stat(path)
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _read_cache(path: str) -> dict[str, dict[str, Any]]:
    """The counts that a file remembers; nothing where it cannot be read."""
    if not files.exists(path):
        return {}
    try:
        known = checked(dict[str, _Entry], files.read_json(path), path, "counts")
        return {name: dataclasses.asdict(entry) for name, entry in known.items()}
    except InputError as error:
        logging.warning("%s The records are counted again.", error)
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Entry:
    """What is remembered of a file."""

    size: int
    mtime_ns: int | None
    records: int
