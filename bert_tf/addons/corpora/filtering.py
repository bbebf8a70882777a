"""Drops repeated documents and paragraphs, and documents that are too short."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.base.addons import addon
from bert_tf.instances.creation import starts
from bert_tf.records.tokenized_corpus import DIGEST_BYTES
from bert_tf.text.documents import NEAR, NO_DEDUPLICATION, PARAGRAPHS, drop

EMPTIED_DOCUMENTS = "documents of nothing but repeated paragraphs"
NEAR_DUPLICATES = "documents nearly the same as earlier ones"
SHORT_DOCUMENTS = "documents shorter than `min_document_tokens`"


class Outline(NamedTuple):
    """The properties of texts that decide which are kept."""

    text_tokens: np.ndarray  # int64, the texts' numbers of tokens
    text_documents: np.ndarray  # int64, the number of each text's document
    digests: np.ndarray  # uint8


def outline(
    sentence_lengths: np.ndarray,
    document_lengths: np.ndarray,
    text_lengths: np.ndarray,
    digests: np.ndarray,
) -> Outline:
    """Returns the outline of some documents; arguments as in `TokenizedPart`."""
    text_starts = starts(text_lengths)
    documents = np.searchsorted(starts(document_lengths), text_starts[:-1], "right") - 1
    text_tokens = np.diff(starts(sentence_lengths)[text_starts])
    return Outline(text_tokens, documents, digests)


def choose_texts(
    outlines: Sequence[Outline], deduplicate: str, min_document_tokens: int
) -> tuple[list[np.ndarray], Counter[str]]:
    """Returns masks of the texts to keep, and counts of the dropped ones."""
    dropped: Counter[str] = Counter()
    firsts = [np.ones(len(each.text_tokens), np.bool_) for each in outlines]
    if deduplicate != NO_DEDUPLICATION:
        digests = [each.digests for each in outlines]
        reason = f"repeated {deduplicate}"
        if deduplicate == NEAR:
            near = addon("near_duplicates")
            firsts = _first_occurrences(digests, near.DIGEST_BYTES, near.KEY_BYTES)
            reason = NEAR_DUPLICATES
        else:
            firsts = _first_occurrences(digests, DIGEST_BYTES, DIGEST_BYTES)
        for each, is_first in zip(outlines, firsts, strict=True):
            _drop_texts(dropped, reason, ~is_first, each.text_tokens)
    kept = []
    for each, is_first in zip(outlines, firsts, strict=True):
        tokens_left = np.bincount(each.text_documents, each.text_tokens * is_first)
        is_short = (tokens_left > 0) & (tokens_left < min_document_tokens)
        _drop_texts(dropped, SHORT_DOCUMENTS, is_short, tokens_left)
        if deduplicate == PARAGRAPHS:
            dropped[EMPTIED_DOCUMENTS] += int((tokens_left == 0).sum())
        kept.append(is_first & ~is_short[each.text_documents])
    return kept, +dropped


def _drop_texts(
    dropped: Counter[str], reason: str, is_dropped: np.ndarray, num_tokens: np.ndarray
) -> None:
    tokens = int(num_tokens[is_dropped].sum())
    drop(dropped, reason, int(is_dropped.sum()), tokens=tokens)


def _first_occurrences(
    digests: Sequence[np.ndarray], digest_bytes: int, key_bytes: int
) -> list[np.ndarray]:
    """Returns masks that are true for digests none of whose keys occurred before."""
    words = np.concatenate(digests).view(np.uint64).reshape(-1, digest_bytes // 8)
    is_first = np.ones(len(words), np.bool_)
    for key in np.split(words, digest_bytes // key_bytes, axis=1):
        # Stable: the first of equal keys in the text stays first.
        order = np.lexsort(key.T)
        in_order = key[order]
        is_repeated = (in_order[1:] == in_order[:-1]).all(axis=1)
        is_first[order[1:][is_repeated]] = False
    ends = np.cumsum([len(each) // digest_bytes for each in digests])
    return np.split(is_first, ends[:-1])
