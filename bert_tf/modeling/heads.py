"""BertPretrainer and BertClassifier: the encoder with the heads of a task.

Each is a functional Keras model with named outputs, fed with whole parsed records: a
dict that holds the model's inputs and, for training, the labels, under the same names.
`compile(optimizer=...)` without a loss trains on those labels; with a loss and targets
given to `fit`, Keras does as ever. A training loop of its own calls the model and the
functions of `objectives`.

Shapes: B batch, S sequence, P predictions, H hidden, V vocabulary, C labels.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.config import CLASSIFIER_DROPOUT, BertConfig
from bert_tf.modeling.encoder import BertEncoder, RecordModel, as_config
from bert_tf.modeling.head_layers import (
    GatherPositions,
    MaskedLMHead,
    OutputProjection,
    PooledDropout,
)
from bert_tf.modeling.objectives import (
    CLASSIFICATION,
    MASKED_LM,
    NEXT_SENTENCE,
    REGRESSION,
    Objective,
)

# The original writes this into its classifier, whatever the config's initializer_range.
_CLASSIFIER_INITIALIZER_RANGE = 0.02


class _HeadModel(RecordModel):
    """What the models of this file share: records for training, configs for saving.

    Attributes:
        encoder: the BertEncoder.
        bert_config: its BertConfig.
        objective: what `fit` minimises and reports on records.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        arguments: dict[str, Any],
        objective: Objective,
        **kwargs: Any,
    ):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.encoder = encoder
        self.bert_config = encoder.bert_config
        self._arguments = arguments
        self.objective = objective
        self._record_metrics = [
            keras.metrics.Mean(name=name)
            for name in (*objective.losses, *objective.metrics)
        ]
        self._scaled_loss = _ScaledLoss(name="scaled_loss")

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Keras' extension point: without targets, the labels in the records."""
        if y is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = sum(
            function(x, y_pred).value() for function in self.objective.losses.values()
        )
        return self._scaled_loss(total, total)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Keras' extension point: the metrics of the records, or the compiled ones."""
        if y is None:
            means = self.objective.means(x, y_pred)
            for metric in self._record_metrics:
                _, weight, _ = mean = means[metric.name]
                metric.update_state(mean._replace(epsilon=0.0).value(), weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """What Keras reports: the records' metrics, unless a loss is compiled."""
        if self.loss is None:
            return super().metrics
        return [m for m in super().metrics if m not in self._record_metrics]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for .keras files."""
        return {
            "config": self.bert_config.to_dict(),
            **self._arguments,
            "dtype": keras.dtype_policies.serialize(self.encoder.dtype_policy),
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "_HeadModel":
        """The model that `get_config` describes."""
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)


@keras.saving.register_keras_serializable(package="bert_tf")
class _ScaledLoss(keras.losses.Loss):
    """A loss already computed, scaled as Keras expects of a strategy's replica."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss itself, as a batch of one: Keras does not scale a scalar."""
        del y_true
        return ops.reshape(y_pred, (1,))


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(_HeadModel):
    """Masked language model and next sentence prediction (Devlin et al., section 3.1).

    Inputs: the encoder's, and masked_lm_positions [B, P] int32. Outputs, in float32:
    masked_lm_logits [B, P, V] and next_sentence_logits [B, 2]. Labels in the records:
    masked_lm_ids, masked_lm_weights [B, P], next_sentence_labels [B, 1].

    Packed, next_sentence_logits are [B, N, 2], of each of a row's sequences, labels
    next_sentence_labels and next_sentence_weights [B, N]. The weights are the same, so
    that a checkpoint is good for rows of both kinds.

    With `left_to_right` in the config it is a language model: records made by
    `bert_tf.records.next_tokens` ask for the next token at every position.

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


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(_HeadModel):
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
            num_labels, _CLASSIFIER_INITIALIZER_RANGE, dtype=dtype, name="classifier"
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
