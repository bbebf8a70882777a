"""Labelling each word of a sentence, such as a named entity's.

Devlin et al. 2018, section 5.3: a word is cut into pieces, and its label is predicted
from the first one's output; the others have none. A text is a sentence or, for "the
maximal document context provided by the data", a whole document. A longer text is read
in windows, and a word counts, in training and in prediction, only in the window with
most context of it.

A word without a piece, such as a lone soft hyphen, becomes [UNK], so that it has a
label like any other.

A record (`schema`), L being max_seq_length:

    input_ids, input_mask  int64[L]    [CLS] window [SEP], padded with 0
    segment_ids            int64[L]    0
    label_ids              int64[L]    at a word's first token its label, else 0
    label_weights          int64[L]    1 where a word is predicted, else 0: padding,
                                       other tokens, words with more context in
                                       another window, labels unknown to the model

W words, C labels.
"""

import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from scipy import special

from bert_tf import files, metrics, strict_json
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.source import Source
from bert_tf.conversion.tokenizer_files import (
    TrainedWords,
    read_labels,
    read_words,
    write_words,
)
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertTagger
from bert_tf.modeling.objectives import TAGGING
from bert_tf.parallel import grouped
from bert_tf.records.batching import (
    PADDING,
    ROWS,
    Batching,
    ExampleTable,
    Predict,
    rows_digest,
)
from bert_tf.records.spec import INT64, Feature, RecordSpec
from bert_tf.tasks import finetuning
from bert_tf.tasks.long_texts import Window, best_windows, windows
from bert_tf.tasks.reports import kept_order
from bert_tf.tasks.tagging.labels import (
    IOB1,
    IOB2,
    MIXED,
    NO_SCHEME,
    OUTSIDE,
    STRICT_SCHEMES,
    Labels,
    count_entities,
    find_scheme,
    in_scheme,
    labels_in,
    report,
    scheme_of_labels,
    total,
    usual_spelling,
)
from bert_tf.tasks.tagging.sentences import (
    Layout,
    Sentence,
    read_sentences,
    read_tfds,
)
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from bert_tf.tasks.task import LOSS, MAJORITY, TRAIN, FineTuningTask
from bert_tf.text.normalization import IDEOGRAPH
from bert_tf.text.tfds import TfdsRows
from bert_tf.text.wordpiece import WordPieceTokenizer
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import FEATURES_NAME, STATE_NAME
from bert_tf.training.evaluation import refuse_not_finite
from bert_tf.training.run_folder import RunData

# [CLS] and [SEP].
_SPECIAL_TOKENS = 2
# The label of a word whose label the model does not have.
NO_LABEL = -1
_SEQUENCES = ("input_ids", "input_mask", "segment_ids", "label_ids", "label_weights")
_RECORDS_AT_ONCE = 1024
# A word of more pieces than this may be a text without spaces.
_LONG_WORD = 8


class SentenceFeatures(NamedTuple):
    """A window, from which W of its words are predicted."""

    ids: list[int]  # the record's tokens, with [CLS] and [SEP]
    places: np.ndarray  # int [W], where these words begin in the record, ascending
    words: np.ndarray  # int [W], their numbers, counted over all sentences


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
        """All that windows depend on in addition to the sentences, as JSON."""
        return {
            "vocabulary": self.tokenizer.vocabulary.sha256,
            "do_lower_case": self.tokenizer.do_lower_case,
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
                " labelled by its first piece, which sees at most %d. Is this text"
                " without spaces? Give its words apart.",
                *(num_long, first_word, usual, most),
                *("" if self.longest_word is None else known, room),
            )

    def _windows(
        self, ids: list[int], starts: np.ndarray, first_word: int
    ) -> Iterator[SentenceFeatures]:
        """A text's windows, except those from which no word is predicted."""
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
    for group in grouped(features, _RECORDS_AT_ONCE):
        block = {
            name: np.zeros([len(group), max_seq_length], np.int64)
            for name in _SEQUENCES
        }
        for row, (ids, places, words) in enumerate(group):
            block["input_ids"][row, : len(ids)] = ids
            block["input_mask"][row, : len(ids)] = 1
            is_known = labels[words] != NO_LABEL
            block["label_ids"][row, places[is_known]] = labels[words[is_known]]
            block["label_weights"][row, places[is_known]] = 1
        yield block


AUTO = "auto"


def with_usual_labels(
    splits: Mapping[str, Sequence[Sentence]], known: AbstractSet[str]
) -> Mapping[str, Sequence[Sentence]]:
    """The sentences with labels such as b-per, PER_B and 0 as B-PER and O are spelled.

    Unless a label as it is written is one of the model's, which are `known`.
    """
    written = set().union(*map(all_labels_of, splits.values()))
    usual = usual_spelling(written, known)
    if not usual or known & usual.keys():
        return splits
    logging.info(
        "Labels that mark entities are read as usually spelled: %s.",
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
    scheme: str  # how they spell entities; "none" if they do not


def find_file_schemes(
    splits: Mapping[str, Sequence[Sentence]], given: str
) -> dict[str, str]:
    """How each split's files spell entities."""
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
    """What the model predicts."""
    # In training it is --labels; else a trained head's labels, if they include all in
    # the data; else the labels of the sentences. Without training, it is what the run
    # recorded, or --labels, or the checkpoint's labels.
    given = tuple(options.labels or ())
    if len(set(given)) < len(given):
        raise InputError(f"`labels={','.join(given)}`: each label must be there once.")
    if train is None:
        found = tuple(recorded or given or (source and source.labels) or ())
        if not found:
            raise InputError(
                "The model's labels are unknown: give `labels`, in its outputs' order."
            )
        scheme = scheme_of_labels(found)
        if scheme == MIXED:
            raise InputError(f"The model's labels are of no scheme: {shown(found)}.")
        return TaggerLabels(found, scheme)
    # In IOB1 an entity's first label depends on the entity before it.
    scheme = IOB2 if file_scheme == IOB1 else file_scheme
    written = labels_of(train)
    in_files = all_labels_of(train)
    used = set().union(
        *(in_scheme(labels, scheme, written=file_scheme) for labels in written)
    )
    ours = given
    # Labels that are the files', which the model has in another scheme, are as well.
    if not given or (in_files <= set(given) and not used <= set(given)):
        ours = tuple(labels_in(scheme, used))
        ours = kept_order(ours, options.output_dir, None)
    there = None
    if source is not None and names.TAGGING in names.heads_of(source.weights):
        there = source.labels
    if source is not None and there is not None and options.init_head:
        if not given and used <= set(there):
            ours = there
        if ours != there:
            raise InputError(
                f"{source.path} has a head that predicts {shown(there)}; the labels"
                f" here are {shown(ours)}. If they mean the same, give `labels`;"
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
    """The number of each word's label; `NO_LABEL` if the model does not have it."""
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
            "%s: %d of %d words have labels unknown to the model, so wrong: %s.",
            *(split, unknown.total(), len(ids), shown(tuple(unknown))),
        )
    return np.array(ids, np.int64)


def shown(labels: Sequence[str]) -> str:
    """The first labels, for a message."""
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return ", ".join(labels[:5]) + more


def digest(sentences: Iterable[Sentence]) -> str:
    """A digest of everything that records are made of."""
    return rows_digest((one.words, one.labels, one.document) for one in sentences)


def labels_of(sentences: Sequence[Sentence]) -> list[tuple[str, ...]]:
    """The labels of each sentence that has some."""
    return [one.labels for one in sentences if one.labels is not None]


def all_labels_of(sentences: Sequence[Sentence]) -> set[str]:
    """The different labels of sentences."""
    return set(itertools.chain.from_iterable(labels_of(sentences)))


def write_predictions(
    path: str, sentences: Sequence[Sentence], labels: Sequence[Sequence[str]]
) -> None:
    """Writes predicted labels as a column file, for the official scorer (conlleval).

        EU NNP B-NP B-ORG B-ORG
        rejects VBZ B-VP O O

    It has the columns of the input file, separated by a blank, and the predicted label
    after them; for other formats the word, its label if known, and the predicted one.
    The scorer compares the last two columns: if the labels are not the last input
    column, they are repeated before the predicted ones. There is one line for each
    input line except comments, including blank ones and -DOCSTART-, so that the two
    files can be compared line by line. The scorer counts -DOCSTART- as a word correctly
    labelled O, which affects its accuracy but no entity.
    """
    # The labels are the last column, or there are none.
    repeats = not all(
        row.endswith(f" {label}")
        for one in sentences
        if one.labels is not None
        for row, label in zip(one.rows, one.labels, strict=True)
    )
    lines: list[str] = []
    for sentence, predicted in zip(sentences, labels, strict=True):
        width = sentence.rows[0].count(" ") + 1 + repeats
        lines += _between(sentence.before, width)
        rows = sentence.rows
        if repeats and sentence.labels is not None:
            rows = tuple(map(" ".join, zip(rows, sentence.labels, strict=True)))
        lines += map(" ".join, zip(rows, predicted, strict=True))
        lines += _between(sentence.after, width)
    if not sentences[-1].after:
        lines.append("")
    files.write_atomically(path, "".join(f"{line}\n" for line in lines))


def _between(lines: Sequence[str], width: int) -> list[str]:
    """Lines that are no words, with the columns of those that are, for the scorer."""
    return [line and line + f" {OUTSIDE}" * (width - line.count(" ")) for line in lines]


class WordPredictions(NamedTuple):
    """The predictions for W words."""

    label_ids: np.ndarray  # int [W], the likeliest label
    # float64 [W], -log p of the true one; 0 if the model does not have it.
    losses: np.ndarray


def predict_words(
    features: Sequence[SentenceFeatures],
    labels: np.ndarray,
    predict: Predict,
    batching: Batching,
) -> WordPredictions:
    """Predicts the words of some windows."""
    length = batching.max_seq_length
    records = ExampleTable(blocks(features, labels, length), schema(length))
    batches = records.batches(batching.batch_size, batching.max_lengths)
    found = WordPredictions(np.zeros(len(labels), np.int64), np.zeros(len(labels)))
    for batch, outputs in predict(batches, len(batches)):
        (in_batch,) = np.nonzero(batch[ROWS] != PADDING)
        some = [features[row] for row in batch[ROWS][in_batch]]
        words = np.concatenate([one.words for one in some])
        places = np.concatenate([one.places for one in some])
        in_batch = np.repeat(in_batch, [len(one.words) for one in some])
        logits = outputs["logits"][in_batch, places]  # of the batch's words, by label
        refuse_not_finite("score of a label", logits)
        found.label_ids[words] = logits.argmax(axis=-1)
        log_p = special.log_softmax(logits.astype(np.float64), axis=-1)
        of_words = labels[words]
        of_label = log_p[np.arange(len(words)), np.maximum(of_words, 0)]
        found.losses[words] = np.where(of_words == NO_LABEL, 0.0, -of_label)
    return found


ACCURACY = "accuracy"


def metric_names(scheme: str) -> list[str]:
    """The scores' names, with the one that compares runs last."""
    entities = [] if scheme == NO_SCHEME else [*entity_scores((), (), scheme)]
    return [LOSS, ACCURACY, *entities]


def entity_scores(
    golds: Sequence[Labels], predictions: Sequence[Labels], scheme: str
) -> dict[str, float]:
    """The scores of entities by the strict reading, if any, and the default."""
    results: dict[str, float] = {}
    readings: dict[str, str | None] = {"": None}
    if scheme in STRICT_SCHEMES:
        readings = {"strict_": scheme, **readings}
    for prefix, reading in readings.items():
        counts = total(count_entities(golds, predictions, reading).values())
        results |= {prefix + name: score for name, score in counts.scores.items()}
    return results


F1_MACRO = "f1_macro"  # computed on request, as --best_metric


def f1_macro(
    golds: Sequence[Labels], predictions: Sequence[Labels], scheme: str
) -> float:
    """The mean of the F1 of each type by the default reading; without types, of labels.

    As seqeval's and scikit-learn's: of the types, or labels, on either side.
    """
    if scheme == NO_SCHEME:
        predicted, gold = (
            np.array([*itertools.chain.from_iterable(x)]) for x in (predictions, golds)
        )
        return metrics.scores([F1_MACRO], predicted, gold)[F1_MACRO]
    counts = count_entities(golds, predictions).values()
    return sum(one.scores["f1"] for one in counts) / max(len(counts), 1)


def trained_words(
    sentences: Iterable[Sentence], tokenizer: WordPieceTokenizer
) -> TrainedWords:
    """What the words of a training set are like."""
    words = {word for one in sentences for word in one.words}
    ideographs = Counter(min(2, len(IDEOGRAPH.findall(word))) for word in words)
    return TrainedWords(
        longest=max(len(tokenizer.encode(word)) for word in words),
        splits_cjk=ideographs[2] <= ideographs[1],
    )


class TaggingTask(FineTuningTask[WordPredictions]):
    """Labelling the words of the options' sentences."""

    name = "tagging"
    head = names.TAGGING
    objective = TAGGING
    keeps_results = True
    labels: Sequence[str]
    featurizer: SentenceFeaturizer  # or one that reads as it does
    features: Mapping[str, str] | None = None  # what vectors of a frozen BERT depend on

    def __init__(
        self,
        options: TaggingOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        splits: Mapping[str, Sequence[Sentence]] = read_splits(options)
        self._options, self._model_files = options, model_files
        recorded = read_labels(finetuning.folder_of_model(options))[0]
        there = model_files.source.labels if model_files.source is not None else None
        if options.tag_scheme != NO_SCHEME:
            known = {*(options.labels or ()), *(recorded or ()), *(there or ())}
            splits = with_usual_labels(splits, known)
        self.splits = splits
        self._file_schemes = find_file_schemes(splits, options.tag_scheme)
        self.labels, self.scheme = find_labels(
            options,
            splits.get(TRAIN),
            self._file_schemes.get(TRAIN, NO_SCHEME),
            recorded=recorded,
            source=model_files.source,
        )
        self.trained = read_words(finetuning.folder_of_model(options))
        if self.trained == TrainedWords() and model_files.source is not None:
            self.trained = read_words(model_files.source.folder)
        if TRAIN in splits:
            self.trained = trained_words(splits[TRAIN], model_files.tokenizer)
        self.featurizer = SentenceFeaturizer(
            model_files.tokenizer,
            max_seq_length=options.max_seq_length,
            doc_stride=options.doc_stride,
            document_context=options.document_context,
            longest_word=self.trained.longest,
        )
        # In the model's spelling; none without labels.
        self._golds: dict[str, list[list[str]]] = {}
        self._label_ids: dict[str, np.ndarray] = {}
        for split, sentences in splits.items():
            self._golds[split] = golds = [
                in_scheme(labels, self.scheme, written=self._file_schemes[split])
                for labels in labels_of(sentences)
            ]
            self._label_ids[split] = label_ids(
                split, sentences, golds, self.labels, split == TRAIN
            )
            if golds and (self._label_ids[split] == NO_LABEL).all():
                in_files = shown(
                    [*dict.fromkeys(itertools.chain(*labels_of(sentences)))]
                )
                raise InputError(
                    f"{sentences[0].source}: the model has none of the {split} set's"
                    f" labels: {in_files}. The model's are {shown(self.labels)}."
                    " Is each line a word, with its label in `label_column`? For a"
                    " test set without labels: `test_has_labels=false`."
                )
        self._features: dict[str, list[SentenceFeatures]] = {}
        scores = metric_names(self.scheme)
        self.metrics, self.metric = [*scores, F1_MACRO], scores[-1]
        self._built = finetuning.model_options(
            options, model_files.config, has_pooler=False
        )

    def build_model(self) -> keras.Model:
        """A tagger on BERT."""
        return BertTagger(self._model_files.config, len(self.labels), **self._built)

    def prepare(self, folder: str) -> None:
        """Writes what the run is on, in addition to its labels."""
        check_feature_choice(folder, self.features)
        if self.trained != TrainedWords():
            files.make_folder(folder)
            write_words(folder, self.trained)

    def class_counts(self) -> np.ndarray:
        """How many words of the training set each label has."""
        return np.bincount(self._label_ids[TRAIN], minlength=len(self.labels))

    def predict(self, split: str, outputs: Predict) -> WordPredictions:
        """Predicts the words of a split."""
        options = self._options
        if split not in self._features:
            self._features[split] = list(self.featurizer(self.splits[split]))
        is_dev = split == "dev"
        size = options.eval_batch_size if is_dev else options.predict_batch_size
        batching = Batching(
            batch_size=size,
            max_seq_length=options.max_seq_length,
            max_lengths=options.max_lengths,
        )
        labels = self._label_ids[split]
        return predict_words(self._features[split], labels, outputs, batching)

    def predicted_labels(self, split: str, found: WordPredictions) -> list[list[str]]:
        """The predictions, in the files' spelling."""
        return [
            in_scheme(labels, self._file_schemes[split], written=self.scheme)
            for labels in self._by_sentence(split, found)
        ]

    def score(self, split: str, found: WordPredictions) -> dict[str, float]:
        """The scores of predictions; {} without labels."""
        # The accuracy is of the labels as the files' scorer reads them: in another
        # scheme a correct entity may have a word with a wrong label.
        if not self._golds[split]:
            return {}
        losses = found.losses[self._label_ids[split] != NO_LABEL]
        num_words, num_correct = self._num_correct(split, found)
        labels = itertools.chain.from_iterable(labels_of(self.splits[split]))
        results = {
            **({LOSS: float(losses.mean())} if len(losses) else {}),
            ACCURACY: num_correct / num_words,
            MAJORITY: max(Counter(labels).values()) / num_words,
        }
        read = self._golds[split], self._by_sentence(split, found), self.scheme
        if self.scheme != NO_SCHEME:
            results |= entity_scores(*read)
        if self._options.best_metric == F1_MACRO:
            results[F1_MACRO] = f1_macro(*read)
        return results

    def report(self, split: str, found: WordPredictions) -> str:
        """The scores by type in the official scorer's format; "" without entities."""
        if self.scheme == NO_SCHEME or not self._golds[split]:
            return ""
        written = labels_of(self.splits[split]), self.predicted_labels(split, found)
        return report(count_entities(*written), *self._num_correct(split, found))

    def _num_correct(self, split: str, found: WordPredictions) -> tuple[int, int]:
        """How many words there are, and how many have the right label as written."""
        golds = list(itertools.chain.from_iterable(labels_of(self.splits[split])))
        predicted = itertools.chain.from_iterable(self.predicted_labels(split, found))
        correct = sum(gold == one for gold, one in zip(golds, predicted, strict=True))
        return len(golds), correct

    def _by_sentence(self, split: str, found: WordPredictions) -> list[list[str]]:
        """The predicted labels of each sentence, in the model's spelling."""
        words = (self.labels[number] for number in found.label_ids.tolist())
        return [
            list(itertools.islice(words, len(one.words))) for one in self.splits[split]
        ]

    def data(self) -> RunData:
        """The training set."""
        where = self._options.tfds_name or self._options.train_file
        sentences = self.splits[TRAIN]
        return RunData(f"{len(sentences)} sentences of {where}", digest(sentences))

    def write(self, folder: str, split: str, found: WordPredictions, step: int) -> None:
        """Writes the files' columns with the predictions, and the scorer's report."""
        del step
        path = os.path.join(folder, f"{split}_predictions.txt")
        labels = self.predicted_labels(split, found)
        write_predictions(path, self.splits[split], labels)
        report_path = os.path.join(folder, f"{split}_report.txt")
        if written := self.report(split, found):
            logging.info("%s", written)
            files.write_atomically(report_path, written)
        elif not self._golds[split]:
            # Those of a file with labels are of other predictions.
            run_folder.forget_results(folder, f"{split}_")
            if files.exists(report_path):
                files.remove(report_path)

    def identity(self, split: str) -> str:
        """A digest of a split's sentences, and of how they are read."""
        return rows_digest([self._made_from(split)])

    def _made_from(self, split: str) -> dict[str, Any]:
        return {
            **self.featurizer.settings,
            "labels": self.labels,
            "scheme": self.scheme,
            "file_scheme": self._file_schemes[split],
            "sentences": digest(self.splits[split]),
        }

    def make_records(self, split: str) -> ExampleTable:
        """The windows of a split."""
        sentences, length = self.splits[split], self._options.max_seq_length
        labels = self._label_ids[split]
        records = ExampleTable(
            blocks(self.featurizer(sentences), labels, length),
            schema(length),
            self._made_from(split),
        )
        logging.info(
            "%d sentences, %d words, %d labels: %d windows.",
            *(len(sentences), len(labels), len(self.labels), len(records)),
        )
        return records


def read_splits(options: TaggingOptions) -> dict[str, list[Sentence]]:
    """The sentences, by split."""
    layout = Layout(
        format=options.format,
        word_column=options.word_column,
        label_column=options.label_column,
        document_column=options.document_column,
        labels=options.labels,
    )
    found: dict[str, list[Sentence]] = {}
    for split, source in finetuning.sources(options):
        has_labels = options.test_has_labels if split == "test" else True
        if isinstance(source, TfdsRows):
            found[split] = read_tfds(source, layout, has_labels=has_labels is not False)
            continue
        paths = files.expand_globs(source, f"{split}_file")
        sentences = read_sentences(paths, layout, has_labels=has_labels)
        logging.info(
            "%s: %d sentences in %d documents.",
            *(split, len(sentences), sentences[-1].document + 1),
        )
        found[split] = sentences
    return found


def check_feature_choice(
    folder: str, features: Mapping[str, str] | None = None
) -> None:
    """Writes what features of BERT a run is on, unless its folder is of others."""
    path = os.path.join(folder, FEATURES_NAME)
    there: dict[str, str] | None = None
    if files.exists(path):
        values = files.read_json(path)
        there = strict_json.checked(dict[str, str], values, path, "features")
    if there != features and files.exists(os.path.join(folder, STATE_NAME)):
        if features is None and there is not None:
            raise InputError(
                f"`output_dir={folder}` holds a BiLSTM on BERT's features; give"
                f" `features={there.get('features')}` too, or another folder."
            )
        raise InputError(
            f"`output_dir={folder}` holds a run with {there or 'a fine-tuned BERT'},"
            f" not {features}: give another folder."
        )
    if features is not None:
        files.make_folder(folder)
        files.write_atomically(path, json.dumps(features, indent=1) + "\n")
    elif there is not None:
        files.remove(path)  # of a start that failed before its first checkpoint
