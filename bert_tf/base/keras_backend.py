"""The back end of Keras, --backend, and our classes in files that Keras saves."""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from bert_tf.base.errors import InputError

SUPPORTED = ("tensorflow", "jax")


def is_jax() -> bool:
    """Whether Keras computes with JAX."""
    return _backend()[0] == "jax"


def choose(backend: str | None) -> None:
    """Makes Keras use a back end, if one is named; call it before Keras is imported."""
    if backend is not None:
        if "keras" not in sys.modules:
            os.environ["KERAS_BACKEND"] = backend
        elif _backend()[0] != backend:
            raise InputError(
                f"`backend={backend}`: Keras is already imported with the back end"
                f" {_backend()[0]!r}. Set KERAS_BACKEND={backend} in the environment"
                " instead, before Keras is imported."
            )
    require_supported()


def require_supported() -> None:
    """Raises InputError if Keras' back end is not supported or not installed."""
    # Nothing is imported: Keras cannot be imported without its back end's package.
    backend, said_by = _backend()
    if backend not in SUPPORTED:
        raise InputError(
            f"Keras' back end is {backend!r} ({said_by}); bert_tf supports"
            f" {' and '.join(map(repr, SUPPORTED))}. Set KERAS_BACKEND={SUPPORTED[0]}"
            " in the environment, before Keras is imported."
        )
    if backend == "jax" and importlib.util.find_spec("jax") is None:
        raise InputError(
            "The back end jax is not installed: pip install 'bert-tf[jax]'; on a GPU"
            " also jax[cuda12], on a TPU also jax[tpu]."
        )


@contextlib.contextmanager
def packages_of_training() -> Iterator[None]:
    """Raises InputError within, with what installs a package that is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "bert_tf") or importlib.util.find_spec(package):
            raise
        raise InputError(
            f"{package} is not installed: pip install 'bert-tf[train]'"
        ) from error


# What Keras imports for its scikit-learn wrappers, image galleries and data frames.
_UNUSED = ("matplotlib", "pandas", "sklearn")


@contextlib.contextmanager
def without_unused_packages() -> Iterator[None]:
    """Hides packages that Keras would import and commands do not use."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _UNUSED if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


def gradient(function: Callable[[Any], Any], x: Any) -> Any:
    """Returns the gradient of a scalar function of a tensor."""
    if is_jax():
        import jax

        return jax.grad(function)(x)
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        value = function(x)
    return tape.gradient(value, x)


# The flag, and the versions of TensorFlow whose XLA has and needs it.
_YNN_FLAG, _YNN_VERSIONS = "--xla_cpu_experimental_ynn_fusion_type", ("2.21.",)


@contextlib.contextmanager
def without_ynnpack() -> Iterator[None]:
    """Lets XLA read its flags as if XLA_FLAGS, unless it says how, had no YNNPACK."""
    # In TensorFlow 2.21, if threads first run such a fusion at the same time, they
    # write to one list (`EmitYnnSubgraph` of XLA), and the process ends with SIGSEGV.
    # XLA reads its flags when it first compiles; an unknown flag ends the process, so
    # that no child, whose XLA may be another one, gets this one.
    given = os.environ.get("XLA_FLAGS", "")
    version = sys.modules["tensorflow"].__version__
    if _YNN_FLAG in given or not version.startswith(_YNN_VERSIONS):
        yield
        return
    os.environ["XLA_FLAGS"] = f"{given} {_YNN_FLAG}=-dot,-eltwise,-reduce".lstrip()
    try:
        yield
    finally:
        os.environ["XLA_FLAGS"] = given
        if not given:
            del os.environ["XLA_FLAGS"]


def require_tensorflow(what: str) -> None:
    """Raises InputError unless Keras computes with TensorFlow, which `what` needs."""
    if is_jax():
        raise InputError(
            f"{what} needs TensorFlow: run this with KERAS_BACKEND=tensorflow in the"
            " environment. Checkpoints are the same on both back ends."
        )


def _backend() -> tuple[str, str]:
    """Returns the back end that Keras has, or will have, and where it was chosen."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config"):
        return keras.config.backend(), "it was imported with it"
    # In the same order as Keras.
    if from_environment := os.environ.get("KERAS_BACKEND"):
        return from_environment, "KERAS_BACKEND"
    home = os.path.expanduser("~")
    folder = os.environ.get("KERAS_HOME") or os.path.join(
        home if os.access(home, os.W_OK) else "/tmp", ".keras"
    )
    path = os.path.expanduser(os.path.join(folder, "keras.json"))
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError):
        return SUPPORTED[0], ""
    backend = settings.get("backend") if isinstance(settings, dict) else None
    return str(backend or SUPPORTED[0]), path


_computed_in: int | None = None  # the process that has run a model


def refuse_fork() -> None:
    """Notes that a model runs here. Raises InputError in a fork after a model ran."""
    # A fork does not have the threads that compute, and would wait for them forever.
    global _computed_in
    if _computed_in not in (None, os.getpid()):
        raise InputError(
            "This process was forked from one in which a model had already run, and"
            ' would wait forever. Use multiprocessing.get_context("spawn"), or load'
            " and run models only in the child (gunicorn: without --preload)."
        )
    _computed_in = os.getpid()


# Keras finds our classes in saved files, although neither Keras nor TensorFlow is
# imported by `import bert_tf`: a class registers itself with Keras when its module is
# imported. Until then, a placeholder is registered under its name.

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
    "BiLstmTagger": "bert_tf.tasks.tagging.frozen_features",
    "Lamb": "bert_tf.addons.methods.lamb",
    "Muon": "bert_tf.addons.methods.muon",
    "LayerMixture": "bert_tf.modeling.pooling",
    "PackedPositions": "bert_tf.modeling.pooling",
    "PooledTokens": "bert_tf.modeling.pooling",
    "SentencePooling": "bert_tf.modeling.pooling",
    "BiLstm": "bert_tf.modeling.bilstm",
    "LocalAttentionMask": "bert_tf.addons.methods.local_attention",
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


def register_classes() -> None:
    """Registers our classes with Keras now, or as soon as it is imported."""
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
