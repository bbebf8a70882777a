"""Lets Keras find our classes in saved files, without importing Keras or TensorFlow.

A class registers itself with Keras when its module is imported, which `import bert_tf`
alone does not do. Until then, a placeholder is registered under its name.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# Class -> its module.
_CLASSES = {
    "AdamWeightDecay": "bert_tf.optimization.optimizers",
    "BertClassifier": "bert_tf.modeling.heads",
    "BertEmbedder": "bert_tf.addons.methods.similarity",
    "BertEncoder": "bert_tf.modeling.encoder",
    "BertMultipleChoice": "bert_tf.modeling.heads",
    "BertPretrainer": "bert_tf.modeling.heads",
    "ElectraPretrainer": "bert_tf.addons.methods.electra",
    "BertSpanPredictor": "bert_tf.modeling.heads",
    "BertTagger": "bert_tf.modeling.heads",
    "BiLstmTagger": "bert_tf.modeling.bilstm",
    "Lamb": "bert_tf.optimization.optimizers",
    "LayerMixture": "bert_tf.modeling.pooling",
    "PackedPositions": "bert_tf.modeling.pooling",
    "PooledTokens": "bert_tf.modeling.pooling",
    "SentencePooling": "bert_tf.modeling.pooling",
    "BiLstm": "bert_tf.modeling.bilstm",
    "Standardization": "bert_tf.addons.methods.standardization",
    "Embeddings": "bert_tf.modeling.layers",
    "Pooler": "bert_tf.modeling.layers",
    "GatherPositions": "bert_tf.modeling.heads",
    "MaskedLMHead": "bert_tf.modeling.heads",
    "HeadDropout": "bert_tf.modeling.heads",
    "MergeChoices": "bert_tf.modeling.heads",
    "SplitChoices": "bert_tf.modeling.heads",
    "WindowAttention": "bert_tf.modeling.heads",
    "OutputProjection": "bert_tf.modeling.heads",
    "AttentionBias": "bert_tf.modeling.layers",
    "TransformerLayer": "bert_tf.modeling.layers",
    "ReplacedTokens": "bert_tf.addons.methods.electra",
    "ReplacedTokenHead": "bert_tf.addons.methods.electra",
    "WarmupSchedule": "bert_tf.optimization.optimizers",
}


def register() -> None:
    """Registers all classes now, or as soon as Keras is imported."""
    keras = sys.modules.get("keras")
    if keras is None:
        sys.meta_path.insert(0, _AfterKeras())
    else:
        _register_with(keras)


class _StandIn:
    """A stand-in for a class that is not yet imported."""

    def __init__(self, name: str, module: str) -> None:
        self._name = name
        self._module = module

    def from_config(self, config: dict[str, Any], **kwargs: Any) -> Any:
        """Returns an instance of the class; importing its module registers it."""
        module = importlib.import_module(self._module)
        return getattr(module, self._name).from_config(config, **kwargs)


def _register_with(keras: Any) -> None:
    registered = keras.saving.get_custom_objects()
    for name, module in _CLASSES.items():
        registered.setdefault(f"bert_tf>{name}", _StandIn(name, module))


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Registers the classes at the end of Keras' own import."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns Keras' own spec with a loader that registers; else None."""
        if fullname != "keras":
            return None
        # A caller may import Keras later, or never: this finder stays.
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                _register_with(module)

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
