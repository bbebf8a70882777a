"""PEFT's side of benchmarks/conversion.py: PyTorch, no line of bert_tf.

    python peft_models.py JOBS

JOBS is a JSON file with a list of jobs; the last line printed is JSON, a result each.

    {"make": ADAPTER, "base": FOLDER, "class": NAME, "config": {...}, "lora": {...},
     "inputs": NPZ, "outputs": NPZ}
        writes a base with random weights and an adapter with random matrices, heads and
        biases; opens both again as below
    {"run": ADAPTER, "base": FOLDER, "class": NAME, "config": {...}, ...}
        opens an adapter on a base of a class, computes on arrays, and writes what it
        computed
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
import peft
import torch
import transformers


def randomize(model: torch.nn.Module, deviation: float) -> None:
    """Draws all weights that are trained."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.normal_(0.0, deviation)
                if name.endswith("LayerNorm.weight"):
                    parameter.add_(1.0)


def make(job: dict[str, Any]) -> None:
    """Writes a random base and a random adapter."""
    torch.manual_seed(1)
    kind = getattr(transformers, job["class"])
    model = kind(getattr(transformers, kind.config_class.__name__)(**job["config"]))
    randomize(model, 0.05)
    model.save_pretrained(job["base"])
    model = kind.from_pretrained(job["base"])
    adapted = peft.get_peft_model(model, peft.LoraConfig(**job["lora"]))
    randomize(adapted, 0.2)
    adapted.save_pretrained(job["make"])
    run({**job, "run": job["make"]})


def run(job: dict[str, Any]) -> None:
    """Loads an adapter and computes."""
    labels = {k: v for k, v in job["config"].items() if k == "num_labels"}
    kind = getattr(transformers, job["class"])
    base = kind.from_pretrained(job["base"], attn_implementation="eager", **labels)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        model = peft.PeftModel.from_pretrained(base, job["run"]).eval()
    tensors = {key: torch.from_numpy(a) for key, a in np.load(job["inputs"]).items()}
    with torch.no_grad():
        result = model(**tensors)
    arrays = {k: v.numpy() for k, v in result.items() if isinstance(v, torch.Tensor)}
    np.savez(job["outputs"], **arrays)


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    for job in jobs:
        make(job) if "make" in job else run(job)
    print(json.dumps([None] * len(jobs)))


if __name__ == "__main__":
    main()
