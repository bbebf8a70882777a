"""Reference curves: the held-out scores of the sizes' trainings over the tokens seen.

reference_curves.json, next to this module, has by size what the training had (`made`)
and, for each evaluation, `tokens` (seen in training, without padding), `bits_per_byte`
and `masked_lm_loss`, which depends on the vocabulary. `benchmarks/reference_curves.py`
writes it. The axis is tokens, so that a curve does not depend on the machine.
"""

import dataclasses
import functools
import os

import numpy as np

from bert_tf.base import files, strict_json
from bert_tf.base.config import BertConfig
from bert_tf.base.options import flags_of_run

_PATH = os.path.join(os.path.dirname(__file__), "reference_curves.json")
_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """The curves of a size; one value per evaluation."""

    size: str
    made: str
    tokens: list[float]
    bits_per_byte: list[float]
    masked_lm_loss: list[float]

    def bits_at(self, tokens: float) -> float | None:
        """Bits per byte after so many tokens; None before and after the curve."""
        if not self.tokens[0] <= tokens <= self.tokens[-1]:
            return None
        return float(np.interp(tokens, self.tokens, self.bits_per_byte))

    def until(self, tokens: float, metric: str) -> tuple[list[float], list[float]]:
        """The tokens and the values of a metric up to so many tokens."""
        count = sum(one <= tokens for one in self.tokens)
        return list(self.tokens[:count]), list(getattr(self, metric)[:count])

    def line(self, tokens: float) -> str | None:
        """What an evaluation after so many tokens says of it."""
        if (bits := self.bits_at(tokens)) is None:
            return None
        return (
            f"Reference {self.size} at {tokens / 1e6:.1f} M tokens: {bits:.2f} bits per"
            f" byte ({self.made})"
        )


@functools.cache
def references() -> dict[str, Reference]:
    """The curves by size."""
    return {
        size: strict_json.from_values(Reference, {"size": size, **values}, _PATH)
        for size, values in files.read_object(_PATH).items()
    }


def of_run(folder: str) -> Reference | None:
    """That of a run's size, whatever its vocabulary; none where it began trained."""
    from bert_tf.conversion.source import CONFIG_NAME

    path = os.path.join(folder, CONFIG_NAME)
    if not files.exists(path) or flags_of_run(folder).get("init_checkpoint"):
        return None
    config = BertConfig.from_json_file(path)
    for reference in references().values():
        one = BertConfig.from_size(reference.size)
        if all(getattr(one, name) == getattr(config, name) for name in _SIZES):
            return reference
    return None
