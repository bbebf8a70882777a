"""The back end of Keras, and --backend."""

import importlib.util
import json
import os
import sys
from collections.abc import Callable
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


def avoid_ynnpack() -> None:
    """Makes XLA compile for CPUs without YNNPACK, unless XLA_FLAGS says how.

    In TensorFlow 2.21, if threads first run such a fusion at the same time, they write
    to one list (`EmitYnnSubgraph` of XLA), and the process ends with SIGSEGV. XLA reads
    its flags when it first compiles; an unknown flag ends the process.
    """
    tensorflow = sys.modules.get("tensorflow")
    given = os.environ.get("XLA_FLAGS", "")
    if is_jax() or tensorflow is None or _YNN_FLAG in given:
        return
    if tensorflow.__version__.startswith(_YNN_VERSIONS):
        os.environ["XLA_FLAGS"] = f"{given} {_YNN_FLAG}=-dot,-eltwise,-reduce".lstrip()


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
    """Notes that a model runs here. Raises InputError in a fork after a model ran.

    A fork does not have the threads that compute, and would wait for them forever.
    """
    global _computed_in
    if _computed_in not in (None, os.getpid()):
        raise InputError(
            "This process was forked from one in which a model had already run, and"
            ' would wait forever. Use multiprocessing.get_context("spawn"), or load'
            " and run models only in the child (gunicorn: without --preload)."
        )
    _computed_in = os.getpid()
