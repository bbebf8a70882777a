"""KerasHub's side of benchmarks/conversion.py, no line of bert_tf.

    python kerashub_models.py JOBS

JOBS is a JSON file with a list of {"run": PRESET, "inputs": NPZ, "outputs": NPZ}: loads
a BertBackbone, computes on arrays of transformers' names, writes every layer's output.
"""

import json
import sys

import keras
import keras_hub
import numpy as np


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    for job in jobs:
        backbone = keras_hub.models.BertBackbone.from_preset(job["run"])
        inputs = np.load(job["inputs"])
        outputs = {"hidden_0": backbone.get_layer("embeddings_dropout").output}
        for layer in range(backbone.num_layers):
            outputs[f"hidden_{layer + 1}"] = backbone.get_layer(
                f"transformer_layer_{layer}"
            ).output
        outputs["pooler_output"] = backbone.output["pooled_output"]
        model = keras.Model(backbone.input, outputs)
        computed = model(
            {
                "token_ids": inputs["input_ids"],
                "segment_ids": inputs["token_type_ids"],
                "padding_mask": inputs["attention_mask"],
            }
        )
        np.savez(job["outputs"], **{k: v.numpy() for k, v in computed.items()})
    print(json.dumps([None for _ in jobs]))


if __name__ == "__main__":
    main()
