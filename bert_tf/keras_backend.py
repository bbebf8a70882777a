"""Which of Keras' back ends is in use; this package has one, TensorFlow's."""

import json
import os
import sys

from bert_tf.errors import InputError

SUPPORTED = "tensorflow"


def require_tensorflow() -> None:
    """Raises InputError if Keras has another back end, or is told to load one.

    Nothing is imported: Keras cannot be imported without its back end's package.
    """
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config"):
        backend, said_by = keras.config.backend(), "it was imported with it"
    else:
        backend, said_by = _backend_to_be()
    if backend != SUPPORTED:
        raise InputError(
            f"Keras' back end is {backend!r} ({said_by}); bert_tf supports"
            f" {SUPPORTED!r} alone. Set KERAS_BACKEND={SUPPORTED} in the environment,"
            " before Keras is imported."
        )


def _backend_to_be() -> tuple[str, str]:
    """The back end that Keras will use, and what sets it, in Keras' own order."""
    from_environment = os.environ.get("KERAS_BACKEND")
    if from_environment:
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
        return SUPPORTED, ""
    backend = settings.get("backend") if isinstance(settings, dict) else None
    return str(backend or SUPPORTED), path
