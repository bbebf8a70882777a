"""Keras' files of weights (HDF5), read without trusting them."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import InputError, first_line
from bert_tf.conversion.weights import Tensor, listed


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """The file; InputError if it is damaged, or becomes so while it is read."""
    import h5py

    try:
        with contextlib.ExitStack() as stack:
            # HDF5 alone reads only local files.
            is_remote = files.is_remote(path)
            where = stack.enter_context(files.open_binary(path)) if is_remote else path
            yield stack.enter_context(h5py.File(where))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{path} is damaged or no HDF5 file: {first_line(error)}"
        ) from error


def stored_in(path: str, ignored: Sequence[str] = ()) -> dict[str, Tensor]:
    """The tensors of a file by their places; `ignored` are parts of places."""
    import h5py
    import ml_dtypes

    if not files.exists(path):
        raise InputError(f"{path} is missing.")
    tensors: dict[str, Tensor] = {}
    refused: list[str] = []

    def is_bfloat16(item: Any) -> bool:
        # Keras' mark for numbers of 16 bits that HDF5 has no type for.
        return item.attrs.get("dtype") == "bfloat16"

    def read(place: str) -> np.ndarray:
        with opened(path) as file:
            item = file[place]
            array = item[()]
            if is_bfloat16(item):
                array = array.view(ml_dtypes.bfloat16)
            return array.astype(np.float32, copy=False)

    def visit(place: str | bytes, item: Any) -> None:
        place = str(place)  # bytes in a damaged file
        if not isinstance(item, h5py.Dataset) or any(
            part in f"{place}/" for part in ignored
        ):
            return
        if item.shape is None:
            refused.append(f"{place} is empty")
        # Such a tensor may refer to any file of this machine.
        elif item.external or item.is_virtual:
            refused.append(f"{place} is outside the file")
        elif item.dtype.kind != "f" and not is_bfloat16(item):
            refused.append(f"{place} is quantized, {item.dtype}")
        tensors[place] = Tensor(item.shape, functools.partial(read, place))

    with opened(path) as file:
        file.visititems(visit)
    if refused:
        raise InputError(f"{path}: cannot be read: {listed(refused)}.")
    return tensors
