"""Where a run keeps what it has done until its records are finished.

The folder is hidden beside the records, `.NAME.work`, or where --work_dir says. It
belongs to one run: to its input, vocabulary and settings. The same command goes on with
what is in it; another one begins anew; a second one at the same time is refused. When
the records are finished it is removed.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary

_OWNER_FILE = "made_for"
_VOCABULARY_FILE = "vocab.txt"


def work_folder_path(name: str, work_dir: str | None) -> str:
    """Where the work folder of a set lies."""
    folder, base = os.path.split(name)
    if work_dir is None and not files.is_remote(name):
        return os.path.join(folder, f".{base}.work")
    work_dir = work_dir or tempfile.gettempdir()
    if files.is_remote(work_dir):
        raise InputError(
            f"--work_dir={work_dir} must be a folder of this machine: tokens are read "
            "from all over it."
        )
    # Sets of one name in several folders may share the user's folder.
    digest = files.sha256(files.absolute(name).encode())[:8]
    return os.path.join(work_dir, f".{base}.{digest}.work")


@contextlib.contextmanager
def hold_work_folder(path: str) -> Iterator[None]:
    """Keeps other runs out of the folder, which is created; then removes it.

    If the run ends with an error the folder stays. The system takes the lock away from
    a run that was killed.
    """
    _refuse_strangers(path)
    handle = files.lock(
        path, "another run is making these records just now; wait for it, or stop it."
    )
    try:
        yield
        _remove(path, os.listdir(path))
        os.rmdir(path)
    finally:
        os.close(handle)


def _refuse_strangers(path: str) -> None:
    """Makes a folder of ours alone where all users may make theirs, as in /tmp.

    Others can foresee its name, and put there what our workers would read. Without the
    sticky bit nothing in such a folder is safe from them; some mounts show that mode
    for all that they hold.
    """
    parent = os.path.dirname(path) or "."
    of_all = stat.S_IWOTH | stat.S_ISVTX
    if not os.path.isdir(parent) or os.stat(parent).st_mode & of_all != of_all:
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise InputError(
            f"{path} is in the way of the work folder, and others may have made it:"
            " remove it, or give another --work_dir."
        )
    os.chmod(path, 0o700)


def remove_finished(path: str, run: dict[str, Any]) -> None:
    """Removes what a run left that was killed when its records were complete."""
    if os.path.isdir(path) and (not os.listdir(path) or _owner_of(path) == _owner(run)):
        with hold_work_folder(path):
            logging.info("Removing %s, which an interrupted run left.", path)


def _owner(run: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()


def _owner_of(path: str) -> str | None:
    owner_file = os.path.join(path, _OWNER_FILE)
    if not files.exists(owner_file):
        return None
    return files.read_bytes(owner_file).decode("utf-8", "replace")


def _remove(path: str, names: Sequence[str]) -> None:
    """Removes files of the folder, the owner last: a folder without one is not ours."""
    for name in sorted(names, key=lambda name: name.startswith(_OWNER_FILE)):
        files.remove(os.path.join(path, name))


def open_work_folder(path: str, run: dict[str, Any], vocabulary: Vocabulary) -> str:
    """Prepares the folder, or takes up what was left in it by the same run."""
    owner, there = _owner(run), _owner_of(path)
    names = os.listdir(path)
    if there == owner:
        logging.info("Going on with what an interrupted run left in %s", path)
        names = [name for name in names if ".tmp-" in name]
    elif there is None and not all(
        # Killed at the very beginning, a run leaves a temporary file alone.
        name.startswith(_OWNER_FILE)
        for name in names
    ):
        raise InputError(f"{path} is in the way of the work folder; remove it.")
    _remove(path, names)
    # First of all, so that the folder is known to be ours.
    files.write_atomically(os.path.join(path, _OWNER_FILE), owner)
    vocab_file = os.path.join(path, _VOCABULARY_FILE)
    vocabulary.save(vocab_file)
    return vocab_file
