"""BERT, the whole recipe of Devlin et al. 2018, on TensorFlow and Keras 3.

    import bert_tf

    model = bert_tf.BertPretrainer("tiny")           # or a BertConfig
    model.compile(bert_tf.create_optimizer(1e-4, 1000, 100))
    records = bert_tf.pretraining_dataset("records/*.tfrecord", batch_size=32)
    model.fit(records, steps_per_epoch=1000)

    filler = bert_tf.load("output_dir")              # a run's folder, or a release
    filler.fill("The capital of France is [MASK].")  # predict, answer, tag, embed

    tokenizer = bert_tf.load_tokenizer("output_dir")
    classifier = bert_tf.load_classifier("output_dir", num_labels=2)
    classifier.compile(bert_tf.create_optimizer(2e-5, 1000, 100))
    classifier.fit(tokenizer(["A text.", "Another one."]), [0, 1])

Names are looked up when first used: `import bert_tf` costs no TensorFlow import.
"""

import importlib
from typing import Any

from bert_tf.base import keras_backend, serialization

__version__ = "0.1.0"

_HOMES = {
    "BertClassifier": "bert_tf.modeling.heads",
    "BertConfig": "bert_tf.base.config",
    "BertEncoder": "bert_tf.modeling.encoder",
    "BertMultipleChoice": "bert_tf.modeling.heads",
    "BertPretrainer": "bert_tf.modeling.heads",
    "BertSpanPredictor": "bert_tf.modeling.heads",
    "BertTagger": "bert_tf.modeling.heads",
    "AdamWeightDecay": "bert_tf.optimization.optimizers",
    "DataSet": "bert_tf.tasks.tables",
    "InputError": "bert_tf.base.errors",
    "TableSplit": "bert_tf.tasks.tables",
    "Vocabulary": "bert_tf.text.vocabulary",
    "WarmupSchedule": "bert_tf.optimization.schedules",
    "WordPieceTokenizer": "bert_tf.text.wordpiece",
    "add_task": "bert_tf.tasks.glue",
    "create_optimizer": "bert_tf.optimization.optimizers",
    "export": "bert_tf.export_model",
    "load": "bert_tf.text_models",
    "load_adapted_classifier": "bert_tf.conversion.adapter_files",
    "load_classifier": "bert_tf.conversion.loading",
    "load_encoder": "bert_tf.conversion.loading",
    "load_multiple_choice": "bert_tf.conversion.loading",
    "load_pretrainer": "bert_tf.conversion.loading",
    "load_span_predictor": "bert_tf.conversion.loading",
    "load_tagger": "bert_tf.conversion.loading",
    "load_tokenizer": "bert_tf.conversion.loading",
    "load_weights": "bert_tf.conversion.loading",
    "open_source": "bert_tf.conversion.source",
    "save": "bert_tf.conversion.export",
    "pretraining_dataset": "bert_tf.records.pretraining_input",
    "weights_by_name": "bert_tf.modeling.weight_names",
}

__all__ = sorted(_HOMES)

serialization.register()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        if name == "load":  # its module imports Keras before a package that asks
            keras_backend.require_supported()
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
