"""Folders of runs, as the tests of conversion read them."""

import json
import os

import numpy as np

from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.training_options import CheckpointOptions, ModelOptions
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


class ModelFlags(ModelOptions, CheckpointOptions):
    """What a command line says of its model."""


def randomize(model, seed=0):
    rng = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(size=weight.shape))


def write_json(values, *names):
    with open(os.path.join(*names), "w") as file:
        json.dump(values, file)


def save(
    folder,
    model=None,
    *,
    config=toy.CONFIG,
    tokens=TOKENS,
    casing=None,
    labels=None,
    problem_type=None,
):
    """A run's folder: the model's checkpoint and the files next to it."""
    os.makedirs(folder, exist_ok=True)
    toy.write_config(folder, config)
    if tokens is not None:
        Vocabulary(tokens).save(os.path.join(folder, "vocab.txt"))
    if casing is not None:
        write_json({"do_lower_case": casing}, folder, "tokenizer_config.json")
    if labels is not None:
        with open(os.path.join(folder, "labels.txt"), "w") as file:
            file.write("".join(f"{label}\n" for label in labels))
    if problem_type is not None:
        with open(os.path.join(folder, "problem_type.txt"), "w") as file:
            file.write(f"{problem_type}\n")
    if model is not None:
        toy.save_checkpoint(folder, model, 3, 1)
    return folder
