"""Folders of runs, as the tests of conversion read them."""

import json
import os

import safetensors.numpy
import tensorflow as tf

from bert_tf.base.shared_options import ModelOptions
from bert_tf.conversion import export
from bert_tf.conversion.source import open_source
from bert_tf.text.vocabulary import Vocabulary
from tests.script_case import FolderCase
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


class ModelFlags(ModelOptions):
    """What a command line says of its model."""


def write_json(values, *names):
    with open(os.path.join(*names), "w") as file:
        json.dump(values, file)


def save_tf1(prefix, arrays):
    """A checkpoint as TensorFlow 1 saves variables of these names; its prefix."""
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=list(arrays.values()),
    )
    return prefix


class PeerCase(FolderCase):
    """Reads and writes a model of `peer`, a module such as albert_weights."""

    peer = None

    def hugging_face(self, **fields):
        """A folder as transformers writes it."""
        folder = self.folder("theirs")
        path = os.path.join(folder, "model.safetensors")
        safetensors.numpy.save_file(self.peer.TENSORS, path)
        write_json(self.peer.THEIR_CONFIG | fields, folder, "config.json")
        return folder

    def check_out_and_in(self):
        """Out are the tensors and the settings that came in."""
        source = open_source(self.hugging_face())
        self.assertEqual(source.config, self.peer.CONFIG)
        export.write_huggingface(self.folder("ours"), source)
        stored = safetensors.numpy.load_file(self.path("ours", "model.safetensors"))
        self.assertEqual(set(stored), set(self.peer.TENSORS))
        for name, tensor in self.peer.TENSORS.items():
            self.assertAllEqual(stored[name], tensor)
        for name, value in self.read_json("ours", "config.json").items():
            self.assertEqual(value, self.peer.THEIR_CONFIG[name], name)


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
