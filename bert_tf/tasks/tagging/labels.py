"""Labels of words, the entities that they spell, and their scores."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

# Entities in sequences of labels, and precision, recall and F1 of them.
#
# Tjong Kim Sang and De Meulder 2003 (CoNLL-2003): an entity counts as found if its
# first
# word, its last word and its type are right; F1 is the harmonic mean of the two
# shares,
# over all entities at once.
#
# A label is `O`, or a prefix, a hyphen and a type: B-PER; or a prefix alone, where
# there
# is one type without a name. Two readings of them:
#
# default   every label but O belongs to an entity. One starts at B (or S, U), where
# the
#           type changes, after O, and after a word that ends one (E, L, S, U).
#           Whatever a
#           model says is read; IOB1 and IOB2 are alike, and as the official scorer
#           (conlleval) reads them. That knows no S and U: `S-PER S-PER` is one entity
#           to
#           it, and two here.
# strict    an entity counts only if it is spelt as its scheme has it; I-PER after O
# is
#           none in IOB2. As seqeval's mode of this name. Not of IOB1.
#
# The schemes, by an entity of one word, one of three words, and one of two of the
# same
# type behind another one:
#
#     iob1    I        I I I      B I
#     iob2    B        B I I      B I
#     iobes   S        B I E      B E
#     bilou   U        B I L      B L


OUTSIDE = "O"
IOB1, IOB2, IOBES, BILOU = SCHEMES = ("iob1", "iob2", "iobes", "bilou")
STRICT_SCHEMES = (IOB2, IOBES, BILOU)

_STARTS = frozenset("BSU")
_ENDS = frozenset("ELSU")
# Of a scheme whose entities have an end of their own: of one word, and the last one.
SINGLE_AND_LAST = {IOBES: ("S", "E"), BILOU: ("U", "L")}

Labels = Sequence[str]


class Entity(NamedTuple):
    """Some words that name one thing.

    Attributes:
        start: the first word's number in the sentence.
        end: that of the word behind the last one.
        type: such as PER.
    """

    start: int
    end: int
    type: str


class Counts(NamedTuple):
    """How many entities there are, how many were predicted, and how many rightly so."""

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        """The share of the predicted ones that are right; 0 where there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of those there are that were predicted; 0 where there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """2 precision recall / (precision + recall), 0 where none is right."""
        total = self.gold + self.predicted
        return 2 * self.correct / total if total else 0.0


def split_label(label: str) -> tuple[str, str]:
    """A label's prefix and type: ("B", "PER"), or ("O", "")."""
    prefix, _, entity_type = label.partition("-")
    return (OUTSIDE, "") if prefix == OUTSIDE else (prefix, entity_type)


def joined_label(prefix: str, entity_type: str) -> str:
    """The label of a prefix and a type, "" for none: "B-PER", or "B"."""
    return f"{prefix}-{entity_type}" if entity_type else prefix


def entities(labels: Labels) -> list[Entity]:
    """The entities of a sentence, in their order, by the default reading."""
    found = []
    start, before, type_before = 0, OUTSIDE, ""
    # An O behind the last word ends what is open.
    for number, label in enumerate([*labels, OUTSIDE]):
        prefix, entity_type = split_label(label)
        goes_on = (
            before != OUTSIDE
            and prefix != OUTSIDE
            and entity_type == type_before
            and prefix not in _STARTS
            and before not in _ENDS
        )
        if not goes_on:
            if before != OUTSIDE:
                found.append(Entity(start, number, type_before))
            start = number
        before, type_before = prefix, entity_type
    return found


def strict_entities(labels: Labels, scheme: str) -> list[Entity]:
    """A sentence's entities that follow the scheme's spelling, in their order."""
    if scheme not in STRICT_SCHEMES:
        raise ValueError(
            f"`scheme` must be one of {', '.join(STRICT_SCHEMES)}. Received: {scheme!r}"
        )
    labels = list(labels)
    single, last = SINGLE_AND_LAST.get(scheme, ("", ""))
    found = []
    number = 0
    while number < len(labels):
        start = number
        prefix, entity_type = split_label(labels[number])
        number += 1
        if prefix == single:
            found.append(Entity(start, number, entity_type))
        if prefix != "B":
            continue
        while labels[number : number + 1] == [joined_label("I", entity_type)]:
            number += 1
        if last:
            if labels[number : number + 1] != [joined_label(last, entity_type)]:
                continue
            number += 1
        found.append(Entity(start, number, entity_type))
    return found


def count_entities(
    golds: Iterable[Labels], predictions: Iterable[Labels], scheme: str | None = None
) -> dict[str, Counts]:
    """Counts entities by their type."""
    gold: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for gold_labels, predicted_labels in zip(golds, predictions, strict=True):
        if len(gold_labels) != len(predicted_labels):
            raise ValueError(
                "A sentence must have a prediction for each word. Received:"
                f" {len(predicted_labels)} for {len(gold_labels)} words"
            )
        there, said = (
            entities(labels) if scheme is None else strict_entities(labels, scheme)
            for labels in (gold_labels, predicted_labels)
        )
        gold.update(entity.type for entity in there)
        predicted.update(entity.type for entity in said)
        correct.update(entity.type for entity in {*there} & {*said})
    return {
        name: Counts(gold[name], predicted[name], correct[name])
        for name in sorted({*gold, *predicted})
    }


def total(counts: Iterable[Counts]) -> Counts:
    """The counts of several types together."""
    rows = list(counts)
    return Counts(*(sum(column) for column in zip(Counts(0, 0, 0), *rows, strict=True)))


def report(counts: dict[str, Counts], num_words: int, num_correct_words: int) -> str:
    """The counts and scores as the official scorer prints them, in percent."""
    all_types = total(counts.values())
    accuracy = 100.0 * num_correct_words / num_words if num_words else 0.0
    lines = [
        f"processed {num_words} tokens with {all_types.gold} phrases;"
        f" found: {all_types.predicted} phrases; correct: {all_types.correct}.",
        f"accuracy: {accuracy:6.2f}%; {_scores(all_types)}",
    ]
    for name, row in counts.items():
        lines.append(f"{name:>17}: {_scores(row)}  {row.predicted}")
    return "".join(f"{line}\n" for line in lines)


def _scores(counts: Counts) -> str:
    return (
        f"precision: {100 * counts.precision:6.2f}%;"
        f" recall: {100 * counts.recall:6.2f}%;"
        f" FB1: {100 * counts.f1:6.2f}"
    )


# How labels spell entities: told from the labels, and respelt.
#
# What spells no entity, such as a part of speech, has no scheme and stays as it is.


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
