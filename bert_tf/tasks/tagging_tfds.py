"""Tagged sentences from TensorFlow Datasets: conll2003, and sets with such features.

An example is a sentence: a sequence of words, and one of labels. Classes have names.
The library shuffles a set when it prepares it, so that there are no documents.
`tensorflow_datasets`, and TensorFlow with it, is imported when a split is read.
"""

from typing import Any

from absl import logging

from bert_tf.errors import InputError
from bert_tf.tasks.tagging.sentences import Sentence, label_name
from bert_tf.text import tfds

WORDS, LABELS = "tokens", "ner"

_BATCH_SIZE = 256


def read_split(
    name: str,
    split: str,
    *,
    data_dir: str | None = None,
    word_feature: str | None = None,
    label_feature: str | None = None,
    label_names: tuple[str, ...] | None = None,
    has_labels: bool = True,
) -> list[Sentence]:
    """The sentences of a split, in its order.

    A set that is not prepared yet is, which may download it.
    """
    builder = tfds.prepared_builder(name, data_dir)
    features = builder.info.features
    wanted = [word_feature or WORDS, *([label_feature or LABELS] if has_labels else [])]
    for feature, flag in zip(wanted, ("word_column", "label_column"), strict=False):
        if feature not in features:
            raise InputError(
                f"TensorFlow dataset {builder.info.full_name} has no feature"
                f" {feature!r}; --{flag} names one of its own: {', '.join(features)}."
            )
    if has_labels:
        inner = getattr(features[wanted[1]], "feature", None)
        label_names = getattr(inner, "names", None) or label_names
    path = f"tfds:{builder.info.full_name}:{split}"
    found: list[Sentence] = []
    num_empty = 0
    for number, row in enumerate(_rows(builder, split, wanted)):
        source = f"{path}:{number}"
        words, labels = (_text_of(values, source) for values in row)
        if not words:
            num_empty += 1
            continue
        if labels is not None:
            labels = [label_name(label, label_names, source) for label in labels]
            if len(labels) != len(words):
                raise InputError(
                    f"{source}: {len(words)} words, but {len(labels)} labels."
                )
        found.append(Sentence.of_words(words, labels, document=number, source=source))
    if num_empty:
        logging.warning("%s: passed over %d sentences without a word.", path, num_empty)
    if not found:
        raise InputError(f"{path}: no sentences in this split.")
    return found


def _rows(builder: Any, split: str, wanted: list[str]) -> Any:
    """Yields (words, labels) of each example; labels are None where none are wanted."""
    dataset = tfds.read_split(builder, split, dict.fromkeys(wanted, True))
    for batch in dataset.ragged_batch(_BATCH_SIZE):
        columns = [batch[name].to_list() for name in wanted]
        labels = columns[1] if len(columns) > 1 else [None] * len(columns[0])
        yield from zip(columns[0], labels, strict=True)


def _text_of(values: list[Any] | None, source: str) -> Any:
    """A feature's values, those that are bytes as text; None as it is."""
    try:
        return values and [
            value.decode("utf-8") if isinstance(value, bytes) else value
            for value in values
        ]
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: not UTF-8 (byte 0x{error.object[error.start]:02x}): leave this"
            " sentence out, such as by a slice of the split."
        ) from error
