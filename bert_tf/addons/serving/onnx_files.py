"""ONNX files of graphs: int8 weights, and reading a file's weights."""

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf.addons.serving import onnx_graph
from bert_tf.base import files, keras_backend
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.weights import Tensor, Weights
from bert_tf.records.batching import Arrays

if TYPE_CHECKING:
    import onnx

_QUANTIZED = "_quantized"


def write_int8(
    path: str,
    model: "onnx.ModelProto",
    batches: Iterator[dict[str, np.ndarray]] | None = None,
) -> None:
    """Writes a model with weights of 7 bits, scaled per output."""
    # Activations are scaled per call, or once for all `batches`.
    from onnxruntime import quantization

    options = {
        "weight_type": quantization.QuantType.QInt8,
        "per_channel": True,
        "reduce_range": True,
    }
    with files.written_locally(path) as here:
        if batches is None:
            quantization.quantize_dynamic(model, here, **options)
        else:
            _quantize_static(model, here, batches, options)


def _quantize_static(
    model: "onnx.ModelProto",
    path: str,
    left: Iterator[dict[str, np.ndarray]],
    options: Mapping[str, Any],
) -> None:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(left, None)

    # Only nodes with weights, whose results stay float32: the rest costs accuracy.
    kinds = ["MatMul", "Gather"]
    quantization.quantize_static(
        model,
        path,
        Reader(),
        op_types_to_quantize=kinds,
        activation_type=quantization.QuantType.QUInt8,
        extra_options={
            "MatMulConstBOnly": True,
            "OpTypesToExcludeOutputQuantization": kinds,
        },
        **options,
    )


def read_weights(path: str) -> Weights:
    """Reads the weights of a file; of a quantized file, only their names and shapes."""
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


class OnnxModel:
    """An ONNX graph on the CPU, called like the Keras model.

    It is thread-safe.
    """

    # `content` may be the file's path.
    def __init__(self, content: str | bytes, config: BertConfig | None = None) -> None:
        import onnxruntime

        self.bert_config = config
        if isinstance(content, str) and files.is_remote(content):
            content = files.read_bytes(content)
        self._session = onnxruntime.InferenceSession(
            content, providers=["CPUExecutionProvider"]
        )
        ours = {theirs: name for name, theirs in onnx_graph.OUTPUTS.items()}
        outputs = self._session.get_outputs()
        self._outputs = [ours.get(one.name, one.name) for one in outputs]
        theirs = {**onnx_graph.INPUTS, onnx_graph.POSITIONS: onnx_graph.POSITIONS}
        inputs = {one.name for one in self._session.get_inputs()}
        self._inputs = {n: there for n, there in theirs.items() if there in inputs}
        self._takes_positions = onnx_graph.POSITIONS in inputs

    def __call__(self, batch: Mapping[str, Any], training: bool = False) -> Arrays:
        """Returns a batch's outputs, under the names of the Keras model's."""
        assert not training
        keras_backend.refuse_fork()
        inputs = {
            there: np.asarray(batch[name]).astype(np.int64)
            for name, there in self._inputs.items()
        }
        outputs = dict(zip(self._outputs, self._session.run(None, inputs), strict=True))
        if onnx_graph.POSITIONS in batch and not self._takes_positions:
            every = outputs.get("masked_lm_logits", outputs.get("logits"))
            places = np.asarray(batch[onnx_graph.POSITIONS])[..., None]
            outputs["masked_lm_logits"] = np.take_along_axis(every, places, axis=1)
        return outputs
