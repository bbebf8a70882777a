"""Probes of each layer: how well words' labels can be read from it."""

import dataclasses
import hashlib
import itertools
import json
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import DATA, REQUIRED, Path, option, with_default
from bert_tf.base.pictures import figure, picture, table
from bert_tf.base.shared_options import DeviceOptions, LengthOptions, ModelOptions
from bert_tf.tasks.feature_extraction.extract_features import ExtractionOptions
from bert_tf.tasks.tagging.sentences import FORMATS
from bert_tf.tasks.tagging.tagging_options import TaggingOptions

if TYPE_CHECKING:
    from bert_tf.tasks.feature_extraction.features import FeatureExtractor
    from bert_tf.tasks.tagging.sentences import Sentence
    from bert_tf.text.wordpiece import WordPieceTokenizer

# Without --test_file one in this many sentences is for testing.
_HELD_OUT = 5


class ProbeOptions(ModelOptions, DeviceOptions, LengthOptions, decides="numbers"):
    """The model to probe, and the words."""

    output_dir: str = with_default(TaggingOptions, "output_dir", REQUIRED)
    precision: str = with_default(ExtractionOptions, "precision", "float32")
    jit_compile: bool = with_default(ExtractionOptions, "jit_compile", False)
    batch_size: int = with_default(ExtractionOptions, "batch_size", 32)
    use_one_hot_embeddings: bool = with_default(
        ExtractionOptions, "use_one_hot_embeddings", False
    )
    format: str = with_default(TaggingOptions, "format", FORMATS[0], title=DATA)
    word_column: str | None = with_default(
        TaggingOptions, "word_column", None, title=DATA
    )
    label_column: str | None = with_default(
        TaggingOptions, "label_column", None, title=DATA
    )
    init_checkpoint: str = option(
        REQUIRED,
        "The model: a checkpoint in any format.",
        path=Path.CHECKPOINT,
        decides="result",
    )
    train_file: str = option(
        REQUIRED,
        "Tagged words; several files separated by commas, or a glob.",
        path=Path.FILES,
        decides="nothing",
    )
    test_file: str | None = option(
        None,
        "Tagged words to score the probes on. Default: a fifth of --train_file's"
        " sentences.",
        path=Path.FILES,
        decides="nothing",
    )
    labels: tuple[str, ...] | None = option(
        None,
        "For jsonl: the names of the labels if these are numbers, from 0: O,B-PER,...",
    )
    max_words: int = option(
        20000,
        "The maximum number of words to train on, and to score; whole sentences are"
        " drawn at random.",
        least=1,
    )
    l2: float = option(
        1.0,
        "L2 penalty: this times half the sum of the probe's squared weights is added to"
        " the sum of the losses of the words. A larger penalty makes the probe memorize"
        " less.",
        least=1e-9,
    )
    random_seed: int = with_default(TaggingOptions, "random_seed", 12345)


# Linear probes of each layer, and a control task.
#
# A probe sees only a word's frozen vector h of one layer:
#
#     p(y | h) = softmax(W z + b)        z = (h - mean) / deviation
#
# with mean and deviation over the training words, and the W and b that minimize sum
# -log p + l2 / 2 |W|^2 (logistic regression). Its accuracy depends on what is in the
# vectors, but also on what a probe can memorize. So there is a control task too (Hewitt
# and Liang 2019, "Designing and Interpreting Probes with Control Tasks"): each word
# type has a random label, the same wherever the word occurs, which can only be
# memorized. The difference of the two accuracies is the probe's selectivity. Here the
# random labels are drawn from those of the training words, so that each is as frequent
# as in the task.
#
# Shapes: W words, L layers, H hidden.

_MAX_ITERATIONS = 500
# For a component that is the same for all words.
_SMALLEST_DEVIATION = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProbedWords:
    """Words, their labels, and their vectors from each layer."""

    words: Sequence[str]  # W of them; equal ones are of one type
    labels: Sequence[str]  # one per word
    vectors: np.ndarray  # [W, L, H]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeScore:
    """A probe's shares of right labels among the words to test."""

    accuracy: float
    control_accuracy: float

    @property
    def selectivity(self) -> float:
        """The accuracy beyond memorizing."""
        return self.accuracy - self.control_accuracy


# A table's name of each share -> ours.
KINDS = {
    "accuracy": "accuracy",
    "control task": "control_accuracy",
    "selectivity": "selectivity",
}


def control_labels(
    words: Sequence[str], labels: Sequence[str], *, seed: int = 0
) -> list[str]:
    """Returns a label for each word that depends on its type alone."""
    there = sorted(labels)
    drawn = {}
    for word in sorted(set(words)):
        digest = hashlib.sha256(f"{seed} {word}".encode("utf-8", "surrogatepass"))
        drawn[word] = there[int.from_bytes(digest.digest()[:8], "big") % len(there)]
    return [drawn[word] for word in words]


def probe(
    train: ProbedWords, test: ProbedWords, layer: int, *, l2: float = 1.0, seed: int = 0
) -> ProbeScore:
    """Trains and scores a probe of one layer, and one on the control task."""
    vectors, test_vectors = (
        np.asarray(part.vectors[:, layer], np.float32) for part in (train, test)
    )
    mean, deviation = vectors.mean(axis=0), vectors.std(axis=0)
    deviation[deviation < _SMALLEST_DEVIATION] = 1.0
    vectors = (vectors - mean) / deviation
    test_vectors = (test_vectors - mean) / deviation
    return _score(
        lambda labels: _fitted(vectors, labels, test_vectors, l2), train, test, seed
    )


def baseline(train: ProbedWords, test: ProbedWords, *, seed: int = 0) -> ProbeScore:
    """Returns the accuracy of a type's most frequent label, or of the most frequent."""

    def predicted(labels: Sequence[str]) -> list[str]:
        counts: dict[str, Counter[str]] = {}
        for word, label in zip(train.words, labels, strict=True):
            counts.setdefault(word, Counter())[label] += 1
        commonest = Counter(labels)
        found = (counts.get(word, commonest) for word in test.words)
        return [counter.most_common(1)[0][0] for counter in found]

    return _score(predicted, train, test, seed)


def _score(
    predicted: Callable[[Sequence[str]], Sequence[str]],
    train: ProbedWords,
    test: ProbedWords,
    seed: int,
) -> ProbeScore:
    """Returns the score of predictions of the test words."""

    def accuracy(labels: Sequence[str], test_labels: Sequence[str]) -> float:
        pairs = zip(predicted(labels), test_labels, strict=True)
        return sum(one == other for one, other in pairs) / len(test_labels)

    drawn, test_drawn = (
        control_labels(part.words, train.labels, seed=seed) for part in (train, test)
    )
    return ProbeScore(
        accuracy=accuracy(train.labels, test.labels),
        control_accuracy=accuracy(drawn, test_drawn),
    )


def _fitted(
    vectors: np.ndarray, labels: Sequence[str], test_vectors: np.ndarray, l2: float
) -> list[str]:
    """Returns the predictions of the best probe with this penalty."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(set(labels)) == 1:
        # Very few types may all have drawn the same one.
        return [labels[0]] * len(test_vectors)
    regression = LogisticRegression(C=1.0 / l2, max_iter=_MAX_ITERATIONS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        regression.fit(vectors, np.array(labels))
    if any(issubclass(one.category, ConvergenceWarning) for one in caught):
        logging.warning(
            "A probe was still learning after %d iterations.", _MAX_ITERATIONS
        )
    return regression.predict(test_vectors).tolist()


def probing_picture(
    layers: Sequence[str],
    scores: Sequence[ProbeScore],
    of_types: ProbeScore,
    title: str,
) -> bytes:
    """Draws accuracy, control accuracy and selectivity by layer, as a PNG."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for label, name in KINDS.items():
            values = [100 * getattr(score, name) for score in scores]
            axes.plot(layers, values, marker="o", label=label)
        label = "a word type's commonest label"
        axes.axhline(100 * of_types.accuracy, linestyle="--", color="gray", label=label)
        axes.set(xlabel="layer", ylabel="per cent of the words")
        axes.legend(fontsize=8)

    return picture(draw, (8.0, 4.0), title)


def run(options: ProbeOptions) -> None:
    """Computes the vectors, trains the probes, and shows the results."""
    cli.import_tensorflow(options)
    from bert_tf.tasks.feature_extraction.features import open_extractor

    sentences = _splits(options)
    extractor, tokenizer = open_extractor(options, ["embeddings", "all"])
    train, test = (
        _probed(options, extractor, tokenizer, split, some)
        for split, some in sentences.items()
    )
    if not extractor.is_chief:
        return
    layers = [str(layer) for layer in extractor.selection.layers]
    scores = []
    for place, layer in enumerate(layers):
        logging.info("Layer %s: %d words to train on.", layer, len(train.words))
        scores.append(
            probe(train, test, place, l2=options.l2, seed=options.random_seed)
        )
    _report(
        options.output_dir,
        layers,
        scores,
        baseline(train, test, seed=options.random_seed),
        f"{len(set(train.labels))} labels; {len(train.words)} words to train on,"
        f" {len(test.words)} to score",
    )


def _splits(options: ProbeOptions) -> "dict[str, list[Sentence]]":
    """Returns the sentences to train on, and those to score."""
    from bert_tf.tasks.tagging.sentences import Layout, read_sentences

    shuffle = random.Random(options.random_seed).shuffle

    def read(flag: str) -> "list[Sentence]":
        paths = files.expand_globs(str(getattr(options, flag)), flag)
        found = read_sentences(
            paths,
            Layout(
                format=options.format,
                word_column=options.word_column,
                label_column=options.label_column,
            ),
        )
        shuffle(found)
        return found

    train = read("train_file")
    if options.test_file:
        test = read("test_file")
    else:
        count = max(1, len(train) // _HELD_OUT)
        train, test = train[count:], train[:count]
    labels = {label for one in train for label in one.labels or ()}
    if len(labels) < 2:
        raise InputError(
            f"--train_file={options.train_file}: a probe needs words of two labels"
            f" at least. Received: {', '.join(labels) or 'none'}"
        )
    return {
        "train": first_words(train, options.max_words),
        "test": first_words(test, options.max_words),
    }


def first_words(sentences: "Sequence[Sentence]", max_words: int) -> "list[Sentence]":
    """Returns the first sentences, at least one, with at most so many words in all."""
    totals = itertools.accumulate(len(sentence.words) for sentence in sentences)
    count = sum(total <= max_words for total in totals)
    return list(sentences[: max(count, 1)])


def _probed(
    options: ProbeOptions,
    extractor: "FeatureExtractor",
    tokenizer: "WordPieceTokenizer",
    split: str,
    sentences: "Sequence[Sentence]",
) -> ProbedWords:
    """Returns the words of a split with all layers' vectors."""
    from bert_tf.tasks.tagging.frozen_features import inputs_of_windows
    from bert_tf.tasks.tagging.sentence_windows import SentenceFeaturizer

    featurizer = SentenceFeaturizer(tokenizer, max_seq_length=options.max_seq_length)
    windows = list(featurizer(sentences))
    vectors = extractor.vectors(
        inputs_of_windows(windows), options.output_dir, f"{split}_vectors"
    )
    words = [word for one in sentences for word in one.words]
    labels = [label for one in sentences for label in one.labels or ()]
    if tokenizer.do_lower_case:
        # The model cannot distinguish them, so the control task must not.
        words = [word.lower() for word in words]
    order = [number for window in windows for number in window.words.tolist()]
    return ProbedWords(
        words=[words[number] for number in order],
        labels=[labels[number] for number in order],
        vectors=vectors,
    )


def _report(
    folder: str,
    layers: Sequence[str],
    scores: Sequence[ProbeScore],
    of_types: ProbeScore,
    title: str,
) -> None:
    """Writes the table and the picture, and prints the table."""
    numbers = dict(zip(layers, scores, strict=True))
    rows = [
        [name, *(figure(getattr(score, kind), 100, 2) for kind in KINDS.values())]
        for name, score in {"word types": of_types, **numbers}.items()
    ]
    text = f"{title}\n\n" + table(["layer", *KINDS], rows)
    values = {name: dataclasses.asdict(score) for name, score in numbers.items()}
    for name, content in (
        ("probing.json", json.dumps({"layers": values}, indent=1) + "\n"),
        ("probing.md", text),
        ("probing.png", probing_picture(layers, scores, of_types, title)),
    ):
        files.write_atomically(os.path.join(folder, name), content)
    print(text, end="")
    sys.stdout.flush()
    logging.info("Wrote probing.md, probing.json and probing.png to %s.", folder)
