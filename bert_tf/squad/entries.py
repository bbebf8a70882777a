"""A paragraph of a SQuAD file, parsed, into questions.

    {"context": "...", "qas": [
        {"id": "5733be284776f41900661182", "question": "...", "is_impossible": false,
         "answers": [{"text": "Saint Bernadette", "answer_start": 515}]}]}

What cannot be used is skipped and reported, with one exception: questions without an
answer are SQuAD 2.0's, and where these are not asked for the file is refused.
"""

from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError
from bert_tf.squad.answers import EntryError, read_answer
from bert_tf.squad.examples import Answer, Paragraph, Question
from bert_tf.squad.report import (
    DUPLICATE,
    FAULTY_ANSWERS,
    MALFORMED,
    MALFORMED_PARAGRAPHS,
    NO_ANSWER,
    OTHER_SPELLING,
    SEVERAL_ANSWERS,
    Report,
    shown,
)


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
