"""What labels a tagger predicts, and how they spell entities."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags, logging

from bert_tf.conversion.names import TAGGING, heads_of
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError
from bert_tf.metrics.entities import IOB1, IOB2, OUTSIDE, Labels
from bert_tf.tagging.schemes import (
    NO_SCHEME,
    find_scheme,
    is_part_of_entity,
    labels_in,
    respelt,
    scheme_of_labels,
)
from bert_tf.tagging.sentences import Sentence
from bert_tf.tasks.tagging import NO_LABEL

AUTO = "auto"

_MAX_SHOWN = 5


class TaggerLabels(NamedTuple):
    """A tagger's labels.

    Attributes:
        names: in the order of its outputs.
        scheme: how they spell entities; "none" where they do not.
    """

    names: tuple[str, ...]
    scheme: str


def find_file_schemes(
    splits: Mapping[str, Sequence[Sentence]], given: str
) -> dict[str, str]:
    """How each split's files spell entities."""
    if given != AUTO:
        return dict.fromkeys(splits, given)
    found = {
        split: find_scheme(_labels(sentences)) for split, sentences in splits.items()
    }
    logging.info("The schemes of the files' labels: %s.", found)
    first = next((one for one in found.values() if one != NO_SCHEME), NO_SCHEME)
    for split, scheme in found.items():
        if scheme == NO_SCHEME:
            _warn_of_odd_labels(split, splits[split], are_entities=first != NO_SCHEME)
    return {split: first if one == NO_SCHEME else one for split, one in found.items()}


def _warn_of_odd_labels(
    split: str, sentences: Sequence[Sentence], *, are_entities: bool
) -> None:
    """Names the rarest of the few labels that spell no entity beside those that do."""
    parts = 0
    odd: Counter[str] = Counter()
    places: dict[str, str] = {}
    for sentence in sentences:
        for label in sentence.labels or ():
            if is_part_of_entity(label):
                parts += 1
            elif label != OUTSIDE:
                odd[label] += 1
                places.setdefault(label, sentence.source)
    if parts > odd.total() > 0:
        label, count = odd.most_common()[-1]
        logging.warning(
            "%s: %d labels spell entities, but not %r (%d times, first in the sentence"
            " at %s)%s. Mend it, if it is a mistake.",
            split,
            parts,
            label,
            count,
            places[label],
            "" if are_entities else ", so there is no entity F1",
        )


def respelt_unless(labels: Labels, scheme: str, wanted: str) -> list[str]:
    """A sentence's labels in another scheme; as they are where it is theirs."""
    if NO_SCHEME in (scheme, wanted) or scheme == wanted:
        return list(labels)
    return respelt(labels, wanted)


def find_labels(
    flag_values: flags.FlagValues,
    train: Sequence[Sentence] | None,
    file_scheme: str,
    *,
    recorded: Sequence[str] | None,
    source: Source | None,
) -> TaggerLabels:
    """What the model predicts.

    In training it is what --labels says; else what a trained head predicts, where it
    knows all labels; else the labels of the sentences. Without, it is what the run
    recorded, or --labels, or what the checkpoint says.
    """
    given = tuple(flag_values.labels or ())
    repeated = [label for label, count in Counter(given).items() if count > 1]
    if repeated:
        raise InputError(f"--labels: {shown(repeated)} must be there once.")
    wanted = flag_values.model_scheme
    if train is None:
        found = tuple(recorded or given or (source and source.labels) or ())
        if not found:
            raise InputError(
                "Nothing says what the model's labels are: give --labels, in the order"
                " of its outputs."
            )
        return TaggerLabels(
            found, scheme_of_labels(found) if wanted == AUTO else wanted
        )
    scheme = file_scheme
    if scheme != NO_SCHEME and wanted != AUTO:
        scheme = wanted
    elif scheme == IOB1:
        # In IOB1 an entity's first label depends on the entity before it.
        scheme = IOB2
    used = set(
        itertools.chain.from_iterable(
            respelt_unless(labels, file_scheme, scheme) for labels in _labels(train)
        )
    )
    ours = given or tuple(labels_in(scheme, used))
    in_files = set(itertools.chain.from_iterable(_labels(train)))
    if given and in_files <= set(given) and not used <= set(given):
        # They name what the files have, which the model has in another scheme.
        ours = tuple(labels_in(scheme, used))
    there = _trained_labels(source)
    if source is not None and there is not None and flag_values.init_head:
        if not given and used <= set(there):
            ours = there
        if ours != there:
            raise InputError(
                f"{source.path} has a head that predicts {shown(there)}; the labels"
                f" here are {shown(ours)}. --init_head=false begins with a new head."
            )
    return TaggerLabels(ours, scheme)


def label_ids(
    split: str,
    sentences: Sequence[Sentence],
    golds: Sequence[Labels],
    names: Sequence[str],
    *,
    must_be_known: bool,
) -> np.ndarray:
    """The number of each word's label; `NO_LABEL` where the model does not have it."""
    if not golds:
        return np.full(sum(len(one.words) for one in sentences), NO_LABEL)
    numbers = {label: number for number, label in enumerate(names)}
    unknown: Counter[str] = Counter()
    ids = []
    for sentence, labels in zip(sentences, golds, strict=True):
        for label in labels:
            number = numbers.get(label, NO_LABEL)
            if number == NO_LABEL:
                if must_be_known:
                    raise InputError(
                        f"{sentence.source}: the label {label!r} is none of --labels:"
                        f" {shown(names)}."
                    )
                unknown[label] += 1
            ids.append(number)
    if unknown:
        logging.warning(
            "%s: %d of %d words have labels that the model does not know, and count as"
            " wrong: %s.",
            split,
            unknown.total(),
            len(ids),
            shown(tuple(unknown)),
        )
    return np.array(ids, np.int64)


def shown(labels: Sequence[str]) -> str:
    """The first labels, for a message."""
    more = len(labels) - _MAX_SHOWN
    text = ", ".join(labels[:_MAX_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _trained_labels(source: Source | None) -> tuple[str, ...] | None:
    """The labels of a checkpoint's tagger; None where it has none, or no names."""
    if source is None or TAGGING not in heads_of(source.weights):
        return None
    return source.labels


def _labels(sentences: Sequence[Sentence]) -> Iterator[tuple[str, ...]]:
    return (one.labels for one in sentences if one.labels is not None)
