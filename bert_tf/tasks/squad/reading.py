"""SQuAD's JSON files."""

import abc
import codecs
import dataclasses
import hashlib
import itertools
import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from absl import flags, logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.text import blocks
from bert_tf.text.tfds import prepared_builder, read_split

# A JSON file from its beginning to its end, with one piece of it in memory.
#
# One walks through the objects and lists that are too large, and takes what is in
# them as
# values, which Python's own decoder makes. So texts are what `json.load` reads,
# halves of
# surrogate pairs too, and an error has its line and column.


_BLANKS = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode

# An error this near to the end of what was read may come of the cut. No token is longer
# but strings and numbers; a number's error stands at its end, a string's has a name.
_LONGEST_TOKEN = 16
_CUT_STRING = "Unterminated string"
# What may stand between a number and its digits behind the cut: ".", "e", "e-".
_NUMBER_MARKS = 2


class JsonStream:
    """A JSON file, read on as its values are asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pieces = _read_texts(path)
        self._text = ""
        self._position = 0
        # Where the text's first character stands in the file.
        self._line = 1
        self._column = 1

    def peek(self) -> str:
        """The character with which the next value or mark begins; "" at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._position)
            assert blanks is not None
            self._position = blanks.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_on():
                return ""

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = _decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._may_be_cut(error) and self._read_on():
                    continue
                raise self._error(error.msg, error.pos) from error
            except (ValueError, RecursionError) as error:
                raise self._error(str(error), self._position) from error
            if len(self._text) - end > _NUMBER_MARKS or not self._read_on():
                self._position = end
                return value

    def elements(self) -> Iterator[int]:
        """Walks through a list: yields the number of each element, from 0, before it.

        The caller takes the element, by `value` or by walking through it, before asking
        for the next number.
        """
        self._take("[")
        if self.peek() == "]":
            self._take("]")
            return
        for number in itertools.count():
            yield number
            if self._take(",", "]") == "]":
                return

    def members(self) -> Iterator[str]:
        """Walks through an object: yields each key, before the value, as `elements`."""
        self._take("{")
        if self.peek() == "}":
            self._take("}")
            return
        while True:
            if self.peek() != '"':
                raise self._error("a key in quotes must be here", self._position)
            key = self.value()
            self._take(":")
            yield key
            if self._take(",", "}") == "}":
                return

    def finish(self) -> None:
        """Makes sure that the file ends here."""
        if self.peek():
            raise self._error("the file must end here", self._position)

    def _take(self, *wanted: str) -> str:
        found = self.peek()
        if found not in wanted:
            marks = " or ".join(repr(mark) for mark in wanted)
            raise self._error(f"{marks} must be here", self._position)
        self._position += 1
        return found

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return (
            error.msg.startswith(_CUT_STRING)
            or len(self._text) - error.pos <= _LONGEST_TOKEN
        )

    def _read_on(self) -> bool:
        """Reads as much again as is not used yet; whether there was any."""
        rest = len(self._text) - self._position
        pieces, length = [], 0
        # As much again: a value is decoded anew with each cut in it, and a large one
        # is to have few.
        for piece in self._pieces:
            pieces.append(piece)
            length += len(piece)
            if length >= rest:
                break
        if not pieces:
            return False
        self._line, self._column = self._place(self._position)
        self._text = "".join([self._text[self._position :], *pieces])
        self._position = 0
        return True

    def _place(self, position: int) -> tuple[int, int]:
        """Line and column, from 1, of a position in the text."""
        newlines = self._text.count("\n", 0, position)
        if not newlines:
            return self._line, self._column + position
        return self._line + newlines, position - self._text.rfind("\n", 0, position)

    def _error(self, reason: str, position: int) -> InputError:
        if position >= len(self._text):
            reason = "the file ends too early"
        line, column = self._place(position)
        return InputError(
            f"{self._path}:{line}:{column}: not valid JSON: {reason.rstrip('.')}."
        )


def _read_texts(path: str) -> Iterator[str]:
    """The file's text in pieces, none of them empty, without a byte order mark."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line = 1
    for data in itertools.chain(blocks.read_pieces(path), [b""]):
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            raise InputError(
                f"{path}:{line}: not UTF-8 (byte 0x{error.object[error.start]:02x});"
                " convert the file, e.g. with iconv -t utf-8."
            ) from error
        line += data.count(b"\n")
        if text:
            yield text


# A question about a paragraph, as SQuAD's files have it.


class Answer(NamedTuple):
    """An answer that an annotator gave.

    Attributes:
        text: as it stands in the paragraph.
        start: its first character's place there.
    """

    text: str
    start: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Paragraph:
    """A text that questions are about; the same object for all of them.

    Attributes:
        context: the text.
        title: the article's.
    """

    context: str
    title: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Question:
    """One question.

    Attributes:
        question_id: its id in the file.
        text: the question.
        paragraph: what it is about.
        answers: those given; none where it is impossible, or where no file says them.
        is_impossible: whether the paragraph does not answer it (SQuAD 2.0).
    """

    question_id: str
    text: str
    paragraph: Paragraph
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False


# What was wrong with the entries of a SQuAD file, said one by one and counted.


# Why a question is skipped: what stands behind the number of such questions.
MALFORMED = "malformed"
NO_ANSWER = "without an answer"
OUTSIDE = "with an answer outside the context"
UNRECOVERABLE = "with an answer that the words at its place do not give"
DUPLICATE = "with the id of an earlier one"

# What costs no question.
MALFORMED_ARTICLES = "malformed articles"
MALFORMED_PARAGRAPHS = "malformed paragraphs"
SEVERAL_ANSWERS = "questions with several answers, of which one is trained on"
OTHER_SPELLING = "answers that stand in the text with other characters"
FAULTY_ANSWERS = "faulty answers of questions that are kept"

_MAX_SHOWN = 60


class Report:
    """The faults found in one pass over a file.

    Attributes:
        num_questions: all that the file has, the skipped ones included.
        skipped: questions left out, by why.
        notes: what else there was, by what.
    """

    def __init__(self, source: str, *, is_quiet: bool = False) -> None:
        self.source = source
        self.num_questions = 0
        self.skipped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self._is_quiet = is_quiet

    @property
    def num_usable(self) -> int:
        """The questions that were not skipped."""
        return self.num_questions - self.skipped.total()

    def skip(self, kind: str, where: str, what: str, count: int = 1) -> None:
        """Counts questions that are left out, and warns of them."""
        self.skipped[kind] += count
        self._warn(where, f"{what}; skipped")

    def note(self, kind: str, where: str = "", what: str = "") -> None:
        """Counts what costs no question, and warns if there is any."""
        self.notes[kind] += 1
        if what:
            self._warn(where, what)

    def summary(self) -> str:
        """One line: "Skipped 3 of 120 questions: 2 malformed, 1 without an answer."."""
        reasons = ", ".join(f"{n:,} {kind}" for kind, n in self.skipped.items() if n)
        parts = [
            f"Skipped {self.skipped.total():,} of {self.num_questions:,} questions"
            + (f": {reasons}." if reasons else ".")
        ]
        if self.notes:
            notes = "; ".join(f"{kind}: {n:,}" for kind, n in self.notes.items())
            parts.append(f"Also: {notes}.")
        return " ".join(parts)

    def log_summary(self) -> None:
        """Says how many questions were skipped; a warning if any were."""
        log = logging.warning if self.skipped or self.notes else logging.info
        log("%s: %s", self.source, self.summary())

    def _warn(self, where: str, what: str) -> None:
        if not self._is_quiet:
            logging.warning("%s: %s: %s.", self.source, where, what)


def shown(value: object) -> str:
    """A value of the file for a message: its beginning, on one line."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# Which answers can be found again in the text: the original's rule.


# What the original cuts a paragraph into. An answer it cuts at white space of any kind.
_WORDS = re.compile("[^ \t\r\n\u202f]+")


class EntryError(Exception):
    """An entry that cannot be used.

    Attributes:
        kind: why, in `report`'s words.
        what: what is wrong with it.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what


def read_answer(entry: Any, context: str) -> Answer:
    """An answer that the text gives."""
    if not isinstance(entry, dict):
        raise EntryError(
            MALFORMED, f"an answer must be an object. Found: {shown(entry)}"
        )
    text, start = entry.get("text"), entry.get("answer_start")
    if not isinstance(text, str):
        raise EntryError(
            MALFORMED, f"an answer must have a `text`. Found: {shown(entry)}"
        )
    if not isinstance(start, int) or isinstance(start, bool):
        raise EntryError(
            MALFORMED,
            f"an answer's `answer_start` must be an integer. Found: {shown(start)}",
        )
    if not text.strip():
        raise EntryError(MALFORMED, f"an answer is empty: {shown(text)}")
    if not 0 <= start <= len(context) - len(text):
        raise EntryError(
            OUTSIDE,
            f"the answer {shown(text)} at answer_start {start} is not within the"
            f" context's {len(context):,} characters",
        )
    # The usual case needs no cutting into words.
    if not (context.startswith(text, start) and " ".join(text.split()) == text):
        there = _words_at(context, start, start + len(text))
        if " ".join(text.split()) not in there:
            raise EntryError(
                UNRECOVERABLE,
                f"the answer {shown(text)} is not in the words at answer_start {start}:"
                f" {shown(there)}",
            )
    return Answer(text, start)


def _words_at(context: str, start: int, stop: int) -> str:
    """The words from the one at `start` to the one at `stop` - 1, with single blanks.

    A blank belongs to the word before it. Those before the first word have the number
    -1, which in a slice is the last word's: so it is in the original.
    """
    words = list(_WORDS.finditer(context))
    starts = [word.start() for word in words]
    first = bisect_right(starts, start) - 1
    last = bisect_right(starts, stop - 1) - 1
    return " ".join(word.group() for word in words[first : last + 1])


# A paragraph of a SQuAD file, parsed, into questions.
#
#     {"context": "...", "qas": [
#         {"id": "5733be284776f41900661182", "question": "...", "is_impossible":
#         false,
#          "answers": [{"text": "Saint Bernadette", "answer_start": 515}]}]}
#
# What cannot be used is skipped and reported, with one exception: questions without
# an
# answer are SQuAD 2.0's, and where these are not asked for the file is refused.


class EntryReader:
    """Reads the paragraphs of one file, in one pass over it."""

    def __init__(
        self, report: Report, *, version_2_with_negative: bool, for_training: bool
    ) -> None:
        self._report = report
        self._version_2_with_negative = version_2_with_negative
        self._for_training = for_training
        self._ids: set[str] = set()

    def read(self, entry: Any, title: str, where: str) -> Iterator[Question]:
        """Yields the questions of a paragraph that can be used."""
        context, qas = (
            (entry.get("context"), entry.get("qas"))
            if isinstance(entry, dict)
            else (None, None)
        )
        if not isinstance(qas, list):
            what = "a paragraph must be an object with a list `qas`"
            self._report.note(
                MALFORMED_PARAGRAPHS, where, f"{what}. Found: {shown(entry)}"
            )
            return
        self._report.num_questions += len(qas)
        if not isinstance(context, str):
            what = f"the paragraph's `context` must be text. Found: {shown(context)}"
            self._report.note(MALFORMED_PARAGRAPHS)
            self._report.skip(MALFORMED, where, what, count=len(qas))
            return
        paragraph = Paragraph(context=context, title=title)
        for number, qa in enumerate(qas, start=1):
            try:
                yield self._question(qa, paragraph, where)
            except EntryError as fault:
                self._report.skip(fault.kind, _place(where, qa, number), fault.what)

    def _question(self, entry: Any, paragraph: Paragraph, where: str) -> Question:
        if not isinstance(entry, dict):
            raise EntryError(MALFORMED, f"it must be an object. Found: {shown(entry)}")
        question_id = _id(entry)
        if question_id is None:
            found = shown(entry.get("id"))
            raise EntryError(
                MALFORMED, f"its `id` must be text or a number. Found: {found}"
            )
        text = entry.get("question")
        if not isinstance(text, str):
            raise EntryError(
                MALFORMED, f"its `question` must be text. Found: {shown(text)}"
            )
        if question_id in self._ids:
            raise EntryError(DUPLICATE, "a question before it has the same id")
        where = f"{where}, question {question_id!r}"
        is_impossible = self._is_impossible(entry, where)
        if self._for_training:
            answers = (
                () if is_impossible else self._answer(entry, paragraph.context, where)
            )
        else:
            answers = self._answers(entry, paragraph.context, where)
        self._ids.add(question_id)
        return Question(
            question_id=question_id,
            text=text,
            paragraph=paragraph,
            answers=answers,
            is_impossible=is_impossible,
        )

    def _is_impossible(self, entry: dict[str, Any], where: str) -> bool:
        # Exports that lack the word have no answers there: so the official evaluation.
        says_nothing = self._version_2_with_negative and entry.get("answers") == []
        value = entry.get("is_impossible", says_nothing)
        if not isinstance(value, bool):
            what = f"its `is_impossible` must be true or false. Found: {shown(value)}"
            if self._for_training:
                raise EntryError(MALFORMED, what)
            self._report.note(FAULTY_ANSWERS, where, what)
            return False
        if value and not self._version_2_with_negative:
            raise InputError(
                f"{self._report.source}: {where}: it has no answer, as in SQuAD 2.0:"
                " give --version_2_with_negative."
            )
        return value

    def _answer(
        self, entry: dict[str, Any], context: str, where: str
    ) -> tuple[Answer, ...]:
        """The first answer that can be trained on."""
        entries = entry.get("answers")
        if not isinstance(entries, list):
            found = shown(entries)
            raise EntryError(MALFORMED, f"its `answers` must be a list. Found: {found}")
        if not entries:
            raise EntryError(NO_ANSWER, "it has no answer, nor is it impossible")
        if len(entries) > 1:
            self._report.note(SEVERAL_ANSWERS)
        first_fault = None
        for each in entries:
            try:
                answer = read_answer(each, context)
            except EntryError as fault:
                first_fault = first_fault or fault
                continue
            if not context.startswith(*answer):
                there = context[answer.start : answer.start + len(answer.text)]
                self._report.note(
                    OTHER_SPELLING,
                    where,
                    f"the answer {shown(answer.text)} stands there as {shown(there)}",
                )
            return (answer,)
        assert first_fault is not None
        raise first_fault

    def _answers(
        self, entry: dict[str, Any], context: str, where: str
    ) -> tuple[Answer, ...]:
        """All answers; none where the file says none."""
        entries = entry.get("answers")
        if entries is None:
            return ()
        if not isinstance(entries, list):
            what = f"its `answers` must be a list. Found: {shown(entries)}"
            self._report.note(FAULTY_ANSWERS, where, what)
            return ()
        answers = []
        for each in entries:
            try:
                answers.append(read_answer(each, context))
            except EntryError as fault:
                self._report.note(FAULTY_ANSWERS, where, fault.what)
                if isinstance(each, dict) and isinstance(each.get("text"), str):
                    answers.append(Answer(each["text"], -1))
        return tuple(answers)


def _id(entry: dict[str, Any]) -> str | None:
    """A question's id; some tools write numbers, as which JSON's keys are text too."""
    found = entry.get("id")
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found if isinstance(found, str) else None


def _place(where: str, entry: Any, number: int) -> str:
    question_id = _id(entry) if isinstance(entry, dict) else None
    return f"{where}, question {number if question_id is None else repr(question_id)}"


# SQuAD files, and all in their format, as streams of questions.
#
#     {"version": "1.1", "data": [{"title": "University_of_Notre_Dame", "paragraphs":
#     [
#         {"context": "...", "qas": [...]}]}]}
#
# Paragraphs are `entries`. One of them is in memory at a time, whatever the file's
# size;
# of the others, the ids that their questions have taken.


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


# Questions that were all read once, before anything is done with them.


class CheckedQuestions:
    """Questions of which it is known how many there are, and what is wrong with them.

    Attributes:
        num_questions: how many there are.
        have_answers: whether each one has an answer, or is impossible.
    """

    def __init__(self, reader: QuestionReader) -> None:
        """Reads them, and says what is wrong."""
        self._reader = reader
        self.num_questions = 0
        self.have_answers = True
        for question in reader:
            self.num_questions += 1
            self.have_answers &= bool(question.answers) or question.is_impossible
        reader.report.log_summary()

    @property
    def identity(self) -> dict[str, Any]:
        """What the questions depend on, as JSON has it."""
        return self._reader.identity

    @property
    def report(self) -> Report:
        """What was wrong with them."""
        return self._reader.report

    def __iter__(self) -> Iterator[Question]:
        """The questions, in their order."""
        return iter(self._reader)


# SQuAD, and sets with its features, from TensorFlow Datasets.
#
# The library shuffles a set's questions when it prepares it. They come by paragraph,
# in
# the order in which the paragraphs are met first; the whole split is in memory for
# that.
# `tensorflow_datasets`, and TensorFlow with it, is imported when a split is read.


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


# The questions that flags name, read once and checked.


def questions_from_flags(
    flag_values: flags.FlagValues, *, for_training: bool
) -> CheckedQuestions:
    """The questions to train on, or to answer."""
    version_2 = flag_values.version_2_with_negative
    reader: QuestionReader
    if flag_values.tfds_name:
        splits = flag_values.tfds_splits
        if len(splits) != 2:
            raise InputError(
                f"--tfds_splits={','.join(splits)}: give two, one to train on and one"
                " to answer."
            )
        reader = TfdsSquad(
            flag_values.tfds_name,
            splits[0] if for_training else splits[1],
            data_dir=flag_values.tfds_data_dir,
            version_2_with_negative=version_2,
            for_training=for_training,
        )
    else:
        path = flag_values.train_file if for_training else flag_values.predict_file
        reader = SquadFile(
            path, version_2_with_negative=version_2, for_training=for_training
        )
    return CheckedQuestions(reader)


def first_questions_from_flags(
    flag_values: flags.FlagValues,
) -> CheckedQuestions | None:
    """The questions to train on before all others, where the flags name some."""
    if not flag_values.first_train_file:
        return None
    return CheckedQuestions(
        SquadFile(
            flag_values.first_train_file,
            version_2_with_negative=flag_values.version_2_with_negative,
            for_training=True,
        )
    )
