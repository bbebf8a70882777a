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

The public names, each with its own `help`, such as `help(bert_tf.load)`:

    texts         load, which returns a TextModel: TextClassifier, MaskFiller,
                  QuestionAnswerer, ChoiceModel, WordTagger; Explanation
    models        BertEncoder, BertPretrainer, BertClassifier, BertMultipleChoice,
                  BertSpanPredictor, BertTagger; BertConfig
    checkpoints   load_encoder, load_pretrainer, load_classifier, load_multiple_choice,
                  load_span_predictor, load_tagger, load_adapted_classifier,
                  load_tokenizer, load_weights, open_source, weights_by_name, save,
                  export
    training      create_optimizer, AdamWeightDecay, WarmupSchedule,
                  pretraining_dataset
    text          WordPieceTokenizer, Vocabulary
    tasks         add_task, DataSet, TableSplit
    errors        InputError

Names are looked up when first used: `import bert_tf` costs no TensorFlow import.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bert_tf.base import keras_backend

if TYPE_CHECKING:  # for editors and type checkers; the names below are the same
    from bert_tf.addons.serving.explanations import Explanation as Explanation
    from bert_tf.addons.serving.export_model import export as export
    from bert_tf.addons.serving.text_models.classifier import ChoiceModel as ChoiceModel
    from bert_tf.addons.serving.text_models.classifier import (
        TextClassifier as TextClassifier,
    )
    from bert_tf.addons.serving.text_models.mask_filler import MaskFiller as MaskFiller
    from bert_tf.addons.serving.text_models.model import TextModel as TextModel
    from bert_tf.addons.serving.text_models.model import load as load
    from bert_tf.addons.serving.text_models.question_answerer import (
        QuestionAnswerer as QuestionAnswerer,
    )
    from bert_tf.addons.serving.text_models.word_tagger import WordTagger as WordTagger
    from bert_tf.base.config import BertConfig as BertConfig
    from bert_tf.base.errors import InputError as InputError
    from bert_tf.conversion.adapter_files import (
        load_adapted_classifier as load_adapted_classifier,
    )
    from bert_tf.conversion.export import save as save
    from bert_tf.conversion.loading import load_classifier as load_classifier
    from bert_tf.conversion.loading import load_encoder as load_encoder
    from bert_tf.conversion.loading import load_multiple_choice as load_multiple_choice
    from bert_tf.conversion.loading import load_pretrainer as load_pretrainer
    from bert_tf.conversion.loading import load_span_predictor as load_span_predictor
    from bert_tf.conversion.loading import load_tagger as load_tagger
    from bert_tf.conversion.loading import load_weights as load_weights
    from bert_tf.conversion.source import load_tokenizer as load_tokenizer
    from bert_tf.conversion.source import open_source as open_source
    from bert_tf.modeling.encoder import BertEncoder as BertEncoder
    from bert_tf.modeling.heads import BertClassifier as BertClassifier
    from bert_tf.modeling.heads import BertMultipleChoice as BertMultipleChoice
    from bert_tf.modeling.heads import BertPretrainer as BertPretrainer
    from bert_tf.modeling.heads import BertSpanPredictor as BertSpanPredictor
    from bert_tf.modeling.heads import BertTagger as BertTagger
    from bert_tf.modeling.weight_names import weights_by_name as weights_by_name
    from bert_tf.optimization.optimizers import AdamWeightDecay as AdamWeightDecay
    from bert_tf.optimization.optimizers import WarmupSchedule as WarmupSchedule
    from bert_tf.optimization.optimizers import create_optimizer as create_optimizer
    from bert_tf.records.pretraining_input import (
        pretraining_dataset as pretraining_dataset,
    )
    from bert_tf.tasks.glue import add_task as add_task
    from bert_tf.tasks.tables import DataSet as DataSet
    from bert_tf.tasks.tables import TableSplit as TableSplit
    from bert_tf.text.vocabulary import Vocabulary as Vocabulary
    from bert_tf.text.wordpiece import WordPieceTokenizer as WordPieceTokenizer

__version__ = "0.1.0"

_HOMES = {
    "AdamWeightDecay": "bert_tf.optimization.optimizers",
    "BertClassifier": "bert_tf.modeling.heads",
    "BertConfig": "bert_tf.base.config",
    "BertEncoder": "bert_tf.modeling.encoder",
    "BertMultipleChoice": "bert_tf.modeling.heads",
    "BertPretrainer": "bert_tf.modeling.heads",
    "BertSpanPredictor": "bert_tf.modeling.heads",
    "BertTagger": "bert_tf.modeling.heads",
    "ChoiceModel": "bert_tf.addons.serving.text_models.classifier",
    "DataSet": "bert_tf.tasks.tables",
    "Explanation": "bert_tf.addons.serving.explanations",
    "InputError": "bert_tf.base.errors",
    "MaskFiller": "bert_tf.addons.serving.text_models.mask_filler",
    "QuestionAnswerer": "bert_tf.addons.serving.text_models.question_answerer",
    "TableSplit": "bert_tf.tasks.tables",
    "TextClassifier": "bert_tf.addons.serving.text_models.classifier",
    "TextModel": "bert_tf.addons.serving.text_models.model",
    "Vocabulary": "bert_tf.text.vocabulary",
    "WarmupSchedule": "bert_tf.optimization.optimizers",
    "WordPieceTokenizer": "bert_tf.text.wordpiece",
    "WordTagger": "bert_tf.addons.serving.text_models.word_tagger",
    "add_task": "bert_tf.tasks.glue",
    "create_optimizer": "bert_tf.optimization.optimizers",
    "export": "bert_tf.addons.serving.export_model",
    "load": "bert_tf.addons.serving.text_models.model",
    "load_adapted_classifier": "bert_tf.conversion.adapter_files",
    "load_classifier": "bert_tf.conversion.loading",
    "load_encoder": "bert_tf.conversion.loading",
    "load_multiple_choice": "bert_tf.conversion.loading",
    "load_pretrainer": "bert_tf.conversion.loading",
    "load_span_predictor": "bert_tf.conversion.loading",
    "load_tagger": "bert_tf.conversion.loading",
    "load_tokenizer": "bert_tf.conversion.source",
    "load_weights": "bert_tf.conversion.loading",
    "open_source": "bert_tf.conversion.source",
    "save": "bert_tf.conversion.export",
    "pretraining_dataset": "bert_tf.records.pretraining_input",
    "weights_by_name": "bert_tf.modeling.weight_names",
}

# No `__all__`: `help(bert_tf)` would also print everything inherited from Keras.

keras_backend.register_classes()

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            if _HOMES[name].startswith("bert_tf.addons.serving.text_models"):
                # These import Keras before a package that checks the back end.
                keras_backend.require_supported()
            with keras_backend.packages_of_training():
                value = getattr(importlib.import_module(_HOMES[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
