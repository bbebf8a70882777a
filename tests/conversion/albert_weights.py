"""A small ALBERT: the names of its weights, written out by hand, and what it computes.

V 11, E 4, H 8 with 2 heads, F 12, P 6, T 2, three layers. A line: the name and shape in
ALBERT's original checkpoints, then Hugging Face's (AlbertForPreTraining).
"""

import dataclasses
import json

import numpy as np

from tests.conversion import one_layer

CONFIG = dataclasses.replace(
    one_layer.CONFIG,
    num_hidden_layers=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    embedding_size=4,
    num_hidden_groups=1,
    inner_group_num=1,
)

TABLE = """
bert/embeddings/word_embeddings 11,4 albert.embeddings.word_embeddings.weight 11,4
bert/embeddings/token_type_embeddings 2,4 albert.embeddings.token_type_embeddings.weight 2,4
bert/embeddings/position_embeddings 6,4 albert.embeddings.position_embeddings.weight 6,4
bert/embeddings/LayerNorm/gamma 4 albert.embeddings.LayerNorm.weight 4
bert/embeddings/LayerNorm/beta 4 albert.embeddings.LayerNorm.bias 4
bert/encoder/embedding_hidden_mapping_in/kernel 4,8 albert.encoder.embedding_hidden_mapping_in.weight 8,4
bert/encoder/embedding_hidden_mapping_in/bias 8 albert.encoder.embedding_hidden_mapping_in.bias 8
bert/encoder/transformer/group_0/inner_group_0/attention_1/self/query/kernel 8,8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight 8,8
bert/encoder/transformer/group_0/inner_group_0/attention_1/self/query/bias 8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.bias 8
bert/encoder/transformer/group_0/inner_group_0/attention_1/self/key/kernel 8,8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.key.weight 8,8
bert/encoder/transformer/group_0/inner_group_0/attention_1/self/key/bias 8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.key.bias 8
bert/encoder/transformer/group_0/inner_group_0/attention_1/self/value/kernel 8,8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.value.weight 8,8
bert/encoder/transformer/group_0/inner_group_0/attention_1/self/value/bias 8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.value.bias 8
bert/encoder/transformer/group_0/inner_group_0/attention_1/output/dense/kernel 8,8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight 8,8
bert/encoder/transformer/group_0/inner_group_0/attention_1/output/dense/bias 8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.bias 8
bert/encoder/transformer/group_0/inner_group_0/LayerNorm/gamma 8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm.weight 8
bert/encoder/transformer/group_0/inner_group_0/LayerNorm/beta 8 albert.encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm.bias 8
bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense/kernel 8,12 albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight 12,8
bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense/bias 12 albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.bias 12
bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/output/dense/kernel 12,8 albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.weight 8,12
bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/output/dense/bias 8 albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.bias 8
bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/gamma 8 albert.encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm.weight 8
bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/beta 8 albert.encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm.bias 8
bert/pooler/dense/kernel 8,8 albert.pooler.weight 8,8
bert/pooler/dense/bias 8 albert.pooler.bias 8
cls/predictions/transform/dense/kernel 8,4 predictions.dense.weight 4,8
cls/predictions/transform/dense/bias 4 predictions.dense.bias 4
cls/predictions/transform/LayerNorm/gamma 4 predictions.LayerNorm.weight 4
cls/predictions/transform/LayerNorm/beta 4 predictions.LayerNorm.bias 4
cls/predictions/output_bias 11 predictions.bias 11
cls/seq_relationship/output_weights 2,8 sop_classifier.classifier.weight 2,8
cls/seq_relationship/output_bias 2 sop_classifier.classifier.bias 2
"""  # noqa: E501
LINES = [one_layer.Line(f"{line} -") for line in TABLE.splitlines() if line]
ARRAYS = one_layer.random_weights(LINES)
TENSORS = one_layer.their_tensors(LINES, ARRAYS)

# What `save_pretrained` of transformers 5.23 writes, the numbers of `CONFIG` in it.
THEIR_CONFIG = json.loads("""
{"architectures": ["AlbertForPreTraining"], "attention_probs_dropout_prob": 0.0,
"bos_token_id": 2, "classifier_dropout_prob": 0.1, "dtype": "float32",
"embedding_size": 4, "eos_token_id": 3, "hidden_act": "gelu_new",
"hidden_dropout_prob": 0.0, "hidden_size": 8, "initializer_range": 0.02,
"inner_group_num": 1, "intermediate_size": 12, "layer_norm_eps": 1e-12,
"max_position_embeddings": 6, "model_type": "albert", "num_attention_heads": 2,
"num_hidden_groups": 1, "num_hidden_layers": 3, "pad_token_id": 0,
"tie_word_embeddings": true, "transformers_version": "5.23.0", "type_vocab_size": 2,
"vocab_size": 11}
""")

RECORD = {
    "input_ids": np.array([[2, 7, 10, 4, 3]]),
    "input_mask": np.array([[1, 1, 1, 1, 0]]),
    "segment_ids": np.array([[0, 0, 1, 1, 0]]),
    "masked_lm_positions": np.array([[1, 2]]),
}
# AlbertForPreTraining of transformers 5.23 on PyTorch, in float64, of RECORD with
# `ARRAYS`: at the two positions, and of the order of sentences.
PREDICTION_LOGITS = [
    [
        *(-0.05759564, -0.88959245, 0.29541153, 0.10992562, 0.86789274, 0.08384378),
        *(-0.89875797, -0.39284879, 0.98116109, 0.55648599, -0.26962653),
    ],
    [
        *(-0.05832674, -0.88601327, 0.29346550, 0.10817014, 0.86731395, 0.08216603),
        *(-0.90040556, -0.39477916, 0.98068011, 0.55772934, -0.26589640),
    ],
]
SOP_LOGITS = [1.12774042, -1.04086322]
