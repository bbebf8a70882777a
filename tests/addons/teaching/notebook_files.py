"""What is in a notebook's file, and in a picture, without running anything."""

import io
import json
import pathlib
import re
from typing import NamedTuple

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "colab"

_COMMAND = re.compile(r"python -m ([\w.]+)(.*)")
# A flag, or its `no`; not the options of pip and git.
_FLAG = re.compile(r"(?<![\w-])--(\w+)")
# Of a picture in colour, that of a pixel: from 0, grey, to 1.
_COLOURFUL = 0.08


class Command(NamedTuple):
    """A command of a notebook."""

    module: str
    flags: list[str]


def names():
    """The notebooks' names, without their ending."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def path_of(name):
    return FOLDER / f"{name}.ipynb"


def content(name):
    """A notebook's JSON."""
    return json.loads(path_of(name).read_text("utf-8"))


def sources(name, kind="code"):
    """The text of each cell of a kind."""
    return [
        "".join(cell["source"])
        for cell in content(name)["cells"]
        if cell["cell_type"] == kind
    ]


def lines(source):
    """A cell's lines, those that a backslash continues joined."""
    return source.replace("\\\n", " ").split("\n")


def commands(source):
    """The commands of a cell."""
    return [
        Command(module, _FLAG.findall(arguments))
        for line in lines(source)
        for module, arguments in _COMMAND.findall(line)
    ]


def loose_flags(source):
    """Flags that stand in no command: in variables that commands take in."""
    return [
        flag
        for line in lines(source)
        if not re.search(r"python -m|^\s*[!%]?(pip|git)", line)
        for flag in _FLAG.findall(line)
    ]


def coloured_share(png):
    """Share of a picture's pixels that are neither black, grey nor white."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png), format="png")
    if pixels.ndim == 2:
        return 0.0
    colours = pixels[..., :3]
    return float(np.mean(colours.max(axis=-1) - colours.min(axis=-1) > _COLOURFUL))
