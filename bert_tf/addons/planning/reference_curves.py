"""Reference curves: held-out scores of each size's training by the tokens seen.

reference_curves.json, next to this module, has for each size the training's settings
(`made`) and, for each evaluation, `tokens` (seen in training, without padding),
`bits_per_byte` and `masked_lm_loss`. `benchmarks/reference_curves.py` writes it. The
axis is tokens, so that a curve does not depend on the machine.

Bits per byte depend on the language, and a loss per token on the vocabulary. So each
curve also has the unigrams' score, the score of a model that knows only the frequencies
of the tokens. For another text the curve is scaled by the ratio of the two texts'
unigram scores.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.config import BertConfig
from bert_tf.base.options import flags_of_run
from bert_tf.training.events import EVALUATION, Callback, Evaluation

if TYPE_CHECKING:
    import keras

    from bert_tf.tasks.pretraining import PretrainingRun

_PATH = os.path.join(os.path.dirname(__file__), "reference_curves.json")
# Metric -> the metric of the unigrams.
_UNIGRAMS = {
    "bits_per_byte": "unigram_bits_per_byte",
    "masked_lm_loss": "masked_lm_unigram_loss",
}
_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """The curves of a size; one value per evaluation."""

    size: str
    made: str
    tokens: list[float]
    bits_per_byte: list[float]
    masked_lm_loss: list[float]
    unigram_bits_per_byte: float
    masked_lm_unigram_loss: float

    def of_text(self, scores: Mapping[str, float]) -> "Reference":
        """Returns the curves for a text with these unigram scores, where given."""
        changed: dict[str, Any] = {}
        for metric, unigrams in _UNIGRAMS.items():
            if unigrams in scores:
                factor = scores[unigrams] / getattr(self, unigrams)
                changed[metric] = [factor * x for x in getattr(self, metric)]
                changed[unigrams] = scores[unigrams]
        return dataclasses.replace(self, **changed)

    def bits_at(self, tokens: float) -> float | None:
        """Returns bits per byte after so many tokens; None outside the curve."""
        if not self.tokens[0] <= tokens <= self.tokens[-1]:
            return None
        return float(np.interp(tokens, self.tokens, self.bits_per_byte))

    def until(self, tokens: float, metric: str) -> tuple[list[float], list[float]]:
        """Returns the tokens and the values of a metric up to so many tokens."""
        count = sum(one <= tokens for one in self.tokens)
        return list(self.tokens[:count]), list(getattr(self, metric)[:count])

    def line(self, tokens: float) -> str | None:
        """Returns a sentence that compares an evaluation with the curve."""
        if (bits := self.bits_at(tokens)) is None:
            return None
        return (
            f"Reference {self.size} at {tokens / 1e6:.1f} M tokens: {bits:.2f} bits per"
            f" byte, in proportion to the unigrams' {self.unigram_bits_per_byte:.2f}"
            f" ({self.made})"
        )


@functools.cache
def references() -> dict[str, Reference]:
    """Returns the curves by size."""
    return {
        size: strict_json.from_values(Reference, {"size": size, **values}, _PATH)
        for size, values in files.read_object(_PATH).items()
    }


def of_run(folder: str) -> Reference | None:
    """Returns a run's curve, by its size and text; None if it began trained."""
    from bert_tf.conversion.source import CONFIG_NAME
    from bert_tf.training.reporting import metrics_of

    path = os.path.join(folder, CONFIG_NAME)
    if not files.exists(path) or flags_of_run(folder).get("init_checkpoint"):
        return None
    config = BertConfig.from_json_file(path)
    for reference in references().values():
        one = BertConfig.from_size(reference.size)
        if all(getattr(one, name) == getattr(config, name) for name in _SIZES):
            scores: dict[str, Any] = {}
            for entry in metrics_of(folder, after_training=False):
                scores |= {n.removeprefix(EVALUATION): x for n, x in entry.items()}
            return reference.of_text(scores)
    return None


class ReferenceCurves(Callback):
    """Compares a run with the reference curve of its size, if there is one."""

    def __init__(self, pretraining: "PretrainingRun") -> None:
        self._of = pretraining

    def scores(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Logs the reference's score after as many tokens."""
        from bert_tf.training.reporting import metrics_of, tokens_seen

        folder = self._of.options.output_dir
        if "bits_per_byte" in evaluation.results and (reference := of_run(folder)):
            _, tokens = tokens_seen(metrics_of(folder))
            line = reference.of_text(evaluation.results).line(tokens[-1])
            if line is not None:
                logging.info("%s", line)
        return {}

    def reported(self, model: "keras.Model", step: int) -> None:
        """Draws the run's curves again, with the reference's behind them."""
        from bert_tf.training import reporting
        from bert_tf.training.strategy import is_chief

        folder = self._of.options.output_dir
        if not is_chief(self._of.strategy) or (reference := of_run(folder)) is None:
            return
        steps, tokens = reporting.tokens_seen(reporting.metrics_of(folder))
        if len(steps) == 1:
            return
        behind = {}
        for name in ("bits_per_byte", "masked_lm_loss"):
            at, values = reference.until(tokens[-1], name)
            there = np.interp(at, tokens, steps).tolist()
            behind[f"{EVALUATION}{name}"] = (there, values)
        reporting.write_curves(folder, self._of.task.name, behind)
