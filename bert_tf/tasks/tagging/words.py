"""The task of labelling each word of a sentence, for example named entities."""

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

from bert_tf.base import files, strict_json
from bert_tf.base.errors import InputError
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.source import Source
from bert_tf.conversion.tokenizer_files import (
    TrainedWords,
    read_labels,
    read_words,
    write_words,
)
from bert_tf.modeling.heads import BertTagger
from bert_tf.records.batching import Batching, ExampleTable, Predict, rows_digest
from bert_tf.tasks import finetuning
from bert_tf.tasks.metrics import LOSS, MAJORITY
from bert_tf.tasks.reports import kept_order
from bert_tf.tasks.run_options import sources
from bert_tf.tasks.tagging.labels import (
    IOB1,
    IOB2,
    MIXED,
    NO_SCHEME,
    OUTSIDE,
    Labels,
    count_entities,
    find_scheme,
    in_scheme,
    labels_in,
    report,
    scheme_of_labels,
    usual_spelling,
)
from bert_tf.tasks.tagging.sentence_windows import (
    NO_LABEL,
    SentenceFeatures,
    SentenceFeaturizer,
    blocks,
    schema,
    trained_words,
)
from bert_tf.tasks.tagging.sentences import Sentence, read_sentences, read_tfds
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from bert_tf.tasks.tagging.word_predictions import (
    ACCURACY,
    F1_MACRO,
    WordPredictions,
    entity_scores,
    f1_macro,
    metric_names,
    predict_words,
    write_mistakes,
    write_predictions,
    write_spans,
)
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import FEATURES_NAME, STATE_NAME
from bert_tf.training.run_folder import RunData


def digest(sentences: Iterable[Sentence]) -> str:
    """Returns a digest of everything that records are made of."""
    return rows_digest((one.words, one.labels, one.document) for one in sentences)


class TaggingTask(FineTuningTask[WordPredictions]):
    """Labelling the words of the options' sentences."""

    name = "tagging"
    head = names.TAGGING
    keeps_results = True
    labels: Sequence[str]
    featurizer: SentenceFeaturizer  # or another one with the same words
    features: Mapping[str, str] | None = None  # the settings of a frozen BERT's vectors

    def __init__(
        self,
        options: TaggingOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        self.trained = read_words(finetuning.folder_of_model(options))
        if self.trained == TrainedWords() and model_files.source is not None:
            self.trained = read_words(model_files.source.folder)
        splits: Mapping[str, Sequence[Sentence]] = read_splits(
            options, self.trained, model_files.segmenter
        )
        self._options, self._model_files = options, model_files
        self.config = model_files.config
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
        if TRAIN in splits:
            self.trained = trained_words(splits[TRAIN], model_files.tokenizer)
        self.featurizer = SentenceFeaturizer(
            model_files.tokenizer,
            max_seq_length=options.max_seq_length,
            doc_stride=options.doc_stride,
            document_context=options.document_context,
            longest_word=self.trained.longest,
        )
        # In the model's spelling; None without labels.
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
        """Returns a tagger on BERT."""
        return BertTagger(self.config, len(self.labels), **self._built)

    def prepare(self, folder: str) -> None:
        """Writes words.json, and the features that the run uses."""
        check_feature_choice(folder, self.features)
        if self.trained != TrainedWords():
            files.make_folder(folder)
            write_words(folder, self.trained)

    def class_counts(self) -> np.ndarray:
        """Returns how many words of the training set have each label."""
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
            num_lengths=options.num_lengths,
        )
        labels = self._label_ids[split]
        return predict_words(self._features[split], labels, outputs, batching)

    def predicted_labels(self, split: str, found: WordPredictions) -> list[list[str]]:
        """Returns the predictions, in the files' spelling."""
        return [
            in_scheme(labels, self._file_schemes[split], written=self.scheme)
            for labels in self._by_sentence(split, found)
        ]

    def score(self, split: str, found: WordPredictions) -> dict[str, float]:
        """Returns the scores of predictions; {} without labels."""
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
        """Returns the official scorer's table by type; "" without entities."""
        if self.scheme == NO_SCHEME or not self._golds[split]:
            return ""
        written = labels_of(self.splits[split]), self.predicted_labels(split, found)
        return report(count_entities(*written), *self._num_correct(split, found))

    def _num_correct(self, split: str, found: WordPredictions) -> tuple[int, int]:
        """Returns the number of words, and of those whose label is right as written."""
        golds = list(itertools.chain.from_iterable(labels_of(self.splits[split])))
        predicted = itertools.chain.from_iterable(self.predicted_labels(split, found))
        correct = sum(gold == one for gold, one in zip(golds, predicted, strict=True))
        return len(golds), correct

    def _by_sentence(self, split: str, found: WordPredictions) -> list[list[str]]:
        """Returns the predicted labels of each sentence, in the model's spelling."""
        words = (self.labels[number] for number in found.label_ids.tolist())
        return [
            list(itertools.islice(words, len(one.words))) for one in self.splits[split]
        ]

    def data(self) -> RunData:
        """Returns the training set."""
        where = self._options.tfds_name or self._options.train_file
        sentences = self.splits[TRAIN]
        return RunData(f"{len(sentences)} sentences of {where}", digest(sentences))

    def write(self, folder: str, split: str, found: WordPredictions, step: int) -> None:
        """Writes the files' columns with the predictions, and the scorer's report."""
        del step
        path = os.path.join(folder, f"{split}_predictions.txt")
        labels = self.predicted_labels(split, found)
        sentences = self.splits[split]
        write_predictions(path, sentences, labels)
        if all(one.text is not None for one in sentences):
            path = os.path.join(folder, f"{split}_predictions.jsonl")
            spells_entities = self.scheme != NO_SCHEME
            write_spans(path, sentences, labels, spells_entities=spells_entities)
        if self._golds[split] and self._options.num_mistakes:
            write_mistakes(
                os.path.join(folder, f"{split}_mistakes.tsv"),
                sentences,
                labels,
                found.probabilities,
                self._options.num_mistakes,
            )
        report_path = os.path.join(folder, f"{split}_report.txt")
        if written := self.report(split, found):
            logging.info("%s", written)
            files.write_atomically(report_path, written)
        elif not self._golds[split]:
            # The reports of a file with labels are about other predictions.
            run_folder.forget_results(folder, f"{split}_")
            if files.exists(report_path):
                files.remove(report_path)

    def identity(self, split: str) -> str:
        """Returns a digest of a split's sentences and of how they are read."""
        return rows_digest([self._made_from(split)])

    def _made_from(self, split: str) -> dict[str, Any]:
        return {
            **self.featurizer.settings,
            "labels": self.labels,
            "scheme": self.scheme,
            "file_scheme": self._file_schemes[split],
            "sentences": digest(self.splits[split]),
        }

    def texts(self, split: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the words of each sentence, and its place."""
        for sentence in self.splits.get(split, ()):
            yield sentence.words, sentence.source

    def make_records(self, split: str) -> ExampleTable:
        """Returns the windows of a split."""
        sentences, length = self.splits[split], self._options.max_seq_length
        labels = self._label_ids[split]
        records = ExampleTable(
            blocks(self.featurizer(sentences), labels, length),
            schema(length, for_training=True),
            self._made_from(split),
        )
        logging.info(
            "%d sentences, %d words, %d labels: %d windows.",
            *(len(sentences), len(labels), len(self.labels), len(records)),
        )
        return records


def read_splits(
    options: TaggingOptions, trained: TrainedWords, segmenter: str
) -> dict[str, list[Sentence]]:
    """Reads the sentences, by split."""
    layout = dataclasses.replace(
        options.layout,
        splits_cjk=trained.splits_cjk,
        splits_punctuation=trained.splits_punctuation,
        segmenter=segmenter,
    )
    found: dict[str, list[Sentence]] = {}
    for split, source in sources(options):
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
    """Writes a run's choice of features; InputError if its folder has another one."""
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
        files.remove(path)  # from a start that failed before its first checkpoint


# The labels of a tagger, and their spelling in its files.

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
