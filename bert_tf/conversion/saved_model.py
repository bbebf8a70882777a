"""A checkpoint as a SavedModel, LiteRT or ONNX file."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.conversion import names
from bert_tf.conversion.checkpoint import (
    load_classifier,
    load_encoder,
    load_multiple_choice,
    load_pretrainer,
    load_span_predictor,
    load_tagger,
)
from bert_tf.conversion.serving import (
    ServedFillMask,
    ServedModel,
    ServedMultipleChoice,
    ServedTagger,
)
from bert_tf.conversion.serving_spans import ServedSpanPredictor
from bert_tf.conversion.serving_texts import ServedClassifier, ServedFeatures
from bert_tf.conversion.source import Source
from bert_tf.errors import InputError

FEATURES = "features"

# A head -> how its model is loaded and what serves it.
_SERVED: Mapping[str, tuple[Any, type[ServedModel]]] = {
    FEATURES: (load_encoder, ServedFeatures),
    names.MASKED_LM: (load_pretrainer, ServedFillMask),
    names.CLASSIFIER: (load_classifier, ServedClassifier),
    names.SPAN: (load_span_predictor, ServedSpanPredictor),
    names.MULTIPLE_CHOICE: (load_multiple_choice, ServedMultipleChoice),
    names.TAGGING: (load_tagger, ServedTagger),
}


def head_to_serve(source: Source) -> str:
    """What a checkpoint is for: its head, or features where it has none."""
    heads = names.heads_of(source.weights)
    served = [head for head in heads if head in _SERVED]
    if len(served) > 1:
        raise InputError(
            f"{source.path} has several heads: {', '.join(served)}. Choose by --heads."
        )
    return served[0] if served else FEATURES


def load_model(source: Source, head: str) -> keras.Model:
    """The model that computes a head's outputs, with its weights."""
    return _SERVED[head][0](source)


def write_saved_model(
    folder: str,
    source: Source,
    head: str,
    *,
    max_seq_length: int,
    **options: Any,
) -> dict[str, Any]:
    """Writes a SavedModel."""
    if head == names.MASKED_LM and source.require_config().left_to_right:
        raise InputError(
            f"{source.path} reads from left to right: it predicts the next token, and"
            " knows no [MASK]. Export its encoder: --heads=none."
        )
    load, served = _SERVED[head]
    module = served(
        load(source),
        source.tokenizer.vocabulary,
        do_lower_case=bool(source.tokenizer.do_lower_case),
        max_seq_length=max_seq_length,
        labels=source.labels,
        **options,
    )
    signatures = module.signatures()
    tf.saved_model.save(module, folder, signatures=signatures)
    return signatures


def write_by_keras(folder: str, source: Source, head: str, format_: str) -> str:
    """Writes the model for LiteRT or ONNX, by Keras' own export."""
    path = os.path.join(
        folder, {"litert": "model.tflite", "onnx": "model.onnx"}[format_]
    )
    model = load_model(source, head)
    # Keras exports to ONNX what has been called once.
    model(
        {name: np.zeros([1] * len(x.shape), "int32") for name, x in model.input.items()}
    )
    try:
        model.export(path, format=format_, verbose=False)
    except ImportError as error:
        raise InputError(
            f"--format={format_} needs a package that is not installed: {error}"
        ) from error
    return path
