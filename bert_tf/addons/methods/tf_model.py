"""tf_model.h5, the file of transformers' TensorFlow classes, which version 5 lacks.

A dataset is called LAYER/tf_bert_model/bert/encoder/layer_._0/.../kernel:0, after the
top layer, the model, and the weight's place in it. A weight that two layers share is
stored for both.
"""

from bert_tf.base.errors import InputError
from bert_tf.conversion.huggingface import is_same, turned
from bert_tf.conversion.kerashub import stored_in
from bert_tf.conversion.weights import Tensor


def read_tensors(path: str) -> dict[str, Tensor]:
    """Returns the tensors of a tf_model.h5, named and laid out as in safetensors."""
    found: dict[str, Tensor] = {}
    for place, tensor in stored_in(path).items():
        name = _from_tf(place, path)
        if place.endswith("/kernel:0"):
            tensor = turned(tensor)
        other = found.setdefault(name, tensor)
        if other is not tensor and not is_same(other, tensor):
            raise InputError(f"{path}: two different weights are {name}.")
    return found


_FROM_TF = dict.fromkeys(("kernel", "embeddings", "gamma"), "weight") | {"beta": "bias"}


def _from_tf(place: str, path: str) -> str:
    """Returns a weight's name in safetensors from its place in a tf_model.h5."""
    parts = place.removesuffix(":0").split("/")[2:]
    if len(parts) < 2:
        raise InputError(f"{path}: {place} is not a weight of a transformers model.")
    # "layer_._0" is item 0 of the list `layer`; "mlm___cls" is `cls`.
    parts = [part.rpartition("___")[2].replace("_._", ".") for part in parts]
    parts[-1] = _FROM_TF.get(parts[-1], parts[-1])
    return ".".join(parts)
