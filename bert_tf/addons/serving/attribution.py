"""Integrated gradients: what each token contributes to a score.

For a score F, a text's word embeddings x, and the embeddings x' of a baseline with a
neutral token in place of each token (Sundararajan et al. 2017, equation 1),

    a_i = sum over e of (x_ie - x'_ie) * integral from 0 to 1 of
          dF/dx_ie (x' + t (x - x')) dt

and the attributions sum to F(x) - F(x') (completeness). They are the integral of the
gradient with respect to gates g between the two, x' + g_i (x_i - x'_i), at g = t: one
gradient per token is needed, whatever the width of the embeddings. The integral is
computed by Gauss-Legendre quadrature; the points are doubled until completeness holds.

Shapes: S tokens, P points.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from bert_tf.base import keras_backend
from bert_tf.base.parallel import grouped
from bert_tf.modeling.layers import observing

# 1 % of a smaller difference would be within the rounding of float32 scores.
_LEAST_DIFFERENCE = 1e-2
COMPLETE = 0.01


class Attributions(NamedTuple):
    """The attributions of a text's tokens, and how complete they are."""

    values: np.ndarray  # float64 [S]
    score: float  # F(x)
    baseline_score: float  # F(x')
    steps: int  # P

    @property
    def gap(self) -> float:
        """Relative error of the completeness check."""
        difference = self.score - self.baseline_score
        missed = abs(float(self.values.sum()) - difference)
        return missed / max(abs(difference), _LEAST_DIFFERENCE)


def integrated_gradients(
    model: Any,
    inputs: Mapping[str, np.ndarray],
    baseline_ids: np.ndarray,
    score: Callable[[Mapping[str, Any]], Any],
    *,
    batch_size: int = 32,
    tolerance: float = COMPLETE,
    steps: int = 16,
    max_steps: int = 1024,
) -> Attributions:
    """Returns the attributions of one text, a batch of one; `score` of outputs: [B]."""
    keras_backend.refuse_fork()

    def words_of(record: Mapping[str, np.ndarray]) -> tuple[list[Any], float]:
        words: list[Any] = []  # one per encoder, if there are two

        def note(point: str, x: Any) -> Any:
            if point == "words":
                words.append(x)
            return x

        with observing(note):
            found = score(model(record, training=False))
        return words, float(ops.convert_to_numpy(found)[0])

    ends, there = words_of(inputs)
    starts, here = words_of({**inputs, "input_ids": baseline_ids})

    def total(gates: Any) -> Any:
        """Returns the sum of the scores of rows with these gates, [rows, S]."""
        places = iter(zip(starts, ends, strict=True))

        def between(point: str, x: Any) -> Any:
            if point != "words":
                return x
            start, end = next(places)
            return start + gates[:, :, None] * (end - start)

        rows = {name: np.repeat(x, gates.shape[0], 0) for name, x in inputs.items()}
        with observing(between):
            return ops.sum(score(model(rows, training=False)))

    length = inputs["input_ids"].shape[-1]
    while True:
        points, weights = np.polynomial.legendre.leggauss(steps)
        values = np.zeros(length)
        for rows in grouped(range(steps), batch_size):
            gates = np.repeat((points[rows, None] + 1.0) / 2.0, length, axis=1)
            gradient = keras_backend.gradient(
                total, ops.convert_to_tensor(gates.astype(np.float32))
            )
            slopes = ops.convert_to_numpy(gradient).astype(np.float64)
            values += (weights[rows] / 2.0) @ slopes
        found = Attributions(values, there, here, steps)
        if found.gap <= tolerance or 2 * steps > max_steps:
            return found
        steps *= 2
