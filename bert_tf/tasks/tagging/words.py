"""Labelling each word of a sentence."""

import collections
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files, strict_json
from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion import names as weight_names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.source import Source
from bert_tf.errors import DivergedError, InputError
from bert_tf.modeling.heads import BertTagger
from bert_tf.modeling.objectives import TAGGING
from bert_tf.records.batching import (
    PADDING,
    ROWS,
    EvaluationBatches,
    ExampleTable,
    LengthPlan,
    SplitRecords,
    prediction_lengths,
    rows_digest,
)
from bert_tf.records.spec import INT64, Feature, RecordSpec
from bert_tf.tasks.finetuning import (
    FineTuningTask,
    Outputs,
    folder_of_model,
    model_options,
    opened_adapter,
)
from bert_tf.tasks.tagging import labels
from bert_tf.tasks.tagging.labels import (
    IOB1,
    IOB2,
    NO_SCHEME,
    OUTSIDE,
    Labels,
    find_scheme,
    is_part_of_entity,
    labels_in,
    respelt,
    scheme_of_labels,
)
from bert_tf.tasks.tagging.sentences import Sentence, digest, read_sentences, read_tfds
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import STATE_NAME
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import num_workers
from bert_tf.training.task import Task

# Texts longer than the model in windows, and the window with most context of a word.
#
# Windows of r tokens begin every s tokens; the last one is moved back to be as long as
# the others. So each token is in at least one of them.


class WordWindow(NamedTuple):
    """A part of a text's tokens.

    Attributes:
        start: its first token there.
        end: the token after its last one.
    """

    start: int
    end: int


def windows(num_tokens: int, room: int, stride: int | None = None) -> list[WordWindow]:
    """The windows of a text."""
    stride = min(stride or max(1, room // 2), room)
    last = max(0, num_tokens - room)
    starts = [*range(0, last, stride), last]
    return [WordWindow(start, min(start + room, num_tokens)) for start in starts]


def best_windows(places: np.ndarray, found: list[WordWindow]) -> np.ndarray:
    """The window with most context of each token; the first of equal ones.

    Context counts on the side with less of it. That a window at the text's own end
    lacks nothing there would change no choice: the other windows have less on their
    other side. Of windows of one length it is the one whose middle is nearest, which
    needs no table of tokens by windows: a document may have millions.
    """
    # Start and last token together are twice the middle.
    twice_middles = np.array([start + end - 1 for start, end in found])
    # Between two neighbours' middles; a token exactly there is the first one's.
    borders = (twice_middles[:-1] + twice_middles[1:]) / 4
    return np.searchsorted(borders, places, side="left")


# Sentences into windows of tokens: a label for the first token of each word.
#
# Devlin et al. 2018, section 5.3: a word is cut into pieces, and its label is predicted
# from the first one's output; the others have none. A text is a sentence or, for "the
# maximal document context provided by the data", a whole document. A longer text is
# read in windows, and a word counts, in training and in prediction, only in the window
# with most context of it.
#
# A word without a piece, such as a lone soft hyphen, becomes [UNK], so that it has a
# label like any other.


# [CLS] and [SEP].
_SPECIAL_TOKENS = 2


class SentenceFeatures(NamedTuple):
    """A window, from which W of its words are predicted.

    Attributes:
        ids: the record's tokens, with [CLS] and [SEP].
        places: int [W], where these words begin in the record, ascending.
        words: int [W], their numbers, counted over all sentences.
    """

    ids: list[int]
    places: np.ndarray
    words: np.ndarray


class SentenceFeaturizer:
    """Converts sentences to windows."""

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
        """All that windows depend on in addition to the sentences, as JSON."""
        return {
            "vocabulary": self._tokenizer.vocabulary.sha256,
            "do_lower_case": self._tokenizer.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "doc_stride": self._doc_stride,
            "document_context": self._document_context,
        }

    def __call__(self, sentences: Iterable[Sentence]) -> Iterator[SentenceFeatures]:
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
    ) -> Iterator[SentenceFeatures]:
        """A text's windows, except those from which no word is predicted."""
        vocabulary = self._tokenizer.vocabulary
        room = self.max_seq_length - _SPECIAL_TOKENS
        found = windows(len(ids), room, self._doc_stride)
        best = best_windows(starts, found)
        for number, (start, end) in enumerate(found):
            (words,) = np.nonzero(best == number)
            if len(words):
                yield SentenceFeatures(
                    [vocabulary.cls_id, *ids[start:end], vocabulary.sep_id],
                    starts[words] - start + 1,
                    first_word + words,
                )


# Tagging as a task: a label for every word, such as a named entity's.
#
# Devlin et al. 2018, section 5.3: the label is predicted from the output of the word's
# first token.
#
# A record (`schema`), L being max_seq_length:
#
#     input_ids, input_mask  int64[L]    [CLS] window [SEP], padded with 0
#     segment_ids            int64[L]    0
#     label_ids              int64[L]    at a word's first token its label, else 0
#     label_weights          int64[L]    1 where a word is predicted, else 0: padding,
#                                        other tokens, words with more context in
#                                        another window, labels unknown to the model
#
# R records of a block, W words of all.


# The label of a word whose label the model does not have.
NO_LABEL = -1

_SEQUENCES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "label_ids",
    "label_weights",
)
_RECORDS_AT_ONCE = 1024


def task(
    config: BertConfig,
    num_labels: int,
    *,
    name: str = "tagging",
    recompute: bool = False,
    **options: Any,
) -> Task:
    """The task of labelling words."""
    return Task(
        name=name,
        build_model=lambda: BertTagger(
            config, num_labels, recompute=recompute, **options
        ),
        objective=TAGGING,
    )


def schema(max_seq_length: int) -> RecordSpec:
    """The features of a record."""
    return RecordSpec(
        [
            Feature(name, INT64, (max_seq_length,), "max_seq_length")
            for name in _SEQUENCES
        ]
    )


def blocks(
    features: Iterable[SentenceFeatures], labels: np.ndarray, max_seq_length: int
) -> Iterator[dict[str, np.ndarray]]:
    """The records of windows, many at once."""
    group: list[SentenceFeatures] = []
    for one in features:
        group.append(one)
        if len(group) == _RECORDS_AT_ONCE:
            yield _block(group, labels, max_seq_length)
            group = []
    if group:
        yield _block(group, labels, max_seq_length)


def _block(
    group: list[SentenceFeatures], labels: np.ndarray, max_seq_length: int
) -> dict[str, np.ndarray]:
    block = {
        name: np.zeros([len(group), max_seq_length], np.int64) for name in _SEQUENCES
    }
    for row, (ids, places, words) in enumerate(group):
        block["input_ids"][row, : len(ids)] = ids
        block["input_mask"][row, : len(ids)] = 1
        is_known = labels[words] != NO_LABEL
        block["label_ids"][row, places[is_known]] = labels[words[is_known]]
        block["label_weights"][row, places[is_known]] = 1
    return block


# The labels that a tagger predicts, and how they spell entities.


AUTO = "auto"

_MAX_SHOWN = 5


class TaggerLabels(NamedTuple):
    """A tagger's labels.

    Attributes:
        names: in the order of its outputs.
        scheme: how they spell entities; "none" if they do not.
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
    """Names the rarest labels, if few, that spell no entity, unlike the others."""
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
    """A sentence's labels in another scheme; unchanged if it is their own."""
    if NO_SCHEME in (scheme, wanted) or scheme == wanted:
        return list(labels)
    return respelt(labels, wanted)


def find_labels(
    options: TaggingOptions,
    train: Sequence[Sentence] | None,
    file_scheme: str,
    *,
    recorded: Sequence[str] | None,
    source: Source | None,
) -> TaggerLabels:
    """What the model predicts.

    In training it is --labels; else a trained head's labels, if they include all in the
    data; else the labels of the sentences. Without training, it is what the run
    recorded, or --labels, or the checkpoint's labels.
    """
    given = tuple(options.labels or ())
    repeated = [label for label, count in Counter(given).items() if count > 1]
    if repeated:
        raise InputError(f"--labels: {shown(repeated)} must be there once.")
    if train is None:
        found = tuple(recorded or given or (source and source.labels) or ())
        if not found:
            raise InputError(
                "Nothing says what the model's labels are: give --labels, in the order"
                " of its outputs."
            )
        return TaggerLabels(found, scheme_of_labels(found))
    # In IOB1 an entity's first label depends on the entity before it.
    scheme = IOB2 if file_scheme == IOB1 else file_scheme
    used = set(
        itertools.chain.from_iterable(
            respelt_unless(labels, file_scheme, scheme) for labels in _labels(train)
        )
    )
    ours = given or tuple(labels_in(scheme, used))
    in_files = set(itertools.chain.from_iterable(_labels(train)))
    if given and in_files <= set(given) and not used <= set(given):
        # They are the files' labels, which the model has in another scheme.
        ours = tuple(labels_in(scheme, used))
    there = _trained_labels(source)
    if source is not None and there is not None and options.init_head:
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
    """The number of each word's label; `NO_LABEL` if the model does not have it."""
    if not golds:
        return np.full(sum(len(one.words) for one in sentences), NO_LABEL)
    numbers = {label: number for number, label in enumerate(names)}
    unknown: Counter[str] = Counter()
    ids = []
    for sentence, gold in zip(sentences, golds, strict=True):
        for label in gold:
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
    """The labels of a checkpoint's tagger; None if it has none, or no names."""
    if source is None or weight_names.TAGGING not in weight_names.heads_of(
        source.weights
    ):
        return None
    return source.labels


def _labels(sentences: Sequence[Sentence]) -> Iterator[tuple[str, ...]]:
    return (one.labels for one in sentences if one.labels is not None)


# Predicted labels as a column file, for the official scorer (conlleval).
#
#     EU NNP B-NP B-ORG B-ORG
#     rejects VBZ B-VP O O
#
# It has the columns of the input file, separated by a blank, and the predicted label
# after them; for other formats the word, its label if known, and the predicted one. The
# scorer compares the last two columns: if the labels are not the last input column,
# they are repeated before the predicted ones. There is one line for each input line
# except comments, including blank ones and -DOCSTART-, so that the two files can be
# compared line by line. The scorer counts -DOCSTART- as a word correctly labelled O,
# which affects its accuracy but no entity.


def write_predictions(
    path: str, sentences: Sequence[Sentence], labels: Sequence[Sequence[str]]
) -> None:
    """Writes the file."""
    files.write_atomically(path, "".join(_lines(sentences, labels)))


def _lines(
    sentences: Sequence[Sentence], labels: Sequence[Sequence[str]]
) -> Iterator[str]:
    repeats = not all(map(_has_labels_last, sentences))
    for sentence, predicted in zip(sentences, labels, strict=True):
        width = sentence.rows[0].count(" ") + 1 + repeats
        yield from _between(sentence.before, width)
        rows = sentence.rows
        if repeats and sentence.labels is not None:
            rows = tuple(map(" ".join, zip(rows, sentence.labels, strict=True)))
        for row, label in zip(rows, predicted, strict=True):
            yield f"{row} {label}\n"
        yield from _between(sentence.after, width)
    if not sentences[-1].after:
        yield "\n"


def _between(lines: Sequence[str], width: int) -> Iterator[str]:
    """Lines that are no words, with the columns of those that are."""
    for line in lines:
        # All lines must have the same columns for the scorer.
        missing = width - 1 - line.count(" ") if line else -1
        yield line + f" {OUTSIDE}" * (missing + 1) + "\n"


def _has_labels_last(sentence: Sentence) -> bool:
    """Whether the labels are the last column, or there are none."""
    if sentence.labels is None:
        return True
    return all(
        row.endswith(f" {label}")
        for row, label in zip(sentence.rows, sentence.labels, strict=True)
    )


# Windows into the labels of their words.
#
# Shapes: W words, R records, B batch, S a batch's length, C labels, N words of a batch.


Arrays = Mapping[str, np.ndarray]
# (batches, how many) -> (batch, outputs), batch by batch.
Predict = Callable[[EvaluationBatches, int], Iterator[tuple[Arrays, Arrays]]]


class WordPredictions(NamedTuple):
    """The predictions for W words.

    Attributes:
        label_ids: int [W], the likeliest label.
        losses: float64 [W], -log p of the true one; 0 if the model does not have it.
    """

    label_ids: np.ndarray
    losses: np.ndarray


def predict_words(
    features: Sequence[SentenceFeatures],
    labels: np.ndarray,
    predict: Predict,
    *,
    batch_size: int,
    max_seq_length: int,
    max_lengths: int | None,
) -> WordPredictions:
    """Predicts the words of some windows."""
    table = ExampleTable(
        blocks(features, labels, max_seq_length),
        schema(max_seq_length),
    )
    num_batches = -(-len(table) // batch_size)
    buckets: tuple[int, ...] = (max_seq_length,)
    if max_lengths is not None:
        buckets = prediction_lengths(table.lengths, num_batches, max_lengths)
    plan = LengthPlan(table.lengths, batch_size, buckets, seed=None).epoch(0)
    batches = EvaluationBatches(table, plan.rows, np.array(buckets)[plan.buckets])
    found = WordPredictions(np.zeros(len(labels), np.int64), np.zeros(len(labels)))
    for batch, outputs in predict(batches, num_batches):
        rows = [
            (number, features[row])
            for number, row in enumerate(batch[ROWS])
            if row != PADDING
        ]
        counts = [len(one.words) for _, one in rows]
        words = np.concatenate([one.words for _, one in rows])
        places = np.concatenate([one.places for _, one in rows])
        in_batch = np.repeat([number for number, _ in rows], counts)
        logits = outputs["logits"][in_batch, places]  # [N, C]
        if not np.isfinite(logits).all():
            raise DivergedError(
                "The model's scores are not finite: its weights are too large to be of"
                " use. Train again with a lower --learning_rate."
            )
        found.label_ids[words] = logits.argmax(axis=-1)
        found.losses[words] = _losses(logits, labels[words])
    return found


def _losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log p(label) [N]; 0 without a label."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    norm = np.log(np.exp(shifted).sum(axis=-1))
    is_known = labels != NO_LABEL
    of_label = shifted[np.arange(len(labels)), np.where(is_known, labels, 0)]
    return np.where(is_known, norm - of_label, 0.0)


# The scores of predicted labels.


LOSS = "loss"
ACCURACY = "accuracy"
MAJORITY = "majority"
STRICT = "strict_"
_ENTITY_SCORES = ("precision", "recall", "f1")


def metric_names(scheme: str) -> list[str]:
    """The scores' names, with the one that compares runs last."""
    if scheme == NO_SCHEME:
        return [LOSS, ACCURACY]
    strict = [STRICT + name for name in _ENTITY_SCORES if _has_strict(scheme)]
    return [LOSS, ACCURACY, *strict, *_ENTITY_SCORES]


def scores(
    golds: Sequence[Labels],
    predictions: Sequence[Labels],
    scheme: str,
    *,
    losses: np.ndarray,
    accuracy: float,
    majority: float,
) -> dict[str, float]:
    """Scores the labels of sentences."""
    results = {
        LOSS: float(losses.mean()) if len(losses) else 0.0,
        ACCURACY: accuracy,
        MAJORITY: majority,
    }
    if scheme == NO_SCHEME:
        return results
    readings: dict[str, str | None] = {STRICT: scheme} if _has_strict(scheme) else {}
    for prefix, reading in {**readings, "": None}.items():
        counts = labels.total(
            labels.count_entities(golds, predictions, reading).values()
        )
        for name in _ENTITY_SCORES:
            results[prefix + name] = getattr(counts, name)
    return results


def accuracy(golds: Sequence[Labels], predictions: Sequence[Labels]) -> float:
    """The share of words with the right label."""
    words, correct = _words(golds, predictions)
    return correct / words


def majority(golds: Sequence[Labels]) -> float:
    """The accuracy of always giving the most frequent label."""
    counts = collections.Counter(itertools.chain.from_iterable(golds))
    return max(counts.values()) / counts.total()


def report(golds: Sequence[Labels], predictions: Sequence[Labels]) -> str:
    """The entities' scores by type, as the official scorer prints them."""
    return labels.report(
        labels.count_entities(golds, predictions), *_words(golds, predictions)
    )


def _has_strict(scheme: str) -> bool:
    return scheme in labels.STRICT_SCHEMES


def _words(golds: Sequence[Labels], predictions: Sequence[Labels]) -> tuple[int, int]:
    """How many words there are, and how many have the right label."""
    correct = sum(
        gold == predicted
        for pair in zip(golds, predictions, strict=True)
        for gold, predicted in zip(*pair, strict=True)
    )
    return sum(map(len, golds)), correct


# The runs on tagged words: sentences in, a label for each word out.


RECORDS_NAME = "train.tf_record"
SPLITS = ("train", "dev", "test")
# In the folder of a run on features: the model that they are from.
FEATURES_NAME = "features.json"

TRAIN = "train"


class Words:
    """The tagged words of each split, and the meaning of their outputs.

    Attributes:
        splits: as given.
        labels: what the model predicts.
    """

    def __init__(
        self,
        options: TaggingOptions,
        found: ModelFiles,
        splits: Mapping[str, Sequence[Sentence]],
        *,
        is_alone: bool,
    ) -> None:
        self._options = options
        self._is_alone = is_alone
        self.splits = splits
        self._file_schemes = find_file_schemes(splits, options.tag_scheme)
        self.labels = find_labels(
            options,
            splits.get(TRAIN),
            self._file_schemes.get(TRAIN, NO_SCHEME),
            recorded=run_folder.recorded_labels(folder_of_model(options)),
            source=found.source,
        )
        self.featurizer = SentenceFeaturizer(
            found.tokenizer,
            max_seq_length=options.max_seq_length,
            doc_stride=options.doc_stride,
            document_context=options.document_context,
        )
        self._golds = {
            split: [
                respelt_unless(
                    one.labels, self._file_schemes[split], self.labels.scheme
                )
                for one in sentences
                if one.labels is not None
            ]
            for split, sentences in splits.items()
        }
        self._label_ids = {
            split: label_ids(
                split,
                sentences,
                self._golds[split],
                self.labels.names,
                must_be_known=split == TRAIN,
            )
            for split, sentences in splits.items()
        }
        self._features: dict[str, list[SentenceFeatures]] = {}

    def has_labels(self, split: str) -> bool:
        """Whether the words of a split have labels."""
        return bool(self._golds[split])

    def predict(self, split: str, outputs: Outputs) -> WordPredictions:
        """Predicts the words of a split."""
        if split not in self._features:
            self._features[split] = list(self.featurizer(self.splits[split]))
        return predict_words(
            self._features[split],
            self._label_ids[split],
            outputs,
            batch_size=(
                self._options.eval_batch_size
                if split == "dev"
                else self._options.predict_batch_size
            ),
            max_seq_length=self._options.max_seq_length,
            max_lengths=self._options.max_lengths,
        )

    def predicted_labels(self, split: str, found: WordPredictions) -> list[list[str]]:
        """The predictions, in the files' spelling."""
        return [
            respelt_unless(words, self.labels.scheme, self._file_schemes[split])
            for words in self._by_sentence(split, found)
        ]

    def scores(self, split: str, found: WordPredictions) -> dict[str, float]:
        """The scores of predictions: see `scores`; {} without labels."""
        if not self.has_labels(split):
            return {}
        as_written = self._as_written(split, found)
        return scores(
            self._golds[split],
            self._by_sentence(split, found),
            self.labels.scheme,
            losses=found.losses[self._label_ids[split] != NO_LABEL],
            accuracy=accuracy(*as_written),
            majority=majority(as_written[0]),
        )

    def report(self, split: str, found: WordPredictions) -> str:
        """The scores by type in the official scorer's format; "" without entities."""
        if self.labels.scheme == NO_SCHEME:
            return ""
        return report(*self._as_written(split, found))

    def _as_written(
        self, split: str, found: WordPredictions
    ) -> tuple[Sequence[Labels], Sequence[Labels]]:
        """The true labels and the predicted ones, as the files' scorer reads them.

        In another scheme a correct entity may have a word with a wrong label.
        """
        golds = [one.labels for one in self.splits[split] if one.labels is not None]
        return golds, self.predicted_labels(split, found)

    def _by_sentence(self, split: str, found: WordPredictions) -> list[list[str]]:
        """The predicted labels of each sentence, in the model's spelling."""
        words = iter(found.label_ids.tolist())
        return [
            [
                self.labels.names[number]
                for number in itertools.islice(words, len(one.words))
            ]
            for one in self.splits[split]
        ]

    def data(self) -> RunData:
        """The training set."""
        where = self._options.tfds_name or self._options.train_file
        sentences = self.splits[TRAIN]
        return RunData(f"{len(sentences)} sentences of {where}", digest(sentences))

    def write(self, folder: str, split: str, found: WordPredictions, step: int) -> None:
        """Writes the files' columns with the predictions, and the scorer's report."""
        del step

        def path(name: str) -> str:
            return os.path.join(folder, f"{split}_{name}.txt")

        labels = self.predicted_labels(split, found)
        write_predictions(path("predictions"), self.splits[split], labels)
        written = self.report(split, found) if self.has_labels(split) else ""
        if written:
            logging.info("%s", written)
            files.write_atomically(path("report"), written)

    def identity(self, split: str) -> str:
        """A digest of a split's sentences, and of how they are read."""
        return rows_digest([self._made_from(split)])

    def _made_from(self, split: str) -> dict[str, Any]:
        return {
            **self.featurizer.settings,
            "labels": self.labels.names,
            "scheme": self.labels.scheme,
            "file_scheme": self._file_schemes[split],
            "sentences": digest(self.splits[split]),
        }

    def records(self) -> SplitRecords:
        """The windows to train on, made once."""
        sentences = self.splits[TRAIN]
        records = SplitRecords.prepare(
            os.path.join(self._options.output_dir, RECORDS_NAME),
            schema(self._options.max_seq_length),
            self._made_from(TRAIN),
            blocks(
                self.featurizer(sentences),
                self._label_ids[TRAIN],
                self._options.max_seq_length,
            ),
            is_alone=self._is_alone,
        )
        logging.info(
            "%d sentences, %d words, %d labels: %d windows.",
            len(sentences),
            len(self._label_ids[TRAIN]),
            len(self.labels.names),
            records.num_records,
        )
        return records


def tagging_task(
    options: TaggingOptions, found: ModelFiles, strategy: tf.distribute.Strategy
) -> FineTuningTask[WordPredictions]:
    """The task of labelling words, on the options' sentences."""
    words = Words(
        options, found, read_splits(options), is_alone=num_workers(strategy) == 1
    )
    built = model_options(
        options, opened_adapter(options, found.config), has_pooler=False
    )
    num_labels = len(words.labels.names)
    return FineTuningTask.of(
        task(found.config, num_labels, recompute=options.recompute, **built),
        records=words.records,
        predict=words.predict,
        refuse_folder=refuse_features,
        **common_parts(words),
    )


def common_parts(words: Words) -> dict[str, Any]:
    """The parts of a task that do not depend on the model that labels the words."""
    metrics = metric_names(words.labels.scheme)
    return {
        "head": names.TAGGING,
        "trains_task": "tagging",
        "data": words.data,
        "score": words.scores,
        "write": words.write,
        "identity": words.identity,
        "dev_splits": ("dev",),
        "test_splits": ("test",),
        "metrics": metrics,
        "metric": metrics[-1],
        "labels": words.labels.names,
        "keeps_results": True,
    }


def read_splits(options: TaggingOptions) -> dict[str, list[Sentence]]:
    """The sentences, by split."""
    wanted = (options.do_train, options.looks_at_dev, options.do_predict)
    return {
        split: _read(options, split, number)
        for number, (split, is_wanted) in enumerate(zip(SPLITS, wanted, strict=True))
        if is_wanted
    }


def _read(options: TaggingOptions, split: str, number: int) -> list[Sentence]:
    has_labels = options.test_has_labels if split == "test" else True
    label_names = options.labels or None
    if options.tfds_name:
        return read_tfds(
            options.tfds_name,
            options.tfds_splits[number],
            data_dir=options.tfds_data_dir,
            word_feature=options.word_column,
            label_feature=options.label_column,
            label_names=label_names,
            has_labels=has_labels is not False,
        )
    flag = f"{split}_file"
    pattern = getattr(options, flag)
    if pattern is None:
        raise InputError(f"Give `{flag}`: the runs are compared by it.")
    sentences = read_sentences(
        files.expand_globs(pattern, flag),
        options.layout(label_names),
        has_labels=has_labels,
    )
    logging.info(
        "%s: %d sentences in %d documents.",
        split,
        len(sentences),
        sentences[-1].document + 1,
    )
    return sentences


def refuse_features(folder: str) -> None:
    """Raises InputError if a folder's run is on features of BERT, not on BERT."""
    path = os.path.join(folder, FEATURES_NAME)
    if not files.exists(path):
        return
    if not files.exists(os.path.join(folder, STATE_NAME)):
        files.remove(path)  # of a start that failed before its first checkpoint
        return
    raise InputError(
        f"--output_dir={folder} holds a BiLSTM on BERT's features; give"
        f" --features={read_features(path)['features']} too, or another"
        " folder."
    )


def read_features(path: str) -> dict[str, str]:
    """The content of a run's features.json."""
    found = strict_json.checked(dict[str, str], files.read_json(path), path, "features")
    if "features" not in found:
        raise InputError(f'{path}: it must have "features". Give another --output_dir.')
    return found
