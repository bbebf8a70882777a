"""The settings of one fine-tuning run that a selection tries out."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple


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

    Args:
        learning_rates: the peaks.
        train_batch_sizes: sequences a step.
        num_train_epochs: passes over the training examples.
        num_restarts: runs of each combination; their seeds are `random_seed`,
            `random_seed` + 1, ...
        random_seed: the first run's seed.
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


def _short(number: float) -> str:
    """A number's shortest digits that mean it: 3 for 3.0."""
    return repr(float(number)).removesuffix(".0")
