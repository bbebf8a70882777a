"""Labels of words: the schemes that spell entities, and the scores of entities.

A label is `O`, or a prefix, a hyphen and a type, such as B-PER; or a prefix alone, if
there is one type without a name. Each scheme spells an entity of one word, one of three
words, and one of two words after another one of the same type as follows:

    iob1    I        I I I      B I
    iob2    B        B I I      B I
    iobes   S        B I E      B E
    bilou   U        B I L      B L
    bmes    S        B M E      B E
    bmewo   W        B M E      B E
    bios    S        B I I      B I

Labels that spell no entity, such as parts of speech, have no scheme. Labels can be
read in two ways:

default   Every label but O belongs to an entity. One starts at B (or S, U, W), where
          the type changes, after O, and after a word that ends one (E, L, S, U, W).
          Anything a model predicts can be read. IOB1 and IOB2 are read as the official
          scorer (conlleval) reads them. It lacks S and U: to it, `S-PER S-PER` is one
          entity; here it is two.
strict    An entity counts only if it is spelled as in its scheme; I-PER after O is none
          in IOB2. This is seqeval's mode of this name. IOB1 has none.

An entity counts as found if its first word, its last word and its type are right (Tjong
Kim Sang and De Meulder 2003); F1 is the harmonic mean of precision and recall, over all
entities at once.
"""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from typing import NamedTuple

from bert_tf.tasks.tables import in_order

OUTSIDE = "O"
IOB1, IOB2, IOBES, BILOU, BMES, BMEWO, BIOS = SCHEMES = (
    *("iob1", "iob2", "iobes", "bilou", "bmes", "bmewo", "bios"),
)
NO_SCHEME = "none"
MIXED = "mixed"  # a combination of prefixes that is in no scheme
STRICT_SCHEMES = (IOB2, IOBES, BILOU, BMES, BMEWO, BIOS)

_STARTS = frozenset("BSUW")
_ENDS = frozenset("ELSUW")
# The prefixes of an entity's only word, of a word in the middle, of the last word.
_PARTS = {
    IOB1: ("I", "I", "I"),
    IOB2: ("B", "I", "I"),
    IOBES: ("S", "I", "E"),
    BILOU: ("U", "I", "L"),
    BMES: ("S", "M", "E"),
    BMEWO: ("W", "M", "E"),
    BIOS: ("S", "I", "I"),
}
_PART_OF_ENTITY = re.compile(r"[BIMELSUW](-.+)?", re.DOTALL)
# b-per and B_PER; PER-B and PER_I; o and 0 mean O.
_OTHER_SPELLING = re.compile(r"([BIMELSUWbimelsuw])[-_](.+)", re.DOTALL)
_AT_THE_END = re.compile(r"(.+)[-_]([BIMELSUWbimelsuw])", re.DOTALL)
_BETWEEN_LABELS = re.compile(r"[|+/,;]")

Labels = Sequence[str]


class Entity(NamedTuple):
    """Some words that name one thing: half open, by their numbers in the sentence."""

    start: int
    end: int
    type: str


class Counts(NamedTuple):
    """The numbers of true, predicted and correctly predicted entities."""

    gold: int
    predicted: int
    correct: int

    @property
    def scores(self) -> dict[str, float]:
        """Returns precision, recall, and their harmonic mean, F1."""
        return {
            "precision": self.correct / max(self.predicted, 1),
            "recall": self.correct / max(self.gold, 1),
            "f1": 2 * self.correct / max(self.gold + self.predicted, 1),
        }


def split_label(label: str) -> tuple[str, str]:
    """Returns a label's prefix and type: ("B", "PER"), or ("O", "")."""
    prefix, _, entity_type = label.partition("-")
    return (OUTSIDE, "") if prefix == OUTSIDE else (prefix, entity_type)


def joined_label(prefix: str, entity_type: str) -> str:
    """Returns the label of a prefix and a type, "" for none: "B-PER", or "B"."""
    return f"{prefix}-{entity_type}" if entity_type else prefix


def entities(labels: Labels) -> list[Entity]:
    """Returns a sentence's entities in order, by the default reading."""
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
    """Returns the sentence's entities that are spelled as in the scheme."""
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
        in_gold, in_predicted = (
            entities(labels) if scheme is None else strict_entities(labels, scheme)
            for labels in (gold_labels, predicted_labels)
        )
        gold.update(entity.type for entity in in_gold)
        predicted.update(entity.type for entity in in_predicted)
        correct.update(entity.type for entity in {*in_gold} & {*in_predicted})
    return {
        name: Counts(gold[name], predicted[name], correct[name])
        for name in sorted({*gold, *predicted})
    }


def total(counts: Iterable[Counts]) -> Counts:
    """Returns the sums of the counts of several types."""
    rows = list(counts)
    return Counts(*(sum(column) for column in zip(Counts(0, 0, 0), *rows, strict=True)))


def report(counts: dict[str, Counts], num_words: int, num_correct_words: int) -> str:
    """Returns counts and scores in percent, in the official scorer's format."""
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
    """Whether a label is a scheme's prefix, with a type or without: B-PER, B."""
    return _PART_OF_ENTITY.fullmatch(label) is not None


def is_nested(label: str) -> bool:
    """Whether a label joins several, such as B-ORG|B-LOC."""
    parts = _BETWEEN_LABELS.split(label)
    return len(parts) > 1 and all(
        part == OUTSIDE or ("-" in part and is_part_of_entity(part)) for part in parts
    )


def usual_spelling(
    labels: Collection[str], known: Container[str] = ()
) -> dict[str, str]:
    """Returns the usual spelling of labels such as b-per, PER_B, 0."""
    # A letter at the end counts as a prefix if its type occurs with several letters,
    # such as PER-B and PER-I, or if the result is a known label.
    outside = {label: OUTSIDE for label in labels if label in ("o", "0", OUTSIDE)}
    rest = set(labels) - outside.keys()
    at_front = {label: label for label in rest if is_part_of_entity(label)}
    at_end = {}
    for label in rest:
        if found := _OTHER_SPELLING.fullmatch(label):
            at_front[label] = joined_label(found[1].upper(), found[2])
        if found := _AT_THE_END.fullmatch(label):
            at_end[label] = joined_label(found[2].upper(), found[1])
    types = Counter(split_label(label)[1] for label in at_end.values())
    if at_front.keys() == rest:
        spelt = at_front
    elif at_end.keys() == rest and (
        max(types.values(), default=0) > 1
        or all(label in known for label in at_end.values())
    ):
        spelt = at_end
    else:
        return {}
    if not any("-" in label for label in spelt.values()):
        return {}
    # W is BMEWO's, where the words in the middle have I.
    if {split_label(label)[0] for label in spelt.values()} & set("IMSUW") == {*"IW"}:
        spelt = {
            old: f"S{new[1:]}" if new[0] == "W" else new for old, new in spelt.items()
        }
    usual = outside | spelt
    return {old: new for old, new in usual.items() if old != new}


def find_scheme(sentences: Iterable[Labels]) -> str:
    """Returns the scheme of the sentences' labels."""
    # How most entities begin decides between IOB1 and IOB2, so that a few wrong labels
    # make no difference.
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
    if prefixes <= {"B", "I"}:
        return IOB1 if starts["I"] > starts["B"] else IOB2
    # B and S alone may be several of these.
    likeliest = (BIOS, IOBES) if "I" in prefixes else (IOBES, BIOS)
    for scheme in (*likeliest, BILOU, BMES, BMEWO):
        if prefixes <= {"B", *_PARTS[scheme]}:
            return scheme
    return MIXED


def scheme_of_labels(labels: Sequence[str]) -> str:
    """Returns the scheme of a model's labels, without any sentence."""
    # B and I alone may be either IOB scheme; nearly all models are trained in IOB2.
    scheme = find_scheme([[label] for label in labels])
    return IOB2 if scheme == IOB1 else scheme


def in_scheme(labels: Labels, scheme: str, *, written: str) -> list[str]:
    """Converts a sentence's labels from one scheme to another."""
    if NO_SCHEME in (scheme, written) or scheme == written:
        return list(labels)
    spelt = [OUTSIDE] * len(labels)
    before: Entity | None = None
    for entity in entities(labels):
        is_after = before is not None and before[1:] == (entity.start, entity.type)
        length = entity.end - entity.start
        spelt[entity.start : entity.end] = (
            joined_label(prefix, entity.type)
            for prefix in _prefixes(length, scheme, is_after_its_type=is_after)
        )
        before = entity
    return spelt


def labels_in(scheme: str, labels: Collection[str]) -> list[str]:
    """Returns all labels of a scheme for the types of some labels, O first."""
    if scheme == NO_SCHEME:
        return in_order(set(labels))
    names = {split_label(label)[1] for label in labels} - {""}
    if any(is_part_of_entity(label) and "-" not in label for label in labels):
        names.add("")
    types = sorted(names)
    single, inner, last = _PARTS[scheme]
    prefixes = dict.fromkeys(("B", inner, last, single))
    return [
        OUTSIDE,
        *(joined_label(prefix, name) for name in types for prefix in prefixes),
    ]


def _prefixes(length: int, scheme: str, *, is_after_its_type: bool) -> list[str]:
    """Returns the prefixes of an entity's words."""
    single, inner, last = _PARTS[scheme]
    if length == 1:
        return ["B" if scheme == IOB1 and is_after_its_type else single]
    first = "I" if scheme == IOB1 and not is_after_its_type else "B"
    return [first, *[inner] * (length - 2), last]
