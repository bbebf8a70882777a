"""PyTorch's pickled weights: found, refused, and how to convert them."""

import glob
import json
import os
import shlex

from bert_tf import files
from bert_tf.errors import InputError

WEIGHTS_NAME = "model.safetensors"

# What weights are called where they are pickled; the model's own first.
_PICKLES = ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth")


def pickles_in(folder: str) -> list[str]:
    """Files of PyTorch's weights; the model's own first."""
    found: dict[str, None] = {}
    for pattern in _PICKLES:
        found |= dict.fromkeys(files.glob(os.path.join(glob.escape(folder), pattern)))
    return list(found)


def refuse_pickles(path: str) -> None:
    """Raises InputError if `path` is a pickle, or a folder with nothing but pickles.

    The message has the line that converts it: every tensor by its name, with a loader
    that runs no code.
    """
    if files.is_folder(path):
        found = pickles_in(path)
        if not found:
            return
        # A model may have several parts; of other files the first.
        parts = [
            name for name in found if os.path.basename(name).startswith("pytorch_model")
        ] or found[:1]
    elif path.endswith(tuple(ending.lstrip("*") for ending in _PICKLES[1:])):
        parts, path = [path], os.path.dirname(path)
    else:
        return
    target = os.path.join(path, WEIGHTS_NAME)
    code = (
        "import torch; from safetensors.torch import save_file;"
        " save_file({k: v.clone().contiguous()"
        f" for f in {json.dumps(parts)}"
        ' for k, v in torch.load(f, map_location="cpu", weights_only=True).items()},'
        f' {json.dumps(target)}, metadata={{"format": "pt"}})'
    )
    raise InputError(
        f"{parts[0]} is a pickle, which can run any code when it is opened, and is not"
        f" read. With torch and safetensors installed, this writes {target}:"
        f" python -c {shlex.quote(code)}"
    )
