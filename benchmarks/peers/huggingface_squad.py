"""Hugging Face's side of benchmarks/squad.py: PyTorch, no line of bert_tf.

    python huggingface_squad.py JOB

JOB is JSON: checkpoint, train and dev (SQuAD files), version_2 (whether the model may
say that there is no answer), max_seq_length, doc_stride, max_query_length, batch_size,
learning_rate, epochs, warmup_proportion, seed, precision ("float32", "bfloat16"),
n_best_size, max_answer_length, threads, output.

It fine-tunes, predicts the dev set and writes JSON to `output`: predictions (of each
question the best text), null_odds (2.0: the score of "no answer" less the best text's),
train_questions, train_seconds, predict_questions, predict_seconds.

This is the loop that transformers' documentation writes without its Trainer:
AutoModelForQuestionAnswering, its fast tokenizer, batches padded to their longest
window, the linear schedule, and autocast for bfloat16. Windows are those of the paper's
code: `doc_stride` tokens from one to the next. Answers are cut from the text by the
tokenizer's offsets, as in transformers' example of question answering. Nothing is
logged, evaluated or saved on the way, so that none of that is in its times.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_training import Training, prepare

# What stands for the score of "no answer" where a question has no text at all.
NO_SPAN = 1e6


class Window(NamedTuple):
    """A part of a context, as a record.

    Attributes:
        question: the number of its question.
        input_ids: [CLS] question [SEP] part [SEP].
        first: where in it the part begins.
        offsets: of each of the part's tokens, its characters in the context.
        answer: where in it the answer's first and last token stand; 0, 0 without one.
    """

    question: int
    input_ids: list[int]
    first: int
    offsets: list[tuple[int, int]]
    answer: tuple[int, int]


class Span(NamedTuple):
    """An answer: its score, and its characters in the context, half open."""

    score: float
    start: int
    end: int


def questions_of(path: str) -> list[dict[str, Any]]:
    """The questions of a file, each with its context."""
    with open(path, encoding="utf-8") as file:
        articles = json.load(file)["data"]
    return [
        {**question, "context": paragraph["context"]}
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


class FineTuning:
    """A model, its data and its optimizer."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        prepare(job)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(job["checkpoint"])
        self.train_questions = questions_of(job["train"])
        self.dev_questions = questions_of(job["dev"])
        self._train_windows = list(self._windows(self.train_questions))
        self._dev_windows = list(self._windows(self.dev_questions))
        self.model = transformers.AutoModelForQuestionAnswering.from_pretrained(
            job["checkpoint"]
        )
        self._training = Training(self.model, job, len(self._train_windows))

    def _encode(self, texts: list[str]) -> Any:
        return self._tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )

    def _windows(self, questions: list[dict[str, Any]]) -> Iterator[Window]:
        cls, sep = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        queries = self._encode([question["question"] for question in questions])
        distinct = list(dict.fromkeys(question["context"] for question in questions))
        encoded = self._encode(distinct)
        number_of = {context: number for number, context in enumerate(distinct)}
        for number, question in enumerate(questions):
            query = queries["input_ids"][number][: self.job["max_query_length"]]
            room = self.job["max_seq_length"] - len(query) - 3
            place = number_of[question["context"]]
            ids, offsets = encoded["input_ids"][place], encoded["offset_mapping"][place]
            answer = answer_tokens(question, offsets)
            begin = 0
            while begin < len(ids):
                end = min(begin + room, len(ids))
                first = len(query) + 2
                is_within = answer and begin <= answer[0] and answer[1] < end
                yield Window(
                    number,
                    [cls, *query, sep, *ids[begin:end], sep],
                    first,
                    offsets[begin:end],
                    (answer[0] - begin + first, answer[1] - begin + first)
                    if is_within
                    else (0, 0),
                )
                if end == len(ids):
                    break
                begin += min(end - begin, self.job["doc_stride"])

    def _batch(self, windows: list[Window]) -> dict[str, torch.Tensor]:
        length = max(len(window.input_ids) for window in windows)
        ids = torch.full((len(windows), length), self._tokenizer.pad_token_id)
        mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, window in enumerate(windows):
            count = len(window.input_ids)
            ids[row, :count] = torch.tensor(window.input_ids)
            mask[row, :count] = 1
            types[row, window.first : count] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    def train(self) -> None:
        """All steps."""
        made = 0
        while made < self._training.num_steps:
            loader = torch.utils.data.DataLoader(
                self._train_windows,  # type: ignore[arg-type]
                batch_size=self.job["batch_size"],
                shuffle=True,
                collate_fn=lambda windows: windows,
            )
            for windows in loader:
                if made == self._training.num_steps:
                    break
                answers = torch.tensor([window.answer for window in windows])
                batch = self._batch(windows)
                batch["start_positions"] = answers[:, 0]
                batch["end_positions"] = answers[:, 1]
                self._training.step(batch)
                made += 1

    def predict(self) -> tuple[dict[str, str], dict[str, float]]:
        """Each question's best text, and its score of "no answer" less that text's."""
        self.model.eval()
        best = [Span(-math.inf, 0, 0)] * len(self.dev_questions)
        nulls = [math.inf] * len(self.dev_questions)
        size = self.job["batch_size"]
        for begin in range(0, len(self._dev_windows), size):
            windows = self._dev_windows[begin : begin + size]
            with torch.inference_mode(), self._training.half():
                outputs = self.model(**self._batch(windows))
            starts = outputs.start_logits.float()
            ends = outputs.end_logits.float()
            for row, window in enumerate(windows):
                number = window.question
                spans = self._spans(window, starts[row], ends[row])
                best[number] = max([best[number], *spans], key=lambda span: span.score)
                null = (starts[row, 0] + ends[row, 0]).item()
                nulls[number] = min(nulls[number], null)
        texts, odds = {}, {}
        for question, span, null in zip(self.dev_questions, best, nulls, strict=True):
            texts[question["id"]] = question["context"][span.start : span.end]
            has_span = span.score > -math.inf
            odds[question["id"]] = null - span.score if has_span else NO_SPAN
        return texts, odds

    def _spans(
        self, window: Window, starts: torch.Tensor, ends: torch.Tensor
    ) -> Iterator[Span]:
        """A window's spans from its best starts to its best ends."""
        count = min(self.job["n_best_size"], len(starts))
        best_starts, best_ends = starts.topk(count), ends.topk(count)
        last = window.first + len(window.offsets)
        for start, start_score in zip(
            best_starts.indices.tolist(), best_starts.values.tolist(), strict=True
        ):
            for end, end_score in zip(
                best_ends.indices.tolist(), best_ends.values.tolist(), strict=True
            ):
                is_span = window.first <= start <= end < last
                if is_span and end - start < self.job["max_answer_length"]:
                    yield Span(
                        start_score + end_score,
                        window.offsets[start - window.first][0],
                        window.offsets[end - window.first][1],
                    )


def answer_tokens(
    question: dict[str, Any], offsets: list[tuple[int, int]]
) -> tuple[int, int] | None:
    """The first and last token that share a character with a question's answer."""
    if not question["answers"] or question.get("is_impossible"):
        return None
    answer = question["answers"][0]
    begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    inside = [
        number
        for number, (start, stop) in enumerate(offsets)
        if start < end and stop > begin
    ]
    return (inside[0], inside[-1]) if inside else None


def main() -> None:
    job = json.loads(sys.argv[1])
    tuning = FineTuning(job)
    began = time.perf_counter()
    tuning.train()
    half_time = time.perf_counter()
    texts, odds = tuning.predict()
    result = {
        "predictions": texts,
        "null_odds": odds if job["version_2"] else None,
        "train_questions": round(len(tuning.train_questions) * job["epochs"]),
        "train_seconds": half_time - began,
        "predict_questions": len(tuning.dev_questions),
        "predict_seconds": time.perf_counter() - half_time,
    }
    with open(job["output"], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
