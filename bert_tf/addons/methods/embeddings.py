"""Sentence vectors: texts that mean the same are near to each other.

Reimers and Gurevych 2019 ("Sentence-BERT"): each text of an example is a sequence of
its own, [CLS] text [SEP], and its vector the mean of BERT's outputs for its tokens, or
another pooling. The losses are in `bert_tf.addons.methods.similarity`.

A table's columns decide the kind of its rows, the usual loss and the metrics:

    single texts   simcse
    pairs          multiple_negatives_ranking   recall_at_1, mrr
    triples        multiple_negatives_ranking   recall_at_1, mrr
    scored pairs   cosent, cosine_similarity    spearman, pearson

spearman, pearson: the correlation of the cosines with the scores, as for STS-B.
recall_at_1, mrr: how often a pair's second text is the nearest to its first one, among
all second and third texts of the file, and the mean of 1 / its rank. Equal texts are
one candidate.

M examples, N texts of an example, H hidden.
"""

import csv
import io
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
from bert_tf.addons.methods.similarity import LOSSES, BertEmbedder
from bert_tf.base import files, rows
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import grouped
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import open_reading
from bert_tf.modeling.objectives import Objective
from bert_tf.records.batching import ExampleTable, Predict, rows_digest
from bert_tf.records.spec import FLOAT32, RecordSpec
from bert_tf.tasks import metrics
from bert_tf.tasks.classification import train_and_dev
from bert_tf.tasks.data_set_options import as_column
from bert_tf.tasks.finetuning import model_options
from bert_tf.tasks.task import TRAIN, FineTuningTask
from bert_tf.text.documents import whole_characters
from bert_tf.text.wordpiece import pair_features
from bert_tf.training.run_folder import RunData

DEV = "dev"
SINGLE, PAIRS, TRIPLES, SCORED = KINDS = (
    *("single texts", "pairs", "triples"),
    "scored pairs",
)
_RANKING = ("multiple_negatives_ranking",)
LOSSES_OF: Mapping[str, Sequence[str]] = {
    SINGLE: ("simcse",),
    PAIRS: _RANKING,
    TRIPLES: _RANKING,
    SCORED: ("cosent", "cosine_similarity"),
}
CORRELATIONS, RETRIEVAL = ("spearman", "pearson"), ("recall_at_1", "mrr")

# The columns to look for if none are given: for each text the first that exists.
_TEXTS = (
    ("anchor", "sentence1", "text_a", "query", "question", "sentence", "text"),
    ("positive", "sentence2", "text_b", "answer", "passage"),
    ("negative",),
)
_SCORES = ("score", "similarity_score", "label")
_AT_ONCE = 1024  # examples


class TextExample(NamedTuple):
    """Texts that belong together."""

    texts: tuple[str, ...]
    score: float  # 0 where there is none
    source: str  # "file:line", for messages


class TextSet(NamedTuple):
    """The examples of a file."""

    kind: str  # of KINDS
    examples: Sequence[TextExample]


def find_columns(
    options: EmbeddingOptions, header: Sequence[str], path: str
) -> tuple[list[rows.Column], rows.Column | None]:
    """Returns the columns of a file's texts and of their score; None without scores."""

    def first(usual: Sequence[str]) -> str:
        return next((name for name in usual if name in header), "")

    usual = itertools.takewhile(bool, map(first, _TEXTS))
    texts = [*(options.text_columns or usual)]
    score = options.score_column
    if score is None:
        score = "" if len(texts) == 1 else first(_SCORES)
    if not texts or (score and len(texts) != 2):
        raise InputError(
            f"{path}: give `text_columns`, two if there are scores, and an empty"
            f" `score_column` for none. {rows.columns_of(header)}"
        )
    columns = [as_column(name) for name in texts]
    for column in columns:
        rows.require(column, header, path, "text_columns")
    if not score:
        return columns, None
    rows.require(as_column(score), header, path, "score_column")
    return columns, as_column(score)


def read_texts(path: str, options: EmbeddingOptions) -> TextSet:
    """Reads a table's examples; leaves out and counts a few unusable rows."""
    dialect = rows.Dialect(options.delimiter)
    header, read = rows.read(path, has_header=options.has_header, dialect=dialect)
    columns, score_column = find_columns(options, header, path)
    found = [] if score_column is None else [*read]
    commas = rows.has_decimal_commas(found, score_column)
    left_out = rows.LeftOutRows(path, options.max_unusable_rows)
    examples = []
    for row in left_out.count(found or read, keeps_blank=False):
        try:
            texts, score = _texts_and_score(row, columns, score_column, commas)
        except InputError as error:
            left_out.add(row.number, str(error))
            continue
        examples.append(TextExample(texts, score / options.max_score, row.place))
    left_out.report(has_labels=True)
    if not examples:
        raise InputError(f"{path}: no examples in this file. Give another.")
    kind = KINDS[len(columns) - 1] if score_column is None else SCORED
    return TextSet(kind, examples)


def _texts_and_score(
    row: rows.Row,
    columns: Sequence[rows.Column],
    score_column: rows.Column | None,
    commas: bool,
) -> tuple[tuple[str, ...], float]:
    if not row.cells or (score_column is not None and row.is_split):
        raise InputError(row.problem)
    cells = [row.get(column) for column in columns]
    score = "0" if score_column is None else row.get(score_column)
    if row.values and None in (*cells, score):
        raise InputError(f"the row has {len(row.values)} columns.")
    texts = tuple(whole_characters(rows.as_text(each)).strip() for each in cells)
    cell = rows.as_text(score)
    cell = cell.replace(",", ".") if commas else cell
    if not all(texts):
        raise InputError("the text is empty.")
    try:
        number = rows.number(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"the score must be a number. Received: {cell!r}. (`score_column` names its"
            " column; empty for none.)"
        )
    return texts, number


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Returns the cosines of rows: [M, H] twice to [M]."""
    return (_unit(one) * _unit(other)).sum(axis=-1)


def ranks(
    anchors: np.ndarray, candidates: np.ndarray, own: Sequence[int]
) -> np.ndarray:
    """Returns the rank, from 1, of each anchor's own candidate by the cosine: [M]."""
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(anchors), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        scores = _unit(anchors[some]) @ _unit(candidates).T
        of_own = np.take_along_axis(scores, np.array(own[some])[:, None], axis=1)
        found.append(1 + (scores > of_own).sum(axis=1))
    return np.concatenate(found)


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)


def with_settings(options: EmbeddingOptions) -> EmbeddingOptions:
    """Returns the options with the checkpoint's pooling and length."""
    found = Reading()
    if options.init_checkpoint:
        found = open_reading(options.init_checkpoint).of_vectors()
    changed: dict[str, Any] = {}
    if options.pooling is None:
        changed["pooling"] = found.pooling or "mean"
    if found.max_seq_length and not options.is_given("max_seq_length"):
        changed["max_seq_length"] = found.max_seq_length
    return options.with_defaults(**changed)


class EmbeddingTask(FineTuningTask[np.ndarray]):
    """Training and scoring the vectors of the options' texts."""

    name = "embeddings"
    head = names.EMBEDDING
    test_splits = ()

    def __init__(
        self,
        options: EmbeddingOptions,
        model_files: ModelFiles,
        strategy: tf.distribute.Strategy,
    ) -> None:
        del strategy
        self.options, self._model_files = options, model_files
        self.config = model_files.config
        self._sets = _read_sets(options)
        kind = self._sets[TRAIN if TRAIN in self._sets else DEV].kind
        self._loss = _loss_of(options, kind)
        if TRAIN in self._sets and self._loss == "cosine_similarity":
            _refuse_wide_scores(self._sets[TRAIN].examples)
        if DEV in self._sets:
            kind = self._sets[DEV].kind
        self.dev_splits = (DEV,) if DEV in self._sets else ()
        self.metrics = RETRIEVAL if kind in (PAIRS, TRIPLES) else CORRELATIONS
        self.metric = self.metrics[0]
        self.result_names = {name: f"eval_{{}}{name}" for name in self.metrics}
        self._built = model_options(options, model_files.config, has_pooler=False)

    @property
    def objective(self) -> Objective:
        """The one of `loss`."""
        return LOSSES[self._loss](self.options.scale)

    def build_model(self) -> BertEmbedder:
        """Returns the encoder with the pooling of its outputs."""
        return BertEmbedder(
            self.config,
            pooling=self.options.pooling or "mean",
            loss=self._loss,
            scale=self.options.scale,
            **self._built,
        )

    def data(self) -> RunData:
        """Returns the training set and the loss, which a run keeps."""
        options, (kind, examples) = self.options, self._sets[TRAIN]
        how = f"{self._loss} (scale {options.scale:g}) of {options.pooling} pooling"
        return RunData(
            f"{len(examples)} {kind} of {options.train_file} by {how}",
            rows_digest([(how, self._digest(TRAIN))]),
        )

    def _digest(self, split: str) -> str:
        # Without the line: the same rows in another file are equal.
        return rows_digest(one[:-1] for one in self._sets[split].examples)

    def identity(self, split: str) -> str:
        """Returns a digest of a split's records."""
        return self.records(split).made_from

    def texts(self, split: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields the texts of each example, and its place."""
        for one in self._sets[split].examples if split in self._sets else ():
            yield one.texts, one.source

    def make_records(self, split: str) -> ExampleTable:
        """Returns the records of a split: one sequence per text."""
        kind, examples = self._sets[split]
        tokenizer, length = self._model_files.tokenizer, self.options.max_seq_length
        # SimCSE pairs each text with itself: only the dropout masks differ.
        times = 2 if kind == SINGLE else 1
        number = len(examples[0].texts) * times
        num_cut = 0

        def blocks() -> Iterator[dict[str, np.ndarray]]:
            nonlocal num_cut
            for some in grouped(examples, _AT_ONCE):
                texts = [text for one in some for text in one.texts * times]
                tokens = [tokenizer.encode(text) for text in texts]
                num_cut += sum(len(each) > length - 2 for each in tokens)
                features = pair_features(
                    [(each[: length - 2], []) for each in tokens],
                    tokenizer.vocabulary,
                    length,
                )
                yield {
                    **{
                        name: values.reshape(len(some), number, length)
                        for name, values in features.items()
                    },
                    "label_ids": np.array([[one.score] for one in some], np.float32),
                    "is_real_example": np.ones((len(some), 1), np.int64),
                }

        made_from = {
            **tokenizer.settings,
            "max_seq_length": length,
            "examples": self._digest(split),
            "times": times,
        }
        spec = RecordSpec.choices(length, number, FLOAT32)
        records = ExampleTable(blocks(), spec, made_from)
        if num_cut:
            logging.info(
                "%d of %d %s texts were longer than `max_seq_length=%d` and cut.",
                *(num_cut, number * len(examples), split, length),
            )
        return records

    def predict(self, split: str, outputs: Predict) -> np.ndarray:
        """Returns the vectors of the examples' texts, [M, N, H] float32, in order."""
        records, size = self.records(split), self.options.eval_batch_size
        number = len(self._sets[split].examples[0].texts)
        width = self.config.hidden_size
        shape, lengths = (number, width), self.options.num_lengths
        return records.predicted("embeddings", shape, outputs, size, lengths)

    def score(self, split: str, vectors: np.ndarray) -> dict[str, float]:
        """Returns the correlations with the scores, or else the retrieval metrics."""
        kind, examples = self._sets[split]
        if kind == SCORED:
            similarity = cosines(vectors[:, 0], vectors[:, 1])
            scores = [one.score for one in examples]
            return metrics.scores(CORRELATIONS, similarity, scores)
        found = self._ranks(split, vectors)
        values = (np.mean(found == 1), np.mean(1 / found))
        return dict(zip(RETRIEVAL, map(float, values), strict=True))

    def _ranks(self, split: str, vectors: np.ndarray) -> np.ndarray:
        """Returns the rank of each second text among all but the first texts."""
        examples = self._sets[split].examples
        # Text -> the place of its vector, the first place of equal texts.
        places: dict[str, tuple[int, int]] = {}
        for row, one in enumerate(examples):
            for column, text in enumerate(one.texts[1:], start=1):
                places.setdefault(text, (row, column))
        numbers = {text: number for number, text in enumerate(places)}
        candidates = np.stack([vectors[place] for place in places.values()])
        own = [numbers[one.texts[1]] for one in examples]
        return ranks(vectors[:, 0], candidates, own)

    def write(self, folder: str, split: str, vectors: np.ndarray, step: int) -> None:
        """Writes dev_predictions.csv: each pair, its cosine, and its score or rank."""
        del step
        kind, examples = self._sets[split]
        similarity = cosines(vectors[:, 0], vectors[:, 1])
        other: Sequence[Any] = [one.score for one in examples]
        if kind != SCORED:
            other = self._ranks(split, vectors).tolist()
        content = io.StringIO(newline="")
        writer = csv.writer(content, lineterminator="\n")
        name = "score" if kind == SCORED else "rank"
        writer.writerow(["index", name, "similarity", "text_a", "text_b"])
        found = zip(other, similarity, examples, strict=True)
        for index, (value, cosine, one) in enumerate(found):
            writer.writerow([index, value, f"{cosine:.6f}", *one.texts[:2]])
        path = os.path.join(folder, f"{split}_predictions.csv")
        files.write_atomically(path, content.getvalue())
        logging.info("Wrote %d predictions to %s.", len(examples), path)


def _read_sets(options: EmbeddingOptions) -> dict[str, TextSet]:
    """Reads the examples of each split."""
    sets = {}
    if options.do_train or not options.dev_file:
        assert options.train_file is not None
        sets[TRAIN] = read_texts(options.train_file, options)
    if options.dev_file and options.looks_at_dev:
        sets[DEV] = read_texts(options.dev_file, options)
    elif options.holds_out and sets[TRAIN].kind != SINGLE:
        kind, examples = sets[TRAIN]
        parts = train_and_dev(options, examples, by_label=False)
        sets = {split: TextSet(kind, some) for split, some in parts.items()}
        if not options.looks_at_dev:
            del sets[DEV]
    dev_set = sets.get(DEV)
    if options.looks_at_dev and (dev_set is None or dev_set.kind == SINGLE):
        raise InputError(
            f"{options.dev_file or options.train_file}: a model is scored on pairs, and"
            " there are none. Give a `dev_file` of pairs, or no `do_eval`."
        )
    return sets


def _loss_of(options: EmbeddingOptions, kind: str) -> str:
    """Returns the given loss, or the usual one for the kind of examples."""
    known = LOSSES_OF[kind]
    if options.loss is None or not options.do_train:
        return known[0]
    if options.loss not in known:
        raise InputError(
            f"`loss={options.loss}` is not for the {kind} of {options.train_file}, but"
            f" {' or '.join(known)}. (`text_columns` and `score_column` leave out"
            " others.)"
        )
    return options.loss


def _refuse_wide_scores(examples: Sequence[TextExample]) -> None:
    """Raises InputError for a score that no cosine can have."""
    for one in examples:
        if abs(one.score) > 1:
            raise InputError(
                f"{one.source}: the score is {one.score:g}, and a cosine at most 1:"
                " give `max_score`, the score of texts that mean the same."
            )
