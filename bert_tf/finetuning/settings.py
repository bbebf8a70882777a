"""What the runs of a selection differ in, and which of them the flags ask for."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags


class Settings(NamedTuple):
    """What may differ between the runs on one task.

    Attributes:
        learning_rate: the peak.
        train_batch_size: sequences a step, over all devices.
        num_train_epochs: passes over the training examples.
        random_seed: of the new weights, dropout and the order of the data.
    """

    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    random_seed: int

    @property
    def name(self) -> str:
        """The settings as a folder's name: lr5e-05_bs16_ep3_seed12345."""
        return (
            f"lr{_short(self.learning_rate)}_bs{self.train_batch_size}"
            f"_ep{_short(self.num_train_epochs)}_seed{self.random_seed}"
        )


def grid(
    learning_rates: Sequence[float],
    train_batch_sizes: Sequence[int],
    num_train_epochs: Sequence[float],
    num_restarts: int,
    random_seed: int,
) -> list[Settings]:
    """All combinations of settings, each once, in the order that they are run in.

    Seeds change slowest: whoever looks early has seen every combination once. Then come
    batch sizes, epochs and learning rates, as they are given.
    """
    combinations = itertools.product(
        range(random_seed, random_seed + num_restarts),
        dict.fromkeys(train_batch_sizes),
        dict.fromkeys(num_train_epochs),
        dict.fromkeys(learning_rates),
    )
    return [
        Settings(rate, batch_size, epochs, seed)
        for seed, batch_size, epochs, rate in combinations
    ]


def settings_from_flags(flag_values: flags.FlagValues) -> list[Settings]:
    """The runs that the flags of `selection_flags.define_selection` ask for."""

    def values(plural: str, singular: str) -> Sequence[Any]:
        several = flag_values[plural]
        one = flag_values[singular]
        is_asked_for = one.present or one.value != one.default
        if several.value is None or (is_asked_for and not several.present):
            return [one.value]
        return several.value

    epochs = flag_values.num_train_epochs
    return grid(
        values("learning_rates", "learning_rate"),
        values("train_batch_sizes", "train_batch_size"),
        epochs if isinstance(epochs, Sequence) else [epochs],
        flag_values.num_restarts,
        flag_values.random_seed,
    )


def is_selection(flag_values: flags.FlagValues) -> bool:
    """Whether the flags ask for a selection, be it among one run."""
    plurals = ("learning_rates", "train_batch_sizes")
    asks = any(flag_values[name].present for name in plurals)
    return asks or len(settings_from_flags(flag_values)) > 1


def _short(number: float) -> str:
    """A number's shortest digits that mean it: 3 for 3.0."""
    return repr(float(number)).removesuffix(".0")
