"""Models that answer questions about texts (SQuAD)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.addons.serving.answer import NO_ANSWER, options_of
from bert_tf.addons.serving.answerer import Answerer
from bert_tf.addons.serving.text_models.model import (
    SPAN_LENGTH,
    Answer,
    TextModel,
    Texts,
    ToExplain,
    is_empty,
)
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.tasks.squad import windows as squad_windows
from bert_tf.tasks.squad.decoding import NBestEntry
from bert_tf.text.wordpiece import list_of, text_pairs


def _answers(entries: Sequence[NBestEntry]) -> list[Answer]:
    return [Answer(entry.text, entry.probability, entry.span) for entry in entries]


class QuestionAnswerer(TextModel):
    """A model of SQuAD: `answer`, `explain` and `embed`.

    Examples:
        >>> model = bert_tf.load("squad_model")
        >>> answers = model.answer("What is good?", "A film is good.")[0]
        >>> answers[0].text in "A film is good."
        True
    """

    head = "a model of SQuAD"
    methods = ("answer", "explain")
    _default_length = SPAN_LENGTH
    head_name = names.SPAN

    def _prepare(self) -> None:
        given = {"max_seq_length": self.max_length}
        self._answerer = Answerer(
            self.model,
            self.tokenizer,
            predict=self._predict,
            batch_size=self._batch_size,
            **options_of(given, self.source, self.source.checkpoint),
        )

    def answer(
        self, questions: Texts, contexts: Texts, *, top_k: int = 1
    ) -> list[list[Answer]]:
        """Answers each question about its text, or all questions about one text.

        The prediction comes first, then the other answers, the likeliest first.
        """
        if is_empty(questions):
            return []
        if isinstance(contexts, str):
            contexts = [contexts] * len(list_of(questions))
        pairs = text_pairs(questions, contexts)
        for number, (question, _) in enumerate(pairs):
            if not question.strip():
                raise InputError(f"Question {number} (from 0) is empty.")
        found = []
        answers = self._answerer.each(*zip(*pairs, strict=True))
        for number, entries in enumerate(answers):
            if not entries:
                raise InputError(
                    f"Text {number} (from 0), which must contain the answer, is empty."
                )
            found.append(_answers(entries[:top_k]))
        return found

    def answers_with_words(
        self, questions: Sequence[str], contexts: Sequence[str]
    ) -> list[list[Answer]]:
        """Like `answer`, but returns all answers; [] for a text without a word."""
        return list(map(_answers, self._answerer.each(questions, contexts)))

    def _to_explain(
        self, text: str | Sequence[str], pair: str | None, target: str | int | None
    ) -> Iterator[ToExplain]:
        """Yields question and text, and the summed logits of the best answer's ends.

        If the text has several windows, only the one with the answer is read.
        """
        if target is not None:
            raise InputError(
                "`target`: a question answerer explains the best answer; leave it out."
            )
        ((question, context),) = text_pairs([text], [pair])  # type: ignore[list-item]
        (features,) = self._answerer.features([question], context)
        answer = self._answerer.answers(features)[0]
        number, start, end = self._answerer.place(features, answer)
        (block,) = squad_windows.blocks([features], self.max_length)
        begin, length = features.windows[number]
        size = features.offset + length + 1
        inputs = {name: block[name][number : number + 1, :size] for name in block}
        asked = self.tokenizer.encode_with_offsets(question)
        read = self.tokenizer.encode_with_offsets(context)
        encodings = [
            asked.part(0, len(features.query_ids)),
            read.part(begin, begin + length),
        ]

        def score(outputs: Mapping[str, Any]) -> Any:
            return outputs["start_logits"][:, start] + outputs["end_logits"][:, end]

        targets = {answer.text or NO_ANSWER: score}
        yield ToExplain(encodings, [question, context], inputs, targets)
