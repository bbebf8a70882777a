"""What each layer tells of words' labels: linear probes, and a control task.

A probe sees a word's vector h of one layer, which stays as it is, and nothing else:

    p(y | h) = softmax(W z + b)        z = (h - mean) / deviation, of the words to train

with the W and b that minimize sum -log p + l2 / 2 |W|^2 (logistic regression). What it
gets right tells what is in the vectors, but also what a probe can learn by heart. So
there is a control task beside it (Hewitt and Liang 2019, "Designing and Interpreting
Probes with Control Tasks"): each word type has a label drawn at random, the same one
wherever the word stands, which can be known in no other way. The difference of the two
accuracies is the probe's selectivity. Here labels are drawn from those of the words to
train, so that each is as frequent as in the task.

Shapes: W words, L layers, H hidden.
"""

import dataclasses
import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf.pictures import drawing, png

_MAX_ITERATIONS = 500
# Of a number that is the same for all words.
_SMALLEST_DEVIATION = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProbedWords:
    """Words, their labels, and what the layers say of them.

    Attributes:
        words: W of them; equal ones are of one type.
        labels: the label of each.
        vectors: [W, L, H].
    """

    words: Sequence[str]
    labels: Sequence[str]
    vectors: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeScore:
    """A probe's shares of right labels among the words to test.

    Attributes:
        accuracy: in the task.
        control_accuracy: in the control task.
    """

    accuracy: float
    control_accuracy: float

    @property
    def selectivity(self) -> float:
        """How much of the accuracy learning by heart does not reach."""
        return self.accuracy - self.control_accuracy


def control_labels(
    words: Sequence[str], labels: Sequence[str], *, seed: int = 0
) -> list[str]:
    """A label for each word that hangs on nothing but its type."""
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
    if len(set(train.labels)) < 2:
        raise ValueError("A probe needs words of two labels at least.")
    vectors, test_vectors = (
        np.asarray(part.vectors[:, layer], np.float32) for part in (train, test)
    )
    mean, deviation = vectors.mean(axis=0), vectors.std(axis=0)
    deviation[deviation < _SMALLEST_DEVIATION] = 1.0
    vectors = (vectors - mean) / deviation
    test_vectors = (test_vectors - mean) / deviation
    drawn, test_drawn = (
        control_labels(part.words, train.labels, seed=seed) for part in (train, test)
    )
    return ProbeScore(
        accuracy=_accuracy(vectors, train.labels, test_vectors, test.labels, l2),
        control_accuracy=_accuracy(vectors, drawn, test_vectors, test_drawn, l2),
    )


def baseline(train: ProbedWords, test: ProbedWords, *, seed: int = 0) -> ProbeScore:
    """What comes of a word's type alone: the label that it most often has in training.

    A type that is not there has the commonest label of all.
    """
    drawn, test_drawn = (
        control_labels(part.words, train.labels, seed=seed) for part in (train, test)
    )
    return ProbeScore(
        accuracy=_type_accuracy(train.words, train.labels, test.words, test.labels),
        control_accuracy=_type_accuracy(train.words, drawn, test.words, test_drawn),
    )


def probing_picture(
    layers: Sequence[str],
    scores: Sequence[ProbeScore],
    of_types: ProbeScore,
    title: str,
) -> bytes:
    """Accuracy, control accuracy and selectivity by layer, as a PNG."""
    with drawing():
        from matplotlib.figure import Figure

        figure = Figure(
            figsize=(max(5.0, 2.5 + 0.5 * len(layers)), 4.0), layout="constrained"
        )
        axes = figure.add_subplot()
        places = range(len(layers))
        for label, values, colour in (
            ("accuracy", [score.accuracy for score in scores], "tab:blue"),
            ("control task", [score.control_accuracy for score in scores], "0.6"),
            ("selectivity", [score.selectivity for score in scores], "tab:green"),
        ):
            axes.plot(
                places, [100 * v for v in values], marker="o", label=label, color=colour
            )
        axes.axhline(
            100 * of_types.accuracy,
            linestyle="--",
            color="tab:orange",
            label="a word type's commonest label",
        )
        axes.set_xticks(places, layers)
        axes.set_xlabel("layer")
        axes.set_ylabel("per cent of the words")
        axes.set_title(title, parse_math=False, fontsize=10)
        axes.grid(axis="y", color="0.9")
        axes.legend(fontsize=8)
        return png(figure)


def _accuracy(
    vectors: np.ndarray,
    labels: Sequence[str],
    test_vectors: np.ndarray,
    test_labels: Sequence[str],
    l2: float,
) -> float:
    """The accuracy of the best probe, with that penalty."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(set(labels)) == 1:
        # Very few types may all have drawn the same one.
        return _equal([labels[0]] * len(test_labels), test_labels)
    regression = LogisticRegression(C=1.0 / l2, max_iter=_MAX_ITERATIONS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        regression.fit(vectors, np.array(labels))
    if any(issubclass(one.category, ConvergenceWarning) for one in caught):
        logging.warning(
            "A probe was still learning after %d iterations.", _MAX_ITERATIONS
        )
    return _equal(regression.predict(test_vectors).tolist(), test_labels)


def _type_accuracy(
    words: Sequence[str],
    labels: Sequence[str],
    test_words: Sequence[str],
    test_labels: Sequence[str],
) -> float:
    counts: dict[str, Counter[str]] = {}
    for word, label in zip(words, labels, strict=True):
        counts.setdefault(word, Counter())[label] += 1
    commonest = Counter(labels).most_common(1)[0][0]
    of_type = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    predicted = [of_type.get(word, commonest) for word in test_words]
    return _equal(predicted, test_labels)


def _equal(predicted: Sequence[str], labels: Sequence[str]) -> float:
    pairs = zip(predicted, labels, strict=True)
    return sum(one == other for one, other in pairs) / len(labels)
