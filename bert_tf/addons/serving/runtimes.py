"""Checks of exported models: their runtimes must compute the numbers of Keras.

saved_model  TensorFlow
litert       ai-edge-litert, or the interpreter of TensorFlow where it has one
onnx         onnxruntime

An ONNX file's inputs and outputs have transformers' names: see `onnx_graph`.
"""

import importlib.util
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.addons.serving.onnx_files import OnnxModel
from bert_tf.base import files, keras_backend
from bert_tf.base.errors import InputError, first_line
from bert_tf.records.batching import Arrays

LITERT_NAME = "model.tflite"

# Two lengths, so that neither can be a constant of the file.
_LENGTHS = (7, 16)

# Allowed difference by `quantize`, relative to the largest output. float32 on a CPU
# differs by a hundredth of this; an int8 model has no limit.
_TOLERANCES = {None: 1e-3, "float16": 0.03, "int8": math.inf}


class LiteRtModel:
    """A LiteRT file on the CPU, called like the Keras model.

    It is not thread-safe.
    """

    def __init__(self, path: str) -> None:
        package = litert()
        assert package is not None
        # A local file is memory-mapped, not read.
        is_remote = files.is_remote(path)
        interpreter = package.Interpreter(
            None if is_remote else path,
            model_content=files.read_bytes(path) if is_remote else None,
            num_threads=os.cpu_count(),
        )
        self._run = interpreter.get_signature_runner()
        self._inputs = self._run.get_input_details()
        shapes = [one["shape_signature"] for one in self._inputs.values()]
        self._takes_one_row = any(shape[0] == 1 for shape in shapes)

    def __call__(self, batch: Mapping[str, Any], training: bool = False) -> Arrays:
        """Returns a batch's outputs, under the names of the Keras model's."""
        assert not training
        keras_backend.refuse_fork()
        inputs = {name: np.asarray(batch[name], np.int32) for name in self._inputs}
        if not self._takes_one_row:
            return self._run(**inputs)
        rows = [
            self._run(**{name: x[row : row + 1] for name, x in inputs.items()})
            for row in range(len(inputs["input_ids"]))
        ]
        return {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}


def check(
    path: str, format_: str, model: keras.Model, quantize: str | None = None
) -> None:
    """Runs an exported model, and compares its outputs with the original's.

    If the runtime is not installed, logs that the export was not checked.

    Args:
        path: the file, or a SavedModel's folder.
        format_: saved_model, litert or onnx.
        model: the model that was exported.
        quantize: "float16" or "int8", which have larger tolerances.

    Raises:
        InputError: the runtime cannot run the model, or the outputs differ.
    """
    opener, package, errors = _RUNTIMES[format_]
    tolerance = _TOLERANCES[quantize]
    if format_ == "onnx":
        errors += _errors_of_onnx()
    try:
        run = opener(path)
        if run is None:
            logging.warning(
                "%s was not run, and not compared with the model: pip install %s",
                *(path, package),
            )
            return
        difference = 0.0
        for length in _LENGTHS:
            inputs = _inputs(model, length)
            with tf.device("CPU:0"):  # where float32 is exact
                expected = model(inputs, training=False)
                found = run(inputs)
            more = _difference(path, found, expected, tolerance)
            difference = max(difference, more)
    except errors as error:
        raise InputError(
            f"`format={format_}` cannot express this model: its runtime says:"
            f" {first_line(error)}"
        ) from error
    logging.info(
        "  Run by %s: its outputs differ from the model's by %.1g of the largest.",
        *(package, difference),
    )


def _inputs(model: keras.Model, length: int) -> dict[str, np.ndarray]:
    """Returns two made-up sequences, the second one shorter; for choices, two each."""
    config, rng = model.bert_config, np.random.default_rng(length)
    length = min(length, config.max_position_embeddings)
    sizes = {
        "input_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
        "masked_lm_positions": length,
    }
    inputs = {}
    for name, tensor in model.input.items():
        shape = [2] * (len(tensor.shape) - 1)
        shape.append(3 if name == "masked_lm_positions" else length)
        values = rng.integers(0, sizes.get(name, 2), shape)
        if name == "input_mask":
            values[:] = 1
            values[1, ..., length - length // 3 :] = 0
        inputs[name] = values.astype(np.int32)
    return inputs


def _difference(
    path: str, found: Arrays, expected: Mapping[str, Any], tolerance: float
) -> float:
    """Returns the largest difference of outputs, relative to the largest output."""
    differences = [0.0]
    for name, value in expected.items():
        if isinstance(value, list | tuple):  # the layers' states have numbers
            continue
        wanted = np.asarray(value)
        scale = max(1.0, np.abs(wanted).max())
        if name in found and found[name].shape == wanted.shape:
            differences.append(np.abs(found[name] - wanted).max() / scale)
        else:
            differences.append(np.nan)
        if not differences[-1] <= tolerance:
            raise InputError(
                f"{path}: its {name} differs from the model's, so the export is"
                " unusable."
            )
    return float(max(differences))


def _saved_model(path: str) -> Callable[[Arrays], Arrays]:
    loaded = tf.saved_model.load(path)

    def run(inputs: Arrays) -> Arrays:
        function = loaded.signatures["tensors"]
        outputs = function(**{name: tf.constant(x) for name, x in inputs.items()})
        return {name: x.numpy() for name, x in outputs.items()}

    return run


def litert() -> Any:
    """Returns the module with LiteRT's interpreter, or None if there is none."""
    if importlib.util.find_spec("ai_edge_litert") is not None:
        from ai_edge_litert import interpreter

        return interpreter
    return tf.lite if hasattr(tf.lite, "Interpreter") else None


def _litert(path: str) -> LiteRtModel | None:
    return None if litert() is None else LiteRtModel(path)


def _onnx(path: str) -> Callable[[Arrays], Arrays] | None:
    import onnx

    # A local file may have any size, content at most 2 GB.
    is_remote = files.is_remote(path)
    onnx.checker.check_model(files.read_bytes(path) if is_remote else path)
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    return OnnxModel(path)


def _errors_of_onnx() -> tuple[type[Exception], ...]:
    import onnx

    if importlib.util.find_spec("onnxruntime") is None:
        return (onnx.checker.ValidationError,)
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kinds = ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented")
    return (onnx.checker.ValidationError, *(getattr(state, kind) for kind in kinds))


# A format -> the opener, the runtime's package, the runtime's errors.
_RUNTIMES: Mapping[str, tuple[Callable[[str], Any], str, tuple[type[Exception], ...]]]
_RUNTIMES = {
    "saved_model": (_saved_model, "tensorflow", (tf.errors.OpError,)),
    "litert": (_litert, "ai-edge-litert", (ValueError, RuntimeError)),
    "onnx": (_onnx, "onnxruntime", ()),
}
