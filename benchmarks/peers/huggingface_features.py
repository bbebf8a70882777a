"""Hugging Face's side of `extraction` in benchmarks/features.py: no line of bert_tf.

    python huggingface_features.py JOB

JOB is JSON: checkpoint, input (a file with a text a line), output, format, layers (-1
is the last one), max_seq_length, batch_size, padding ("max": all to max_seq_length;
"dynamic": to the longest of the batch), threads, seed.

Format "jsonl" is the layout of google-research/bert's extract_features.py: an object a
line, with each token and, of each layer, its numbers rounded to six decimals. "npz" has
all tokens' vectors in one array, where each line's begin, and the tokens.

AutoModel with output_hidden_states, the lines in their order.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from huggingface_training import prepare


def features(job: dict[str, Any]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Of each line its tokens, and their vectors [tokens, layers, hidden]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["checkpoint"])
    model = transformers.AutoModel.from_pretrained(
        job["checkpoint"], add_pooling_layer=False
    ).eval()
    with open(job["input"], encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    for begin in range(0, len(lines), job["batch_size"]):
        batch = tokenizer(
            lines[begin : begin + job["batch_size"]],
            truncation=True,
            max_length=job["max_seq_length"],
            padding={"max": "max_length", "dynamic": "longest"}[job["padding"]],
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = model(**batch, output_hidden_states=True).hidden_states
            vectors = torch.stack([states[n] for n in job["layers"]], dim=2).numpy()
        for ids, mask, rows in zip(
            batch["input_ids"], batch["attention_mask"], vectors, strict=True
        ):
            count = int(mask.sum())
            yield tokenizer.convert_ids_to_tokens(ids[:count]), rows[:count]


def json_line(number: int, tokens: list[str], vectors: np.ndarray, layers: list) -> str:
    """A line of the original's layout."""
    entries = [
        {
            "token": token,
            "layers": [
                {"index": layer, "values": [round(value, 6) for value in row]}
                for layer, row in zip(layers, rows, strict=True)
            ],
        }
        for token, rows in zip(tokens, vectors.tolist(), strict=True)
    ]
    return json.dumps({"linex_index": number, "features": entries}) + "\n"


def main() -> None:
    job = json.loads(sys.argv[1])
    prepare(job)
    found = features(job)
    if job["format"] == "jsonl":
        with open(job["output"], "w") as file:
            for number, (tokens, vectors) in enumerate(found):
                file.write(json_line(number, tokens, vectors, job["layers"]))
        return
    names: list[str] = []
    arrays, offsets = [], [0]
    for tokens, vectors in found:
        names += tokens
        arrays.append(vectors)
        offsets.append(len(names))
    np.savez(job["output"], names=names, vectors=np.concatenate(arrays), ends=offsets)


if __name__ == "__main__":
    main()
