"""Entities in sequences of labels, and precision, recall and F1 of them.

Tjong Kim Sang and De Meulder 2003 (CoNLL-2003): an entity counts as found if its first
word, its last word and its type are right; F1 is the harmonic mean of the two shares,
over all entities at once.

A label is `O`, or a prefix, a hyphen and a type: B-PER; or a prefix alone, where there
is one type without a name. Two readings of them:

default   every label but O belongs to an entity. One starts at B (or S, U), where the
          type changes, after O, and after a word that ends one (E, L, S, U). Whatever a
          model says is read; IOB1 and IOB2 are alike, and as the official scorer
          (conlleval) reads them. That knows no S and U: `S-PER S-PER` is one entity to
          it, and two here.
strict    an entity counts only if it is spelt as its scheme has it; I-PER after O is
          none in IOB2. As seqeval's mode of this name. Not of IOB1.

The schemes, by an entity of one word, one of three words, and one of two of the same
type behind another one:

    iob1    I        I I I      B I
    iob2    B        B I I      B I
    iobes   S        B I E      B E
    bilou   U        B I L      B L
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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
