"""The labels of a tagger, and their spelling in its files."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.source import Source
from bert_tf.tasks.reports import kept_order
from bert_tf.tasks.tagging.labels import (
    IOB1,
    IOB2,
    MIXED,
    NO_SCHEME,
    OUTSIDE,
    Labels,
    find_scheme,
    in_scheme,
    labels_in,
    scheme_of_labels,
    usual_spelling,
)
from bert_tf.tasks.tagging.sentence_windows import NO_LABEL
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.tagging_options import TaggingOptions

AUTO = "auto"


def with_usual_labels(
    splits: Mapping[str, Sequence[Sentence]], known: AbstractSet[str]
) -> Mapping[str, Sequence[Sentence]]:
    """Returns the sentences with b-per, PER_B and 0 spelled as B-PER and O.

    Labels do not change if one of them, as written, is one of the model's (`known`).
    """
    written = set().union(*map(all_labels_of, splits.values()))
    usual = usual_spelling(written, known)
    if not usual or known & usual.keys():
        return splits
    logging.info(
        "Labels that mark entities are read in their usual spelling: %s.",
        shown([f"{old} as {new}" for old, new in sorted(usual.items())]),
    )

    def respelled(one: Sentence) -> Sentence:
        if one.labels is None:
            return one
        labels = tuple(usual.get(label, label) for label in one.labels)
        return dataclasses.replace(one, labels=labels)

    return {split: [*map(respelled, rows)] for split, rows in splits.items()}


class TaggerLabels(NamedTuple):
    """The labels that a tagger predicts."""

    names: tuple[str, ...]  # in the order of its outputs
    scheme: str  # by which they spell entities; "none" without entities


def find_file_schemes(
    splits: Mapping[str, Sequence[Sentence]], given: str
) -> dict[str, str]:
    """Returns the scheme of each split's files."""
    if given != AUTO:
        return dict.fromkeys(splits, given)
    found = {
        split: find_scheme(labels_of(sentences)) for split, sentences in splits.items()
    }
    for split, scheme in found.items():
        if scheme == MIXED:
            marked = sorted(all_labels_of(splits[split]) - {OUTSIDE}, reverse=True)
            one_each = {label[0]: label for label in marked}
            raise InputError(
                f"{splits[split][0].source}: no scheme has labels that begin like"
                f" {shown(sorted(one_each.values()))} together. Spell all entities in"
                " one scheme, or give `tag_scheme`: none, if these are no entities."
            )
    logging.info("The schemes of the files' labels: %s.", found)
    first = next((one for one in found.values() if one != NO_SCHEME), NO_SCHEME)
    return {split: first if one == NO_SCHEME else one for split, one in found.items()}


def find_labels(
    options: TaggingOptions,
    train: Sequence[Sentence] | None,
    file_scheme: str,
    *,
    recorded: Sequence[str] | None,
    source: Source | None,
) -> TaggerLabels:
    """Returns the labels to predict."""
    # In training they are --labels; else a trained head's labels, if they include all
    # in the data; else the labels of the sentences. Without training, they are the
    # run's recorded labels, or --labels, or the checkpoint's.
    given = tuple(options.labels or ())
    if len(set(given)) < len(given):
        raise InputError(f"`labels={','.join(given)}`: each label must occur once.")
    if train is None:
        found = tuple(recorded or given or (source and source.labels) or ())
        if not found:
            raise InputError(
                "The model's labels are unknown: give `labels`, in its outputs' order."
            )
        scheme = scheme_of_labels(found)
        if scheme == MIXED:
            raise InputError(f"The model's labels follow no scheme: {shown(found)}.")
        return TaggerLabels(found, scheme)
    # In IOB1 an entity's first label depends on the entity before it.
    scheme = IOB2 if file_scheme == IOB1 else file_scheme
    written = labels_of(train)
    in_files = all_labels_of(train)
    used = set().union(
        *(in_scheme(labels, scheme, written=file_scheme) for labels in written)
    )
    ours = given
    # The model may have the files' labels in another scheme.
    if not given or (in_files <= set(given) and not used <= set(given)):
        ours = tuple(labels_in(scheme, used))
        ours = kept_order(ours, options.output_dir, None)
    there = None
    if source is not None and names.TAGGING in names.heads_of(source.weights):
        there = source.labels
    if source is not None and there is not None and options.init_head:
        if not given and used <= set(there):
            ours = there
        if ours != there and not set(there) < set(ours):
            raise InputError(
                f"{source.path} has a head that predicts {shown(there)}; the labels"
                f" here are {shown(ours)}. If they mean the same, give `labels`,"
                " with both if some are new;"
                " `init_head=false` begins with a new head."
            )
    return TaggerLabels(ours, scheme)


def label_ids(
    split: str,
    sentences: Sequence[Sentence],
    golds: Sequence[Labels],
    names: Sequence[str],
    must_be_known: bool,
) -> np.ndarray:
    """Returns each word's label as a number; `NO_LABEL` if it is not in the model."""
    if not golds:
        return np.full(sum(len(one.words) for one in sentences), NO_LABEL)
    numbers = {label: number for number, label in enumerate(names)}
    unknown: Counter[str] = Counter()
    ids = []
    for sentence, gold in zip(sentences, golds, strict=True):
        for label in gold:
            ids.append(numbers.get(label, NO_LABEL))
            if label not in numbers:
                unknown[label] += 1
                if must_be_known:
                    raise InputError(
                        f"{sentence.source}: the label {label!r} is none of `labels`:"
                        f" {shown(names)}."
                    )
    if unknown:
        logging.warning(
            "%s: %d of %d words have labels unknown to the model, which count as"
            " wrong: %s.",
            *(split, unknown.total(), len(ids), shown(tuple(unknown))),
        )
    return np.array(ids, np.int64)


def shown(labels: Sequence[str]) -> str:
    """Returns the first labels, for a message."""
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return ", ".join(labels[:5]) + more


def labels_of(sentences: Sequence[Sentence]) -> list[tuple[str, ...]]:
    """Returns the labels of each labelled sentence."""
    return [one.labels for one in sentences if one.labels is not None]


def all_labels_of(sentences: Sequence[Sentence]) -> set[str]:
    """Returns the different labels of sentences."""
    return set(itertools.chain.from_iterable(labels_of(sentences)))
