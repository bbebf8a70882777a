"""Progress bars."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import tqdm

Item = TypeVar("Item")


def progress_bar(
    total: int | None, *, done: int = 0, unit: str, label: str
) -> tqdm.tqdm:
    """Returns a bar with rate and time left on a terminal; nothing elsewhere."""
    return tqdm.tqdm(
        total=total,
        initial=done,
        unit=unit,
        desc=label,
        disable=None,
        dynamic_ncols=True,
        position=0,  # a bar below another one moves the cursor: a notebook cannot
        smoothing=0.1,
    )


def with_bar(
    items: Iterable[Item], total: int, *, unit: str, label: str
) -> Iterator[Item]:
    """Yields the items, with a bar unless there is only one item."""
    if total == 1:
        yield from items
        return
    with progress_bar(total, unit=unit, label=label) as shown:
        for item in items:
            yield item
            shown.update(1)
