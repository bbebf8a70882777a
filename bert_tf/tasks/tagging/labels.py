"""Labels of words: how they spell entities, and the scores of entities.

A label is `O`, or a prefix, a hyphen and a type, such as B-PER; or a prefix alone, if
there is one type without a name. The schemes, by an entity of one word, one of three
words, and one of two of the same type after another one:

    iob1    I        I I I      B I
    iob2    B        B I I      B I
    iobes   S        B I E      B E
    bilou   U        B I L      B L
    bmes    S        B M E      B E
    bios    S        B I I      B I

Labels that spell no entity, such as parts of speech, have no scheme. Labels can be
read in two ways:

default   Every label but O belongs to an entity. One starts at B (or S, U), where the
          type changes, after O, and after a word that ends one (E, L, S, U). Anything
          a model predicts can be read. IOB1 and IOB2 are read as the official scorer
          (conlleval) reads them. It lacks S and U: to it, `S-PER S-PER` is one entity;
          here it is two.
strict    An entity counts only if it is spelled as in its scheme; I-PER after O is none
          in IOB2. As seqeval's mode of this name. Not of IOB1.

An entity counts as found if its first word, its last word and its type are right (Tjong
Kim Sang and De Meulder 2003); F1 is the harmonic mean of precision and recall, over all
entities at once.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from bert_tf.tasks.tables import in_order

OUTSIDE = "O"
IOB1, IOB2, IOBES, BILOU, BMES, BIOS = SCHEMES = (
    *("iob1", "iob2", "iobes", "bilou", "bmes", "bios"),
)
NO_SCHEME = "none"
STRICT_SCHEMES = (IOB2, IOBES, BILOU, BMES, BIOS)

_STARTS = frozenset("BSU")
_ENDS = frozenset("ELSU")
# In schemes that mark entities of one word: their prefix, and that of the last word.
SINGLE_AND_LAST = {
    IOBES: ("S", "E"),
    BILOU: ("U", "L"),
    BMES: ("S", "E"),
    BIOS: ("S", "I"),
}
_PART_OF_ENTITY = re.compile(r"[BIMELSU](-.+)?", re.DOTALL)
# As in b-per, B_PER; o and 0 are O.
_OTHER_SPELLING = re.compile(r"([BIMELSUbimelsu])[-_](.+)", re.DOTALL)
_BETWEEN_LABELS = re.compile(r"[|+/,;]")

Labels = Sequence[str]


class Entity(NamedTuple):
    """Some words that name one thing: half open, by their numbers in the sentence."""

    start: int
    end: int
    type: str


class Counts(NamedTuple):
    """The numbers of true, of predicted and of correctly predicted entities."""

    gold: int
    predicted: int
    correct: int

    @property
    def scores(self) -> dict[str, float]:
        """The shares of those that are right, and their harmonic mean."""
        return {
            "precision": self.correct / max(self.predicted, 1),
            "recall": self.correct / max(self.gold, 1),
            "f1": 2 * self.correct / max(self.gold + self.predicted, 1),
        }


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
    # An O after the last word ends an open entity.
    for number, label in enumerate([*labels, OUTSIDE]):
        prefix, entity_type = split_label(label)
        continues = (
            before != OUTSIDE
            and prefix != OUTSIDE
            and entity_type == type_before
            and prefix not in _STARTS
            and before not in _ENDS
        )
        if not continues:
            if before != OUTSIDE:
                found.append(Entity(start, number, type_before))
            start = number
        before, type_before = prefix, entity_type
    return found


def strict_entities(labels: Labels, scheme: str) -> list[Entity]:
    """The entities of a sentence that are spelled as the scheme spells them."""
    right = [""] * len(labels)
    found = entities(labels)
    for entity in found:
        prefixes = _prefixes(entity.end - entity.start, scheme, is_after_its_type=True)
        right[entity.start : entity.end] = (
            joined_label(prefix, entity.type) for prefix in prefixes
        )
    return [
        one
        for one in found
        if [*labels[one.start : one.end]] == right[one.start : one.end]
    ]


def count_entities(
    golds: Iterable[Labels], predictions: Iterable[Labels], scheme: str | None = None
) -> dict[str, Counts]:
    """Counts entities by their type."""
    gold: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for gold_labels, predicted_labels in zip(golds, predictions, strict=True):
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
    accuracy = 100.0 * num_correct_words / max(num_words, 1)
    lines = [
        f"processed {num_words} tokens with {all_types.gold} phrases;"
        f" found: {all_types.predicted} phrases; correct: {all_types.correct}.",
        f"accuracy: {accuracy:6.2f}%; {_scores(all_types)}",
    ]
    for name, row in counts.items():
        lines.append(f"{name:>17}: {_scores(row)}  {row.predicted}")
    return "".join(f"{line}\n" for line in lines)


def _scores(counts: Counts) -> str:
    percent = [100 * score for score in counts.scores.values()]
    return (
        f"precision: {percent[0]:6.2f}%; recall: {percent[1]:6.2f}%;"
        f" FB1: {percent[2]:6.2f}"
    )


def is_part_of_entity(label: str) -> bool:
    """Whether a label is a prefix of a scheme's, with a type or without: B-PER, B."""
    return _PART_OF_ENTITY.fullmatch(label) is not None


def is_nested(label: str) -> bool:
    """Whether a label is several, joined: B-ORG|B-LOC."""
    parts = _BETWEEN_LABELS.split(label)
    return len(parts) > 1 and all(
        part == OUTSIDE or ("-" in part and is_part_of_entity(part)) for part in parts
    )


def usual_spelling(labels: Collection[str]) -> dict[str, str]:
    """Labels of entities that are spelled otherwise: b-per, B_PER, o, 0 -> as usual."""
    usual = {
        label: OUTSIDE if label in ("o", "0") else label
        for label in labels
        if label in ("o", "0", OUTSIDE) or is_part_of_entity(label)
    }
    for label in labels:
        if found := _OTHER_SPELLING.fullmatch(label):
            usual[label] = f"{found[1].upper()}-{found[2]}"
    is_all = {*usual} == {*labels} and any("-" in label for label in usual.values())
    return {old: new for old, new in usual.items() if old != new} if is_all else {}


def find_scheme(sentences: Iterable[Labels]) -> str:
    """The scheme that sentences are labelled in."""
    # IOB1 and IOB2 are told apart by how most entities begin, so that a few wrong
    # labels make no difference.
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
    if "M" in prefixes:
        return BMES
    if prefixes & {"E", "S"}:
        return BIOS if "E" not in prefixes and "I" in prefixes else IOBES
    return IOB1 if starts["I"] > starts["B"] else IOB2


def scheme_of_labels(labels: Sequence[str]) -> str:
    """The scheme of a model's labels, without any sentence."""
    # B and I alone may be either IOB scheme; nearly all models are trained in IOB2.
    scheme = find_scheme([[label] for label in labels])
    return IOB2 if scheme == IOB1 else scheme


def respelt(labels: Labels, scheme: str, wanted: str) -> list[str]:
    """A sentence's labels in another scheme, with the same entities."""
    if NO_SCHEME in (scheme, wanted) or scheme == wanted:
        return list(labels)
    spelt = [OUTSIDE] * len(labels)
    before: Entity | None = None
    for entity in entities(labels):
        is_after = before is not None and before[1:] == (entity.start, entity.type)
        length = entity.end - entity.start
        spelt[entity.start : entity.end] = (
            joined_label(prefix, entity.type)
            for prefix in _prefixes(length, wanted, is_after_its_type=is_after)
        )
        before = entity
    return spelt


def labels_in(scheme: str, labels: Collection[str]) -> list[str]:
    """All labels of a scheme for the types of some labels, O first."""
    if scheme == NO_SCHEME:
        return in_order(set(labels))
    names = {split_label(label)[1] for label in labels} - {""}
    if any(is_part_of_entity(label) and "-" not in label for label in labels):
        names.add("")
    types = sorted(names)
    single, last = SINGLE_AND_LAST.get(scheme, ("", ""))
    inner = "M" if scheme == BMES else "I"
    prefixes = dict.fromkeys(filter(None, ("B", inner, last, single)))
    return [
        OUTSIDE,
        *(joined_label(prefix, name) for name in types for prefix in prefixes),
    ]


def _prefixes(length: int, scheme: str, *, is_after_its_type: bool) -> list[str]:
    """The prefixes of an entity's words."""
    prefixes = ["B", *["M" if scheme == BMES else "I"] * (length - 1)]
    if scheme == IOB1 and not is_after_its_type:
        prefixes[0] = "I"
    if scheme in SINGLE_AND_LAST:
        single, last = SINGLE_AND_LAST[scheme]
        prefixes[-1] = single if length == 1 else last
    return prefixes
