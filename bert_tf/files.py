"""Files, local or remote.

Local paths use Python's own calls, so that reading a vocabulary costs no TensorFlow
import; a path with a scheme (`gs://...`) goes through `tf.io.gfile`.
"""

import glob as local_glob
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any

from bert_tf.errors import InputError


def is_remote(path: str) -> bool:
    """Whether `path` has a scheme, such as gs://, which needs TensorFlow to read."""
    return "://" in path


def absolute(path: str) -> str:
    """The path that means the same file whatever the working directory is."""
    return path if is_remote(path) else os.path.abspath(path)


def expanded(path: str) -> str:
    """The path with the user's folder for a `~` that it begins with."""
    return os.path.expanduser(path)


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile


def remote_errors() -> tuple[type[Exception], ...]:
    """What an operation on a remote file may raise; nothing before there was one."""
    tensorflow = sys.modules.get("tensorflow")
    return (tensorflow.errors.OpError,) if tensorflow else ()


def exists(path: str) -> bool:
    """Whether a file or folder of that name exists."""
    return _gfile().exists(path) if is_remote(path) else os.path.exists(path)


def is_folder(path: str) -> bool:
    """Whether `path` is an existing folder."""
    return _gfile().isdir(path) if is_remote(path) else os.path.isdir(path)


def make_folder(path: str) -> None:
    """Creates the folder and its parents, unless they exist."""
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"{path} must be a folder, but a file is in its way."
        ) from error


def open_binary(path: str, mode: str = "rb") -> IO[bytes]:
    """Opens a file of bytes."""
    return _gfile().GFile(path, mode) if is_remote(path) else open(path, mode)


def read_bytes(path: str, what: str = "file") -> bytes:
    """The whole content of a file.

    Args:
        path: the file.
        what: what the file is to the user, for the message: "vocabulary file".

    Raises:
        InputError: there is no such file.
    """
    path = expanded(path)
    if not exists(path):
        raise InputError(f"No such {what}: {path}")
    if is_folder(path):
        raise InputError(f"The {what} is a folder, not a file: {path}")
    with open_binary(path) as file:
        return file.read()


def read_text(path: str, what: str = "file") -> str:
    """The whole content of a UTF-8 file, line ends as they are.

    Raises:
        InputError: there is no such file, or it is not UTF-8 (names the line).
    """
    content = read_bytes(path, what)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: not UTF-8 (byte 0x{content[error.start]:02x}); "
            f"convert the file, e.g. with iconv -t utf-8."
        ) from error


def read_json(path: str, what: str = "file") -> Any:
    """The value that a JSON file holds.

    Raises:
        InputError: there is no such file, or it is not UTF-8 or not JSON (names the
            line).
    """
    text = read_text(path, what)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg}."
        ) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or as many lists in one another.
        raise InputError(f"{path}: not valid JSON: {error}.") from error


def temporary_name(path: str) -> str:
    """What a file is called until it is complete: FILE.tmp-NUMBER.

    No two writers have the same, be they threads, or processes of several machines that
    write to one disk.
    """
    return f"{path}.tmp-{int.from_bytes(os.urandom(8), 'big')}"


def write_atomically(path: str, content: bytes | str) -> None:
    """Writes a file under a temporary name and renames it when it is complete.

    A reader sees the old file or the new one, never half of one.
    """
    path = expanded(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = temporary_name(path)
    with open_binary(temporary, "wb") as file:
        file.write(data)
        if not is_remote(path):
            file.flush()
            os.fsync(file.fileno())
    replace(temporary, path)


def names_in(folder: str) -> list[str]:
    """The names of all that is in a folder, hidden files too, sorted."""
    if is_remote(folder):
        return sorted(name.rstrip("/") for name in _gfile().listdir(folder))
    return sorted(os.listdir(folder))


def move(source: str, target: str) -> None:
    """Moves a file or folder to a new place, of another disk too."""
    if is_remote(target):
        _gfile().rename(source, target)
    else:
        shutil.move(source, target)


def replace(source: str, target: str) -> None:
    """Renames `source` to `target`, over an existing file."""
    if is_remote(target):
        _gfile().rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    """Removes a file or a folder with all that is in it."""
    if is_remote(path):
        _gfile().rmtree(path) if is_folder(path) else _gfile().remove(path)
    elif is_folder(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def size(path: str) -> int:
    """A file's bytes.

    Raises:
        OSError: no such file.
    """
    if is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path)


def glob(pattern: str) -> list[str]:
    """The files that match a pattern, sorted by name: the same order everywhere."""
    if is_remote(pattern):
        return sorted(_gfile().glob(pattern))
    return sorted(local_glob.glob(expanded(pattern)))


def expand_globs(patterns: str | Iterable[str], flag: str) -> list[str]:
    """The files that comma-separated patterns name, in the patterns' order.

    Args:
        patterns: the flag's value: comma-separated globs, or the globs themselves.
        flag: the flag's name, for the message.

    Raises:
        InputError: a pattern matches no file.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    found: list[str] = []
    for pattern in patterns:
        matches = glob(pattern)
        if not matches:
            raise InputError(f"`{flag}`: no file matches {pattern!r}.")
        found.extend(matches)
    return found


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def lines(content: str) -> Iterator[str]:
    r"""The lines of a text, split at \n only, as the original's reader splits them."""
    start = 0
    while (end := content.find("\n", start)) >= 0:
        yield content[start : end + 1]
        start = end + 1
    if start < len(content):
        yield content[start:]
