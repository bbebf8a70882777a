"""How a model reads texts, stored as reading.json in a run's folder or an export.

    {"columns": {"text_a_column": "review"}, "long_text": "truncate",
     "max_seq_length": 128}

A checkpoint of any format has a reading: `Source.reading`. Runs of earlier versions
have it in flags.json, folders of sentence-transformers in the files of their modules.
Names are those of the flags; unknown values are left out.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import FLAGS_NAME, flags_of_run
from bert_tf.conversion import huggingface
from bert_tf.conversion.tokenizer_files import TrainedWords, read_words

READING_NAME = "reading.json"
_OF_COLUMNS = ("_column", "_columns")
_COUNTS = (
    *("max_seq_length", "doc_stride"),
    *("max_query_length", "n_best_size", "max_answer_length"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """How a model reads texts; None: unknown."""

    # The flags that name columns, and their values.
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_set: str | None = None  # a data set with fixed columns, such as a GLUE task
    label_separator: str | None = None
    labels: tuple[str, ...] | None = None  # the names of choices, as given

    max_seq_length: int | None = None  # of a sequence, or of a window
    long_text: str | None = None  # truncate or window
    doc_stride: int | None = None
    window_pooling: str | None = None
    document_context: bool | None = None

    max_query_length: int | None = None
    n_best_size: int | None = None
    max_answer_length: int | None = None
    version_2_with_negative: bool | None = None
    null_score_diff_threshold: float | None = None

    pooling: str | None = None  # of text vectors: cls, mean or max
    normalize: bool | None = None  # to length 1

    # The setting of a sentence-transformers folder that is not computed here: it has an
    # encoder, and no vectors. Never stored.
    unknown_vectors: str | None = dataclasses.field(default=None, compare=False)

    # Stored separately, in words.json.
    words: TrainedWords = dataclasses.field(default=TrainedWords(), compare=False)

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f'"{name}" must be at least 1. Received: {value}')

    def length(self, positions: int, default: int | None = None) -> int:
        """Returns the maximum length of a sequence, within the model's positions."""
        return min(self.max_seq_length or default or positions, positions)

    @property
    def in_windows(self) -> bool:
        """Whether a classifier reads long texts in windows."""
        return self.long_text == "window"

    def without_windows(self) -> "Reading":
        """Returns a copy that cuts long texts."""
        return dataclasses.replace(
            self, long_text=None, window_pooling=None, doc_stride=None
        )

    def of_vectors(self) -> "Reading":
        """Returns itself, or an empty reading; InputError for unknown vectors."""
        if self.unknown_vectors:
            raise InputError(
                f"{self.unknown_vectors}: this is not computed here. Without"
                f" {huggingface.MODULES_NAME} the folder is its encoder's alone."
            )
        is_known = self.pooling is not None or self.normalize is not None
        return self if is_known else Reading()

    def known(self) -> dict[str, Any]:
        """Returns the known values by name, for JSON."""
        found = dataclasses.asdict(self)
        del found["words"], found["unknown_vectors"]
        return {name: x for name, x in found.items() if x is not None and x != {}}

    def write(self, folder: str) -> None:
        """Writes reading.json, if anything is known."""
        if found := self.known():
            content = json.dumps(found, indent=1, sort_keys=True) + "\n"
            files.write_atomically(os.path.join(folder, READING_NAME), content)


def of_flags(flags: Mapping[str, Any], path: str = FLAGS_NAME) -> Reading:
    """Returns how a run's model reads texts, from the run's flags."""
    known = {field.name for field in dataclasses.fields(Reading)} - {"words"}
    values = {n: x for n, x in flags.items() if n in known and x is not None}
    values["columns"] = {
        name: value
        for name, value in flags.items()
        if name.endswith(_OF_COLUMNS) and value is not None
    }
    values["data_set"] = flags.get("tfds_name") or flags.get("task_name")
    # Tuples become lists in JSON.
    return strict_json.from_values(Reading, json.loads(json.dumps(values)), path)


def read_reading(folder: str, whole: str | None = None) -> Reading:
    """Returns how the model of a folder reads texts.

    Args:
        folder: the folder of the weights.
        whole: the sentence-transformers folder around it. Default: the same folder.

    Raises:
        InputError: a file is damaged.
    """
    path = os.path.join(folder, READING_NAME)
    if files.exists(path):
        found = strict_json.read(Reading, path)
    else:
        flags_path = os.path.join(folder, FLAGS_NAME)
        found = of_flags(flags_of_run(folder), flags_path)
    found = dataclasses.replace(found, words=read_words(folder))
    whole = folder if whole is None else whole
    if files.exists(os.path.join(whole, huggingface.MODULES_NAME)):
        found = addon("sentence_transformers").with_modules(found, whole)
    if found.pooling:
        names = "max_seq_length", "pooling", "normalize"
        told = ", ".join(f"{name}={getattr(found, name)!r}" for name in names)
        logging.info("%s: %s, unless given.", folder, told)
    return found
