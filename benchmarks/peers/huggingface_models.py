"""Hugging Face's side of benchmarks/conversion.py: PyTorch, no line of bert_tf.

    python huggingface_models.py JOBS

JOBS is a JSON file with a list of jobs; the last line printed is JSON, a result each.

    {"make": FOLDER, "class": NAME, "config": {...}}
        writes a model with random weights, biases and LayerNorms too
    {"run": FOLDER, "inputs": NPZ, "outputs": NPZ}
        loads a folder by the class that its config names, computes on arrays and writes
        what it computed; the result has the number of weights that were missing, left
        over or of another shape
"""

import json
import os
import sys
from typing import Any

import numpy as np
import torch
import transformers


def make(job: dict[str, Any]) -> None:
    """Writes a random model."""
    torch.manual_seed(1)
    config = transformers.BertConfig(**job["config"])
    model = getattr(transformers, job["class"])(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.05)
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1.0)
    model.save_pretrained(job["make"])


def run(job: dict[str, Any]) -> dict[str, int]:
    """Loads a model and computes."""
    folder = job["run"]
    with open(os.path.join(folder, "config.json")) as file:
        (name,) = json.load(file)["architectures"]
    model, loading = getattr(transformers, name).from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    model.eval()
    tensors = {key: torch.from_numpy(a) for key, a in np.load(job["inputs"]).items()}
    with torch.no_grad():
        result = model(**tensors, output_hidden_states=True)
    arrays = {
        key: value.numpy()
        for key, value in result.items()
        if isinstance(value, torch.Tensor)
    }
    for number, hidden in enumerate(result.hidden_states):
        arrays[f"hidden_{number}"] = hidden.numpy()
    np.savez(job["outputs"], **arrays)
    return {key: len(value) for key, value in loading.items()}


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    functions = {"make": make, "run": run}
    results = [
        function(job)
        for job in jobs
        for kind, function in functions.items()
        if kind in job
    ]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
