"""Tables of names that are imported when an option or a file first asks for one.

The core imports no add-on. Heads have their own table: see
`bert_tf.conversion.names.HEADS`.
"""

import functools
import pkgutil
from typing import Any

# Name -> "module", or "module:object" within it.
ADDONS = {
    # Text and its records.
    "tfds": "bert_tf.text.tfds",
    "objects": "bert_tf.text.objects",
    "encodings": "bert_tf.addons.corpora.encodings",
    "filtering": "bert_tf.addons.corpora.filtering",
    "packing": "bert_tf.addons.corpora.packing",
    "wikiextractor": "bert_tf.addons.corpora.wikiextractor",
    "mediawiki": "bert_tf.addons.corpora.mediawiki",
    "pdf": "bert_tf.addons.corpora.pdf",
    "spans": "bert_tf.addons.corpora.annotations:sentences_of",
    "conllu": "bert_tf.addons.corpora.conllu:sentences_of",
    "trivia_qa": "bert_tf.addons.corpora.trivia_qa:articles_of",
    "near_duplicates": "bert_tf.addons.corpora.near_duplicates",
    "beam": "bert_tf.addons.corpora.beam",
    # Parts of models, and objectives.
    "bilstm": "bert_tf.modeling.bilstm:BiLstm",
    "electra": "bert_tf.addons.methods.electra:ElectraPretrainer",
    "initial_positions": "bert_tf.addons.methods.initial_positions",
    "long_texts": "bert_tf.addons.methods.long_texts:lengthened",
    "local_attention": "bert_tf.addons.methods.local_attention",
    "standardization": "bert_tf.addons.methods.standardization",
    "regularization": "bert_tf.addons.methods.regularization",
    # Optimizers that are not the paper's.
    "lamb": "bert_tf.addons.methods.lamb:Lamb",
    "muon": "bert_tf.addons.methods.muon:Muon",
    # What a report warns of, and its pictures.
    "folds": "bert_tf.addons.study.folds",
    "calibration": "bert_tf.addons.study.calibration",
    "shared_examples": "bert_tf.addons.study.shared_examples",
    "report_pictures": "bert_tf.addons.study.report_pictures",
    # Options that are declared with those of training, before TensorFlow is imported.
    "losses": "bert_tf.addons.methods.loss_options:LossOptions",
    # Formats of checkpoints.
    "kerashub": "bert_tf.conversion.kerashub",
    "distilbert": "bert_tf.addons.methods.distilbert",
    "longformer": "bert_tf.addons.methods.longformer",
    "peft": "bert_tf.addons.methods.peft",
    "tf_model": "bert_tf.addons.methods.tf_model",
    "sentence_transformers": "bert_tf.addons.methods.sentence_transformers",
    "model_garden": "bert_tf.addons.methods.model_garden",
    "onnx": "bert_tf.addons.serving.onnx_files",
    # Several processes: their launch and roles.
    "multi_worker": "bert_tf.training.cluster",
    # Steps on devices, by Keras' back end.
    "tensorflow": "bert_tf.training.tensorflow_step",
    "jax": "bert_tf.training.jax_step",
    # Callbacks of a training: of every training, and by the option that requests them.
    "divergence": "bert_tf.training.divergence:Divergence",
    "curves": "bert_tf.training.reporting:Curves",
    "profile_steps": "bert_tf.training.throughput:StepProfiler",
    "max_train_hours": "bert_tf.addons.planning.budget:Budget",
    "stop_if": "bert_tf.addons.planning.stopping:Stopping",
    "patience": "bert_tf.addons.planning.stopping:Patience",
    "report_to": "bert_tf.addons.planning.trackers:Tracking",
    # Callbacks of every pre-training run.
    "bits_per_byte": "bert_tf.addons.planning.bits_per_byte:BitsPerByte",
    "reference_curves": "bert_tf.addons.planning.reference_curves:ReferenceCurves",
    "card": "bert_tf.addons.planning.card:Card",
}


@functools.cache
def addon(name: str) -> Any:
    """Returns the module or object that has a name in ADDONS."""
    return imported(ADDONS[name])


def imported(path: str) -> Any:
    """Returns the object at "module", or at "module:object.attribute"."""
    # Without a colon, a library that a module lacks would be an AttributeError.
    return pkgutil.resolve_name(path if ":" in path else f"{path}:")
