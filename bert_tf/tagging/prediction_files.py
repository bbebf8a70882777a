"""Predicted labels as a column file, which the official scorer (conlleval) reads.

    EU NNP B-NP B-ORG B-ORG
    rejects VBZ B-VP O O

The columns of the file that was read, a blank between them, and the predicted label
behind them; of other formats the word, its label where it is known, and the predicted
one. The scorer compares the last two columns: where the labels are not the last one
that was read, they stand once more before the predicted ones. There is a line for each
of the input's but its comments, blank ones and -DOCSTART- with them, so that two files
can be laid side by side. The scorer counts a -DOCSTART- as a word that is rightly O,
which is in its accuracy and in no entity.
"""

from collections.abc import Iterator, Sequence

from bert_tf import files
from bert_tf.metrics.entities import OUTSIDE
from bert_tf.tagging.sentences import Sentence


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
        # All lines have the same columns, or the scorer gives up.
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
