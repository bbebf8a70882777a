"""A small ELECTRA: the names of its weights, written out by hand, and what it computes.

V 11, E 4, H 8 with 2 heads, F 12, P 6, T 2, one layer. A line: our name and shape,
Hugging Face's name (ElectraForPreTraining) and shape, and the name in ELECTRA's own
checkpoints.
"""

import dataclasses
import json

import numpy as np

from tests.conversion import one_layer

CONFIG = dataclasses.replace(one_layer.CONFIG, embedding_size=4, hidden_act="gelu_erf")

TABLE = """
bert/embeddings/word_embeddings 11,4 electra.embeddings.word_embeddings.weight 11,4 electra/embeddings/word_embeddings
bert/embeddings/token_type_embeddings 2,4 electra.embeddings.token_type_embeddings.weight 2,4 electra/embeddings/token_type_embeddings
bert/embeddings/position_embeddings 6,4 electra.embeddings.position_embeddings.weight 6,4 electra/embeddings/position_embeddings
bert/embeddings/LayerNorm/gamma 4 electra.embeddings.LayerNorm.weight 4 electra/embeddings/LayerNorm/gamma
bert/embeddings/LayerNorm/beta 4 electra.embeddings.LayerNorm.bias 4 electra/embeddings/LayerNorm/beta
bert/encoder/embedding_hidden_mapping_in/kernel 4,8 electra.embeddings_project.weight 8,4 electra/embeddings_project/kernel
bert/encoder/embedding_hidden_mapping_in/bias 8 electra.embeddings_project.bias 8 electra/embeddings_project/bias
cls/discriminator_predictions/dense/kernel 8,8 discriminator_predictions.dense.weight 8,8 discriminator_predictions/dense/kernel
cls/discriminator_predictions/dense/bias 8 discriminator_predictions.dense.bias 8 discriminator_predictions/dense/bias
cls/discriminator_predictions/dense_1/kernel 8,1 discriminator_predictions.dense_prediction.weight 1,8 discriminator_predictions/dense_1/kernel
cls/discriminator_predictions/dense_1/bias 1 discriminator_predictions.dense_prediction.bias 1 discriminator_predictions/dense_1/bias
"""  # noqa: E501


def _layers():
    """The rows of the Transformer's layer, which are BERT's by other names."""
    for row in one_layer.ENCODER.splitlines():
        if row.startswith("bert/encoder/"):
            ours, shape, theirs, their_shape, _ = row.split()
            theirs = theirs.replace("bert.", "electra.")
            last = ours.replace("bert/", "electra/")
            yield " ".join((ours, shape, theirs, their_shape, last))


ROWS = TABLE.splitlines()
LINES = [one_layer.Line(row) for row in (*ROWS[1:8], *_layers(), *ROWS[8:])]
THEIRS = {line.original: line.keras_hub for line in LINES}  # the last column
ARRAYS = one_layer.random_weights(LINES)
TENSORS = one_layer.their_tensors(LINES, ARRAYS)

# A generator's names: ours, and in ELECTRA's own checkpoints.
GENERATOR = {
    "cls/generator/encoder/embedding_hidden_mapping_in/kernel": (
        "generator/embeddings_project/kernel"
    ),
    "cls/generator/encoder/layer_0/output/dense/bias": (
        "generator/encoder/layer_0/output/dense/bias"
    ),
    "cls/generator_predictions/transform/dense/kernel": (
        "generator_predictions/dense/kernel"
    ),
    "cls/generator_predictions/transform/LayerNorm/beta": (
        "generator_predictions/LayerNorm/beta"
    ),
    "cls/generator_predictions/output_bias": "generator_predictions/output_bias",
}

# What `save_pretrained` of transformers 5.23 writes, the numbers of `CONFIG` in it.
THEIR_CONFIG = json.loads("""
{"add_cross_attention": false, "architectures": ["ElectraForPreTraining"],
"attention_probs_dropout_prob": 0.1, "classifier_dropout": null, "dtype": "float32",
"embedding_size": 4, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size":
8, "initializer_range": 0.02, "intermediate_size": 12, "is_decoder": false,
"layer_norm_eps": 1e-12, "max_position_embeddings": 6, "model_type": "electra",
"num_attention_heads": 2, "num_hidden_layers": 1, "pad_token_id": 0,
"summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first",
"summary_use_proj": true, "tie_word_embeddings": true, "transformers_version":
"5.23.0", "type_vocab_size": 2, "use_cache": true, "vocab_size": 11}
""")

# Without masks: the discriminator gets the text itself.
RECORD = {
    "input_ids": np.array([[2, 7, 10, 4, 3]]),
    "input_mask": np.array([[1, 1, 1, 1, 0]]),
    "segment_ids": np.array([[0, 0, 1, 1, 0]]),
    "masked_lm_positions": np.array([[0]]),
    "masked_lm_ids": np.array([[0]]),
    "masked_lm_weights": np.array([[0.0]], np.float32),
}

# ElectraForPreTraining of transformers 5.23 on PyTorch, in float64, of RECORD with
# `ARRAYS`.
LOGITS = [-1.14800571, -1.14544303, -1.14987176, -1.12103761, -1.1440297]
