"""captum's side of benchmarks/explanations.py: PyTorch, no line of bert_tf.

    python captum_attributions.py JOBS

JOBS is a JSON file with a list of jobs; the last line printed is JSON, a result each.

    {"make": FOLDER, "class": NAME, "weights": FOLDER}
        writes a model with an encoder's real weights and a random head
    {"explain": FOLDER, "inputs": NPZ, "targets": [[output, index, ...], ...],
     "steps": N}
        loads a folder by the class that its config names; the attributions of a text's
        tokens, by layer integrated gradients of the word embeddings, for the sum of
        some of its outputs' numbers
"""

import json
import os
import shutil
import sys
from typing import Any

import numpy as np
import torch
import transformers
from captum.attr import LayerIntegratedGradients


def make(job: dict[str, Any]) -> None:
    """Writes a model."""
    torch.manual_seed(1)
    kind = getattr(transformers, job["class"])
    model = kind.from_pretrained(job["weights"], num_labels=job["num_labels"])
    head = model.qa_outputs if hasattr(model, "qa_outputs") else model.classifier
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0.0, 0.3)
    model.save_pretrained(job["make"])
    shutil.copy(os.path.join(job["weights"], "vocab.txt"), job["make"])


def explain(job: dict[str, Any]) -> list[float]:
    """The attributions of the tokens of one text."""
    with open(os.path.join(job["explain"], "config.json")) as file:
        (name,) = json.load(file)["architectures"]
    model = getattr(transformers, name).from_pretrained(
        job["explain"], attn_implementation="eager"
    )
    model.eval()
    arrays = {key: torch.from_numpy(a) for key, a in np.load(job["inputs"]).items()}

    def score(ids: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        outputs = model(input_ids=ids, token_type_ids=segments)
        return sum(
            outputs[key][(slice(None), *index)] for key, *index in job["targets"]
        )

    gradients = LayerIntegratedGradients(score, model.bert.embeddings.word_embeddings)
    found = gradients.attribute(
        inputs=arrays["input_ids"],
        baselines=arrays["baseline_ids"],
        additional_forward_args=(arrays["token_type_ids"],),
        n_steps=job["steps"],
        method="gausslegendre",
        internal_batch_size=32,
    )
    return found.sum(dim=-1)[0].tolist()


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    print(json.dumps([make(job) if "make" in job else explain(job) for job in jobs]))


if __name__ == "__main__":
    main()
