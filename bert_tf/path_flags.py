"""Flags that are paths: `~` is expanded, and input is looked for before a run starts.

What a path must be is part of its flag's declaration. `check` asks for all flags of a
command at once, without TensorFlow; so remote paths are left to the run.
"""

import enum
import os
import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_tf import files
from bert_tf.errors import InputError


class Path(enum.Enum):
    """What a path must be."""

    FILE = enum.auto()
    FOLDER = enum.auto()
    # Files, or folders, as names or globs with commas between.
    FILES = enum.auto()
    # A folder, a file or a prefix in it, or the name of a preset.
    CHECKPOINT = enum.auto()
    # Nothing needs to be there yet.
    OUTPUT = enum.auto()


# What a KerasHub preset may be called; which ones there are KerasHub knows.
_PRESET = re.compile("[a-z0-9_]+")
# What a model of the Hugging Face Hub may be called.
_ON_THE_HUB = re.compile(r"[\w-]+(/[\w.-]+)?")
_STANDARD_INPUT = "-"


class PathParser(flags.ArgumentParser):
    """A path, or several with commas between.

    Attributes:
        kind: what must be there.
        needed_for: flags of which one must be set for the path to be used; none where
            it always is.
        within: the flag of the folder that the path is relative to.
    """

    syntactic_help = "a path"

    def __init__(
        self, kind: Path, needed_for: Sequence[str] = (), within: str | None = None
    ) -> None:
        super().__init__()
        self.kind = kind
        self.needed_for = tuple(needed_for)
        self.within = within

    def parse(self, argument: str | Sequence[str]) -> Any:
        """The path, with the user's folder for `~`."""
        if not isinstance(argument, str):
            return [files.expanded(path) for path in argument]
        return ",".join(files.expanded(path) for path in argument.split(","))


class PathListParser(PathParser):
    """Several paths with commas between, as a list."""

    def parse(self, argument: str | Sequence[str]) -> list[str]:
        """The paths, with the user's folder for `~`."""
        paths = argument.split(",") if isinstance(argument, str) else argument
        return super().parse([path.strip() for path in paths])


def define(
    name: str,
    default: str | None,
    help_text: str,
    kind: Path = Path.OUTPUT,
    *,
    flag_values: flags.FlagValues,
    needed_for: Sequence[str] = (),
    within: str | None = None,
) -> None:
    """Defines a flag that is a path; see `PathParser`."""
    flags.DEFINE(
        PathParser(kind, needed_for, within),
        name,
        default,
        help_text,
        flag_values,
        flags.ArgumentSerializer(),
    )


def define_list(
    name: str, help_text: str, kind: Path, *, flag_values: flags.FlagValues
) -> None:
    """Defines a flag whose value is a list of paths."""
    flags.DEFINE(
        PathListParser(kind),
        name,
        None,
        help_text,
        flag_values,
        flags.CsvListSerializer(","),
    )


def check(flag_values: flags.FlagValues) -> None:
    """Looks for what the given flags name."""
    for name in flag_values:
        flag = flag_values[name]
        parser = flag.parser
        if not isinstance(parser, PathParser) or not flag.present or not flag.value:
            continue
        needed = [flag_values[use].value for use in parser.needed_for]
        if needed and not any(needed):
            continue
        folder = (flag_values[parser.within].value or "") if parser.within else ""
        several = flag.value
        if isinstance(several, str):
            is_list = parser.kind is Path.FILES
            several = several.split(",") if is_list else [several]
        for path in several:
            check_path(os.path.join(folder, path), f"--{name}: ", parser.kind)


def check_path(path: str, said_by: str, kind: Path) -> None:
    """Raises InputError if a path is not what it must be; remote ones always are."""
    if not path or files.is_remote(path):
        return
    if kind is Path.OUTPUT or os.path.exists(path):
        if kind is Path.FOLDER and not os.path.isdir(path):
            raise InputError(f"{said_by}{path} is a file, not a folder.")
        if kind is Path.FILE and os.path.isdir(path):
            raise InputError(f"{said_by}{path} is a folder, not a file.")
    elif kind is Path.FILE and path != _STANDARD_INPUT:
        raise InputError(f"{said_by}no such file: {path}")
    elif kind is Path.FOLDER:
        raise InputError(f"{said_by}no such folder: {path}")
    elif kind is Path.FILES and not files.glob(path):
        raise InputError(f"{said_by}no file matches {path!r}.")
    elif (
        kind is Path.CHECKPOINT
        and not _PRESET.fullmatch(path)
        and not os.path.exists(path + ".index")
    ):
        raise InputError(f"{said_by}{no_checkpoint(path)}")


def no_checkpoint(path: str) -> str:
    """The message for a checkpoint that is not there, neither as folder nor prefix."""
    message = f"No checkpoint {path}: there is no such folder, and no {path}.index."
    of_a_folder = "ckpt" in path or os.path.isdir(os.path.dirname(path))
    if _ON_THE_HUB.fullmatch(path) and not of_a_folder:
        message += (
            " A model of the Hugging Face Hub is downloaded first: pip install"
            f" huggingface_hub; hf download {path} --local-dir FOLDER"
        )
    return message
