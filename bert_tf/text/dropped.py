"""What is left out of a text: counts by reason, and how much text that was.

Counts are of what the reason names ("title lines"). How much text it was has a count of
its own, "characters of title lines", or "tokens of ..." of what was tokenized before.
"""

from collections import Counter
from collections.abc import Mapping

_UNITS = ("tokens", "characters")


def drop(
    dropped: Counter[str],
    reason: str,
    count: int = 1,
    *,
    tokens: int = 0,
    characters: int = 0,
) -> None:
    """Counts what was left out."""
    dropped[reason] += count
    for unit, amount in zip(_UNITS, (tokens, characters), strict=True):
        if amount:
            dropped[f"{unit} of {reason}"] += amount


def tokens_dropped(dropped: Mapping[str, int]) -> int:
    """The tokens of all that was left out after it was tokenized."""
    return sum(n for name, n in dropped.items() if name.startswith("tokens of "))


def dropped_lines(dropped: Mapping[str, int]) -> list[str]:
    """What was left out and how much it was, a line for each reason."""
    amounts = {f"{unit} of {reason}" for unit in _UNITS for reason in dropped}
    lines = []
    for reason in sorted(dropped.keys() - amounts):
        if not dropped[reason]:
            continue
        of_reason = [
            f"{dropped[name]:,} {unit}"
            for unit in _UNITS
            if (name := f"{unit} of {reason}") in dropped
        ]
        amount = f" ({', '.join(of_reason)})" if of_reason else ""
        lines.append(f"Dropped {dropped[reason]:,}{amount}: {reason}")
    return lines
