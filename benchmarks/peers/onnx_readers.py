"""The libraries that open the folder of an ONNX export, no line of bert_tf.

    python onnx_readers.py JOBS

JOBS is a JSON file with a list of jobs.

    {"by": NAME, "folder": FOLDER, "texts": [...], "outputs": NPZ, ...}
        opens a folder by a class of Optimum, by sentence-transformers or by fastembed,
        gives it the texts and writes what it computed; of Optimum also the inputs. For
        fastembed "pooling", "normalizes" and "size" are given, too.
"""

import json
import sys
from typing import Any

import numpy as np


def optimum(job: dict[str, Any]) -> dict[str, np.ndarray]:
    """A class that computes with ONNX Runtime, and the tokenizer of its folder."""
    from optimum import onnxruntime
    from transformers import AutoTokenizer

    model = getattr(onnxruntime, job["by"]).from_pretrained(job["folder"])
    tokenizer = AutoTokenizer.from_pretrained(job["folder"])
    texts = job["texts"]
    if "MultipleChoice" in job["by"]:
        encoded = tokenizer(
            *([texts[0], texts[0]], texts[1:3]), padding=True, return_tensors="np"
        )
        inputs = {name: array[None] for name, array in encoded.items()}
    else:
        inputs = dict(tokenizer(texts, padding=True, return_tensors="np"))
    outputs = {name: x for name, x in model(**inputs).items() if x is not None}
    return {**inputs, **outputs}


def sentence_transformers(job: dict[str, Any]) -> dict[str, np.ndarray]:
    """The vectors of SentenceTransformer with the back end "onnx"."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(job["folder"], backend="onnx")
    length = np.array(model.max_seq_length)
    return {"vectors": model.encode(job["texts"]), "max_seq_length": length}


def fastembed(job: dict[str, Any]) -> dict[str, np.ndarray]:
    """The vectors of TextEmbedding with a folder as a model of one's own."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    name = job["folder"]
    TextEmbedding.add_custom_model(
        name,
        pooling=PoolingType(job["pooling"].upper()),
        normalization=job["normalizes"],
        sources=ModelSource(hf=name),
        dim=job["size"],
        model_file="model.onnx",
    )
    model = TextEmbedding(name, specific_model_path=name)
    return {"vectors": np.stack(list(model.embed(job["texts"])))}


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    own = {"sentence-transformers": sentence_transformers, "fastembed": fastembed}
    for job in jobs:
        outputs: Any = own.get(job["by"], optimum)(job)
        np.savez(job["outputs"], **outputs)
    print(json.dumps(len(jobs)))


if __name__ == "__main__":
    main()
