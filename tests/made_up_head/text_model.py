"""What the model predicts of texts: by `load`, by the command `predict`, as ONNX."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.addons.serving.onnx_graph import ModelGraph
from bert_tf.addons.serving.predict import TextReader
from bert_tf.addons.serving.text_models.model import TextModel
from bert_tf.base.parallel import grouped
from tests.made_up_head import NORMAL


class Number(NamedTuple):
    """A number that is predicted."""

    mean: float
    deviation: float


class NormalModel(TextModel):
    """A checkpoint with this head: `predict`."""

    head = "a model of a normal distribution"
    methods = ("predict",)
    head_name = NORMAL

    def predict(self, texts: Any, pairs: Any = None) -> list[Number]:
        """Returns each text's number and its standard deviation."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        found = []
        for some in grouped(texts, self._batch_size):
            inputs = self.tokenizer(some, max_length=self.max_length, truncation=True)
            outputs = self._step(inputs)
            means = np.asarray(outputs["mean"])
            deviations = np.exp(np.asarray(outputs["log_variance"]) / 2)
            found += map(Number, means.tolist(), deviations.tolist())
        return found


class NormalReader(TextReader):
    """A column of texts."""

    flags = ("text_a_column",)

    def predict(
        self, model: Any, inputs: Sequence[Any], *, as_json: bool
    ) -> Iterator[dict[str, Any]]:
        """Yields a row's further columns."""
        for mean, deviation in model.predict([text for (text,) in inputs]):
            yield {"prediction": mean, "deviation": deviation}


def add_outputs(model: ModelGraph) -> None:
    """Adds the mean and the logarithm of the variance to a graph."""
    both, _ = model.scores(NORMAL, model.pooled())
    for number, name in enumerate(("mean", "log_variance")):
        one = model.graph.add("Gather", both, number, axis=1)
        model.graph.output(name, one, ["batch"])
