"""What benchmarks/start.py measures, by transformers: PyTorch, no line of bert_tf."""

import csv
import json
import os
import pathlib
import sys
import time

import torch
import transformers

command, *rest = sys.argv[1:]
given = dict(flag[2:].split("=", 1) for flag in rest)
seconds: dict[str, float] = {}


def read(path: str) -> str:
    """The text of a file."""
    return pathlib.Path(path).read_text()


class Watch(transformers.TrainerCallback):
    """Tells a training's first batch and step, and ends there."""

    def on_step_begin(self, *_: object, **__: object) -> None:
        """The first batch is read."""
        seconds["first batch"] = time.process_time()

    def on_step_end(self, *_: object, **__: object) -> None:
        """The first update is made."""
        seconds["first step"] = time.process_time()
        print(json.dumps(seconds), flush=True)
        os._exit(0)


def train(model: torch.nn.Module, rows: list, collator: object) -> None:
    """Makes a step by transformers' Trainer."""
    options = transformers.TrainingArguments(
        output_dir=given["output_dir"],
        per_device_train_batch_size=int(given["train_batch_size"]),
        max_steps=1,
        report_to="none",
    )
    transformers.Trainer(
        model=model,
        args=options,
        train_dataset=rows,
        data_collator=collator,
        callbacks=[Watch()],
    ).train()


def main() -> None:
    """Does what the command of that name does."""
    if command == "predict":
        classify = transformers.pipeline("text-classification", model="exported")
        with open(given["input_file"]) as file:
            texts = [row[given["text_a_column"]] for row in csv.DictReader(file)]
        with open(given["output_file"], "w") as file:
            csv.writer(file).writerows(
                (text, found["label"], found["score"])
                for text, found in zip(texts, classify(texts), strict=True)
            )
        return
    tokenizer = transformers.BertTokenizerFast("vocab.txt")
    config = transformers.BertConfig(**json.loads(read(given["bert_config_file"])))
    if command == "run_pretraining":
        lines = [line for line in read("corpus.txt").splitlines() if line]
        rows = [tokenizer(line, truncation=True, max_length=32) for line in lines]
        collator = transformers.DataCollatorForLanguageModeling(tokenizer)
        train(transformers.BertForMaskedLM(config), rows, collator)
    with open(given["train_file"]) as file:
        rows = [
            {
                **tokenizer(row["text"], truncation=True, max_length=32),
                "label": int(row["label"]),
            }
            for row in csv.DictReader(file)
        ]
    train(
        transformers.BertForSequenceClassification(config),
        rows,
        transformers.DataCollatorWithPadding(tokenizer),
    )


if __name__ == "__main__":
    if command != "import":
        main()
    seconds["end"] = time.process_time()
    print(json.dumps(seconds), flush=True)
    os._exit(0)
