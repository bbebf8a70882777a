"""Which layers' outputs are the features, and what is made of them.

Layers are numbered as in the original: 0 is the first Transformer layer's output, -1
the last one's; `embeddings` is what goes into the first one, `all` means every layer,
without the embeddings. Each token then has these vectors apart ("none"), or one:

    sum        of the layers
    mean       of the layers
    weighted   sum_j w_j h_j, with weights w_j that the user gives
    concat     the layers one after another, so many times as wide

(Devlin et al. 2018, Table 7, has sums and a concatenation of the last four, and the
embeddings.)
"""

import dataclasses
import math
from collections.abc import Sequence

from bert_tf.errors import InputError
from bert_tf.features.choices import COMBINATIONS, CONCAT, NONE, WEIGHTED

EMBEDDINGS = "embeddings"
ALL = "all"

LayerIndex = int | str  # a number, or EMBEDDINGS


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSelection:
    """Layers, and how they are combined.

    Attributes:
        layers: numbers from 0, or negative from the end; or "embeddings".
        combine: one of COMBINATIONS.
        weights: of each layer, for "weighted".
        num_hidden_layers: of the model.
    """

    layers: tuple[LayerIndex, ...]
    combine: str = NONE
    weights: tuple[float, ...] = ()
    num_hidden_layers: int

    def __post_init__(self) -> None:
        number = self.num_hidden_layers
        if not self.layers:
            raise InputError("--layers must name a layer.")
        for layer in self.layers:
            if layer != EMBEDDINGS and not -number <= int(layer) < number:
                raise InputError(
                    f"--layers: the model has {number} layers, {-number} to"
                    f" {number - 1}, and `{EMBEDDINGS}`. Received: {layer}"
                )
        if self.combine not in COMBINATIONS:
            raise InputError(
                f"--combine must be one of {', '.join(COMBINATIONS)}. Received:"
                f" {self.combine}"
            )
        wanted = len(self.layers) if self.combine == WEIGHTED else 0
        if len(self.weights) != wanted:
            raise InputError(
                f"--layer_weights must be {wanted} numbers, one for each layer of"
                f" --layers, for --combine={WEIGHTED}."
                f" Received: {len(self.weights)}"
                if wanted
                else f"--layer_weights is for --combine={WEIGHTED} alone."
            )

    @classmethod
    def parse(
        cls,
        layers: str | Sequence[str],
        num_hidden_layers: int,
        *,
        combine: str = NONE,
        weights: Sequence[str | float] = (),
    ) -> "LayerSelection":
        """A selection from flags.

        Args:
            layers: such as "-1,-2,-3,-4", "embeddings,-1" or "all".
            num_hidden_layers: of the model.
            combine: one of COMBINATIONS.
            weights: of each layer, for "weighted".

        Raises:
            InputError: a layer or a weight is none, or the model has no such layer.
        """
        if isinstance(layers, str):
            layers = layers.split(",")
        found: list[LayerIndex] = []
        for word in map(str.strip, layers):
            if word == ALL:
                found += range(num_hidden_layers)
            elif word == EMBEDDINGS:
                found.append(word)
            else:
                found.append(_number(word))
        try:
            numbers = tuple(float(weight) for weight in weights)
        except ValueError as error:
            raise InputError(f"--layer_weights: {error}.") from error
        if not all(map(math.isfinite, numbers)):
            raise InputError(f"--layer_weights must be finite. Received: {numbers}")
        return cls(
            layers=tuple(found),
            combine=combine,
            weights=numbers,
            num_hidden_layers=num_hidden_layers,
        )

    @property
    def hidden_states(self) -> list[int]:
        """The places in an encoder's `hidden_states`, the embeddings being first."""
        return [
            0 if layer == EMBEDDINGS else int(layer) % self.num_hidden_layers + 1
            for layer in self.layers
        ]

    @property
    def labels(self) -> list[LayerIndex]:
        """A name for each of the vectors: the layer's, or `sum(-1,-2)`."""
        if self.combine == NONE:
            return list(self.layers)
        return [f"{self.combine}({','.join(map(str, self.layers))})"]

    def vectors_shape(self, hidden_size: int) -> tuple[int, int]:
        """How many vectors a token has, and of how many numbers."""
        if self.combine == NONE:
            return len(self.layers), hidden_size
        if self.combine == CONCAT:
            return 1, len(self.layers) * hidden_size
        return 1, hidden_size


def _number(word: str) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise InputError(
            f"--layers: numbers, `{EMBEDDINGS}` or `{ALL}`, with commas between."
            f" Received: {word!r}"
        ) from error
