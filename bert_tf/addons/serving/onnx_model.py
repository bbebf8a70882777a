"""A graph of `onnx_graph` in ONNX Runtime, which needs neither TensorFlow nor Keras."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.addons.serving import onnx_graph
from bert_tf.base import keras_backend
from bert_tf.base.config import BertConfig
from bert_tf.records.batching import Arrays


class OnnxModel:
    """A graph of `onnx_graph` on this machine's CPU, called as the Keras model is.

    Several threads may call it at once.
    """

    def __init__(self, content: str | bytes, config: BertConfig | None = None) -> None:
        import onnxruntime

        self.bert_config = config
        # A path, or the file's content.
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
        """The outputs of a batch, under the names of the Keras model's."""
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
