"""Sentences into windows of tokens: a label for the first token of each word.

Devlin et al. 2018, section 5.3: a word is cut into pieces, and the first one's output
is what its label is predicted from; the others have none. A text is a sentence, or, for
"the maximal document context provided by the data", a whole document, its sentences one
after another. What is longer than the model is read in windows, and a word counts, in
training as in prediction, in that one alone that has most context of it.

A word without a piece, such as a soft hyphen alone, is [UNK], so that it has a label
like any other.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.errors import InputError
from bert_tf.tagging.sentences import Sentence
from bert_tf.tagging.windows import best_windows, windows
from bert_tf.text.wordpiece import WordPieceTokenizer

# [CLS] and [SEP].
_SPECIAL_TOKENS = 2


class Features(NamedTuple):
    """A window, W of whose words are predicted from it.

    Attributes:
        ids: the record's tokens, with [CLS] and [SEP].
        places: int [W], where in the record these words begin, ascending.
        words: int [W], their numbers, counted over all sentences.
    """

    ids: list[int]
    places: np.ndarray
    words: np.ndarray


class Featurizer:
    """Makes sentences into windows."""

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int,
        doc_stride: int | None = None,
        document_context: bool = False,
    ) -> None:
        if max_seq_length <= _SPECIAL_TOKENS:
            raise InputError(
                "--max_seq_length must be at least 3, for [CLS], a token and [SEP]."
                f" Received: {max_seq_length}"
            )
        self.max_seq_length = max_seq_length
        self._tokenizer = tokenizer
        self._doc_stride = doc_stride
        self._document_context = document_context

    @property
    def settings(self) -> dict[str, Any]:
        """All that windows depend on beside the sentences, as JSON has it."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "doc_stride": self._doc_stride,
            "document_context": self._document_context,
        }

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[Features]:
        """Yields the windows of all texts, in their order."""
        first_word = 0
        for text in self._texts(sentences):
            ids: list[int] = []
            starts: list[int] = []
            for word in itertools.chain.from_iterable(one.words for one in text):
                starts.append(len(ids))
                ids += self._tokenizer.encode(word) or [
                    self._tokenizer.vocabulary.unk_id
                ]
            yield from self._windows(ids, np.array(starts), first_word)
            first_word += len(starts)

    def _texts(self, sentences: Iterable[Sentence]) -> Iterator[Sequence[Sentence]]:
        if not self._document_context:
            return ((sentence,) for sentence in sentences)
        groups = itertools.groupby(sentences, lambda sentence: sentence.document)
        return (list(document) for _, document in groups)

    def _windows(
        self, ids: list[int], starts: np.ndarray, first_word: int
    ) -> Iterator[Features]:
        """A text's windows, but those from which no word is predicted."""
        vocabulary = self._tokenizer.vocabulary
        room = self.max_seq_length - _SPECIAL_TOKENS
        found = windows(len(ids), room, self._doc_stride)
        best = best_windows(starts, found)
        for number, (start, end) in enumerate(found):
            (words,) = np.nonzero(best == number)
            if len(words):
                yield Features(
                    [vocabulary.cls_id, *ids[start:end], vocabulary.sep_id],
                    starts[words] - start + 1,
                    first_word + words,
                )
