"""BertClassifier and BertMultipleChoice: scores of whole sequences, from the pooler.

Shapes: B batch, N choices, S sequence, H hidden, C labels.
"""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.config import (
    CLASSIFIER_DROPOUT,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    BertConfig,
)
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.head_layers import (
    HEAD_INITIALIZER_RANGE,
    MergeChoices,
    OutputProjection,
    PooledDropout,
    SplitChoices,
)
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.objectives import CLASSIFICATION, CLASSIFIERS


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(HeadModel):
    """Classification or regression of a sentence or a pair.

    Inputs: the encoder's. Output, in float32: logits [B, C]. Labels in the records:
    label_ids, and, where present, is_real_example [B, 1]. label_ids are [B, 1] ints;
    for regression the numbers, [B, C] floats; for several labels at once [B, C] floats,
    1.0 where a label is there, else 0.0.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        num_labels: C, how many labels or numbers.
        problem_type: SINGLE_LABEL, REGRESSION or MULTI_LABEL of `bert_tf.config`.
            Default: regression of one number where `num_labels` is 1, else
            SINGLE_LABEL.
        dropout: dropout rate of the pooled output, in training.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        recompute: whether training computes the layers again in the backward pass, to
            save memory; see BertEncoder.
        layer_mixture: whether what is pooled is a learned mixture of all layers.
        lora_rank: rank of LoRA; 0 for none; see BertEncoder.
        adapter_size: size of the layers' adapters; 0 for none.
        train_pooler: whether the pooler is trained with LoRA or adapters.
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        num_labels: int,
        *,
        problem_type: str | None = None,
        dropout: float = CLASSIFIER_DROPOUT,
        use_position_ids: bool = False,
        use_attention_mask: bool = False,
        recompute: bool = False,
        layer_mixture: bool = False,
        lora_rank: int = 0,
        adapter_size: int = 0,
        train_pooler: bool = False,
        dtype: Any = None,
        name: str = "bert_classifier",
        **kwargs: Any,
    ):
        if num_labels < 1:
            raise ValueError(f"`num_labels` must be positive. Received: {num_labels}")
        if problem_type is None:
            problem_type = REGRESSION if num_labels == 1 else SINGLE_LABEL
        if problem_type not in PROBLEM_TYPES:
            raise ValueError(
                f"`problem_type` must be one of {PROBLEM_TYPES}."
                f" Received: {problem_type!r}"
            )
        if problem_type == SINGLE_LABEL and num_labels == 1:
            raise ValueError(
                "`num_labels` must be at least 2 where one of them is chosen."
                " Received: 1"
            )

        # === Layers ===
        encoder = BertEncoder(
            config,
            use_position_ids=use_position_ids,
            use_attention_mask=use_attention_mask,
            recompute=recompute,
            layer_mixture=layer_mixture,
            lora_rank=lora_rank,
            adapter_size=adapter_size,
            train_pooler=train_pooler,
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
                "problem_type": problem_type,
                "dropout": dropout,
                "use_position_ids": use_position_ids,
                "use_attention_mask": use_attention_mask,
                "recompute": recompute,
                "layer_mixture": layer_mixture,
                "lora_rank": lora_rank,
                "adapter_size": adapter_size,
                "train_pooler": train_pooler,
            },
            objective=CLASSIFIERS[problem_type],
            name=name,
            **kwargs,
        )
        self.num_labels = num_labels
        self.problem_type = problem_type


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
