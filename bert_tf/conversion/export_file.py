"""What an exported folder was made from, in its export.json.

    {"made_from": {"format": "tf1", "model": SHA-256}, "names": ["bert_config.json",
     ...], "complete": true}

`names` are what else is in the folder. While a folder that existed before is filled,
`complete` is false: the same command then fills it again.
"""

import dataclasses
import json
import os
from typing import Any

from bert_tf import files, strict_json
from bert_tf.errors import InputError

EXPORT_NAME = "export.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """The file's content; see above."""

    made_from: dict[str, Any]
    names: list[str]
    complete: bool

    def write(self, folder: str) -> None:
        """Writes the file, over an older one."""
        files.write_atomically(
            os.path.join(folder, EXPORT_NAME),
            json.dumps(dataclasses.asdict(self), indent=1) + "\n",
        )


def read_export(folder: str) -> Export | None:
    """The file of a folder; None where there is none, or another program's."""
    path = os.path.join(folder, EXPORT_NAME)
    if not files.exists(path):
        return None
    try:
        return strict_json.read(Export, path)
    except InputError:
        return None


def refuse_incomplete(folder: str) -> None:
    """Raises InputError if an export into the folder was interrupted."""
    export = read_export(folder)
    if export is not None and not export.complete:
        raise InputError(
            f"{folder}: its export was interrupted; give the same export_model command"
            " again."
        )
