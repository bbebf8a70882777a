"""BERT with a head for each task, and with the two of pre-training.

    BertPretrainer       masked language model and next sentence prediction
    BertClassifier       classes, or a number, of a sentence or a pair
    BertMultipleChoice   the right one of several choices
    BertSpanPredictor    where an answer starts and ends in a passage
    BertTagger           a label for every word
    BiLstmTagger         a label for every word, from frozen features

A model's input is a whole parsed record: a dict with the model's inputs and, for
training, the labels. `compile(optimizer=...)` without a loss trains on those labels, or
on the targets given to `fit`: a dict of them, or label_ids alone. With a loss Keras
behaves as usual. A custom training loop calls the model and the functions of
`objectives`.

Shapes: B batch, S sequence, P predictions, N choices, or sequences of a packed row, H
hidden, C labels, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import (
    CLASSIFIER_DROPOUT,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    BertConfig,
)
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import (
    BertEncoder,
    DictInputModel,
    LayerMixture,
    as_config,
    check_range,
)
from bert_tf.modeling.layers import (
    HEAD_INITIALIZER_RANGE,
    GatherPositions,
    HeadDropout,
    MaskedLMHead,
    MergeChoices,
    OutputProjection,
    SplitChoices,
    WindowAttention,
)
from bert_tf.modeling.objectives import (
    CLASSIFICATION,
    CLASSIFIERS,
    MASKED_LM,
    NEXT_SENTENCE,
    SPAN,
    TAGGING,
    Objective,
)
from bert_tf.modeling.of_logits import (
    is_of_logits,
    losses_of_logits,
    metrics_of_logits,
)


class HeadModel(DictInputModel):
    """The encoder with a task's head: a functional model with named outputs."""

    # The records' names of the labels that the objective needs.
    label_names: tuple[str, ...] = ()

    def __init__(
        self,
        encoder: BertEncoder,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        objective: Objective,
        name: str,
        **arguments: Any,
    ):
        """The arguments are the head's own, for `get_config`; not the encoder's."""
        super().__init__(inputs=inputs, outputs=outputs, name=name)
        self.encoder = encoder
        self.bert_config = encoder.bert_config
        self.objective = objective
        self._arguments = arguments
        self._record_metrics = [
            keras.metrics.Mean(name=name)
            for name in (*objective.losses, *objective.metrics)
        ]
        self._scaled_loss = _ScaledLoss(name="scaled_loss")

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any
    ) -> None:
        """Keras' own; without a loss the model's objective is minimised.

        Losses and metrics are of logits, which the outputs are: see `of_logits`.
        """
        kind = self._arguments.get("problem_type") or SINGLE_LABEL
        outputs = self.output
        loss = losses_of_logits(loss, kind, outputs)
        if kind != REGRESSION or is_of_logits(loss):
            for name in ("metrics", "weighted_metrics"):
                kwargs[name] = metrics_of_logits(kwargs.get(name), kind, outputs)
        self.loss = None  # Keras would keep that of an earlier call
        super().compile(optimizer, loss, **kwargs)

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Compiles a loaded model, like Keras' own with its own `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def _labels(self, y: Any) -> Any:
        """Targets in Keras' form, checked."""
        if isinstance(y, list | tuple):
            y = np.asarray(y)
        if not isinstance(y, np.ndarray):
            return y
        is_class = self._arguments.get("problem_type") in (None, SINGLE_LABEL)
        if is_class and "num_labels" in self._arguments:
            if y.dtype.kind in "iu":
                check_range(y, self._arguments["num_labels"], "y")
            elif self.loss is None and (
                y.dtype.kind not in "bf" or (y != y // 1).any()
            ):
                raise InputError(
                    "`y` must be the numbers of the classes, from 0. Received:"
                    f" {y.ravel()[:1].tolist()} of type {y.dtype}"
                )
        return y[:, None] if y.ndim == 1 else y  # as records have them

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' own; InputError if an input or label is wrong."""
        has_class = self._arguments.get("problem_type") in (None, SINGLE_LABEL)
        if kwargs.get("class_weight") is not None and (
            not has_class or "label_weights" in self.label_names
        ):
            # Keras would take the place of the largest for a row's class.
            raise InputError(
                "`class_weight` is for models that choose one class for each example."
                " Give `sample_weight`."
            )
        return super().fit(x, y, *args, **kwargs)

    def _records(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """A batch with its targets under the records' names."""
        del sample_weight
        if y is not None:
            x = {**x, **(y if isinstance(y, Mapping) else {"label_ids": y})}
        if missing := [name for name in self.label_names if name not in x]:
            raise InputError(
                f"{type(self).__name__} learns from labels under the names"
                f" {', '.join(self.label_names)}, in `x` or as a dict `y`."
                f" {', '.join(missing)} is missing."
            )
        return x

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Keras' extension point: without a compiled loss, the model's objective."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        x = self._records(x, y, sample_weight)
        total = sum(
            function(x, y_pred, sample_weight).value()
            for function in self.objective.losses.values()
        )
        return self._scaled_loss(total, total)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Keras' extension point: the metrics of the records, or the compiled ones."""
        if self.loss is None:
            x = self._records(x, y, sample_weight)
            means = self.objective.means(x, y_pred)
            for metric in self._record_metrics:
                mean = means[metric.name]._replace(epsilon=0.0, factor=1.0)
                metric.update_state(mean.value(), mean.weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """What Keras reports: the records' metrics, unless a loss is compiled."""
        if self.loss is None:
            return super().metrics
        return [m for m in super().metrics if m not in self._record_metrics]

    def _constructor_arguments(self) -> dict[str, Any]:
        options = self.encoder.options.items()
        return {
            "config": self.bert_config.to_dict(),
            **{name: value for name, value in options if name != "use_pooler"},
            **self._arguments,
            "dtype": keras.dtype_policies.serialize(self.encoder.dtype_policy),
            "name": self.name,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class _ScaledLoss(keras.losses.Loss):
    """A loss already computed, scaled as Keras expects of a strategy's replica."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss itself, as a batch of one: Keras does not scale a scalar."""
        del y_true
        return ops.reshape(y_pred, (1,))


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
        window_pooling: "attention" for texts in several windows: the inputs are
            [B, N, S], windows that are not there have mask 0, and their pooled outputs
            are averaged, weighted by attention. Default: one sequence, [B, S].
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
        **options: BertEncoder's: recompute, layer_mixture, lora_rank, adapter_size,
            train_pooler, ...
    """

    label_names = ("label_ids",)

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        num_labels: int,
        *,
        problem_type: str | None = None,
        dropout: float = CLASSIFIER_DROPOUT,
        window_pooling: str | None = None,
        dtype: Any = None,
        name: str = "bert_classifier",
        **options: Any,
    ):
        if problem_type is None:
            problem_type = REGRESSION if num_labels == 1 else SINGLE_LABEL
        if problem_type not in PROBLEM_TYPES:
            raise ValueError(
                f"`problem_type` must be one of {PROBLEM_TYPES}."
                f" Received: {problem_type!r}"
            )
        if num_labels < (2 if problem_type == SINGLE_LABEL else 1):
            raise ValueError(
                "`num_labels` must be positive, and at least 2 where one of them is"
                f" chosen. Received: {num_labels}"
            )
        if window_pooling not in (None, "attention"):
            raise ValueError(
                "`window_pooling` must be None or 'attention'. Received:"
                f" {window_pooling!r}"
            )

        # === Layers ===
        encoder = BertEncoder(config, dtype=dtype, **options)
        pooled_dropout = HeadDropout(dropout, dtype=dtype, name="dropout")
        projection = OutputProjection(
            num_labels, HEAD_INITIALIZER_RANGE, dtype=dtype, name="classifier"
        )

        # === Functional Model ===
        if window_pooling:
            inputs, pooled = _in_parallel(encoder, "merge_windows")
            with keras.name_scope("cls"):
                attention = WindowAttention(dtype=dtype, name="window_attention")
                pooled = attention(pooled, inputs["input_mask"])
        else:
            inputs = dict(encoder.input)
            pooled = encoder(inputs)["pooled_output"]
        logits = projection(pooled_dropout(pooled))

        # === Config ===
        super().__init__(
            encoder,
            inputs,
            {"logits": logits},
            CLASSIFIERS[problem_type],
            name,
            num_labels=num_labels,
            problem_type=problem_type,
            dropout=dropout,
            **({"window_pooling": window_pooling} if window_pooling else {}),
        )
        self.num_labels = num_labels
        self.problem_type = problem_type
        self.window_pooling = window_pooling


def _in_parallel(encoder: BertEncoder, name: str) -> tuple[dict[str, Any], Any]:
    """Inputs [B, N, S] of several sequences each, and the pooled outputs [B N, W]."""
    merge = MergeChoices(dtype=encoder.dtype_policy, name=name)
    inputs = {
        key: keras.Input((None, *tensor.shape[1:]), dtype="int32", name=key)
        for key, tensor in encoder.input.items()
    }
    encoded = encoder({key: merge(x) for key, x in inputs.items()})
    return inputs, encoded["pooled_output"]


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(HeadModel):
    """The right one of several choices (Devlin et al., section 4.4, SWAG).

    Each choice is its own sequence, such as [CLS] context [SEP] ending [SEP]. Its
    score is the product of the pooled output and a vector; the softmax is over the
    choices.

    Inputs: the encoder's, each with a dimension for the choices: input_ids, input_mask,
    segment_ids [B, N, S]. N may be another one in each batch. Output, in float32:
    logits [B, N]. Labels in the records: label_ids [B, 1], the number of the right
    choice, and, where present, is_real_example [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        dropout: dropout rate of the pooled output, in training.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.
    """

    label_names = ("label_ids",)

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        dropout: float = CLASSIFIER_DROPOUT,
        dtype: Any = None,
        name: str = "bert_multiple_choice",
        **options: Any,
    ):
        # === Layers ===
        encoder = BertEncoder(config, dtype=dtype, **options)
        pooled_dropout = HeadDropout(dropout, dtype=dtype, name="dropout")
        projection = OutputProjection(
            1, HEAD_INITIALIZER_RANGE, dtype=dtype, name="multiple_choice"
        )
        split_choices = SplitChoices(dtype=dtype, name="split_choices")

        # === Functional Model ===
        inputs, pooled = _in_parallel(encoder, "merge_choices")
        with keras.name_scope("cls"):
            scores = projection(pooled_dropout(pooled))
        logits = split_choices(scores, inputs["input_ids"])

        # === Config ===
        outputs = {"logits": logits}
        super().__init__(
            encoder, inputs, outputs, CLASSIFICATION, name, dropout=dropout
        )


# The models below score every token and have no pooler: nothing would train it.


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
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.
    """

    label_names = ("start_positions", "end_positions")

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        dtype: Any = None,
        name: str = "bert_span_predictor",
        **options: Any,
    ):
        # === Layers ===
        encoder = BertEncoder(config, use_pooler=False, dtype=dtype, **options)
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
        outputs = {"start_logits": start_logits, "end_logits": end_logits}
        super().__init__(encoder, inputs, outputs, SPAN, name)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTagger(HeadModel):
    """A label for every word, such as a named entity's (Devlin et al., section 5.3).

    Every token has scores; a word's label is that of its first token, and the others
    have weight 0.

    Inputs: the encoder's. Output, in float32: logits [B, S, C]. Labels in the records:
    label_ids [B, S] ints, and label_weights [B, S], 1 at the first token of each word
    and 0 elsewhere, where the label may be any.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        num_labels: how many labels.
        dropout: dropout rate of the tokens' output, in training.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.
    """

    label_names = ("label_ids", "label_weights")

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        num_labels: int,
        *,
        dropout: float = CLASSIFIER_DROPOUT,
        dtype: Any = None,
        name: str = "bert_tagger",
        **options: Any,
    ):
        if num_labels < 1:
            raise ValueError(f"`num_labels` must be positive. Received: {num_labels}")

        # === Layers ===
        encoder = BertEncoder(config, use_pooler=False, dtype=dtype, **options)
        token_dropout = HeadDropout(dropout, dtype=dtype, name="dropout")
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
            TAGGING,
            name,
            num_labels=num_labels,
            dropout=dropout,
        )
        self.num_labels = num_labels

    def _records(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """As every head's; what has a weight, of weights for each token, is a word."""
        names = {*x, *(y if isinstance(y, Mapping) else ())}
        if sample_weight is not None and "label_weights" not in names:
            sample_weight = ops.convert_to_tensor(sample_weight)
            if len(sample_weight.shape) == 2 and sample_weight.shape[1] != 1:
                is_word = ops.cast(sample_weight != 0, "float32")
                x = {**x, "label_weights": is_word}
        return super()._records(x, y, sample_weight)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(HeadModel):
    """Masked language model and next sentence prediction (Devlin et al., section 3.1).

    Inputs: the encoder's, and masked_lm_positions [B, P] int32. Outputs, in float32:
    masked_lm_logits [B, P, V] and next_sentence_logits [B, 2]. Labels in the records:
    masked_lm_ids, masked_lm_weights [B, P], next_sentence_labels [B, 1].

    Packed, next_sentence_logits are [B, N, 2], of each of a row's sequences, labels
    next_sentence_labels and next_sentence_weights [B, N]. The weights are the same, so
    that a checkpoint can be used for rows of both kinds.

    With `left_to_right` in the config it is a language model: records made by
    `bert_tf.records.dynamic_masking` ask for the next token at every position.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        next_sentence: whether to predict the next sentence. If not, the encoder has no
            pooler: nothing would train it.
        num_pair_labels: 2, or 3 if B may also be the sentence before A.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's; of the options also
            `packed`, for rows that hold several sequences.
    """

    label_names: tuple[str, ...] = ("masked_lm_ids", "masked_lm_weights")

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        next_sentence: bool = True,
        num_pair_labels: int = 2,
        dtype: Any = None,
        name: str = "bert_pretrainer",
        **options: Any,
    ):
        config = as_config(config)

        # === Layers ===
        encoder = BertEncoder(config, use_pooler=next_sentence, dtype=dtype, **options)
        gather = GatherPositions(dtype=dtype, name="gather_positions")
        masked_lm = MaskedLMHead(config, encoder.embeddings, dtype=dtype)
        seq_relationship = OutputProjection(
            num_pair_labels,
            config.initializer_range,
            dtype=dtype,
            name="seq_relationship",
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
            MASKED_LM + NEXT_SENTENCE if next_sentence else MASKED_LM,
            name,
            next_sentence=next_sentence,
            num_pair_labels=num_pair_labels,
        )
        if next_sentence:
            self.label_names += ("next_sentence_labels",)


HIDDEN_SIZE = 768
NUM_LAYERS = 2
DROPOUT = 0.1
# Adam changes a score by about the learning rate per step, here some 1e-3.
_MIXTURE_SCORE_SCALE = 1.0


@keras.saving.register_keras_serializable(package="bert_tf")
class BiLstmTagger(DictInputModel):
    """A label for every word, from its features and those of the words around it.

    BERT without fine-tuning (Devlin et al. 2018, section 5.3): word vectors from layers
    of BERT are the input of a two-layer 768-dimensional BiLSTM before the
    classification layer. The paper does not give the weights of its weighted sums; here
    they are learned, like ELMo's (`LayerMixture`).

    Inputs: features [B, S, num_vectors, width], and input_mask [B, S], 1 for words and
    0 for padding behind them. Output, in float32: logits [B, S, C].
    """

    def __init__(
        self,
        num_vectors: int,
        width: int,
        num_labels: int,
        *,
        hidden_size: int = HIDDEN_SIZE,  # of both directions together
        num_layers: int = NUM_LAYERS,
        dropout: float = DROPOUT,
        dtype: Any = None,
        name: str = "bilstm_tagger",
        **kwargs: Any,
    ):
        # === Layers ===
        mixture = None
        if num_vectors > 1:
            mixture = LayerMixture(score_scale=_MIXTURE_SCORE_SCALE, dtype=dtype)
        dropouts = [
            HeadDropout(dropout, dtype=dtype, name=f"dropout_{number}")
            for number in range(num_layers + 1)
        ]
        recurrent = [
            keras.layers.Bidirectional(
                keras.layers.LSTM(
                    hidden_size // 2, return_sequences=True, dtype=dtype, name="lstm"
                ),
                dtype=dtype,
                name=f"bilstm_{number}",
            )
            for number in range(num_layers)
        ]
        projection = OutputProjection(
            num_labels, HEAD_INITIALIZER_RANGE, dtype=dtype, name="tagging"
        )

        # === Functional Model ===
        features = keras.Input((None, num_vectors, width), name="features")
        input_mask = keras.Input((None,), dtype="int32", name="input_mask")
        is_word = ops.cast(input_mask, "bool")
        vectors = [features[:, :, number] for number in range(num_vectors)]
        # The scope of all heads, for the weights' names in checkpoints.
        with keras.name_scope("cls"):
            x = mixture(vectors) if mixture else vectors[0]
            for dropped, layer in zip(dropouts, recurrent, strict=False):
                x = layer(dropped(x), mask=is_word)
            logits = projection(dropouts[-1](x))

        # === Config ===
        super().__init__(
            inputs={"features": features, "input_mask": input_mask},
            outputs={"logits": logits},
            name=name,
            **kwargs,
        )
        self._arguments = {
            "num_vectors": num_vectors,
            "width": width,
            "num_labels": num_labels,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "dropout": dropout,
        }

    def _constructor_arguments(self) -> dict[str, Any]:
        return {**self._arguments, "name": self.name}
