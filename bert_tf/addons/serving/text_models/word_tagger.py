"""Models that label the words of texts."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.addons.serving.text_models.model import (
    NUM_LENGTHS,
    Score,
    TaggedEntity,
    TaggedText,
    TextModel,
    Texts,
    ToExplain,
)
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.weights import num_outputs
from bert_tf.records.batching import Batching
from bert_tf.tasks.tagging.labels import (
    NO_SCHEME,
    OUTSIDE,
    entities,
    scheme_of_labels,
    usual_spelling,
)
from bert_tf.tasks.tagging.sentence_windows import SentenceFeaturizer
from bert_tf.tasks.tagging.sentences import Sentence
from bert_tf.tasks.tagging.word_predictions import likeliest_labels
from bert_tf.text.normalization import Span, words_of_text
from bert_tf.text.vocabulary import UNK
from bert_tf.text.wordpiece import Encoding, list_of, pair_features


class _Words(NamedTuple):
    """A text, its words, and their places in it."""

    text: str
    words: tuple[str, ...]
    spans: tuple[Span, ...]


class WordTagger(TextModel):
    """A tagger of words: `tag`, `explain` and `embed`.

    Examples:
        >>> model = bert_tf.load("tagger")
        >>> tagged = model.tag("A good film")[0]
        >>> len(tagged.words)
        3
    """

    head = "a tagger"
    methods = ("tag", "explain")
    head_name = names.TAGGING

    def _prepare(self) -> None:
        number = num_outputs(self.source.weights, names.TAGGING)
        self.labels = self.source.labels or tuple(map(str, range(number)))
        self._words = self.reading.words
        self._usual = usual_spelling(self.labels)
        all_usual = [self._usual.get(label, label) for label in self.labels]
        self._spells_entities = scheme_of_labels(all_usual) != NO_SCHEME
        self._featurizer = SentenceFeaturizer(
            self.tokenizer,
            max_seq_length=self.max_length,
            doc_stride=self.reading.doc_stride,
            longest_word=self._words.longest,
        )

    def tag(self, texts: Texts | Sequence[Sequence[str]]) -> list[TaggedText]:
        """Returns a label for each word, as run_ner does; reads long texts in windows.

        A str is split at white space: put spaces between words and punctuation, or give
        lists of words. Each Chinese character is a word, unless words of the training
        data had several; each punctuation character is one if the training data were
        texts with spans.
        """
        given = list_of(texts)
        if not given:
            return []
        found = [self._words_of(text, number) for number, text in enumerate(given)]
        features = list(self._featurizer(self._sentences_of(found)))
        predicted = likeliest_labels(
            features,
            self._predict,
            Batching(
                batch_size=min(self._batch_size, len(features)),
                max_seq_length=self.max_length,
                num_lengths=NUM_LENGTHS,
            ),
        )
        names = iter(self.labels[number] for number in predicted)
        tagged = []
        for text, words, spans in found:
            labels = tuple(itertools.islice(names, len(words)))
            usual_labels = [self._usual.get(label, label) for label in labels]
            spelt = []
            for start, end, type_ in (
                entities(usual_labels) if self._spells_entities else ()
            ):
                place = spans[start][0], spans[end - 1][1]
                # Taken from the text: ideographs have no blanks between them.
                said = " ".join(text[slice(*place)].split())
                spelt.append(TaggedEntity(said, type_, (start, end), place))
            tagged.append(TaggedText(words, labels, tuple(spelt), spans))
        return tagged

    def _to_explain(
        self, text: str | Sequence[str], pair: str | None, target: str | int | None
    ) -> Iterator[ToExplain]:
        """Yields each window of the text, and the logits of its words' labels."""
        if pair is not None:
            raise InputError("`pair`: a tagger reads one text.")
        ((_, labels, _, _),) = self.tag([text])
        found = self._words_of(text, 0)
        numbers: Sequence[int] = range(len(labels))
        if target is not None:
            if str(target) not in map(str, numbers):
                raise InputError(
                    f"`target={target}`: give the number of a word, from 0 to"
                    f" {len(labels) - 1}."
                )
            numbers = [int(target)]
        elif self._spells_entities:
            usual = [self._usual.get(label, label) for label in labels]
            numbers = [number for number in numbers if usual[number] != OUTSIDE]
        encoded = [self.tokenizer.encode_with_offsets(word) for word in found.words]
        unk = [self.tokenizer.vocabulary.unk_id]
        tokens = [
            (token_id, token, (start + begin, start + end), not place)
            for one, (start, stop) in zip(encoded, found.spans, strict=True)
            for place, (token_id, token, (begin, end)) in enumerate(
                zip(*one, strict=True)
                if one.ids
                else zip(unk, [UNK], [(0, stop - start)], strict=True)
            )
        ]
        starts = np.flatnonzero([is_start for *_, is_start in tokens])
        for window in self._featurizer(self._sentences_of([found])):
            ids, places, words = window
            begin = starts[words[0]] - places[0] + 1
            part = tokens[begin : begin + len(ids) - 2]
            token_ids, names, spans, are_first = map(list, zip(*part, strict=True))
            targets = {}
            for number in sorted({*numbers} & {*words.tolist()}):
                place = int(starts[number] - begin + 1)
                label = self.labels.index(labels[number])
                name = f"{found.words[number]} ({number}): {labels[number]}"
                targets[name] = self._score(place, label)
            inputs = pair_features(
                [(ids[1:-1], [])], self.tokenizer.vocabulary, len(ids)
            )
            encodings = [Encoding(token_ids, names, spans)]
            yield ToExplain(encodings, [found.text], inputs, targets, are_first)

    @staticmethod
    def _score(place: int, label: int) -> Score:
        return lambda outputs: outputs["logits"][:, place, label]

    def _words_of(self, text: str | Sequence[str], number: int) -> _Words:
        """Returns a text and its words; given words are joined by blanks."""
        if isinstance(text, str):
            spans = words_of_text(
                text,
                splits_cjk=self._words.splits_cjk,
                splits_punctuation=self._words.splits_punctuation,
                segmenter=self.tokenizer.segmenter,
            )
            words = tuple(text[start:end] for start, end in spans)
        else:
            words = tuple(list_of(text))
        if not words or not all(isinstance(word, str) for word in words):
            raise InputError(
                f"Text {number} (from 0) must have a word, and words must be strings."
                f" Received: {words!r}"
            )
        if not isinstance(text, str):
            text = " ".join(words)
            ends = itertools.accumulate(len(word) + 1 for word in words)
            spans = [
                (end - 1 - len(word), end - 1)
                for end, word in zip(ends, words, strict=True)
            ]
        return _Words(text, words, tuple(spans))

    @staticmethod
    def _sentences_of(found: Iterable[_Words]) -> list[Sentence]:
        """Returns the texts as `Sentence`s, without the fields for output files."""
        return [
            Sentence(
                words=one.words,
                labels=None,
                document=number,
                source=f"text {number}",
                rows=(),
            )
            for number, one in enumerate(found)
        ]
