"""Hugging Face's side of swag and ner in benchmarks/features.py: no line of bert_tf.

    python huggingface_heads.py JOB

JOB is JSON: kind, checkpoint, train, dev, max_seq_length, batch_size, learning_rate,
epochs, warmup_proportion, seed, precision ("float32", "bfloat16"), threads, output.

kind  swag  CSV files with SWAG's columns; AutoModelForMultipleChoice
      ner   files with word/TAG, a sentence a line; AutoModelForTokenClassification,
            whose labels stand at the words' first pieces

It fine-tunes, predicts the dev set and writes JSON to `output`: predictions (the number
of an ending; of each word its tag, "" where the sentence was cut before it),
train_examples, train_seconds, predict_seconds.

Batches are padded to their longest sequence; huggingface_training.py makes the steps.
Nothing is logged, evaluated or saved on the way, so that none of that is in its times.
"""

import csv
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_training import Training, prepare

# transformers': no loss here.
IGNORED = -100


class Example(NamedTuple):
    """A sequence for each choice (one of a sentence), and what is right.

    Attributes:
        ids: the tokens of each sequence.
        types: as many, 1 in the second part.
        labels: swag: one; ner: of each token, `IGNORED` but at words' first pieces.
        num_words: ner: of the sentence.
    """

    ids: list[list[int]]
    types: list[list[int]]
    labels: list[int]
    num_words: int = 0


class Choices:
    """SWAG's rows as examples."""

    def __init__(self, job: dict[str, Any], tokenizer: Any) -> None:
        self._job, self._tokenizer = job, tokenizer
        self.train, self.dev = (
            list(self._read(job[name])) for name in ("train", "dev")
        )
        self.model = transformers.AutoModelForMultipleChoice.from_pretrained(
            job["checkpoint"]
        )

    def _read(self, path: str) -> Iterator[Example]:
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                endings = [row[f"ending{number}"] for number in range(4)]
                encoded = self._tokenizer(
                    [row["sent1"]] * len(endings),
                    [f"{row['sent2']} {ending}".strip() for ending in endings],
                    truncation=True,
                    max_length=self._job["max_seq_length"],
                )
                yield Example(
                    encoded["input_ids"], encoded["token_type_ids"], [int(row["label"])]
                )

    def batch(self, examples: list[Example]) -> dict[str, torch.Tensor]:
        """What the model takes."""
        return {
            name: values.view(len(examples), -1, values.shape[-1])
            for name, values in padded(examples).items()
        } | {"labels": torch.tensor([one.labels[0] for one in examples])}

    def predictions(self, example: Example, logits: torch.Tensor) -> list[int]:
        """The ending."""
        del example
        return [int(logits.argmax())]


class Words:
    """Sentences of tagged words as examples."""

    def __init__(self, job: dict[str, Any], tokenizer: Any) -> None:
        self._job, self._tokenizer = job, tokenizer
        train, dev = (list(tagged(job[name])) for name in ("train", "dev"))
        self.names = sorted({tag for _, tags in train for tag in tags})
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self.train, self.dev = (
            [self._example(*one) for one in some] for some in (train, dev)
        )
        self.model = transformers.AutoModelForTokenClassification.from_pretrained(
            job["checkpoint"], num_labels=len(self.names)
        )

    def _example(self, words: list[str], tags: list[str]) -> Example:
        encoded = self._tokenizer(
            words,
            is_split_into_words=True,
            truncation=True,
            max_length=self._job["max_seq_length"],
        )
        labels, before = [], None
        for word in encoded.word_ids():
            is_first = word is not None and word != before
            # 0 stands for a tag that was never trained; of the dev set alone.
            labels.append(self._numbers.get(tags[word], 0) if is_first else IGNORED)
            before = word
        ids, types = encoded["input_ids"], encoded["token_type_ids"]
        return Example([ids], [types], labels, len(words))

    def batch(self, examples: list[Example]) -> dict[str, torch.Tensor]:
        """What the model takes."""
        batch = padded(examples)
        labels = torch.full_like(batch["input_ids"], IGNORED)
        for row, one in zip(labels, examples, strict=True):
            row[: len(one.labels)] = torch.tensor(one.labels)
        return {**batch, "labels": labels}

    def predictions(self, example: Example, logits: torch.Tensor) -> list[str]:
        """The words' tags."""
        found = [
            self.names[int(row.argmax())]
            for row, label in zip(logits, example.labels, strict=False)
            if label != IGNORED
        ]
        return found + [""] * (example.num_words - len(found))


def tagged(path: str) -> Iterator[tuple[list[str], list[str]]]:
    """The words and the tags of each line."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            parts = [cell.rpartition("/") for cell in line.split()]
            yield [part[0] for part in parts], [part[2] for part in parts]


def padded(examples: list[Example]) -> dict[str, torch.Tensor]:
    """All examples' sequences, [sequences, the longest one's length]."""
    ids = [sequence for one in examples for sequence in one.ids]
    types = [sequence for one in examples for sequence in one.types]
    # The padding token is 0, as in all of Google's vocabularies.
    batch = {
        name: torch.zeros(len(ids), max(map(len, ids)), dtype=torch.long)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    for row, (sequence, kinds) in enumerate(zip(ids, types, strict=True)):
        batch["input_ids"][row, : len(sequence)] = torch.tensor(sequence)
        batch["token_type_ids"][row, : len(kinds)] = torch.tensor(kinds)
        batch["attention_mask"][row, : len(sequence)] = 1
    return batch


def main() -> None:
    job = json.loads(sys.argv[1])
    prepare(job)
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["checkpoint"])
    data = {"swag": Choices, "ner": Words}[job["kind"]](job, tokenizer)
    assert tokenizer.pad_token_id == 0
    training = Training(data.model, job, len(data.train))
    began = time.perf_counter()
    made = 0
    while made < training.num_steps:
        loader = torch.utils.data.DataLoader(
            data.train,  # type: ignore[arg-type]
            batch_size=job["batch_size"],
            shuffle=True,
            collate_fn=data.batch,
        )
        for batch in loader:
            if made == training.num_steps:
                break
            training.step(batch)
            made += 1
    half_time = time.perf_counter()
    data.model.eval()
    predictions: list[Any] = []
    for begin in range(0, len(data.dev), job["batch_size"]):
        examples = data.dev[begin : begin + job["batch_size"]]
        batch = data.batch(examples)
        batch.pop("labels")
        with torch.inference_mode(), training.half():
            logits = data.model(**batch).logits.float()
        for one, rows in zip(examples, logits, strict=True):
            predictions += data.predictions(one, rows)
    result = {
        "predictions": predictions,
        "train_examples": round(len(data.train) * job["epochs"]),
        "train_seconds": half_time - began,
        "predict_seconds": time.perf_counter() - half_time,
    }
    with open(job["output"], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
