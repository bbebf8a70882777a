"""Where a run keeps what it has done until its records are finished.

The folder is hidden beside the records, `.NAME.work`, or where --work_dir says. It
belongs to one run: to its input, vocabulary and settings. The same command goes on with
what is in it; another one begins anew. When the records are finished it is removed.
"""

import hashlib
import json
import os
import tempfile
from typing import Any

from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary

_OWNER_FILE = "made_for"
_VOCABULARY_FILE = "vocab.txt"


def work_folder_path(name: str, work_dir: str | None) -> str:
    """Where the work folder of a set lies.

    Args:
        name: what the set is called: the manifest's path without its suffix.
        work_dir: the user's folder; None for the one of the records, or, where those
            are remote, for the machine's temporary folder.
    """
    folder, base = os.path.split(name)
    if work_dir is None:
        work_dir = tempfile.gettempdir() if files.is_remote(name) else folder
    if files.is_remote(work_dir):
        raise InputError(
            f"--work_dir={work_dir} must be a folder of this machine: tokens are read "
            "from all over it."
        )
    return os.path.join(work_dir, f".{base}.work")


def open_work_folder(path: str, run: dict[str, Any], vocabulary: Vocabulary) -> str:
    """Creates the folder, or takes up the one that was left by the same run.

    Args:
        path: where it lies.
        run: all that its content depends on, for JSON.
        vocabulary: kept in the folder, for the workers.

    Returns:
        The vocabulary's file.

    Raises:
        InputError: something else is in its place.
    """
    owner = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
    owner_file = os.path.join(path, _OWNER_FILE)
    if files.exists(path):
        # Killed at the very beginning, a run leaves a temporary file alone.
        if not files.is_folder(path) or (
            not files.exists(owner_file)
            and any(not name.startswith(_OWNER_FILE) for name in os.listdir(path))
        ):
            raise InputError(f"{path} is in the way of the work folder; remove it.")
        if not files.exists(owner_file) or files.read_text(owner_file) != owner:
            files.remove(path)
        else:
            logging.info("Going on with what an interrupted run left in %s", path)
            for name in os.listdir(path):
                if ".tmp-" in name:
                    files.remove(os.path.join(path, name))
    files.make_folder(path)
    # First of all, so that the folder is known to be ours.
    files.write_atomically(owner_file, owner)
    vocab_file = os.path.join(path, _VOCABULARY_FILE)
    vocabulary.save(vocab_file)
    return vocab_file
