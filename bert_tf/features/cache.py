"""Features that are computed once and read back as arrays, mapped from the disk.

A cache is a folder as `arrays` describes it, so that the output of `extract_features
--format=npy` is one too. It belongs to its settings, among which are digests of the
inputs and of the model's weights: asked for with others, it is made anew.

Shapes: B rows, S positions, L vectors a token, W their width.
"""

import hashlib
import json
import os
import tokenize
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.features import arrays
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.parts import SETTINGS_NAME
from bert_tf.records.batching import PADDING


class FeatureArrays:
    """A folder of features.

    Args:
        folder: the folder.

    Attributes:
        layers: what each of a token's vectors is.
        settings: what they were made with.
        vectors: [T, L, W], of all inputs, mapped; float32 or float16.

    Raises:
        InputError: it holds no features of tokens or words.
    """

    def __init__(self, folder: str) -> None:
        if not arrays.is_array_folder(folder):
            raise InputError(f"{folder}: no folder of features (--format=npy).")
        self._folder = folder
        self.settings = files.read_json(os.path.join(folder, SETTINGS_NAME))
        self.layers = self.array(arrays.LAYERS).tolist()
        if not files.exists(self._path(arrays.VECTORS)):
            raise InputError(f"{folder} has vectors of sentences alone.")
        self.vectors = self.array(arrays.VECTORS)
        self._offsets = np.array(self.array(arrays.OFFSETS))

    def __len__(self) -> int:
        """How many inputs there are."""
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        """An input's vectors, [n, L, W]."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.vectors[self._offsets[index] : self._offsets[index + 1]]

    def padded(self, rows: Sequence[int] | np.ndarray, length: int) -> np.ndarray:
        """The vectors of a batch.

        Args:
            rows: [B], the inputs' numbers; `PADDING` for a row of zeros.
            length: S, at least the most vectors that one of them has.

        Returns:
            float32 [B, S, L, W], zeros behind an input's vectors.
        """
        batch = np.zeros([len(rows), length, *self.vectors.shape[1:]], np.float32)
        for place, row in enumerate(rows):
            if row != PADDING:
                vectors = self[int(row)]
                batch[place, : len(vectors)] = vectors
        return batch

    def array(self, name: str) -> np.ndarray:
        """One of the folder's arrays, such as "pooled"; mapped, where it is local."""
        path = self._path(name)
        try:
            if files.is_remote(path):
                with files.open_binary(path) as file:
                    return np.load(file)
            return np.load(path, mmap_mode="r")
        except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
            raise InputError(
                f"{path} is damaged ({error}): remove {self._folder} to make it again."
            ) from error

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.npy")


def cached(
    folder: str,
    settings: Mapping[str, Any],
    write: Callable[[], None],
    agree: Callable[[bool], bool] = bool,
) -> FeatureArrays:
    """The features of a folder, which are made if they are not there.

    Args:
        folder: the cache.
        settings: all that the features hang on, for JSON.
        write: makes them: `writing.write_features` to that folder with these settings.
        agree: whether all workers have found them, from whether this one has.
    """
    path = os.path.join(folder, SETTINGS_NAME)
    # As they are read back.
    wanted = json.loads(json.dumps(settings))
    found = arrays.is_array_folder(folder) and files.read_json(path) == wanted
    if agree(found):
        logging.info("The features are in %s.", folder)
    else:
        write()
    return FeatureArrays(folder)


def digest_of(inputs: Iterable[FeatureInput]) -> str:
    """A digest of what the model reads, and of which words get a vector."""
    digest = hashlib.sha256()
    for sequence in inputs:
        for values in (sequence.ids, sequence.segment_ids, sequence.spans or ()):
            data = np.asarray(values, np.int64).tobytes()
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
