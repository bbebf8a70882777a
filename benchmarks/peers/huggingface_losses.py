"""Hugging Face's side of `losses` in benchmarks/features.py: no line of bert_tf.

    python huggingface_losses.py JOB

JOB is JSON: kind ("swag", "ner"), checkpoint, num_labels (of ner), start (a folder),
batches (an .npz file), batch_size, num_steps, learning_rate, epochs, warmup_proportion,
seed, precision, threads.

Where there is no file `batches`, it makes `start`: the checkpoint with a new head and
without dropout. Else it trains that model on the batches, [steps, ...] by the names of
bert_tf's records, and prints the losses as JSON. huggingface_training.py makes the
steps.
"""

import json
import os
import sys
from typing import Any

import numpy as np
import torch
import transformers
from huggingface_training import Training, prepare

# transformers': no loss here.
IGNORED = -100
MODELS = {
    "swag": transformers.AutoModelForMultipleChoice,
    "ner": transformers.AutoModelForTokenClassification,
}


def make_start(job: dict[str, Any]) -> None:
    """A folder of what both sides start from."""
    config = transformers.AutoConfig.from_pretrained(
        job["checkpoint"],
        num_labels=job["num_labels"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=0.0,
    )
    model = MODELS[job["kind"]].from_pretrained(job["checkpoint"], config=config)
    model.save_pretrained(job["start"])


def labels_of(kind: str, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """What transformers calls labels."""
    if kind == "swag":
        return batch["label_ids"][:, 0]
    return torch.where(batch["label_weights"] > 0, batch["label_ids"], IGNORED)


def losses(job: dict[str, Any]) -> list[float]:
    """The loss of each batch, each before its step."""
    model = MODELS[job["kind"]].from_pretrained(job["start"])
    training = Training(model, job, job["num_steps"] * job["batch_size"])
    arrays = np.load(job["batches"])
    batches = {name: torch.from_numpy(arrays[name]).long() for name in arrays.files}
    found = []
    for number in range(job["num_steps"]):
        batch = {name: values[number] for name, values in batches.items()}
        loss = training.step(
            {
                "input_ids": batch["input_ids"],
                "attention_mask": batch["input_mask"],
                "token_type_ids": batch["segment_ids"],
                "labels": labels_of(job["kind"], batch),
            }
        )
        found.append(float(loss))
    return found


def main() -> None:
    job = json.loads(sys.argv[1])
    prepare(job)
    if os.path.exists(job["batches"]):
        print(json.dumps(losses(job)))
    else:
        make_start(job)


if __name__ == "__main__":
    main()
