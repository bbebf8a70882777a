"""Hugging Face's side of benchmarks/finetuning.py: PyTorch, no line of bert_tf.

    python huggingface_finetuning.py JOB

JOB is JSON: checkpoint, train and dev (TSV files), columns (text_a, text_b, label: the
numbers of columns; text_b may be null), has_header, regression, max_seq_length,
batch_size, learning_rate, epochs, warmup_proportion, seed, precision ("float32",
"bfloat16"), padding ("max": all to max_seq_length; "dynamic": to the longest of the
batch), threads.

With output, a file's name, it fine-tunes, predicts the dev set and writes JSON:
predictions (a label or a number for each example), logits, train_examples,
train_seconds, predict_examples, predict_seconds.

With paddings, a list, in padding's place, it prints "ready" after a warm-up, and then,
for each line "train PADDING SECONDS" or "predict PADDING SECONDS" that it reads, how
many examples it did in at least so long and the seconds that they took. A turn of
training is at least so many steps that their lengths are those of the data; one of
prediction is whole passes over the dev set.

This is the loop that transformers' documentation writes without its Trainer:
AutoModelForSequenceClassification, DataCollatorWithPadding, and huggingface_training.py
for its steps. Nothing is logged, evaluated or saved on the way, so that none of
that is in its times.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from huggingface_training import Training, prepare

WARM_UP_STEPS = 3
LEAST_STEPS = 8


class FineTuning:
    """A model, its data and its optimizer."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        prepare(job)
        texts, labels = read(job, job["train"])
        dev_texts, dev_labels = read(job, job["dev"])
        self.labels = None if job["regression"] else sorted(set(labels))
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(job["checkpoint"])
        self._train_rows = self._rows(texts, labels)
        self._dev_rows = self._rows(dev_texts, dev_labels)
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(
            job["checkpoint"], num_labels=len(self.labels) if self.labels else 1
        )
        self._training = Training(self.model, job, len(texts))

    def _rows(self, texts: list[list[str]], labels: list[str]) -> list[dict]:
        encoded = self._tokenizer(
            *(list(column) for column in zip(*texts, strict=True)),
            truncation=True,
            max_length=self.job["max_seq_length"],
            padding=False,
        )
        ids = [
            float(label) if self.labels is None else self.labels.index(label)
            for label in labels
        ]
        return [
            {**{key: encoded[key][n] for key in encoded}, "labels": ids[n]}
            for n in range(len(ids))
        ]

    def _loader(self, rows: list[dict], padding: str, *, shuffle: bool) -> Any:
        return torch.utils.data.DataLoader(
            rows,
            batch_size=self.job["batch_size"],
            shuffle=shuffle,
            collate_fn=transformers.DataCollatorWithPadding(
                self._tokenizer,
                padding={"max": "max_length", "dynamic": "longest"}[padding],
                max_length=self.job["max_seq_length"],
            ),
        )

    @property
    def num_steps(self) -> int:
        """Of the whole training."""
        return self._training.num_steps

    def train(self, padding: str) -> Iterator[int]:
        """Steps without end, epoch after epoch; the number of each one's examples."""
        while True:
            for batch in self._loader(self._train_rows, padding, shuffle=True):
                self._training.step(batch)
                yield len(batch["labels"])

    def predict(self, padding: str) -> Iterator[list[list[float]]]:
        """The logits of the dev set, batch by batch in its order."""
        self.model.eval()
        for batch in self._loader(self._dev_rows, padding, shuffle=False):
            batch.pop("labels")
            with torch.inference_mode(), self._training.half():
                logits = self.model(**batch).logits.float().tolist()
            yield logits


def read(job: dict[str, Any], path: str) -> tuple[list[list[str]], list[str]]:
    """Texts, one or two an example, and labels."""
    columns = job["columns"]
    with open(path, encoding="utf-8-sig") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    if job["has_header"]:
        del rows[0]
    texts = [columns[key] for key in ("text_a", "text_b") if columns[key] is not None]
    return (
        [[row[number] for number in texts] for row in rows],
        [row[columns["label"]] for row in rows],
    )


def scores(tuning: FineTuning) -> dict[str, Any]:
    """Fine-tunes, and predicts the dev set."""
    began = time.perf_counter()
    padding = tuning.job["padding"]
    steps = tuning.train(padding)
    trained = sum(next(steps) for _ in range(tuning.num_steps))
    half_time = time.perf_counter()
    logits = [row for rows in tuning.predict(padding) for row in rows]
    ended = time.perf_counter()
    predictions: list = [row[0] for row in logits]
    if tuning.labels is not None:
        predictions = [tuning.labels[row.index(max(row))] for row in logits]
    return {
        "predictions": predictions,
        "logits": logits,
        "train_examples": trained,
        "train_seconds": half_time - began,
        "predict_examples": len(logits),
        "predict_seconds": ended - half_time,
    }


def turns(tuning: FineTuning) -> None:
    """Answers what it is asked on standard input."""
    paddings = tuning.job["paddings"]
    steps = {padding: tuning.train(padding) for padding in paddings}
    for padding in paddings:
        for _ in range(WARM_UP_STEPS):
            next(steps[padding])
        passed = tuning.predict(padding)
        for _ in range(WARM_UP_STEPS):
            next(passed)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, padding, least = line.split()
        examples, count, began, seconds = 0, 0, time.perf_counter(), 0.0
        is_enough = False
        while not is_enough:
            if kind == "train":
                examples += next(steps[padding])
            else:
                examples += sum(map(len, tuning.predict(padding)))
            count += 1
            seconds = time.perf_counter() - began
            is_enough = seconds >= float(least)
            if kind == "train" and padding == "dynamic":
                is_enough = is_enough and count >= LEAST_STEPS
        print(examples, seconds, flush=True)


def main() -> None:
    job = json.loads(sys.argv[1])
    tuning = FineTuning(job)
    if "output" not in job:
        turns(tuning)
        return
    result = scores(tuning)
    with open(job["output"], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
