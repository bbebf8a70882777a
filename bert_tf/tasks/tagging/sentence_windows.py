"""The records of tagging: sentences or documents in windows.

Devlin et al. 2018, section 5.3: a word is cut into pieces, and its label is predicted
from the first piece's output. A text is a sentence or, for "the maximal document
context provided by the data", a whole document. A longer text is read in windows, and a
word counts, in training and in prediction, only in the window with the most context
around it.

A word without a piece, such as a lone soft hyphen, becomes [UNK], so that it has a
label like any other.

A record (`schema`), L being max_seq_length:

    input_ids, input_mask  int64[L]    [CLS] window [SEP], padded with 0
    segment_ids            int64[L]    0
    label_ids              int64[L]    at a word's first token its label, else 0
    label_weights          int64[L]    1 where a word is predicted, else 0: padding,
                                       other tokens, words with more context in
                                       another window, labels unknown to the model

Only training has the last two.

W words, C labels.
"""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.base.parallel import grouped
from bert_tf.conversion.tokenizer_files import TrainedWords
from bert_tf.records.spec import INT64, Feature, RecordSpec
from bert_tf.tasks.long_texts import Window, best_windows, windows
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.text.normalization import IDEOGRAPH
from bert_tf.text.wordpiece import WordPieceTokenizer

# [CLS] and [SEP].
_SPECIAL_TOKENS = 2
# The label of a word whose label the model does not have.
NO_LABEL = -1
_INPUTS = ("input_ids", "input_mask", "segment_ids")
_LABELS = ("label_ids", "label_weights")
_RECORDS_AT_ONCE = 1024
# A word of more pieces than this may be a text without spaces.
_LONG_WORD = 8


class SentenceFeatures(NamedTuple):
    """A window, from which W of its words are predicted."""

    ids: list[int]  # the record's tokens, with [CLS] and [SEP]
    places: np.ndarray  # int [W], the words' first places in the record, ascending
    words: np.ndarray  # int [W], the words' numbers, counted over all sentences


@dataclasses.dataclass(eq=False)
class SentenceFeaturizer:
    """Converts sentences to windows."""

    tokenizer: WordPieceTokenizer
    _: dataclasses.KW_ONLY
    max_seq_length: int
    doc_stride: int | None = None
    document_context: bool = False
    longest_word: int | None = None  # the most pieces of a word in training, if known

    @property
    def settings(self) -> dict[str, Any]:
        """Returns the settings that decide the windows, as JSON."""
        return {
            **self.tokenizer.settings,
            "max_seq_length": self.max_seq_length,
            "doc_stride": self.doc_stride,
            "document_context": self.document_context,
        }

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[SentenceFeatures]:
        """Yields the windows of all texts, in their order."""
        unk_id = self.tokenizer.vocabulary.unk_id
        texts: Iterable[Iterable[Sentence]] = ((sentence,) for sentence in sentences)
        if self.document_context:
            groups = itertools.groupby(sentences, lambda sentence: sentence.document)
            texts = (document for _, document in groups)
        first_word = most = num_long = 0
        room = self.max_seq_length - _SPECIAL_TOKENS
        usual = room
        if self.longest_word is not None:
            usual = min(room, max(_LONG_WORD, 2 * self.longest_word))
        for text in texts:
            ids: list[int] = []
            starts: list[int] = []
            for word in itertools.chain.from_iterable(one.words for one in text):
                starts.append(len(ids))
                pieces = self.tokenizer.encode(word) or [unk_id]
                ids += pieces
                num_long += len(pieces) > usual
                most = max(most, len(pieces))
            yield from self._windows(ids, np.array(starts), first_word)
            first_word += len(starts)
        if num_long:
            known = f"; the longest in training has {self.longest_word}"
            logging.warning(
                "%d of %d words have more than %d pieces (up to %d%s). A word is"
                " labelled by its first piece, which sees at most %d. If this text has"
                " no spaces between words, split it into words.",
                *(num_long, first_word, usual, most),
                *("" if self.longest_word is None else known, room),
            )

    def _windows(
        self, ids: list[int], starts: np.ndarray, first_word: int
    ) -> Iterator[SentenceFeatures]:
        """Yields a text's windows, except those from which no word is predicted."""
        vocabulary = self.tokenizer.vocabulary
        room = self.max_seq_length - _SPECIAL_TOKENS
        # The last one is moved back to be as long as the others.
        last = max(0, len(ids) - room)
        found = windows(len(ids), room, self.doc_stride)
        found[-1] = Window(last, len(ids) - last)
        best = best_windows(found, len(ids))[starts]
        for number, (start, length) in enumerate(found):
            (words,) = np.nonzero(best == number)
            if len(words):
                yield SentenceFeatures(
                    [
                        vocabulary.cls_id,
                        *ids[start : start + length],
                        vocabulary.sep_id,
                    ],
                    starts[words] - start + 1,
                    first_word + words,
                )


@functools.cache
def schema(max_seq_length: int, *, for_training: bool) -> RecordSpec:
    """Returns the features of a record."""
    return RecordSpec(
        [
            Feature(name, INT64, (max_seq_length,), "max_seq_length")
            for name in (*_INPUTS, *(_LABELS if for_training else ()))
        ]
    )


def blocks(
    features: Iterable[SentenceFeatures], labels: np.ndarray | None, max_seq_length: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the records of windows, many at once; without labels, for predictions."""
    names = (*_INPUTS, *(() if labels is None else _LABELS))
    for group in grouped(features, _RECORDS_AT_ONCE):
        shape = len(group), max_seq_length
        block = {name: np.zeros(shape, np.int64) for name in names}
        for row, (ids, places, words) in enumerate(group):
            block["input_ids"][row, : len(ids)] = ids
            block["input_mask"][row, : len(ids)] = 1
            if labels is None:
                continue
            is_known = labels[words] != NO_LABEL
            block["label_ids"][row, places[is_known]] = labels[words[is_known]]
            block["label_weights"][row, places[is_known]] = 1
        yield block


def trained_words(
    sentences: Iterable[Sentence], tokenizer: WordPieceTokenizer
) -> TrainedWords:
    """Returns the form of the words in a training set."""
    sentences = list(sentences)
    words = {word for one in sentences for word in one.words}
    ideographs = Counter(min(2, len(IDEOGRAPH.findall(word))) for word in words)
    return TrainedWords(
        longest=max(len(tokenizer.encode(word)) for word in words),
        splits_cjk=ideographs[2] <= ideographs[1],
        splits_punctuation=all(one.text is not None for one in sentences),
    )
