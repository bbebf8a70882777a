"""Features as arrays: one .npz file, or a folder of .npy files to be mapped.

    vectors   [T, L, W]  of the tokens or words of all lines, one after another
    offsets   [N + 1]    int64: line i has vectors[offsets[i]:offsets[i + 1]]
    names     [T]        the tokens or words; longer ones' first 200 characters
    layers    [L]        what each of a token's vectors is: "-1", "sum(-1,-2)"
    pooled    [N, H]     where they are asked for, as below
    cls       [N, L, W]
    mean      [N, L, W]
    settings             JSON: what they were made with (in a folder, settings.json)

N lines, T tokens, L vectors a token, W their width, H the model's. Without tokens'
vectors there are no `vectors`, `offsets` and `names`. Vectors are float32 or float16.
"""

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.features import parts
from bert_tf.features.choices import FLOAT32
from bert_tf.features.extraction import Features
from bert_tf.features.layers import LayerIndex

VECTORS, OFFSETS, NAMES, LAYERS = "vectors", "offsets", "names", "layers"
SETTINGS = "settings"

# An array of strings is as wide as its longest: all words of a corpus would take what
# one address of 10,000 characters takes.
_MAX_NAME = 200

# Of a part alone: how many vectors each line has.
_COUNTS = "counts"

# name -> (shape, type, blocks of it one after another)
_Array = tuple[tuple[int, ...], np.dtype, Callable[[], Iterator[np.ndarray]]]


class _Arrays:
    """What the file and the folder share."""

    def __init__(
        self,
        labels: Sequence[LayerIndex],
        settings: Mapping[str, Any],
        vector_type: str = FLOAT32,
    ) -> None:
        self._labels = [str(label) for label in labels]
        self._settings = settings
        self._type = np.dtype(vector_type)

    def write_part(
        self, file: IO[bytes], first: int, group: Sequence[Features]
    ) -> None:
        """Writes a group as an .npz file."""
        del first
        columns: dict[str, np.ndarray] = {}
        vectors = [f.vectors for f in group if f.vectors is not None]
        if vectors:
            columns[VECTORS] = np.concatenate(vectors, dtype=self._type)
            columns[_COUNTS] = np.array([len(v) for v in vectors], np.int64)
            columns[NAMES] = np.array(
                [
                    name[:_MAX_NAME]
                    for features in group
                    for name in features.input.names
                ],
                np.str_,
            )
        for name in group[0].sentence:
            stacked = np.stack([features.sentence[name] for features in group])
            columns[name] = stacked.astype(self._type)
        content = io.BytesIO()
        np.savez(content, **columns)  # type: ignore[arg-type]
        file.write(content.getbuffer())

    def _arrays(self, paths: Sequence[str]) -> dict[str, _Array]:
        """The arrays that parts add up to; a part at a time is in memory."""
        require_lines(paths)
        shapes: dict[str, tuple[int, ...]] = {}
        types: dict[str, np.dtype] = {}
        counts = []
        for path in paths:
            with files.open_binary(path) as file, np.load(file) as part:
                for name in part.files:
                    if name == _COUNTS:
                        counts.append(part[name])
                        continue
                    shape, type_ = _header(part, name)
                    before = shapes.get(name, (0, *shape[1:]))
                    shapes[name] = (before[0] + shape[0], *shape[1:])
                    # Strings are as wide as the widest part's.
                    types[name] = max(types.get(name, type_), type_, key=_width)

        def blocks(name: str) -> Iterator[np.ndarray]:
            for path in paths:
                with files.open_binary(path) as file, np.load(file) as part:
                    yield part[name].astype(types[name], copy=False)

        def of_part(name: str) -> Callable[[], Iterator[np.ndarray]]:
            return lambda: blocks(name)

        arrays = {
            name: (shape, types[name], of_part(name)) for name, shape in shapes.items()
        }
        small = {LAYERS: np.array(self._labels)}
        if counts:
            small[OFFSETS] = np.cumsum(np.concatenate([[0], *counts]), dtype=np.int64)
        for name, array in small.items():
            arrays[name] = _whole(array)
        return arrays


def _whole(array: np.ndarray) -> _Array:
    """An array that is in memory."""
    return array.shape, array.dtype, lambda: iter([array])


def require_lines(paths: Sequence[str]) -> None:
    """Raises InputError if there are no parts: no shape would be known."""
    if not paths:
        raise InputError("The input has no line: give one, or --format=jsonl.")


def _header(part: Any, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type of an array of an .npz file, without reading it."""
    with part.zip.open(f"{name}.npy") as file:
        np.lib.format.read_magic(file)
        shape, _, type_ = np.lib.format.read_array_header_1_0(file)
    return shape, type_


def _width(type_: np.dtype) -> int:
    return type_.itemsize


def _write(file: IO[bytes], array: _Array) -> None:
    shape, type_, blocks = array
    np.lib.format.write_array_header_1_0(
        file,
        {
            "descr": np.lib.format.dtype_to_descr(type_),
            "fortran_order": False,
            "shape": shape,
        },
    )
    for block in blocks():
        file.write(np.ascontiguousarray(block).tobytes())


class ArrayFile(_Arrays):
    """One .npz file."""

    def check_output(self, output: str) -> None:
        """See `formats.Format`."""
        parts.refuse_folder(output)

    def assemble(self, paths: Sequence[str], output: str) -> None:
        """Puts parts together; see `formats.Format`."""
        arrays = self._arrays(paths)
        arrays[SETTINGS] = _whole(np.array(json.dumps(self._settings, sort_keys=True)))
        with (
            parts.replacing(output) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name, array in sorted(arrays.items()):
                # Without the time: the same features are the same bytes.
                entry = zipfile.ZipInfo(f"{name}.npy")
                with archive.open(entry, "w", force_zip64=True) as member:
                    _write(member, array)


class ArrayFolder(_Arrays):
    """A folder of .npy files and settings.json."""

    def check_output(self, output: str) -> None:
        """See `formats.Format`: nothing but features is written over."""
        if files.exists(output) and not is_array_folder(output):
            raise InputError(
                f"{output} is there, and holds no features. Give another name."
            )

    def assemble(self, paths: Sequence[str], output: str) -> None:
        """Puts parts together; see `formats.Format`."""
        output = output.rstrip("/")
        temporary = files.temporary_name(output)
        files.make_folder(temporary)
        try:
            for name, array in self._arrays(paths).items():
                path = os.path.join(temporary, f"{name}.npy")
                with files.open_binary(path, "wb") as file:
                    _write(file, array)
            files.write_atomically(
                os.path.join(temporary, parts.SETTINGS_NAME),
                json.dumps(self._settings, indent=2, sort_keys=True) + "\n",
            )
            if files.exists(output):
                files.remove(output)
            files.replace(temporary, output)
        finally:
            if files.exists(temporary):
                files.remove(temporary)


def is_array_folder(path: str) -> bool:
    """Whether features were written to a folder, to the end."""
    names = (parts.SETTINGS_NAME, f"{LAYERS}.npy")
    return all(files.exists(os.path.join(path, name)) for name in names)
