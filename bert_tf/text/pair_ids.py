"""Token ids of texts and pairs as the model reads them: [CLS] A [SEP] B [SEP].

Shapes: R records, L tokens of a record.
"""

from collections.abc import Iterable

import numpy as np

from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary

Tokens = list[int]


def pair_features(
    pairs: Iterable[tuple[Tokens, Tokens]], vocabulary: Vocabulary, max_seq_length: int
) -> dict[str, np.ndarray]:
    """[CLS] A [SEP], or [CLS] A [SEP] B [SEP], of every pair."""
    cls_id, sep_id = vocabulary.cls_id, vocabulary.sep_id
    # All records' tokens one after another; of each how many, and how many are those of
    # the first text.
    tokens: list[int] = []
    lengths, lengths_a = [], []
    for tokens_a, tokens_b in pairs:
        before = len(tokens)
        tokens.append(cls_id)
        tokens += tokens_a
        tokens.append(sep_id)
        lengths_a.append(len(tokens) - before)
        if tokens_b:
            tokens += tokens_b
            tokens.append(sep_id)
        lengths.append(len(tokens) - before)
    position = np.arange(max_seq_length)
    is_token = position < np.array(lengths)[:, None]
    input_ids = np.zeros(is_token.shape, np.int64)
    input_ids[is_token] = tokens
    is_second = is_token & (position >= np.array(lengths_a)[:, None])
    return {
        "input_ids": input_ids,
        "input_mask": is_token.astype(np.int64),
        "segment_ids": is_second.astype(np.int64),
    }


def truncate_pair(
    tokens_a: Tokens, tokens_b: Tokens, max_length: int
) -> tuple[Tokens, Tokens]:
    """Cuts two sequences to `max_length` together, always the longer one by its end.

    At equal lengths the second one gives way, as in the original.
    """
    length_a, length_b = len(tokens_a), len(tokens_b)
    excess = length_a + length_b - max_length
    if excess > 0:
        # First the longer one comes down to the other's length, then both in turn,
        # the second one first.
        cut_b = min(excess, max(0, length_b - length_a))
        cut_a = min(excess, max(0, length_a - length_b))
        rest = excess - cut_a - cut_b
        length_a -= cut_a + rest // 2
        length_b -= cut_b + (rest + 1) // 2
    return tokens_a[:length_a], tokens_b[:length_b]


def text_pairs(
    texts: str | Iterable[str], pairs: str | Iterable[str | None] | None
) -> list[tuple[str, str]]:
    """Texts with their second ones, "" for none."""
    firsts = _listed(texts, "texts")
    if pairs is None:
        return [(text, "") for text in firsts]
    seconds = _listed(pairs, "pairs", or_none=True)
    if len(seconds) != len(firsts):
        raise InputError(
            f"There must be a second text for each of {len(firsts)}. Received:"
            f" {len(seconds)}"
        )
    return list(zip(firsts, seconds, strict=True))


def _listed(
    texts: str | Iterable[str | None], name: str, *, or_none: bool = False
) -> list[str]:
    """Texts as a list; a None as "" where it may stand for none."""
    found = [texts] if isinstance(texts, str) else list(texts)
    if not found:
        raise InputError(f"`{name}` must hold a text at least.")
    for number, text in enumerate(found):
        if not isinstance(text, str) and not (or_none and text is None):
            raise InputError(
                f"`{name}` must be strings. Received: {text!r} at {number} (from 0)"
            )
    return [text or "" for text in found]
