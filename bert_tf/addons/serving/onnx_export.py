"""ONNX exports: the graph, the files for other libraries, and a check."""

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf.addons.serving import onnx_files, onnx_graph, runtimes
from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.conversion import export, huggingface, loading, names
from bert_tf.conversion.reading import Reading
from bert_tf.conversion.source import ONNX_NAME, Source, load_tokenizer

TextPairs = Iterable[tuple[str, str | None]]


def write_onnx(
    folder: str,
    model: Source,
    quantize: str | None = None,
    calibration: TextPairs | None = None,
) -> None:
    """Writes model.onnx, and the files that other libraries need to open the folder.

    config.json and the tokenizer are for Optimum, fastembed and transformers.js; if the
    pooling is known, modules.json and its folders are for sentence-transformers.

    Args:
        folder: the folder to write to.
        model: a checkpoint with one head, or none: see `onnx_graph`.
        quantize: "float16" for weights and activations; "int8" for weights of 7 bits,
            so that no processor's sums overflow, scaled per output, and for
            activations, scaled per call. None: float32.
        calibration: for int8, texts, or pairs, on which the ranges of the activations
            are measured once, instead of in each call.
    """
    export.refuse_segmenter(model)
    config, heads = model.require_config(), names.heads_of(model.weights)
    if names.WINDOWS in heads:  # a graph has none
        heads = [head for head in heads if head != names.WINDOWS]
        weights = model.weights.with_heads(heads)
        model = dataclasses.replace(model, weights=weights)
    reading = Reading() if heads else model.reading
    content = onnx_graph.build(
        model,
        dtype=np.float16 if quantize == "float16" else np.float32,
        pooling=reading.pooling,
        normalizes=bool(reading.normalize),
    )
    path = os.path.join(folder, ONNX_NAME)
    if quantize == "int8":
        batches = None if calibration is None else _batches(model, calibration)
        onnx_files.write_int8(path, content, batches)
    else:
        files.write_atomically(path, content.SerializeToString())
    # The graph has the constants that transformers' config lacks.
    known = dataclasses.replace(
        config, masked_lm_hidden_act=None, masked_lm_layer_norm_eps=None
    )
    # For a head that transformers lacks, the config describes the encoder.
    theirs = [head for head in heads if names.HEADS[head].hugging_face]
    weights = model.weights.with_heads(theirs)
    values = export.hugging_face_config(
        dataclasses.replace(model, config=known, weights=weights)
    )
    files.write_atomically(
        os.path.join(folder, huggingface.CONFIG_NAME),
        json.dumps(values, indent=2) + "\n",
    )
    export.write_hugging_face_tokenizer(folder, model)
    if reading.pooling:
        addon("sentence_transformers").write_modules(folder, model)
    keras_model = loading.load_encoder(model) if not heads else None
    if heads and names.HEADS[heads[0]].model:
        keras_model = loading.load_model(model, heads[0])
    if keras_model is not None:
        runtimes.check(path, "onnx", keras_model, quantize)


def _batches(model: Source, texts: TextPairs) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of an ONNX model for each text, cut as `load` does."""
    tokenizer = load_tokenizer(model)
    length = model.reading.length(model.require_config().max_position_embeddings)
    heads = names.heads_of(model.weights)
    has_choices = any(names.HEADS[head].has_choices for head in heads)
    for text, second in texts:
        inputs = tokenizer([text], [second], max_length=length, truncation=True)
        yield {
            onnx_graph.INPUTS[name]: (x[:, None] if has_choices else x).astype(np.int64)
            for name, x in inputs.items()
        }
