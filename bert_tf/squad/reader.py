"""SQuAD files, and all in their format, as streams of questions.

    {"version": "1.1", "data": [{"title": "University_of_Notre_Dame", "paragraphs": [
        {"context": "...", "qas": [...]}]}]}

Paragraphs are `entries`. One of them is in memory at a time, whatever the file's size;
of the others, the ids that their questions have taken.
"""

import abc
import hashlib
from collections.abc import Iterator
from typing import Any

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.squad.entries import EntryReader
from bert_tf.squad.examples import Question
from bert_tf.squad.json_stream import JsonStream
from bert_tf.squad.report import MALFORMED_ARTICLES, Report, shown
from bert_tf.text import blocks


class QuestionReader(abc.ABC):
    """Questions to iterate over, as often as one likes.

    Questions of one paragraph come one after the other and share the `Paragraph`. What
    cannot be used is skipped. Each fault is a warning of the first complete pass; later
    ones are silent, and all have a `report`.

    Attributes:
        path: as given.
    """

    def __init__(
        self, path: str, *, version_2_with_negative: bool, for_training: bool
    ) -> None:
        self.path = path
        self._version_2_with_negative = version_2_with_negative
        self._for_training = for_training
        self._report: Report | None = None

    def __iter__(self) -> Iterator[Question]:
        """Reads the questions."""
        report = Report(self.path, is_quiet=self._report is not None)
        reader = EntryReader(
            report,
            version_2_with_negative=self._version_2_with_negative,
            for_training=self._for_training,
        )
        yield from self._read(reader, report)
        if not report.num_usable:
            raise InputError(
                f"{self.path}: there is no question in it that can be used."
                f" {report.summary()}"
            )
        self._report = report

    @property
    def report(self) -> Report:
        """What the last complete pass found; empty before there was one."""
        return self._report or Report(self.path)

    @property
    @abc.abstractmethod
    def identity(self) -> dict[str, Any]:
        """What the questions depend on, as JSON has it."""

    @abc.abstractmethod
    def _read(self, reader: EntryReader, report: Report) -> Iterator[Question]:
        """Hands each paragraph to the reader; yields the questions."""


class SquadFile(QuestionReader):
    """The questions of a file, in its order."""

    def __init__(
        self,
        path: str,
        *,
        version_2_with_negative: bool = False,
        for_training: bool = False,
    ) -> None:
        super().__init__(
            path,
            version_2_with_negative=version_2_with_negative,
            for_training=for_training,
        )
        if not files.exists(path):
            raise InputError(
                f"No such SQuAD file: {path}. Check the path; SQuAD's files are at"
                " rajpurkar.github.io/SQuAD-explorer."
            )
        if files.is_folder(path):
            raise InputError(f"The SQuAD file is a folder, not a file: {path}")
        self._sha256 = ""

    @property
    def identity(self) -> dict[str, Any]:
        """The SHA-256 of the unpacked content, and how it is read."""
        if not self._sha256:
            digest = hashlib.sha256()
            for piece in blocks.read_pieces(self.path):
                digest.update(piece)
            self._sha256 = digest.hexdigest()
        return {
            "sha256": self._sha256,
            "version_2_with_negative": self._version_2_with_negative,
            "for_training": self._for_training,
        }

    def _read(self, reader: EntryReader, report: Report) -> Iterator[Question]:
        stream = JsonStream(self.path)
        if not stream.peek():
            raise InputError(f"{self.path}: the file is empty.")
        if stream.peek() != "{":
            found = "a list" if stream.peek() == "[" else shown(stream.value())
            raise self._no_data(f"Found: {found}")
        keys = []
        for key in stream.members():
            if key == "data" and key in keys:
                raise InputError(f'{self.path}: the key "data" is there twice.')
            keys.append(key)
            if key != "data":
                stream.value()
            elif stream.peek() != "[":
                raise self._no_data(f"Found there: {shown(stream.value())}")
            else:
                for number in stream.elements():
                    yield from _read_article(stream, number + 1, reader, report)
        stream.finish()
        if "data" not in keys:
            there = ", ".join(keys[:5]) or "none"
            raise self._no_data(f"Its keys: {there}{', ...' * (len(keys) > 5)}")

    def _no_data(self, found: str) -> InputError:
        return InputError(
            f'{self.path}: a SQuAD file must be an object whose key "data" has the list'
            f" of articles. {found}."
        )


def _read_article(
    stream: JsonStream, number: int, reader: EntryReader, report: Report
) -> Iterator[Question]:
    where = f"article {number}"
    if stream.peek() != "{":
        what = f"it must be an object. Found: {shown(stream.value())}"
        report.note(MALFORMED_ARTICLES, where, what)
        return
    title = ""
    has_paragraphs = False
    for key in stream.members():
        if key == "paragraphs" and stream.peek() == "[":
            has_paragraphs = True
            for index in stream.elements():
                place = f"{where}, paragraph {index + 1}"
                yield from reader.read(stream.value(), title, place)
            continue
        value = stream.value()
        # Where it stands behind the paragraphs, messages have the number alone.
        if key == "title" and isinstance(value, str):
            title = value
            where = f"article {number} ({title!r})"
    if not has_paragraphs:
        what = "it must have a list `paragraphs`"
        report.note(MALFORMED_ARTICLES, where, what)
