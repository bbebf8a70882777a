"""The weights in ONNX files that `onnx_graph` has written."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.weights import Tensor, Weights

if TYPE_CHECKING:
    import onnx

FILE_NAME = "model.onnx"
_QUANTIZED = "_quantized"


def read_weights(path: str) -> Weights:
    """The weights of a file; of one that is quantized the names and shapes alone."""
    try:
        import onnx
    except ImportError as error:
        raise InputError(
            f"{path}: reading it needs onnx, which is not installed: pip install"
            " 'bert-tf[serve]'"
        ) from error
    model = onnx.load_model_from_string(files.read_bytes(path))
    tensors = {}
    for one in model.graph.initializer:
        name = one.name.removesuffix(_QUANTIZED)
        if names.is_known(name):
            is_turned = name.endswith("output_weights")
            shape = tuple(one.dims[::-1] if is_turned else one.dims)
            read = functools.partial(_read, one, path, is_turned)
            tensors[name] = Tensor(shape, read)
    return Weights(path, tensors)


def _read(tensor: "onnx.TensorProto", path: str, is_turned: bool) -> np.ndarray:
    from onnx import numpy_helper

    array = numpy_helper.to_array(tensor)
    if array.dtype != np.float32:
        raise InputError(
            f"{path} has weights of {array.dtype}: it can only predict. Give the"
            " checkpoint that it was made from."
        )
    return array.T if is_turned else array
