"""DistilBERT (Sanh et al. 2019): a BERT without segments and pooler.

Its heads of whole texts have a layer with ReLU, which stands where BERT's pooler is.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.base.config import LAYER_NORM_EPSILON, BertConfig
from bert_tf.conversion.huggingface import named_architecture
from bert_tf.conversion.weights import Tensor

# Settings with other names, and their defaults.
_FIELDS = {
    "hidden_size": ("dim", 768),
    "num_hidden_layers": ("n_layers", 6),
    "num_attention_heads": ("n_heads", 12),
    "intermediate_size": ("hidden_dim", 3072),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "hidden_act": ("activation", "gelu"),
}
_WITH_RELU = ("BertForSequenceClassification", "BertForMultipleChoice")
# Its tensors' names, and BERT's.
_NAMES = (
    ("distilbert.", "bert."),
    ("transformer.layer.", "encoder.layer."),
    (".attention.q_lin.", ".attention.self.query."),
    (".attention.k_lin.", ".attention.self.key."),
    (".attention.v_lin.", ".attention.self.value."),
    (".attention.out_lin.", ".attention.output.dense."),
    (".sa_layer_norm.", ".attention.output.LayerNorm."),
    (".ffn.lin1.", ".intermediate.dense."),
    (".ffn.lin2.", ".output.dense."),
    (".output_layer_norm.", ".output.LayerNorm."),
    ("pre_classifier.", "bert.pooler.dense."),
    ("vocab_transform.", "cls.predictions.transform.dense."),
    ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("vocab_projector.weight", "cls.predictions.decoder.weight"),
    ("vocab_projector.bias", "cls.predictions.bias"),
)


def as_bert(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Renames DistilBERT's settings to BERT's."""
    del path
    fields = {
        name: values.get(theirs, default) for name, (theirs, default) in _FIELDS.items()
    }
    architecture = (named_architecture(values) or "").removeprefix("Distil")
    return {
        **values,
        **fields,
        "architectures": [architecture],
        "layer_norm_eps": LAYER_NORM_EPSILON,  # in its code
        "pooler_hidden_act": "relu" if architecture in _WITH_RELU else "tanh",
    }


def by_berts_names(
    stored: Mapping[str, Tensor], config: BertConfig, _: Any
) -> dict[str, Tensor]:
    """Returns DistilBERT's tensors by BERT's names, with zero segment embeddings."""

    def named(name: str) -> str:
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        return name

    shape = (config.type_vocab_size, config.hidden_size)
    segments = Tensor(shape, lambda: np.zeros(shape, np.float32))
    found = {named(name): tensor for name, tensor in stored.items()}
    return {**found, "bert.embeddings.token_type_embeddings.weight": segments}
