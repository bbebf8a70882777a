"""Hugging Face's side of benchmarks/first_steps.py: PyTorch, no line of bert_tf.

    python first_losses.py FOLDER

Reads weights.npz (by the original's names), batches.npz and settings.json; prints the
losses as JSON. The optimizer is the original's, from its description: clipping at a
global norm of 1, Adam without bias correction, weight decay outside the moments.
"""

import json
import os
import sys

import numpy as np
import torch
from transformers import BertConfig, BertForPreTraining


def their_name(name: str) -> str:
    """The original's name of a weight, as Hugging Face has it."""
    parts = []
    for part in name.split("/"):
        if part.startswith("layer_"):
            parts += ["layer", part.removeprefix("layer_")]
        elif part in ("kernel", "gamma", "output_weights"):
            parts.append("weight")
        elif part in ("beta", "output_bias"):
            parts.append("bias")
        elif part.endswith("_embeddings"):
            parts += [part, "weight"]
        else:
            parts.append(part)
    joined = ".".join(parts)
    return "cls.predictions.bias" if name == "cls/predictions/output_bias" else joined


def main() -> None:
    folder = sys.argv[1]
    with open(os.path.join(folder, "settings.json")) as file:
        settings = json.load(file)
    config = settings["config"]
    # Their "gelu" is the exact one; the original's is the tanh form.
    config["hidden_act"] = {"gelu": "gelu_pytorch_tanh"}[config["hidden_act"]]
    model = BertForPreTraining(BertConfig(**config, attn_implementation="eager"))
    parameters = dict(model.named_parameters())
    left = set(parameters)
    weights = np.load(os.path.join(folder, "weights.npz"))
    with torch.no_grad():
        for name in weights.files:
            value = weights[name].T if name.endswith("/kernel") else weights[name]
            parameters[their_name(name)].copy_(torch.from_numpy(value.copy()))
            left.discard(their_name(name))
    assert not left, left
    decayed = {
        name for name in parameters if "LayerNorm" not in name and "bias" not in name
    }
    moments = {
        name: (torch.zeros_like(p), torch.zeros_like(p))
        for name, p in parameters.items()
    }
    batches = np.load(os.path.join(folder, "batches.npz"))
    batches = {name: torch.from_numpy(batches[name]) for name in batches.files}
    losses = []
    model.train()  # all dropout rates are 0
    for number, rate in enumerate(settings["rates"]):
        batch = {name: value[number] for name, value in batches.items()}
        hidden = model.bert(
            input_ids=batch["input_ids"].long(),
            attention_mask=batch["input_mask"],
            token_type_ids=batch["segment_ids"].long(),
        )
        rows = torch.arange(len(batch["input_ids"]))[:, None]
        masked = hidden.last_hidden_state[rows, batch["masked_lm_positions"].long()]
        words, pairs = model.cls(masked, hidden.pooler_output)
        each = torch.nn.functional.cross_entropy(
            words.flatten(0, 1),
            batch["masked_lm_ids"].long().flatten(),
            reduction="none",
        )
        weight = batch["masked_lm_weights"].flatten()
        loss = (each * weight).sum() / (weight.sum() + 1e-5)
        loss = loss + torch.nn.functional.cross_entropy(
            pairs, batch["next_sentence_labels"].long().flatten()
        )
        losses.append(float(loss))
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for name, weights_ in parameters.items():
                first, second = moments[name]
                gradient = weights_.grad
                first.mul_(0.9).add_(gradient, alpha=0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                update = first / (second.sqrt() + 1e-6)
                if name in decayed:
                    update = update + 0.01 * weights_
                weights_.sub_(update, alpha=rate)
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
