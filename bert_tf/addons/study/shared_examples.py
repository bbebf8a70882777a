"""Examples of a development set that the training set has too."""

import unicodedata
from collections.abc import Iterable

from absl import logging

from bert_tf.tasks.task import TRAIN, FineTuningTask


def warn(task: FineTuningTask) -> None:
    """Counts and names them, one line for each development split."""
    train: dict[tuple[str, ...], str] = {}
    exact: set[tuple[str, ...]] = set()
    for texts, place in task.texts(TRAIN):
        train.setdefault(_normalized(texts), place)
        exact.add(texts)
    for split in task.dev_splits:
        total = 0
        found, near = [], 0
        for texts, place in task.texts(split):
            total += 1
            theirs = train.get(_normalized(texts))
            if theirs is not None:
                found.append(f"{place} ({theirs})")
                near += texts not in exact
        if found:
            logging.warning(
                "%d of the %d %s examples are in the training set too, %d of them only"
                " up to case, white space and forms of Unicode, and their scores say"
                " little about new text: %s%s.",
                *(len(found), total, split, near, ", ".join(found[:3])),
                ", ..." if len(found) > 3 else "",
            )


def _normalized(texts: Iterable[str]) -> tuple[str, ...]:
    forms = (unicodedata.normalize("NFKC", text).casefold() for text in texts)
    return tuple(" ".join(form.split()) for form in forms)
