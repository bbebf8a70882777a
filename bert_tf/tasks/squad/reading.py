"""SQuAD's questions, from its JSON files or TriviaQA's, or TensorFlow Datasets.

    {"version": "1.1", "data": [{"title": "University_of_Notre_Dame", "paragraphs": [
        {"context": "...", "qas": [
            {"id": "5733be284776f41900661182", "question": "...",
             "is_impossible": false,
             "answers": [{"text": "Saint Bernadette", "answer_start": 515}]}]}]}]}

Unusable questions are skipped and reported; training accepts as few as in other tables.
One exception: questions without an answer are SQuAD 2.0's, and a file with them is
rejected unless they are expected.

A table (in a format of `bert_tf.base.rows`; in .json an array) has a row for each
question, with the columns question, context and answer, and optionally id and
answer_start. An empty answer means that the question has none, or that none is known.
Without ids, the lines' numbers are used.

TriviaQA's own files, to train on, are in `bert_tf.addons.corpora.trivia_qa`.
"""

import dataclasses
import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import files, rows, unpacking
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.rows import MAX_UNUSABLE, refuse_unusable
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.tasks import other_formats
from bert_tf.tasks.squad.squad_options import SquadOptions

# The original's doc_tokens. U+00A0 and the other spaces do not separate them, so a word
# can be several of the tokenizer's, and one made only of such spaces has no token.
WORD = re.compile("[^ \t\r\n\u202f]+")

_MAX_SHOWN = 60


class GoldAnswer(NamedTuple):
    """An annotator's answer, and the character of the context where it begins."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Question:
    """One question; without answers if it is impossible, or if none are known.

    To be trained on, it has one answer or is impossible (SQuAD 2.0).
    """

    question_id: str
    text: str
    context: str  # the text that it is about
    answers: tuple[GoldAnswer, ...] = ()
    is_impossible: bool = False


def read_json(path: str) -> tuple[Any, str]:
    """Returns the value of a SQuAD file, and the SHA-256 of its unpacked text."""
    text = "".join(rows.lines(path, "SQuAD file"))
    return files.parse_json(text, path), files.sha256(text.encode())


def shown(value: object) -> str:
    """Returns the beginning of a value on one line, for a message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


class EntryError(Exception):
    """Problem of an unusable entry."""


def _checked(value: Any, kind: type, wanted: str) -> Any:
    """Returns a value of a type, or raises EntryError; a bool is no number."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise EntryError(f"{wanted}. Received: {shown(value)}")
    return value


class Columns(NamedTuple):
    """The names of a table's columns."""

    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    delimiter: str | None = None  # of a CSV; None: as found

    def read(self, path: str) -> tuple[list[str], Iterator[rows.Row]]:
        """Returns the columns and rows of a table."""
        dialect = rows.Dialect(self.delimiter)
        return rows.read(path, what="table of questions", dialect=dialect)

    def require(self, names: Sequence[str], path: str, *, trains: bool) -> None:
        """Raises InputError for a missing column; only training needs answers."""
        for kind, name in zip(self._fields, self[:3], strict=False):
            has_other = kind == "answer" and (not trains or "answers" in names)
            if not has_other:
                rows.require(name, names, path, f"{kind}_column")


_COLUMNS = Columns()


class CheckedQuestions:
    """The usable questions of a file or a split, in order; warns of each fault."""

    def __init__(
        self,
        articles: Iterable[Any],  # the parsed value of "data", or a table's rows
        source: str,
        identity: Mapping[str, Any],
        *,
        version_2_with_negative: bool = False,
        for_training: bool = False,
        max_unusable_rows: float = MAX_UNUSABLE,
    ) -> None:
        self.source = source
        self._version_2_with_negative = version_2_with_negative
        self._for_training = for_training
        # What the questions depend on, as JSON.
        self.identity: dict[str, Any] = {
            **identity,
            "version_2_with_negative": version_2_with_negative,
            "for_training": for_training,
        }
        self._faults: list[str] = []  # in questions that are skipped
        self._ids: set[str] = set()
        self._questions = list(self._read(articles))
        self.num_questions = len(self._questions)
        self.have_answers = all(one.answers or one.is_impossible for one in self)
        self.num_skipped = len(self._faults)
        total = self.num_skipped + self.num_questions
        summary = f"{source}: skipped {self.num_skipped} of {total} questions."
        if not self._questions:
            first = "".join(f" The first one: {fault}." for fault in self._faults[:1])
            raise InputError(f"{summary} There is none that can be used.{first}")
        if for_training and self._faults:
            first = f"{source}: {self._faults[0]}."
            refuse_unusable(
                self.num_skipped, total, max_unusable_rows, first, "questions"
            )
        for fault in self._faults:
            logging.warning("%s: %s; skipped.", source, fault)
        logging.info("%s", summary)

    def __iter__(self) -> Iterator[Question]:
        return iter(self._questions)

    def _read(self, articles: Iterable[Any]) -> Iterator[Question]:
        for number, article in enumerate(articles, start=1):
            title = article.get("title") if isinstance(article, dict) else None
            where = f"article {number}{f' ({title!r})' * isinstance(title, str)}"
            paragraphs = self._part(article, "paragraphs", list, where)
            for number_in, paragraph in enumerate(paragraphs, start=1):
                place = f"{where}, paragraph {number_in}"
                yield from self._paragraph(paragraph, place)

    def _part(self, entry: Any, name: str, kind: type, where: str) -> Any:
        """Returns a part that an article or a paragraph must have."""
        found = entry.get(name) if isinstance(entry, dict) else None
        if not isinstance(found, kind):
            raise InputError(
                f'{self.source}: {where}: it must be an object with "{name}", a'
                f" {kind.__name__}. Received: {shown(entry)}."
            )
        return found

    def _paragraph(self, entry: Any, where: str) -> Iterator[Question]:
        qas = self._part(entry, "qas", list, where)
        context = self._part(entry, "context", str, where)
        for number, qa in enumerate(qas, start=1):
            # Some tools write numbers, which become text as JSON's keys.
            question_id = qa.get("id") if isinstance(qa, dict) else None
            if type(question_id) is int:
                question_id = str(question_id)
            is_named = isinstance(question_id, str)
            place = f"{where}, question {repr(question_id) if is_named else number}"
            yield from self._usable(qa, question_id, context, place)

    def _usable(
        self, entry: Any, question_id: Any, context: str, where: str
    ) -> Iterator[Question]:
        """Returns the question; EntryError if it cannot be used."""
        try:
            yield self._question(entry, question_id, context, where)
        except EntryError as fault:
            self._faults.append(f"{where}: {fault}")

    def _warn(self, where: str, what: object) -> None:
        logging.warning("%s: %s: %s.", self.source, where, what)

    def _question(
        self, entry: Any, question_id: Any, context: str, where: str
    ) -> Question:
        _checked(entry, dict, "it must be an object")
        _checked(question_id, str, "its `id` must be text or a number")
        text = _checked(entry.get("question"), str, "its `question` must be text")
        if self._for_training and not text.strip():
            raise EntryError("its `question` is empty")
        # Predictions need an id: the original does not look at it in training.
        if question_id in self._ids and not self._for_training:
            raise EntryError("a question before it has the same id")
        is_impossible = self._is_impossible(entry, where)
        answers: tuple[GoldAnswer, ...] = ()
        if not self._for_training:
            answers = self._answers(entry, context, where)
        elif not is_impossible:
            answers = (_answer_to_train_on(entry, context),)
        self._ids.add(question_id)
        return Question(
            question_id=question_id,
            text=text,
            context=context,
            answers=answers,
            is_impossible=is_impossible,
        )

    def _is_impossible(self, entry: dict[str, Any], where: str) -> bool:
        # Exports without the key have no answers there, as in the official script.
        default = self._version_2_with_negative and entry.get("answers") == []
        value = entry.get("is_impossible", default)
        if not isinstance(value, bool):
            what = "its `is_impossible` must be true or false"
            if self._for_training:
                raise EntryError(what)
            self._warn(where, what)
            return False
        if value and not self._version_2_with_negative:
            raise InputError(
                f"{self.source}: {where}: it has no answer, as in SQuAD 2.0:"
                " give `version_2_with_negative`."
            )
        return value

    def _answers(
        self, entry: dict[str, Any], context: str, where: str
    ) -> tuple[GoldAnswer, ...]:
        """Returns all answers; () if they are unknown."""
        entries = entry.get("answers")
        answers = []
        if entries is not None and not isinstance(entries, list):
            self._warn(where, "its `answers` must be a list")
            entries = None
        for each in entries or ():
            try:
                answers.append(read_answer(each, context))
            except EntryError as fault:
                self._warn(where, fault)
                # It counts in the official scores.
                if isinstance(each, dict) and isinstance(each.get("text"), str):
                    answers.append(GoldAnswer(each["text"], -1))
        return tuple(answers)


class TableQuestions(CheckedQuestions):
    """The usable questions of a table."""

    def __init__(self, path: str, columns: Columns, **kinds: Any) -> None:
        self._columns = columns
        self._several: list[int] = []  # lines whose answer occurs several times
        names, found = columns.read(path)
        columns.require(names, path, trains=kinds.get("for_training", False))
        super().__init__(found, path, {"sha256": "", "columns": columns[:3]}, **kinds)
        if self._several:
            logging.warning(
                "%s: %d answers occur several times in their text; the first place"
                " counts, unless a column answer_start gives it. The first one is in"
                " line %d.",
                *(path, len(self._several), self._several[0]),
            )

    def _read(self, articles: Iterable[rows.Row]) -> Iterator[Question]:
        names = self._columns
        digest, separator = hashlib.sha256(), "["  # of all rows as one JSON list
        for one in articles:
            line, row = one.number, one.cells
            if not (row or one.problem):
                continue
            if one.problem:
                self._faults.append(f"line {line}: {one.problem.rstrip('.')}")
                continue
            said = json.dumps((line, row), default=str)
            digest.update(f"{separator}{said}".encode())
            separator = ", "
            question_id = row.get("id", line)
            if type(question_id) is int:
                question_id = str(question_id)
            context = row.get(names.context)
            where = f"line {line}"
            if not isinstance(context, str):
                self._faults.append(f"{where}: its {names.context!r} must be text")
                continue
            try:
                answers = self._entries(row, context, line)
            except EntryError as fault:
                self._faults.append(f"{where}: {fault}")
                continue
            entry = {"question": row.get(names.question), "answers": answers}
            yield from self._usable(entry, question_id, context, where)
        digest.update(b"]")
        self.identity["sha256"] = digest.hexdigest()

    def _entries(
        self, row: Mapping[str, Any], context: str, line: int
    ) -> list[dict[str, Any]] | None:
        """Returns a row's answers in SQuAD's form; None without a column for them."""
        if not {self._columns.answer, "answers"} & row.keys():
            return None
        value: Any = row.get(self._columns.answer, row.get("answers"))
        starts = row.get("answer_start")
        if isinstance(value, dict):
            value, starts = value.get("text"), value.get("answer_start")
        texts = value if isinstance(value, list) else [value or ""]
        if not isinstance(starts, list):
            starts = [starts] * len(texts)
        if len(starts) != len(texts):
            raise EntryError("there must be an answer_start for each answer")
        entries = []
        for text, start in zip(texts, starts, strict=True):
            _checked(text, str, "an answer must be text")
            if not text.strip():
                continue
            if isinstance(start, str) and re.fullmatch("[0-9]+", start.strip()):
                start = int(start)
            if start in (None, ""):
                words = r"\s+".join(map(re.escape, text.split()))
                there = re.search(re.escape(text), context) or re.search(words, context)
                if there is None:
                    problem = (
                        f"its context does not have {shown(text)}: copy it from there"
                    )
                    raise EntryError(problem)
                text, start = there.group(), there.start()
                if re.search(words, context[start + 1 :]):
                    self._several.append(line)
            entries.append({"text": text, "answer_start": start})
        return entries


def _is_table(path: str) -> bool:
    """Whether a file is a table: SQuAD's own are objects named .json."""
    name = path.lower().removesuffix(unpacking.compression(path))
    if name.endswith(".json"):
        return next(rows.lines(path, "SQuAD file"), "").lstrip().startswith("[")
    return bool(rows.format_of(path, ""))


def _answer_to_train_on(entry: dict[str, Any], context: str) -> GoldAnswer:
    """Returns the first answer that can be trained on."""
    entries = _checked(entry.get("answers"), list, "its `answers` must be a list")
    fault = EntryError("it has no answer and is not marked as impossible")
    for number, each in enumerate(entries):
        try:
            return read_answer(each, context)
        except EntryError as error:
            fault = fault if number else error
    raise fault


def read_file(
    path: str,
    *,
    for_training: bool = False,
    evidence_dir: str | None = None,
    columns: Columns = _COLUMNS,
    **kind: Any,
) -> CheckedQuestions:
    """Reads the questions of a file in SQuAD's format, or of a table."""
    # It may be compressed. For training it may also be TriviaQA's own file, with the
    # folder of its documents.
    is_table = _is_table(path)
    with other_formats.naming(path, "table" if is_table else "run_squad"):
        if is_table:
            return TableQuestions(path, columns, for_training=for_training, **kind)
        content, sha256 = read_json(path)
        parts = content if isinstance(content, dict) else {}
        articles, entries = parts.get("data"), parts.get("Data")
        if for_training and isinstance(entries, list):
            articles = addon("trivia_qa")(entries, path, evidence_dir)
            sha256 = files.sha256(json.dumps(articles).encode())
        if not isinstance(articles, list):
            raise InputError(
                f'{path}: a SQuAD file must be an object whose key "data" has the list'
                f" of articles. Received: {shown(content)}."
            )
    identity = {"sha256": sha256}
    return CheckedQuestions(articles, path, identity, for_training=for_training, **kind)


def read_tfds(source: TfdsRows, split: str, **kinds: Any) -> CheckedQuestions:
    """Reads the questions of a TensorFlow dataset with SQuAD's features."""
    # The library shuffles a set's questions when it prepares it. They are yielded by
    # paragraph, in the order in which the paragraphs first occur.
    optional = [each for each in ("title", "is_impossible") if each in source.features]
    wanted: dict[str, Any] = dict.fromkeys(
        ("id", "context", "question", *optional), True
    )
    has_answers = "answers" in source.features
    if has_answers:
        wanted["answers"] = {"text": True, "answer_start": True}
    in_answers = {*getattr(source.features.get("answers"), "feature", ())}
    if not {"id", "context", "question"} <= {*source.texts} or not (
        {*wanted.get("answers", ())} <= in_answers
    ):
        raise InputError(
            f"TensorFlow dataset {source.full_name} must have the features of SQuAD:"
            " id, context, question, and answers of text and answer_start. It has:"
            f" {', '.join(source.features)}."
        )
    paragraphs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in source.read(wanted):
        row = dict(one.cells)
        if has_answers:
            columns = row["answers"]["text"], row["answers"]["answer_start"]
            row["answers"] = [
                {"text": text, "answer_start": start}
                for text, start in zip(*columns, strict=True)
            ]
        key = row.pop("title", ""), row.pop("context")
        paragraphs.setdefault(key, []).append(row)
    articles = [
        {"title": title, "paragraphs": [{"context": context, "qas": qas}]}
        for (title, context), qas in paragraphs.items()
    ]
    identity = {"tfds": source.full_name, "split": split}
    return CheckedQuestions(articles, source.path, identity, **kinds)


def questions_of(options: SquadOptions, *, for_training: bool) -> CheckedQuestions:
    """Reads the questions to train on, or to answer."""
    kinds: dict[str, Any] = {
        "max_unusable_rows": options.max_unusable_rows,
        "version_2_with_negative": options.version_2_with_negative,
        "for_training": for_training,
    }
    if options.tfds_name:
        split = options.tfds_splits[0 if for_training else 1]
        source = TfdsRows(options.tfds_name, split, options.tfds_data_dir)
        return read_tfds(source, split, **kinds)
    path = options.train_file if for_training else options.predict_file
    if path is None:
        raise InputError("Give `predict_file`: the runs are compared by it.")
    columns = _columns_of(options)
    return read_file(path, evidence_dir=options.evidence_dir, columns=columns, **kinds)


def _columns_of(options: SquadOptions) -> Columns:
    return Columns(
        options.question_column,
        options.context_column,
        options.answer_column,
        options.delimiter,
    )


def check_tables(options: SquadOptions) -> None:
    """Raises InputError for tables without rows or columns; without TensorFlow."""
    wanted = {
        options.train_file: options.do_train,
        options.predict_file: options.do_predict or options.looks_at_dev,
    }
    for path, is_read in wanted.items():
        if path and is_read and not options.tfds_name and _is_table(path):
            names, found = _columns_of(options).read(path)
            trains = path == options.train_file and options.do_train
            _columns_of(options).require(names, path, trains=trains)
            if not any(row.cells for row in found):
                raise InputError(f"{path}: there is no row with a question in it.")


def read_answer(entry: Any, context: str) -> GoldAnswer:
    """Returns an answer whose words are in the context, with blanks of any kind."""
    _checked(entry, dict, "an answer must be an object")
    text = _checked(entry.get("text"), str, "an answer must have a `text`")
    start = entry.get("answer_start")
    _checked(start, int, "an answer's `answer_start` must be an integer")
    if not text.strip():
        raise EntryError(f"an answer is empty: {shown(text)}")
    if not 0 <= start <= len(context) - len(text):
        raise EntryError(
            f"the answer {shown(text)} at answer_start {start} is not within the"
            f" context's {len(context):,} characters"
        )
    # The usual case does not need the words.
    if not (context.startswith(text, start) and " ".join(text.split()) == text):
        there = _words_at(context, start, start + len(text))
        # The original splits only the answer at U+00A0, and so never finds it.
        if " ".join(text.split()) not in " ".join(there.split()):
            raise EntryError(
                f"the answer {shown(text)} is not in the words at answer_start {start}:"
                f" {shown(there)}"
            )
    return GoldAnswer(text, start)


def _words_at(context: str, start: int, stop: int) -> str:
    """Returns the words from number `start` to `stop` - 1, with single blanks."""
    # A blank belongs to the word before it. Blanks before the first word have the
    # number -1, which in a slice is the last word's, as in the original.
    words = list(WORD.finditer(context))
    starts = [word.start() for word in words]
    first = bisect_right(starts, start) - 1
    last = bisect_right(starts, stop - 1) - 1
    return " ".join(word.group() for word in words[first : last + 1])
