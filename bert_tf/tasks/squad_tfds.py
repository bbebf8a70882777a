"""SQuAD, and sets with its features, from TensorFlow Datasets.

The library shuffles a set's questions when it prepares it. They come by paragraph, in
the order in which the paragraphs are met first; the whole split is in memory for that.
`tensorflow_datasets`, and TensorFlow with it, is imported when a split is read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.errors import InputError
from bert_tf.squad.entries import EntryReader
from bert_tf.squad.examples import Question
from bert_tf.squad.reader import QuestionReader
from bert_tf.squad.report import Report
from bert_tf.text.tfds import prepared_builder, read_split

_TEXTS = ("id", "title", "context", "question")
_NEEDED = ("id", "context", "question")
# Each a list, as long as the other.
_ANSWERS = ("text", "answer_start")
_IS_IMPOSSIBLE = "is_impossible"

_BATCH_SIZE = 256


class TfdsSquad(QuestionReader):
    """The questions of a split.

    A set that is not prepared yet is, which may download it.
    """

    def __init__(
        self,
        name: str,
        split: str,
        data_dir: str | None = None,
        *,
        version_2_with_negative: bool = False,
        for_training: bool = False,
    ) -> None:
        self._builder = prepared_builder(name, data_dir)
        self._split = split
        super().__init__(
            f"tfds:{self._builder.info.full_name}:{split}",
            version_2_with_negative=version_2_with_negative,
            for_training=for_training,
        )
        self._check_features()

    @property
    def identity(self) -> dict[str, Any]:
        """The set's version, whose questions never change, and how it is read."""
        return {
            "tfds": self._builder.info.full_name,
            "split": self._split,
            "version_2_with_negative": self._version_2_with_negative,
            "for_training": self._for_training,
        }

    def _read(self, reader: EntryReader, report: Report) -> Iterator[Question]:
        paragraphs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._rows():
            key = (row.pop("title", ""), row.pop("context"))
            paragraphs.setdefault(key, []).append(row)
        for (title, context), qas in paragraphs.items():
            entry = {"context": context, "qas": qas}
            yield from reader.read(entry, title, f"article {title!r}")

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Each question as a file would have it, with its title and context."""
        for batch in self._dataset().ragged_batch(_BATCH_SIZE):
            answers = batch.pop("answers", None)
            columns = {
                name: [self._decoded(value, name) for value in values.numpy()]
                for name, values in batch.items()
            }
            if answers is not None:
                columns["answers"] = list(self._answers(answers))
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    def _answers(self, answers: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        texts, starts = (answers[name].to_list() for name in _ANSWERS)
        for row_texts, row_starts in zip(texts, starts, strict=True):
            yield [
                {"text": self._decoded(text, "answers"), "answer_start": start}
                for text, start in zip(row_texts, row_starts, strict=True)
            ]

    def _dataset(self) -> Any:
        return read_split(self._builder, self._split, self._wanted())

    def _wanted(self) -> dict[str, Any]:
        features = self._builder.info.features
        wanted: dict[str, Any] = {
            name: True for name in (*_TEXTS, _IS_IMPOSSIBLE) if name in features
        }
        if "answers" in features:
            wanted["answers"] = dict.fromkeys(_ANSWERS, True)
        return wanted

    def _check_features(self) -> None:
        import tensorflow as tf

        features = self._builder.info.features
        fitting = [
            name
            for name in _TEXTS
            if name in features
            and features[name].tf_dtype == tf.string
            and features[name].shape == ()
        ]
        answers: Any = _ANSWERS
        if "answers" in features:
            answers = getattr(features["answers"], "feature", ())
        if not set(_NEEDED) <= set(fitting) or not set(_ANSWERS) <= set(answers):
            raise InputError(
                f"TensorFlow dataset {self._builder.info.full_name} must have the"
                " features of SQuAD: id, context, question, and answers of text and"
                f" answer_start. It has: {', '.join(features)}."
            )

    def _decoded(self, value: Any, name: str) -> Any:
        if not isinstance(value, bytes):
            return bool(value)  # is_impossible
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.path}: a {name} is not UTF-8 (byte 0x{value[error.start]:02x})."
            ) from error
