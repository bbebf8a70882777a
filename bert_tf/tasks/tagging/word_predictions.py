"""Predictions of words: computed, scored and written."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.base import files
from bert_tf.base.errors import refuse_not_finite
from bert_tf.records.batching import PADDING, ROWS, Batching, ExampleTable, Predict
from bert_tf.tasks import metrics
from bert_tf.tasks.metrics import LOSS
from bert_tf.tasks.reports import write_table
from bert_tf.tasks.tagging.labels import (
    NO_SCHEME,
    OUTSIDE,
    STRICT_SCHEMES,
    Entity,
    Labels,
    count_entities,
    entities,
    total,
)
from bert_tf.tasks.tagging.sentence_windows import (
    NO_LABEL,
    SentenceFeatures,
    blocks,
    schema,
)
from bert_tf.tasks.tagging.sentences import Sentence


class WordPredictions(NamedTuple):
    """The predictions for W words."""

    label_ids: np.ndarray  # int [W], the likeliest label
    # float64 [W], -log p of the true label; 0 if the model does not have it.
    losses: np.ndarray
    probabilities: np.ndarray  # float64 [W], of the likeliest label


def predict_words(
    features: Sequence[SentenceFeatures],
    labels: np.ndarray,
    predict: Predict,
    batching: Batching,
) -> WordPredictions:
    """Predicts the words of some windows, whose true labels may be NO_LABEL."""
    from scipy import special

    count = len(labels)
    found = WordPredictions(np.zeros(count, np.int64), *np.zeros((2, count)))
    for words, logits in _logits_of_words(features, predict, batching):
        found.label_ids[words] = logits.argmax(axis=-1)
        log_p = special.log_softmax(logits.astype(np.float64), axis=-1)
        found.probabilities[words] = np.exp(log_p.max(axis=-1))
        of_words = labels[words]
        of_label = log_p[np.arange(len(words)), np.maximum(of_words, 0)]
        found.losses[words] = np.where(of_words == NO_LABEL, 0.0, -of_label)
    return found


def likeliest_labels(
    features: Sequence[SentenceFeatures], predict: Predict, batching: Batching
) -> np.ndarray:
    """Returns the numbers of the words' likeliest labels, int [W]."""
    found = np.zeros(sum(len(one.words) for one in features), np.int64)
    for words, logits in _logits_of_words(features, predict, batching):
        found[words] = logits.argmax(axis=-1)
    return found


def _logits_of_words(
    features: Sequence[SentenceFeatures], predict: Predict, batching: Batching
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields each batch's words, int [W], and their logits, float32 [W, C]."""
    length = batching.max_seq_length
    spec = schema(length, for_training=False)
    records = ExampleTable(blocks(features, None, length), spec)
    batches = records.batches(batching.batch_size, batching.num_lengths)
    for batch, outputs in predict(batches, len(batches)):
        (in_batch,) = np.nonzero(batch[ROWS] != PADDING)
        some = [features[row] for row in batch[ROWS][in_batch]]
        words = np.concatenate([one.words for one in some])
        places = np.concatenate([one.places for one in some])
        in_batch = np.repeat(in_batch, [len(one.words) for one in some])
        logits = outputs["logits"][in_batch, places]  # of the batch's words, by label
        refuse_not_finite("score of a label", logits)
        yield words, logits


def write_predictions(
    path: str, sentences: Sequence[Sentence], labels: Sequence[Sequence[str]]
) -> None:
    """Writes predicted labels as a column file, for the official scorer (conlleval).

        EU NNP B-NP B-ORG B-ORG
        rejects VBZ B-VP O O

    Lines have the columns of the input file, separated by a blank, and the predicted
    label after them; for other formats the word, its label if known, and the predicted
    one.
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


def write_spans(
    path: str,
    sentences: Sequence[Sentence],
    labels: Sequence[Sequence[str]],
    *,
    spells_entities: bool,
) -> None:
    """Writes the entities of texts, one text per line, as Prodigy does.

        {"text": "EU rejects", "spans": [{"start": 0, "end": 2, "label": "ORG"}]}

    Offsets are in characters, half open. `format=spans` reads the file again. Labels
    that spell no entity have a span for each word.
    """
    lines = []
    for one, of_words in zip(sentences, labels, strict=True):
        found = [Entity(n, n + 1, label) for n, label in enumerate(of_words)]
        if spells_entities:
            found = entities(of_words)
        spans = [
            {
                "start": one.spans[entity.start][0],
                "end": one.spans[entity.end - 1][1],
                "label": entity.type,
            }
            for entity in found
        ]
        value = {"text": one.text, "spans": spans}
        lines.append(json.dumps(value, ensure_ascii=False) + "\n")
    files.write_atomically(path, "".join(lines))


def write_mistakes(
    path: str,
    sentences: Sequence[Sentence],
    labels: Sequence[Sequence[str]],
    probabilities: np.ndarray,
    count: int,
) -> None:
    """Writes the words with the most confident wrong labels, the most confident first.

    With tabs between the cells, and a header: index, the sentence's number in its
    split, from 0; place, the word's number in it; word; label, the true one;
    prediction; probability, of the prediction; text, of the sentence.
    """
    rows = [
        (index, place, word, gold, said, one.text or " ".join(one.words))
        for index, (one, of_words) in enumerate(zip(sentences, labels, strict=True))
        for place, (word, gold, said) in enumerate(
            zip(one.words, one.labels or (), of_words, strict=True)
        )
    ]
    wrong = [number for number, row in enumerate(rows) if row[3] != row[4]]
    wrong.sort(key=lambda number: -probabilities[number])
    table = [["index", "place", "word", "label", "prediction", "probability", "text"]]
    for number in wrong[:count]:
        *cells, text = map(str, rows[number])
        table.append([*cells, f"{probabilities[number]:.6f}", text])
    write_table(path, table)


def _between(lines: Sequence[str], width: int) -> list[str]:
    """Returns the lines between words, with as many columns as words have."""
    return [line and line + f" {OUTSIDE}" * (width - line.count(" ")) for line in lines]


ACCURACY = "accuracy"


def metric_names(scheme: str) -> list[str]:
    """Returns the names of the scores; the last one compares runs."""
    entities = [] if scheme == NO_SCHEME else [*entity_scores((), (), scheme)]
    return [LOSS, ACCURACY, *entities]


def entity_scores(
    golds: Sequence[Labels], predictions: Sequence[Labels], scheme: str
) -> dict[str, float]:
    """Returns the scores of entities by the strict reading, if any, and the default."""
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
    """Returns the mean F1 over types, by the default reading, or else over labels."""
    # As in seqeval and scikit-learn, over all types or labels on either side.
    if scheme == NO_SCHEME:
        predicted, gold = (
            np.array([*itertools.chain.from_iterable(x)]) for x in (predictions, golds)
        )
        return metrics.scores([F1_MACRO], predicted, gold)[F1_MACRO]
    counts = count_entities(golds, predictions).values()
    return sum(one.scores["f1"] for one in counts) / max(len(counts), 1)
