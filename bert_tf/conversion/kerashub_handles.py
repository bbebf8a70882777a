"""KerasHub's handles of presets: their names, and their download.

KerasHub's own `from_preset` takes the files from these packages one by one; here they
are asked for all files of a preset, and keep them in the same cache.
"""

import re
from collections.abc import Mapping
from typing import Any

from bert_tf import files
from bert_tf.errors import InputError

_SCHEMES = ("kaggle://", "hf://", "modelscope://")
# What a preset consists of; a repository may hold more.
_FILES = ["*.json", "*.weights.h5", "assets/tokenizer/*"]


def is_handle(path: str) -> bool:
    """Whether `path` names a preset to be downloaded, rather than a file or folder.

    Handles are kaggle://, hf:// and modelscope:// addresses, and the names that
    KerasHub knows, such as bert_base_en_uncased.
    """
    if path.startswith(_SCHEMES):
        return True
    # The cheap questions first: the last one imports KerasHub.
    if not re.fullmatch(r"[a-z0-9_]+", path) or _is_taken(path):
        return False
    return path in _built_in()


def _is_taken(path: str) -> bool:
    """Whether a folder, a file or a checkpoint of that name is there."""
    return files.exists(path) or files.exists(path + ".index")


def _built_in() -> Mapping[str, Any]:
    """The presets that KerasHub knows by name."""
    import keras_hub

    return keras_hub.models.BertBackbone.presets


def download(handle: str) -> str:
    """Downloads a preset, unless the cache has it."""
    address = _built_in().get(handle, {}).get("kaggle_handle", handle)
    scheme, _, name = address.partition("://")
    try:
        return {
            "kaggle": _from_kaggle,
            "hf": _from_hugging_face,
            "modelscope": _from_model_scope,
        }[scheme](name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{handle}: its download needs the package {error.name}: pip install"
            f" {error.name}."
        ) from error
    except (OSError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{handle} cannot be downloaded: {reason}") from error


def _from_kaggle(name: str) -> str:
    import kagglehub
    from kagglehub import exceptions

    try:
        return kagglehub.model_download(name)
    except (
        exceptions.BackendError,
        exceptions.CredentialError,
        exceptions.NotFoundError,
        exceptions.UnauthenticatedError,
    ) as error:
        raise ValueError(str(error)) from error


def _from_hugging_face(name: str) -> str:
    import huggingface_hub

    return huggingface_hub.snapshot_download(name, allow_patterns=_FILES)


def _from_model_scope(name: str) -> str:
    import modelscope

    return modelscope.snapshot_download(name, allow_patterns=_FILES)
