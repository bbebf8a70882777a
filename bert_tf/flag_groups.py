"""The groups in which --help shows flags; what defines flags names theirs."""

import functools
from collections.abc import Callable
from typing import Any

from absl import flags

DATA = "Data"
MODEL = "Model"
LENGTHS = "Lengths and padding"
WHAT_TO_DO = "What to do"
TRAINING = "Training"
SEVERAL_RUNS = "Several runs"
TASK = "Of this command"
RESULTS = "Results"
DEVICES = "Where to run"

# In the order of --help.
TITLES = (
    DATA,
    MODEL,
    WHAT_TO_DO,
    TASK,
    LENGTHS,
    TRAINING,
    SEVERAL_RUNS,
    RESULTS,
    DEVICES,
)


def belongs_to(title: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the flags that a function defines belong to a group.

    Those that it has other such functions define belong to theirs.
    """

    def decorate(define: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(define)
        def defining(flag_values: flags.FlagValues, *args: Any, **kwargs: Any) -> None:
            before = set(flag_values)
            define(flag_values, *args, **kwargs)
            for name in set(flag_values) - before:
                put(flag_values[name], title)

        return defining

    return decorate


def put(flag: flags.Flag, title: str) -> None:
    """Puts a flag into a group, unless it is in one."""
    if not hasattr(flag, "group"):
        flag.group = title  # type: ignore[attr-defined]


def group_of(flag: flags.Flag) -> str:
    """A flag's group: `TASK` where nothing else was said."""
    return getattr(flag, "group", TASK)
