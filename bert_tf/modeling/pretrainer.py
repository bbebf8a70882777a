"""BertPretrainer: the encoder with the heads of pre-training.

Shapes: B batch, S sequence, P predictions, N sequences of a packed row, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.config import BertConfig
from bert_tf.modeling.encoder import BertEncoder, as_config
from bert_tf.modeling.head_layers import (
    GatherPositions,
    MaskedLMHead,
    OutputProjection,
)
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.objectives import MASKED_LM, NEXT_SENTENCE


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(HeadModel):
    """Masked language model and next sentence prediction (Devlin et al., section 3.1).

    Inputs: the encoder's, and masked_lm_positions [B, P] int32. Outputs, in float32:
    masked_lm_logits [B, P, V] and next_sentence_logits [B, 2]. Labels in the records:
    masked_lm_ids, masked_lm_weights [B, P], next_sentence_labels [B, 1].

    Packed, next_sentence_logits are [B, N, 2], of each of a row's sequences, labels
    next_sentence_labels and next_sentence_weights [B, N]. The weights are the same, so
    that a checkpoint is good for rows of both kinds.

    With `left_to_right` in the config it is a language model: records made by
    `bert_tf.records.dynamic_masking` ask for the next token at every position.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        next_sentence: whether to predict the next sentence. Without, the encoder has no
            pooler: nothing would train it.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        packed: whether a row holds several sequences, and there are the inputs
            `sequence_ids` and `cls_positions`.
        recompute: whether training computes the layers again in the backward pass, to
            save memory; see BertEncoder.
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        next_sentence: bool = True,
        use_position_ids: bool = False,
        use_attention_mask: bool = False,
        packed: bool = False,
        recompute: bool = False,
        dtype: Any = None,
        name: str = "bert_pretrainer",
        **kwargs: Any,
    ):
        config = as_config(config)

        # === Layers ===
        encoder = BertEncoder(
            config,
            use_position_ids=use_position_ids,
            use_attention_mask=use_attention_mask,
            use_pooler=next_sentence,
            packed=packed,
            recompute=recompute,
            dtype=dtype,
        )
        gather = GatherPositions(dtype=dtype, name="gather_positions")
        masked_lm = MaskedLMHead(config, encoder.embeddings, dtype=dtype)
        seq_relationship = OutputProjection(
            2, config.initializer_range, dtype=dtype, name="seq_relationship"
        )

        # === Functional Model ===
        inputs = dict(encoder.input)
        encoded = encoder(inputs)
        inputs["masked_lm_positions"] = keras.Input(
            (None,), dtype="int32", name="masked_lm_positions"
        )
        outputs = {}
        with keras.name_scope("cls"):
            outputs["masked_lm_logits"] = masked_lm(
                gather(encoded["sequence_output"], inputs["masked_lm_positions"])
            )
            if next_sentence:
                outputs["next_sentence_logits"] = seq_relationship(
                    encoded["pooled_output"]
                )

        # === Config ===
        super().__init__(
            encoder,
            inputs,
            outputs,
            arguments={
                "next_sentence": next_sentence,
                "use_position_ids": use_position_ids,
                "use_attention_mask": use_attention_mask,
                "packed": packed,
                "recompute": recompute,
            },
            objective=MASKED_LM + NEXT_SENTENCE if next_sentence else MASKED_LM,
            name=name,
            **kwargs,
        )
