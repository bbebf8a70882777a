"""BertClassifier and BertMultipleChoice: scores of whole sequences, from the pooler.

Shapes: B batch, N choices, S sequence, H hidden, C labels.
"""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.config import CLASSIFIER_DROPOUT, BertConfig
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.head_layers import (
    HEAD_INITIALIZER_RANGE,
    MergeChoices,
    OutputProjection,
    PooledDropout,
    SplitChoices,
)
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.objectives import CLASSIFICATION, REGRESSION


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(HeadModel):
    """Classification, or with one label regression, of a sentence or a pair.

    Inputs: the encoder's. Output, in float32: logits [B, C]. Labels in the records:
    label_ids [B, 1] (ints; floats for regression) and, where present, is_real_example
    [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        num_labels: how many labels; 1 for regression.
        dropout: dropout rate of the pooled output, in training.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        recompute: whether training computes the layers again in the backward pass, to
            save memory; see BertEncoder.
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        num_labels: int,
        *,
        dropout: float = CLASSIFIER_DROPOUT,
        use_position_ids: bool = False,
        use_attention_mask: bool = False,
        recompute: bool = False,
        dtype: Any = None,
        name: str = "bert_classifier",
        **kwargs: Any,
    ):
        if num_labels < 1:
            raise ValueError(f"`num_labels` must be positive. Received: {num_labels}")

        # === Layers ===
        encoder = BertEncoder(
            config,
            use_position_ids=use_position_ids,
            use_attention_mask=use_attention_mask,
            recompute=recompute,
            dtype=dtype,
        )
        pooled_dropout = PooledDropout(dropout, dtype=dtype, name="dropout")
        projection = OutputProjection(
            num_labels, HEAD_INITIALIZER_RANGE, dtype=dtype, name="classifier"
        )

        # === Functional Model ===
        inputs = dict(encoder.input)
        encoded = encoder(inputs)
        logits = projection(pooled_dropout(encoded["pooled_output"]))

        # === Config ===
        super().__init__(
            encoder,
            inputs,
            {"logits": logits},
            arguments={
                "num_labels": num_labels,
                "dropout": dropout,
                "use_position_ids": use_position_ids,
                "use_attention_mask": use_attention_mask,
                "recompute": recompute,
            },
            objective=REGRESSION if num_labels == 1 else CLASSIFICATION,
            name=name,
            **kwargs,
        )
        self.num_labels = num_labels


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(HeadModel):
    """The right one of several choices (Devlin et al., section 4.4, SWAG).

    Each choice is a sequence of its own, such as [CLS] context [SEP] ending [SEP]. Its
    score is the product of the pooled output and a vector; the softmax is over the
    choices.

    Inputs: the encoder's, each with a dimension for the choices: input_ids, input_mask,
    segment_ids [B, N, S]. N may be another one in each batch. Output, in float32:
    logits [B, N]. Labels in the records: label_ids [B, 1], the number of the right
    choice, and, where present, is_real_example [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        dropout: dropout rate of the pooled output, in training.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        recompute: whether training computes the layers again in the backward pass, to
            save memory; see BertEncoder.
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        dropout: float = CLASSIFIER_DROPOUT,
        use_position_ids: bool = False,
        use_attention_mask: bool = False,
        recompute: bool = False,
        dtype: Any = None,
        name: str = "bert_multiple_choice",
        **kwargs: Any,
    ):
        # === Layers ===
        encoder = BertEncoder(
            config,
            use_position_ids=use_position_ids,
            use_attention_mask=use_attention_mask,
            recompute=recompute,
            dtype=dtype,
        )
        merge_choices = MergeChoices(dtype=dtype, name="merge_choices")
        pooled_dropout = PooledDropout(dropout, dtype=dtype, name="dropout")
        projection = OutputProjection(
            1, HEAD_INITIALIZER_RANGE, dtype=dtype, name="multiple_choice"
        )
        split_choices = SplitChoices(dtype=dtype, name="split_choices")

        # === Functional Model ===
        inputs = {
            key: keras.Input((None, *tensor.shape[1:]), dtype="int32", name=key)
            for key, tensor in encoder.input.items()
        }
        encoded = encoder({key: merge_choices(x) for key, x in inputs.items()})
        with keras.name_scope("cls"):
            scores = projection(pooled_dropout(encoded["pooled_output"]))
        logits = split_choices(scores, inputs["input_ids"])

        # === Config ===
        super().__init__(
            encoder,
            inputs,
            {"logits": logits},
            arguments={
                "dropout": dropout,
                "use_position_ids": use_position_ids,
                "use_attention_mask": use_attention_mask,
                "recompute": recompute,
            },
            objective=CLASSIFICATION,
            name=name,
            **kwargs,
        )
