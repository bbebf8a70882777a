"""BertSpanPredictor and BertTagger: scores of every token.

Neither has a pooler: nothing would train it.

Shapes: B batch, S sequence, H hidden, C labels.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import CLASSIFIER_DROPOUT, BertConfig
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.head_layers import (
    HEAD_INITIALIZER_RANGE,
    OutputProjection,
    TokenDropout,
)
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.objectives import SPAN, TAGGING


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanPredictor(HeadModel):
    """Where an answer starts and ends in a passage (Devlin et al., section 4.2, SQuAD).

    One linear layer on every token, without dropout, as in the original's code.

    Inputs: the encoder's. Outputs, in float32: start_logits and end_logits [B, S], of
    padding and the question too. Labels in the records: start_positions and
    end_positions [B, 1], where the answer's first and last token stand, 0 ([CLS]) where
    there is no answer; and, where present, is_real_example [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
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
        use_position_ids: bool = False,
        use_attention_mask: bool = False,
        recompute: bool = False,
        dtype: Any = None,
        name: str = "bert_span_predictor",
        **kwargs: Any,
    ):
        # === Layers ===
        encoder = BertEncoder(
            config,
            use_position_ids=use_position_ids,
            use_attention_mask=use_attention_mask,
            use_pooler=False,
            recompute=recompute,
            dtype=dtype,
        )
        projection = OutputProjection(
            2, HEAD_INITIALIZER_RANGE, dtype=dtype, name="squad"
        )

        # === Functional Model ===
        inputs = dict(encoder.input)
        encoded = encoder(inputs)
        with keras.name_scope("cls"):
            logits = projection(encoded["sequence_output"])
        start_logits, end_logits = ops.unstack(logits, 2, axis=-1)

        # === Config ===
        super().__init__(
            encoder,
            inputs,
            {"start_logits": start_logits, "end_logits": end_logits},
            arguments={
                "use_position_ids": use_position_ids,
                "use_attention_mask": use_attention_mask,
                "recompute": recompute,
            },
            objective=SPAN,
            name=name,
            **kwargs,
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTagger(HeadModel):
    """A label for every word, such as a named entity's (Devlin et al., section 5.3).

    Every token has scores; a word's label is that of its first token, and the others
    count for nothing.

    Inputs: the encoder's. Output, in float32: logits [B, S, C]. Labels in the records:
    label_ids [B, S] ints, and label_weights [B, S], 1 at the first token of each word
    and 0 elsewhere, where the label may be any.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        num_labels: how many labels.
        dropout: dropout rate of the tokens' output, in training.
        use_position_ids: whether there is an input `position_ids`.
        use_attention_mask: whether there is an input `attention_mask`.
        recompute: whether training computes the layers again in the backward pass, to
            save memory; see BertEncoder.
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
    """

    weight_name = "label_weights"

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
        name: str = "bert_tagger",
        **kwargs: Any,
    ):
        if num_labels < 1:
            raise ValueError(f"`num_labels` must be positive. Received: {num_labels}")

        # === Layers ===
        encoder = BertEncoder(
            config,
            use_position_ids=use_position_ids,
            use_attention_mask=use_attention_mask,
            use_pooler=False,
            recompute=recompute,
            dtype=dtype,
        )
        token_dropout = TokenDropout(dropout, dtype=dtype, name="dropout")
        projection = OutputProjection(
            num_labels, HEAD_INITIALIZER_RANGE, dtype=dtype, name="tagging"
        )

        # === Functional Model ===
        inputs = dict(encoder.input)
        encoded = encoder(inputs)
        with keras.name_scope("cls"):
            logits = projection(token_dropout(encoded["sequence_output"]))

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
            objective=TAGGING,
            name=name,
            **kwargs,
        )
        self.num_labels = num_labels
