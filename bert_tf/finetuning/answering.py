"""Answers to questions about a text of one's own: what `bert_tf.answer` prints.

The text is one paragraph of SQuAD, however long: it is read in windows, and an answer
is cut from it by the places of its tokens (`--answer_text=offsets`).

Shapes: W windows of a batch, S tokens of the longest of them.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.squad import decoding, records
from bert_tf.squad.decoding import Decoder, DecodingSettings, NBestEntry
from bert_tf.squad.examples import Paragraph, Question
from bert_tf.squad.features import Featurizer, QuestionFeatures
from bert_tf.text.normalization import Span
from bert_tf.text.wordpiece import WordPieceTokenizer


class Answerer:
    """Answers questions with a model of SQuAD."""

    def __init__(
        self,
        model: BertSpanPredictor,
        tokenizer: WordPieceTokenizer,
        *,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        version_2_with_negative: bool = False,
        null_score_diff_threshold: float = 0.0,
        batch_size: int = 8,
    ) -> None:
        longest = model.bert_config.max_position_embeddings
        if max_seq_length > longest:
            raise InputError(
                f"`max_seq_length` must not exceed the model's {longest} positions."
                f" Received: {max_seq_length}"
            )
        self._model = model
        self._max_seq_length, self._batch_size = max_seq_length, batch_size
        self._featurizer = Featurizer(
            tokenizer,
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
            for_training=False,
        )
        self._settings = DecodingSettings(
            n_best_size=n_best_size,
            max_answer_length=max_answer_length,
            version_2_with_negative=version_2_with_negative,
            do_lower_case=tokenizer.do_lower_case,
            answer_text=decoding.OFFSETS,
        )
        self._threshold = null_score_diff_threshold
        self._decoder = Decoder(tokenizer, self._settings)

    def __call__(
        self, questions: Sequence[str], context: str
    ) -> Iterator[list[NBestEntry]]:
        """Answers questions, one after the other."""
        paragraph = Paragraph(context=context)
        asked = []
        for number, text in enumerate(questions, start=1):
            if not text.strip():
                raise InputError(f"Question {number} is empty.")
            asked.append(
                Question(question_id=str(number), text=text, paragraph=paragraph)
            )
        for features in self._featurizer(asked):
            if not features.windows:
                raise InputError("The text to find answers in has no word.")
            starts, ends = self._logits(features)
            decoded = self._decoder(features, starts, ends)
            said = decoding.answer(decoded, self._settings, self._threshold)
            first = next(
                (entry for entry in decoded.n_best if entry.text == said),
                decoded.n_best[0],
            )
            yield [first, *(entry for entry in decoded.n_best if entry is not first)]

    def _logits(
        self, features: QuestionFeatures
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Scores of each window's tokens to be an answer's first, and its last."""
        starts: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        for block in records.blocks([features], self._max_seq_length):
            all_lengths = block["input_mask"].sum(axis=1)
            for first in range(0, len(all_lengths), self._batch_size):
                rows = slice(first, first + self._batch_size)
                lengths = all_lengths[rows]
                outputs = self._model(
                    {
                        name: np.asarray(block[name][rows, : lengths.max()], np.int32)
                        for name in ("input_ids", "input_mask", "segment_ids")
                    },
                    training=False,
                )
                for scores, name in ((starts, "start_logits"), (ends, "end_logits")):
                    values = np.asarray(outputs[name])  # [W, S]
                    scores += [
                        row[:length]
                        for row, length in zip(values, lengths, strict=True)
                    ]
        return starts, ends


def sentence_round(
    context: str, span: Span, split: Callable[[str], Sequence[str]]
) -> Span:
    """Where the sentence stands that an answer is in; or all that it is in."""
    start, end = span
    # A line that the answer begins or ends in is whole in this.
    first = context.rfind("\n", 0, start) + 1
    last = context.find("\n", end)
    last = len(context) if last < 0 else last
    sentence_start, sentence_end = start, end
    place = first
    for line in context[first:last].split("\n"):
        line_end = place + len(line)
        for sentence in split(line):
            # Between sentences nothing is lost but white space.
            while context[place].isspace():
                place += 1
            if place <= start < place + len(sentence):
                sentence_start = place
            if place < end <= place + len(sentence):
                sentence_end = place + len(sentence)
            place += len(sentence)
        place = line_end + 1
    return sentence_start, sentence_end
