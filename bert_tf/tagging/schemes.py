"""How labels spell entities: told from the labels, and respelt.

What spells no entity, such as a part of speech, has no scheme and stays as it is.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from bert_tf.metrics.entities import (
    BILOU,
    IOB1,
    IOB2,
    IOBES,
    OUTSIDE,
    SINGLE_AND_LAST,
    Entity,
    Labels,
    entities,
    joined_label,
    split_label,
)

NO_SCHEME = "none"

_PART_OF_ENTITY = re.compile(r"[BIELSU](-.+)?", re.DOTALL)


def is_part_of_entity(label: str) -> bool:
    """Whether a label is a prefix of a scheme's, with a type or without: B-PER, B."""
    return _PART_OF_ENTITY.fullmatch(label) is not None


def find_scheme(sentences: Iterable[Labels]) -> str:
    """The scheme that sentences are labelled in.

    IOB1 and IOB2 are told apart by how most entities begin, so that a wrong label here
    and there makes no difference.
    """
    prefixes: set[str] = set()
    starts: Counter[str] = Counter()
    known: set[str] = set()
    for labels in sentences:
        for label in set(labels) - known:
            if label != OUTSIDE and not is_part_of_entity(label):
                return NO_SCHEME
            known.add(label)
            prefixes.add(split_label(label)[0])
        starts.update(split_label(labels[one.start])[0] for one in entities(labels))
    prefixes.discard(OUTSIDE)
    if not prefixes:
        return NO_SCHEME
    if prefixes & {"L", "U"}:
        return BILOU
    if prefixes & {"E", "S"}:
        return IOBES
    return IOB1 if starts["I"] > starts["B"] else IOB2


def scheme_of_labels(labels: Sequence[str]) -> str:
    """The scheme that a model's labels are of, where no sentence tells it.

    B and I alone may be either IOB scheme; they are taken for IOB2, in which nearly all
    models are trained.
    """
    scheme = find_scheme([[label] for label in labels])
    return IOB2 if scheme == IOB1 else scheme


def respelt(labels: Labels, scheme: str) -> list[str]:
    """A sentence's labels in another scheme, with the same entities."""
    if scheme == NO_SCHEME:
        return list(labels)
    spelt = [OUTSIDE] * len(labels)
    before: Entity | None = None
    for entity in entities(labels):
        is_behind_its_like = before is not None and (entity.start, entity.type) == (
            before.end,
            before.type,
        )
        spelt[entity.start : entity.end] = (
            joined_label(prefix, entity.type)
            for prefix in _prefixes(
                entity.end - entity.start, scheme, is_behind_its_like=is_behind_its_like
            )
        )
        before = entity
    return spelt


def labels_in(scheme: str, labels: Collection[str]) -> list[str]:
    """All labels that the types of some labels have in a scheme, O first."""
    if scheme == NO_SCHEME:
        return sorted(set(labels))
    names = {split_label(label)[1] for label in labels} - {""}
    if any(is_part_of_entity(label) and "-" not in label for label in labels):
        names.add("")
    types = sorted(names)
    single, last = SINGLE_AND_LAST.get(scheme, ("", ""))
    prefixes = [prefix for prefix in ("B", "I", last, single) if prefix]
    return [
        OUTSIDE,
        *(joined_label(prefix, name) for name in types for prefix in prefixes),
    ]


def _prefixes(length: int, scheme: str, *, is_behind_its_like: bool) -> list[str]:
    """What stands before the type in each word of an entity."""
    prefixes = ["B", *["I"] * (length - 1)]
    if scheme == IOB1 and not is_behind_its_like:
        prefixes[0] = "I"
    if scheme in SINGLE_AND_LAST:
        single, last = SINGLE_AND_LAST[scheme]
        prefixes[-1] = single if length == 1 else last
    return prefixes
