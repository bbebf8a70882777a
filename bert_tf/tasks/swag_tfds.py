"""Examples of multiple choice from TensorFlow Datasets, such as hellaswag.

The endings are a text each, or one list of texts. The library shuffles a set when it
prepares it; the examples come in its order. `tensorflow_datasets`, and TensorFlow with
it, is imported when a split is read.
"""

from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError
from bert_tf.tasks.multiple_choice import (
    ChoiceSet,
    ColumnNames,
    Columns,
    Row,
    choices_of_rows,
)
from bert_tf.text.tfds import prepared_builder, read_split

_BATCH_SIZE = 256


def read_tfds_choices(
    name: str,
    split: str,
    names: ColumnNames,
    *,
    data_dir: str | None = None,
    has_labels: bool,
) -> ChoiceSet:
    """The examples of a split.

    A set that is not prepared yet is, which may download it.
    """
    builder = prepared_builder(name, data_dir)
    path = f"tfds:{builder.info.full_name}:{split}"
    columns = names.find([*builder.info.features], path, has_labels=has_labels)
    rows = _rows(builder, split, columns, path)
    return choices_of_rows(rows, columns, names, path, has_labels=has_labels)


def _rows(builder: Any, split: str, columns: Columns, path: str) -> Iterator[Row]:
    wanted = {
        name: True
        for name in (columns.premise, columns.start, *columns.endings, columns.label)
        if name is not None
    }
    number = 0
    for batch in read_split(builder, split, wanted).ragged_batch(_BATCH_SIZE):
        cells = {
            name: values.to_list()
            if hasattr(values, "to_list")
            else values.numpy().tolist()
            for name, values in batch.items()
        }
        for values in zip(*cells.values(), strict=True):
            where = f"{path}:{number}"
            yield (
                number,
                {
                    name: _decoded(value, where)
                    for name, value in zip(cells, values, strict=True)
                },
            )
            number += 1


def _decoded(value: Any, where: str) -> Any:
    """A cell with text in place of bytes."""
    if isinstance(value, list):
        return [_decoded(each, where) for each in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: not UTF-8 (byte 0x{value[error.start]:02x})."
        ) from error
