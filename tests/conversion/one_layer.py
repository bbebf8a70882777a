"""A one-layer BERT: the names of its weights in all three layouts, written out by hand.

V 11, H 8 with 2 heads, F 12, P 6, T 2, C 3 labels. A line: the original's name and
shape, Hugging Face's name (where BertModel has `bert.` cut off) and shape, and
its place in KerasHub's files.
"""

import numpy as np

from bert_tf.base.config import BertConfig
from bert_tf.conversion.weights import Tensor

CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=6,
    type_vocab_size=2,
)

ENCODER = """
bert/embeddings/word_embeddings 11,8 bert.embeddings.word_embeddings.weight 11,8 layers/reversible_embedding/vars/0
bert/embeddings/token_type_embeddings 2,8 bert.embeddings.token_type_embeddings.weight 2,8 layers/embedding/vars/0
bert/embeddings/position_embeddings 6,8 bert.embeddings.position_embeddings.weight 6,8 layers/position_embedding/vars/0
bert/embeddings/LayerNorm/gamma 8 bert.embeddings.LayerNorm.weight 8 layers/layer_normalization/vars/0
bert/embeddings/LayerNorm/beta 8 bert.embeddings.LayerNorm.bias 8 layers/layer_normalization/vars/1
bert/encoder/layer_0/attention/self/query/kernel 8,8 bert.encoder.layer.0.attention.self.query.weight 8,8 layers/transformer_encoder/_self_attention_layer/query_dense/vars/0
bert/encoder/layer_0/attention/self/query/bias 8 bert.encoder.layer.0.attention.self.query.bias 8 layers/transformer_encoder/_self_attention_layer/query_dense/vars/1
bert/encoder/layer_0/attention/self/key/kernel 8,8 bert.encoder.layer.0.attention.self.key.weight 8,8 layers/transformer_encoder/_self_attention_layer/key_dense/vars/0
bert/encoder/layer_0/attention/self/key/bias 8 bert.encoder.layer.0.attention.self.key.bias 8 layers/transformer_encoder/_self_attention_layer/key_dense/vars/1
bert/encoder/layer_0/attention/self/value/kernel 8,8 bert.encoder.layer.0.attention.self.value.weight 8,8 layers/transformer_encoder/_self_attention_layer/value_dense/vars/0
bert/encoder/layer_0/attention/self/value/bias 8 bert.encoder.layer.0.attention.self.value.bias 8 layers/transformer_encoder/_self_attention_layer/value_dense/vars/1
bert/encoder/layer_0/attention/output/dense/kernel 8,8 bert.encoder.layer.0.attention.output.dense.weight 8,8 layers/transformer_encoder/_self_attention_layer/output_dense/vars/0
bert/encoder/layer_0/attention/output/dense/bias 8 bert.encoder.layer.0.attention.output.dense.bias 8 layers/transformer_encoder/_self_attention_layer/output_dense/vars/1
bert/encoder/layer_0/attention/output/LayerNorm/gamma 8 bert.encoder.layer.0.attention.output.LayerNorm.weight 8 layers/transformer_encoder/_self_attention_layer_norm/vars/0
bert/encoder/layer_0/attention/output/LayerNorm/beta 8 bert.encoder.layer.0.attention.output.LayerNorm.bias 8 layers/transformer_encoder/_self_attention_layer_norm/vars/1
bert/encoder/layer_0/intermediate/dense/kernel 8,12 bert.encoder.layer.0.intermediate.dense.weight 12,8 layers/transformer_encoder/_feedforward_intermediate_dense/vars/0
bert/encoder/layer_0/intermediate/dense/bias 12 bert.encoder.layer.0.intermediate.dense.bias 12 layers/transformer_encoder/_feedforward_intermediate_dense/vars/1
bert/encoder/layer_0/output/dense/kernel 12,8 bert.encoder.layer.0.output.dense.weight 8,12 layers/transformer_encoder/_feedforward_output_dense/vars/0
bert/encoder/layer_0/output/dense/bias 8 bert.encoder.layer.0.output.dense.bias 8 layers/transformer_encoder/_feedforward_output_dense/vars/1
bert/encoder/layer_0/output/LayerNorm/gamma 8 bert.encoder.layer.0.output.LayerNorm.weight 8 layers/transformer_encoder/_feedforward_layer_norm/vars/0
bert/encoder/layer_0/output/LayerNorm/beta 8 bert.encoder.layer.0.output.LayerNorm.bias 8 layers/transformer_encoder/_feedforward_layer_norm/vars/1
"""  # noqa: E501

POOLER = """
bert/pooler/dense/kernel 8,8 bert.pooler.dense.weight 8,8 layers/dense/vars/0
bert/pooler/dense/bias 8 bert.pooler.dense.bias 8 layers/dense/vars/1
"""

HEADS = {
    "masked LM": """
cls/predictions/transform/dense/kernel 8,8 cls.predictions.transform.dense.weight 8,8 layers/masked_lm_head/_intermediate_dense/vars/0
cls/predictions/transform/dense/bias 8 cls.predictions.transform.dense.bias 8 layers/masked_lm_head/_intermediate_dense/vars/1
cls/predictions/transform/LayerNorm/gamma 8 cls.predictions.transform.LayerNorm.weight 8 layers/masked_lm_head/_intermediate_layer_norm/vars/0
cls/predictions/transform/LayerNorm/beta 8 cls.predictions.transform.LayerNorm.bias 8 layers/masked_lm_head/_intermediate_layer_norm/vars/1
cls/predictions/output_bias 11 cls.predictions.bias 11 layers/masked_lm_head/vars/0
""",  # noqa: E501
    "next sentence prediction": """
cls/seq_relationship/output_weights 2,8 cls.seq_relationship.weight 2,8 -
cls/seq_relationship/output_bias 2 cls.seq_relationship.bias 2 -
""",
    "classifier": """
output_weights 3,8 classifier.weight 3,8 layers/dense/vars/0
output_bias 3 classifier.bias 3 layers/dense/vars/1
""",
    "span": """
cls/squad/output_weights 2,8 qa_outputs.weight 2,8 -
cls/squad/output_bias 2 qa_outputs.bias 2 -
""",
    "multiple choice": """
cls/multiple_choice/output_weights 1,8 classifier.weight 1,8 -
cls/multiple_choice/output_bias 1 classifier.bias 1 -
""",
    "tagging": """
cls/tagging/output_weights 3,8 classifier.weight 3,8 -
cls/tagging/output_bias 3 classifier.bias 3 -
""",
}

# The classes of transformers, and what they are made of.
CLASSES = {
    "BertModel": (True, ()),
    "BertForPreTraining": (True, ("masked LM", "next sentence prediction")),
    "BertForMaskedLM": (False, ("masked LM",)),
    "BertLMHeadModel": (False, ("masked LM",)),
    "BertForNextSentencePrediction": (True, ("next sentence prediction",)),
    "BertForSequenceClassification": (True, ("classifier",)),
    "BertForQuestionAnswering": (False, ("span",)),
    "BertForMultipleChoice": (True, ("multiple choice",)),
    "BertForTokenClassification": (False, ("tagging",)),
}


class Line:
    """A weight's names and shapes."""

    def __init__(self, text):
        self.original, shape, self.hugging_face, theirs, self.keras_hub = text.split()
        self.shape = tuple(map(int, shape.split(",")))
        self.their_shape = tuple(map(int, theirs.split(",")))


def lines(text):
    return [Line(line) for line in text.splitlines() if line]


def lines_of(name):
    """The weights of a class of transformers, by that class' names."""
    pooler, heads = CLASSES[name]
    text = ENCODER + (POOLER if pooler else "") + "".join(HEADS[h] for h in heads)
    found = lines(text)
    if name == "BertModel":
        for line in found:
            line.hugging_face = line.hugging_face.removeprefix("bert.")
    return found


def random_weights(lines):
    """Random weights by the original's names, multiples of 1 / 256."""
    rng = np.random.default_rng(0)
    return {
        line.original: rng.integers(-200, 200, line.shape).astype(np.float32) / 256
        for line in lines
    }


def tensors_of(arrays):
    """Arrays as tensors that are read when asked for."""
    return {
        name: Tensor(array.shape, lambda array=array: array)
        for name, array in arrays.items()
    }


def their_tensors(lines, weights):
    """The same weights, as transformers stores them."""
    return {
        line.hugging_face: np.ascontiguousarray(
            weights[line.original].T
            if line.original.endswith("kernel")
            else weights[line.original]
        )
        for line in lines
    }
