"""Files, local or remote.

Local paths use Python's own calls, so that reading a vocabulary costs no TensorFlow
import; a path with a scheme (`gs://...`) goes through `tf.io.gfile`.
"""

import codecs
import contextlib
import difflib
import fcntl
import glob as local_glob
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

from absl import logging

from bert_tf.base.errors import InputError


def is_remote(path: str) -> bool:
    """Whether `path` has a scheme, such as gs://, which needs TensorFlow to read it."""
    return "://" in path


def absolute(path: str) -> str:
    """Returns a file's absolute path, independent of the working directory."""
    return path if is_remote(path) else os.path.abspath(path)


def expanded(path: str) -> str:
    """Returns the path with the user's folder in place of a leading `~`."""
    return os.path.expanduser(path)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def remote_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of remote files: none until TensorFlow is imported."""
    tensorflow = sys.modules.get("tensorflow")
    return (tensorflow.errors.OpError,) if tensorflow else ()


def identity(path: str) -> str:
    """Returns a key that is equal for all names of a file, including links."""
    return path if is_remote(path) else os.path.realpath(path)


def exists(path: str) -> bool:
    """Whether a file or folder of that name exists."""
    if not is_remote(path):
        return os.path.exists(path)
    import tensorflow as tf

    try:
        return tf.io.gfile.exists(path)
    except tf.errors.UnimplementedError:  # a preset's scheme, such as hf://
        return False


def is_folder(path: str) -> bool:
    """Whether `path` is an existing folder."""
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def instead(path: str) -> str:
    """Returns what to give in place of a path that is not there, as a sentence."""
    folder, name = os.path.split(path.rstrip("/"))
    try:
        found = sorted(os.listdir(folder or os.curdir))
    except (OSError, ValueError):  # ValueError of a name with a null byte
        return f"Give another path; {folder} is no folder that can be read here."
    there = [n for n in found if n[0] != "." and exists(os.path.join(folder, n))]
    if near := difflib.get_close_matches(name, there, 1, 0.75):
        return f"Did you mean {os.path.join(folder, near[0])}?"
    shown = ", ".join(there[:5]) + ", ..." * (len(there) > 5) or "no files"
    return f"Give another path; {folder or os.getcwd()} has: {shown}"


def require(path: str, what: str = "file") -> None:
    """Raises InputError if there is no such file, or a folder in its place."""
    if not exists(path):
        raise InputError(f"No such {what}: {path}. {instead(path)}")
    if is_folder(path):
        raise InputError(f"{path} is a folder: give the path of a file.")


def can_be_read_again(path: str) -> bool:
    """Whether it is a file, not a folder, pipe or device of this machine."""
    return is_remote(path) or os.path.isfile(path)


def make_folder(path: str) -> None:
    """Creates the folder and its parents, unless they exist."""
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{path}: a file is in its way. Give another.") from error


def lock(path: str, in_use: str) -> int:
    """Makes a local folder, locked until the returned handle or the process ends."""
    while True:
        make_folder(path)
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its previous holder has just removed it
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise InputError(f"{path}: {in_use}") from error
        except OSError as error:
            # Some network file systems have no locks.
            logging.warning("%s cannot be locked: %s", path, error.strerror)
            return handle
        if os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
        os.close(handle)


class _RemoteFile(io.RawIOBase):
    """A file of `tf.io.gfile`, with the methods of Python's own files."""

    def __init__(self, path: str, mode: str) -> None:
        self._file = _gfile().GFile(path, mode)
        self._reads = "r" in mode

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return not self._reads

    def seekable(self) -> bool:
        return self._reads

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def write(self, content: Any) -> int:
        self._file.write(bytes(content))
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        if not self._reads and not self.closed:
            self._file.flush()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


class _RemoteWriter(io.BufferedWriter):
    """Also flushes the file itself, which Python's own files do not need."""

    def flush(self) -> None:
        super().flush()
        self.raw.flush()


_REMOTE_BUFFER = 1 << 20


def open_binary(path: str, mode: str = "rb") -> IO[bytes]:
    """Opens a file of bytes, local or remote. Returns it."""
    if not is_remote(path):
        return open(path, mode)
    file = _RemoteFile(path, mode)
    buffered = io.BufferedReader if file.readable() else _RemoteWriter
    return buffered(file, _REMOTE_BUFFER)


def read_bytes(path: str, what: str = "file") -> bytes:
    """Returns the whole content of a file."""
    path = expanded(path)
    require(path, what)
    with open_binary(path) as file:
        return file.read()


def read_text(path: str, what: str = "file") -> str:
    """Returns the whole content of a UTF-8 file, with its line ends."""
    return decoded(read_bytes(path, what), path)


def decoded(content: bytes, path: str, encoding: str = "utf-8") -> str:
    """Returns a file's content as text; an error names the line."""
    if message := no_text(content, path):
        raise InputError(message)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(not_utf8(content, error.start, path, line)) from error


def _is_plain(path: str) -> bool:
    """Whether other programs can read the file."""
    return os.path.isfile(path) and not path.endswith((".gz", ".bz2", ".xz", ".zst"))


# The first bytes of files that are not text.
_AS_TEXT = "Save its text as a text file, or its table as CSV."
_NO_TEXT = {
    rb"PK\x03\x04": "a ZIP archive, as .xlsx, .ods and .docx files are",
    rb"%PDF": "a PDF file",
    rb"\xd0\xcf\x11\xe0": "a .doc or .xls file",
    rb"\x89HDF": "an HDF5 file",
    rb"\s*\{\\rtf": "an RTF file",
    rb"\s*(<\?xml[^>]*>\s*)?<(!doctype\s+html|html)\b": "an HTML page",
    rb"(?s:.{257})ustar(\0|  \0)": "a tar archive",
    rb"\x1f\x8b": "a file that gzip has compressed, without .gz in its name",
}


def no_text(content: bytes, path: str, remedy: str = _AS_TEXT) -> str:
    """Returns the message for a file of another program, by its beginning, or ""."""
    for beginning, what in _NO_TEXT.items():
        if re.match(beginning, content.removeprefix(codecs.BOM_UTF8), re.IGNORECASE):
            return f"{path}: {what}, which is not read. {remedy}"
    return ""


def not_utf8(content: bytes, byte: int, path: str, line: int, remedy: str = "") -> str:
    """Returns the message for a byte that is not UTF-8, with a remedy."""
    if message := no_text(content, path):
        return message
    encoding = "WINDOWS-1252"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "UTF-16"
    place = f"{path}:{line}: not UTF-8 (byte 0x{content[byte]:02x})"
    if encoding != "UTF-16" and b"\0" in content:
        return f"{place}, and with zero bytes: UTF-16, or not text. {remedy}".rstrip()
    remedy += "Or convert the" if remedy else "Convert the"
    message = f"{place}. {remedy}"
    if not _is_plain(path):
        return f"{message} text to UTF-8."
    return (
        f"{message} file from its encoding, if that is {encoding}:"
        f" iconv -f {encoding} -t UTF-8 {shlex.quote(path)} > NEW_FILE"
    )


def read_json(path: str, what: str = "file") -> Any:
    """Returns the value in a JSON file."""
    return parse_json(read_text(path, what), path)


def read_object(path: str, what: str = "file") -> dict[str, Any]:
    """Returns the object in a JSON file."""
    values = read_json(path, what)
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold one JSON object.")
    return values


def read_results(path: str) -> dict[str, float]:
    """Returns the numbers in an eval_results.txt, by name."""
    rows = (line.split(" = ") for line in read_text(path).splitlines())
    return {name: float(value) for name, value in rows}


def parse_json(text: str, path: str, first_line: int = 1) -> Any:
    """Returns the value of a JSON text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}:{first_line + error.lineno - 1}"
        raise InputError(f"{place}: not valid JSON: {error.msg}; mend it.") from error
    except (ValueError, RecursionError) as error:
        # A number with thousands of digits, or as many nested lists.
        raise InputError(f"{path}:{first_line}: not valid JSON: {error}.") from error


def temporary_name(path: str) -> str:
    """Returns FILE.tmp-NUMBER, which no two writers on any machine share."""
    return f"{path}.tmp-{int.from_bytes(os.urandom(8), 'big')}"


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Names the file in errors of the disk, such as a full one, that name none."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = path
        raise


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Yields a file under a temporary name, which is renamed when it is complete."""
    path = expanded(path)
    temporary = temporary_name(path)
    try:
        with _naming(path), open_binary(temporary, "wb") as file:
            yield file
            flush(file, path)
        replace(temporary, path)
    finally:
        if exists(temporary):
            remove(temporary)


@contextlib.contextmanager
def written_locally(path: str) -> Iterator[str]:
    """Yields a local path for a library, whose file or folder is copied to `path`."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        here = os.path.join(folder, os.path.basename(path))
        yield here
        _copy(here, path)


def _copy(source: str, target: str) -> None:
    """Copies a local file, or a folder's files."""
    if os.path.isdir(source):
        make_folder(target)
        for name in os.listdir(source):
            _copy(os.path.join(source, name), os.path.join(target, name))
        return
    with open(source, "rb") as file, replacing(target) as copy:
        shutil.copyfileobj(file, copy)


def flush(file: IO[bytes], path: str) -> None:
    """Writes buffered data to the disk, so that it survives a power cut."""
    file.flush()
    if not is_remote(path):
        os.fsync(file.fileno())


def write_atomically(path: str, content: bytes | str) -> None:
    """Writes a file completely or not at all: see `replacing`."""
    with replacing(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def append(path: str, text: str) -> None:
    """Adds text to the end of a file, which is created if it does not exist."""
    if not is_remote(path):
        with _naming(path), open(path, "a", encoding="utf-8") as file:
            file.write(text)
        return
    # Object stores cannot append.
    write_atomically(path, (read_text(path) if exists(path) else "") + text)


def names_in(folder: str) -> list[str]:
    """Returns the names of all files in a folder, including hidden ones, sorted."""
    if is_remote(folder):
        return sorted(name.rstrip("/") for name in _gfile().listdir(folder))
    return sorted(os.listdir(folder))


def inside(folder: str, name: str, said_by: str) -> str:
    """Returns the path of a file that a downloaded folder's own file names."""
    # The name is checked as written: caches have links to files elsewhere.
    if os.path.isabs(name) or is_remote(name) or ".." in name.split("/"):
        raise InputError(f"{said_by}: {name!r} is outside the folder; not opened.")
    return os.path.join(folder, name)


def replace(source: str, target: str) -> None:
    """Renames `source` to `target`, which may exist."""
    if is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file or a folder with its content."""
    if is_remote(path):
        _gfile().rmtree(path) if is_folder(path) else _gfile().remove(path)
    elif is_folder(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def size(path: str) -> int:
    """Returns a file's size in bytes."""
    if is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path)


def time_of_change(path: str) -> int | None:
    """Returns when a local file was last changed, in nanoseconds; None if remote."""
    return None if is_remote(path) else os.stat(path).st_mtime_ns


def glob(pattern: str) -> list[str]:
    """Returns the files that match a pattern, sorted: the same order everywhere."""
    if is_remote(pattern):
        return sorted(_gfile().glob(pattern))
    return sorted(local_glob.glob(expanded(pattern)))


def matching(pattern: str) -> list[str]:
    """Returns the file of that name, or the files that match a pattern, sorted."""
    # Brackets and stars may be part of a file's name, or of its folder's.
    if exists(pattern):
        return [pattern]
    folder, name = os.path.split(pattern)
    if exists_here(folder):
        pattern = os.path.join(local_glob.escape(folder), name)
    return glob(pattern)


# The most commas that a file's name may have.
_MOST_COMMAS = 8


def split_paths(paths: str) -> list[str]:
    """Returns comma-separated paths; an existing file's path may have commas in it."""

    def is_in_a_folder(path: str) -> bool:
        folder = os.path.dirname(path)
        return "," in folder and exists_here(folder)

    parts, found = paths.split(","), []
    while parts:
        count = 1
        if not exists_here(parts[0]):
            most = min(len(parts), _MOST_COMMAS + 1)
            joined = {n: ",".join(parts[:n]) for n in range(2, most + 1)}
            existing = [n for n in joined if exists_here(joined[n])]
            count = next(
                iter(existing or [n for n in joined if is_in_a_folder(joined[n])]), 1
            )
        found.append(",".join(parts[:count]))
        del parts[:count]
    return found


def exists_here(path: str) -> bool:
    """Whether a local file or folder of that name exists."""
    return not is_remote(path) and os.path.exists(path)


def expand_globs(patterns: str | Iterable[str], flag: str) -> list[str]:
    """Returns the files that comma-separated patterns name, in the patterns' order."""
    if isinstance(patterns, str):
        patterns = split_paths(patterns)
    found: list[str] = []
    for pattern in patterns:
        if not (matches := matching(pattern)):
            hint = instead(pattern)
            raise InputError(f"`{flag}`: no file matches {pattern!r}. {hint}")
        found.extend(matches)
    return found


def sha256(content: bytes) -> str:
    """Returns the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


_JOINED_BY_RETURN = re.compile(r"\S\r+(?=\S)")


def num_joined_by_returns(content: str, path: str) -> int:
    """Counts carriage returns between words; refuses a text whose lines end at them."""
    if "\r" not in content:
        return 0
    found = len(_JOINED_BY_RETURN.findall(content))
    if found > content.count("\n"):
        raise InputError(
            f"{path}: its lines end at carriage returns alone, as on old Macs. Convert"
            + (
                f" it: tr '\\r' '\\n' < {shlex.quote(path)} > NEW_FILE"
                if _is_plain(path)
                else " them to line feeds."
            )
        )
    return found


def lines(content: str) -> Iterator[str]:
    r"""Yields the lines of a text, split at \n only, like the original's reader."""
    yield from io.StringIO(content, newline="\n")
