"""Documents as arrays: every token of a corpus in one, and where things begin."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Larger vocabularies need more than 16 bits a token.
_LAST_UINT16 = 0xFFFF


def token_dtype(vocab_size: int) -> type[np.integer]:
    """The smallest type that holds the ids of a vocabulary of that size."""
    return np.uint16 if vocab_size <= _LAST_UINT16 + 1 else np.int32


class Documents(NamedTuple):
    """A corpus: documents of sentences of token ids. None of them is empty.

    Attributes:
        tokens: uint16 or int32 [num_tokens], those of all sentences one after another.
        sentence_starts: int64 [num_sentences + 1], where each sentence begins in
            `tokens`, and where the last one ends.
        document_starts: int64 [num_documents + 1], where each document begins in
            `sentence_starts`, and where the last one ends.
    """

    tokens: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    @classmethod
    def from_lists(
        cls,
        documents: Sequence[Sequence[Sequence[int]]],
        dtype: type[np.integer] = np.int32,
    ) -> "Documents":
        """The same documents as arrays."""
        sentences = [sentence for document in documents for sentence in document]
        return cls(
            np.array([token for ids in sentences for token in ids], dtype),
            starts([len(ids) for ids in sentences]),
            starts([len(document) for document in documents]),
        )


def starts(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where pieces of these lengths begin, and where the last one ends."""
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result
