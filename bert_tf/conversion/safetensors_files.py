"""The file format safetensors: named arrays, and nothing that could run.

    8 bytes         N, the header's length, little-endian
    N bytes         the header, JSON: {name: {"dtype": "F32", "shape": [2, 3],
                    "data_offsets": [begin, end]}}; "__metadata__" is no tensor
    the rest        the arrays, row by row, little-endian; offsets count from here, and
                    leave neither gaps nor a rest

Files are read and written a tensor at a time, local and remote ones alike, and half
precision becomes float32, which numpy alone could not do for bfloat16. The format has
no checksum: a file that was cut, or whose header was, shows; a changed number does not.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from bert_tf import files
from bert_tf.conversion.weights import Tensor
from bert_tf.errors import InputError

_METADATA = "__metadata__"
_LENGTH_BYTES = 8
# As the format's own reader has it.
_MOST_HEADER_BYTES = 100_000_000

# Only what float32 holds exactly.
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Bytes of an element, of the types that stand beside weights, such as position ids.
_SIZES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "I32": 4,
    "U32": 4,
    "I16": 2,
    "U16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


def read_tensors(path: str) -> dict[str, Tensor]:
    """The tensors of a file by name; only the header is read now."""
    if not files.exists(path):
        raise InputError(f"No such file: {path}")
    if files.is_folder(path):
        raise InputError(f"{path}: a folder, not a safetensors file.")
    size = files.size(path)
    with files.open_binary(path) as file:
        header, start = _read_header(path, file, size)
    tensors: dict[str, Tensor] = {}
    spans = []
    for name, entry in header.items():
        dtype, shape, begin, end = _checked_entry(path, name, entry)
        spans.append((begin, end))
        read = _reading(path, name, dtype, shape, start + begin)
        tensors[name] = Tensor(shape, read, _problem_of(name, dtype))
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise _damaged(path, "its tensors overlap or leave gaps")
        reached = end
    if start + reached != size:
        raise _damaged(
            path, f"by its header it has {start + reached} bytes, but there are {size}"
        )
    return tensors


def write_tensors(path: str, tensors: Mapping[str, Tensor]) -> None:
    """Writes a file as float32, under a temporary name until it is complete."""
    header: dict[str, Any] = {
        # transformers asks which framework's layout a file has.
        _METADATA: {"format": "pt"}
    }
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + 4 * math.prod(tensor.shape)
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    # Spaces: the arrays begin at a multiple of their elements' size.
    text += b" " * (-len(text) % _LENGTH_BYTES)
    temporary = files.temporary_name(path)
    try:
        with files.open_binary(temporary, "wb") as file:
            file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
            for name, tensor in tensors.items():
                array = tensor.read()
                assert array.shape == tuple(tensor.shape), name
                file.write(array.astype("<f4", copy=False).tobytes())
                del array
            if not files.is_remote(path):
                file.flush()
                os.fsync(file.fileno())
        files.replace(temporary, path)
    except BaseException:
        if files.exists(temporary):
            files.remove(temporary)
        raise


def _read_header(path: str, file: IO[bytes], size: int) -> tuple[dict[str, Any], int]:
    """The header's tensors, and where the arrays begin."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    start = _LENGTH_BYTES + length
    if size < _LENGTH_BYTES or length > _MOST_HEADER_BYTES or start > size:
        raise _damaged(path, f"it ends inside its header ({size} bytes)")
    try:
        header = json.loads(file.read(length).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    header.pop(_METADATA, None)
    return header, start


def _checked_entry(
    path: str, name: str, entry: Any
) -> tuple[str, tuple[int, ...], int, int]:
    """A tensor's type, shape, first byte and last."""
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        count = math.prod(shape)
        sensible = isinstance(dtype, str) and all(
            type(number) is int and number >= 0
            for number in (*shape, begin, end, end - begin)
        )
    except (KeyError, TypeError, ValueError):
        sensible = False
    if not sensible:
        raise _damaged(path, f"its header says nothing sensible of {name}")
    # Of a type that is not known here, reading says so.
    if dtype in _SIZES and end - begin != count * _SIZES[dtype]:
        raise _damaged(
            path, f"{name} has {end - begin} bytes, too few or too many for its shape"
        )
    return dtype, shape, begin, end


def _reading(
    path: str, name: str, dtype: str, shape: tuple[int, ...], begin: int
) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        problem = _problem_of(name, dtype)
        if problem:
            raise InputError(f"{path}: {problem}.")
        length = math.prod(shape) * _SIZES[dtype]
        with files.open_binary(path) as file:
            file.seek(begin)
            data = file.read(length)
        if len(data) != length:
            raise _damaged(path, f"it ends inside {name}")
        array = np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
        if dtype == "BF16":
            # The upper half of a float32.
            return (array.astype("<u4") << np.uint32(16)).view("<f4")
        return array.astype(np.float32, copy=False)

    return read


def _problem_of(name: str, dtype: str) -> str | None:
    if dtype in _DTYPES:
        return None
    return f"{name} is of type {dtype}; only F32, F16 and BF16 are read"


def _damaged(path: str, what: str) -> InputError:
    return InputError(f"{path} is damaged or no safetensors file: {what}.")
