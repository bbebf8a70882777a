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
from keras import ops

from bert_tf.base.config import (
    CLASSIFIER_DROPOUT,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
    BertConfig,
)
from bert_tf.modeling import fused
from bert_tf.modeling.encoder import BertEncoder, as_config
from bert_tf.modeling.fused import next_seed
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.layers import (
    Embeddings,
    Stored,
    activation,
    at_positions,
    dense,
    layer_norm,
    truncated_normal,
)
from bert_tf.modeling.objectives import (
    CLASSIFICATION,
    CLASSIFIERS,
    MASKED_LM,
    NEXT_SENTENCE,
    SPAN,
    TAGGING,
)

# The original uses this for the heads of fine-tuning, whatever the config's
# initializer_range.
HEAD_INITIALIZER_RANGE = 0.02


@keras.saving.register_keras_serializable(package="bert_tf")
class GatherPositions(Stored, keras.layers.Layer):
    """`at_positions` in a functional model."""

    def call(self, sequence_output: Any, positions: Any) -> Any:
        """Maps [B, S, H] and positions [B, P] to [B, P, H]."""
        return at_positions(sequence_output, positions)


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(Stored, keras.layers.Layer):
    """Scores of every token at the masked positions.

    LayerNorm(act(Dense(x))), as wide as the word embeddings, then the product with the
    word embeddings, which the head shares with the encoder, or, as the config says,
    with its own matrix, plus its own bias.
    """

    def __init__(
        self,
        config: BertConfig,
        embeddings: Embeddings,
        dtype: Any = None,
        name: str = "predictions",
    ):
        super().__init__(dtype=dtype, name=name)
        self.bert_config = config
        embeddings.is_linked = True
        self.embeddings = embeddings
        self.activation = activation(config.masked_lm_hidden_act or config.hidden_act)
        self.dense = dense(config, config.embedding_width, self.dtype_policy)
        self.layer_norm = layer_norm(
            config.masked_lm_layer_norm_eps or config.layer_norm_eps, self.dtype_policy
        )

    def build(self, input_shape: tuple) -> None:
        """Builds the transform [H, E] and the bias [V] of the scores."""
        if not self.embeddings.built:
            self.embeddings.build()
        with keras.name_scope("transform"):
            self.dense.build(input_shape)
            self.layer_norm.build((*input_shape[:-1], self.dense.units))
        self.output_bias = self.add_weight(
            name="output_bias",
            shape=(self.bert_config.vocab_size,),
            initializer="zeros",
            autocast=False,
        )
        if not self.bert_config.tie_word_embeddings:
            self.output_weights = self.add_weight(
                name="output_weights",
                shape=self.embeddings.word_embeddings.shape,
                initializer=truncated_normal(self.bert_config.initializer_range),
                autocast=False,
            )
        self.built = True

    def call(self, x: Any, training: bool | None = None) -> Any:
        """Maps [B, P, H] to logits [B, P, V] in float32."""
        x = self.layer_norm(self.activation(self.dense(x)))
        is_tied = self.bert_config.tie_word_embeddings
        table = self.embeddings.word_embeddings if is_tied else self.output_weights
        if not training:
            return _project(x, table, self.output_bias)
        rows = ops.reshape(x, (-1, x.shape[-1]))
        logits = _project(rows, table, self.output_bias)
        return ops.reshape(logits, (*ops.shape(x)[:-1], self.bert_config.vocab_size))

    def compute_output_spec(self, x: Any, training: bool | None = None) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return keras.KerasTensor((*x.shape[:-1], self.output_bias.shape[0]), "float32")


@keras.saving.register_keras_serializable(package="bert_tf")
class HeadDropout(keras.layers.Dropout):
    """Dropout of [..., H], with different masks on each replica."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Maps [..., H] to [..., H]."""
        if not training:
            return inputs
        return fused.dropped(inputs, next_seed(self), self.rate)


@keras.saving.register_keras_serializable(package="bert_tf")
class MergeChoices(Stored, keras.layers.Layer):
    """Makes each choice of all questions a sequence of the batch."""

    def call(self, x: Any) -> Any:
        """Maps integers [B, N, ...] to [B N, ...]."""
        return ops.reshape(x, (-1, *ops.shape(x)[2:]))


@keras.saving.register_keras_serializable(package="bert_tf")
class SplitChoices(Stored, keras.layers.Layer):
    """Groups the choices' scores by question."""

    def __init__(self, dtype: Any = None, name: str | None = None):
        # Scores stay in float32 under any policy.
        super().__init__(autocast=False, dtype=dtype, name=name)

    def call(self, scores: Any, input_ids: Any) -> Any:
        """Maps scores [B N, 1] to [B, N]; the shape of the ids [B, N, S] gives N."""
        return ops.reshape(scores, ops.shape(input_ids)[:2])

    def compute_output_spec(self, scores: Any, input_ids: Any) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return keras.KerasTensor(tuple(input_ids.shape[:2]), scores.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class WindowAttention(Stored, keras.layers.Layer):
    """The mean of a text's windows, weighted by attention to them.

    The weights are softmax(u . p_k) over the windows k. As their pooled outputs p_k are
    the tanh of a dense layer, this equals the attention to sentences of Yang et al.
    2016 (equations 8 and 9).
    """

    def __init__(self, dtype: Any = None, name: str | None = None):
        super().__init__(dtype=dtype, name=name)

    def build(self, pooled_shape: tuple, input_mask_shape: tuple) -> None:
        """Makes u, 0 at first: training begins with the plain mean."""
        del input_mask_shape
        self.query = self.add_weight(
            name="query", shape=pooled_shape[-1:], initializer="zeros", autocast=False
        )
        self.built = True

    def call(self, pooled: Any, input_mask: Any) -> Any:
        """Maps [B N, W] and the mask [B, N, S] to [B, W]; windows begin with [CLS]."""
        pooled = ops.reshape(pooled, (*ops.shape(input_mask)[:2], pooled.shape[-1]))
        single = ops.cast(pooled, "float32")
        scores = ops.matmul(single, self.query)
        # Not -inf: padding rows of a batch have no window at all.
        scores = ops.where(input_mask[:, :, 0] > 0, scores, -1e9)
        # Keras' softmax gives a warning for a single window.
        weights = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        weights = (weights / ops.sum(weights, axis=-1, keepdims=True))[..., None]
        return ops.cast(ops.sum(weights * single, axis=1), self.compute_dtype)

    def compute_output_spec(self, pooled: Any, input_mask: Any) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return keras.KerasTensor(
            (input_mask.shape[0], pooled.shape[-1]), self.compute_dtype
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class OutputProjection(Stored, keras.layers.Layer):
    """A dense layer with the original's kernel: [outputs, inputs]."""

    def __init__(
        self, units: int, initializer_range: float, dtype: Any = None, name: str = ""
    ):
        super().__init__(dtype=dtype, name=name or None)
        self.units = units
        self.initializer_range = initializer_range
        # Padding has scores like any word, but they are never used.
        self.supports_masking = True

    def build(self, input_shape: tuple) -> None:
        """Makes the kernel [units, H], as in the original, and the bias."""
        self.output_weights = self.add_weight(
            name="output_weights",
            shape=(self.units, input_shape[-1]),
            initializer=truncated_normal(self.initializer_range),
            autocast=False,
        )
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.units,), initializer="zeros", autocast=False
        )
        self.built = True

    def call(self, x: Any) -> Any:
        """Maps [..., H] to [..., units] in float32."""
        return _project(x, self.output_weights, self.output_bias)

    def compute_output_spec(self, x: Any) -> Any:
        """Returns the outputs of `call` on symbolic inputs."""
        return keras.KerasTensor((*x.shape[:-1], self.units), "float32")


def _project(x: Any, table: Any, bias: Any) -> Any:
    """Returns the scores of x for each row of `table`, in float32."""
    logits = ops.matmul(x, ops.transpose(ops.cast(table, x.dtype)))
    return ops.cast(logits, "float32") + bias


# The models.


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(HeadModel):
    """Classification or regression of a sentence or a pair.

    Inputs: the encoder's. Output, in float32: logits [B, C]. Labels in the records:
    label_ids, and, where present, is_real_example [B, 1]. label_ids are [B, 1] ints;
    for regression the numbers, [B, C] floats; for several labels at once [B, C] floats,
    1.0 for each label that applies, else 0.0.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        num_labels: C, the number of labels or of numbers.
        problem_type: SINGLE_LABEL, REGRESSION or MULTI_LABEL of `bert_tf.base.config`.
            Default: regression of one number where `num_labels` is 1, else
            SINGLE_LABEL.
        dropout: dropout rate of the pooled output, in training.
        window_pooling: "attention" for texts in several windows: the inputs are
            [B, N, S], missing windows have mask 0, and the pooled outputs are averaged,
            weighted by attention. Default: one sequence, [B, S].
        dtype: Keras dtype policy, such as "mixed_bfloat16".
        name: the model's name.
        **options: BertEncoder's: recompute, layer_mixture, lora_rank, adapter_size,
            train_pooler, ...

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> model = bert_tf.BertClassifier(config, num_labels=3)
        >>> ids = np.array([[2, 5, 6, 3]])
        >>> inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        >>> model(inputs)["logits"].shape
        TensorShape([1, 3])
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
            inputs, encoded = in_parallel(encoder, "merge_windows")
            pooled = encoded["pooled_output"]
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


def in_parallel(encoder: BertEncoder, name: str) -> tuple[dict[str, Any], Any]:
    """Returns inputs [B, N, S], several sequences each, and the outputs [B N]."""
    merge = MergeChoices(dtype=encoder.dtype_policy, name=name)
    inputs = {
        key: keras.Input((None, *tensor.shape[1:]), dtype="int32", name=key)
        for key, tensor in encoder.input.items()
    }
    return inputs, encoder({key: merge(x) for key, x in inputs.items()})


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(HeadModel):
    """The right one of several choices (Devlin et al., section 4.4, SWAG).

    Each choice is its own sequence, such as [CLS] context [SEP] ending [SEP]. Its
    score is the product of the pooled output and a vector; the softmax is over the
    choices.

    Inputs: the encoder's, each with a dimension for the choices: input_ids, input_mask,
    segment_ids [B, N, S]. N may differ between batches. Output, in float32: logits
    [B, N]. Labels in the records: label_ids [B, 1], the number of the right choice,
    and, where present, is_real_example [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        dropout: dropout rate of the pooled output, in training.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> model = bert_tf.BertMultipleChoice(config)
        >>> ids = np.array([[[2, 5, 6, 3], [2, 5, 8, 3]]])  # one text, two choices
        >>> inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        >>> model(inputs)["logits"].shape
        TensorShape([1, 2])
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
        inputs, encoded = in_parallel(encoder, "merge_choices")
        with keras.name_scope("cls"):
            scores = projection(pooled_dropout(encoded["pooled_output"]))
        logits = split_choices(scores, inputs["input_ids"])

        # === Config ===
        outputs = {"logits": logits}
        super().__init__(
            encoder, inputs, outputs, CLASSIFICATION, name, dropout=dropout
        )


# The models below use every token's output and have no pooler: nothing would train it.


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanPredictor(HeadModel):
    """Prediction of an answer's start and end (Devlin et al., section 4.2, SQuAD).

    One linear layer on every token, without dropout, as in the original's code.

    Inputs: the encoder's. Outputs, in float32: start_logits and end_logits [B, S], also
    for padding and the question. Labels in the records: start_positions and
    end_positions [B, 1], the positions of the answer's first and last token, 0 ([CLS])
    if there is no answer; and, where present, is_real_example [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> model = bert_tf.BertSpanPredictor(config)
        >>> ids = np.array([[2, 5, 6, 3]])
        >>> inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        >>> model(inputs)["start_logits"].shape
        TensorShape([1, 4])
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

    Every token has scores; a word's label is predicted at its first token. The
    other tokens have weight 0.

    Inputs: the encoder's. Output, in float32: logits [B, S, C]. Labels in the records:
    label_ids [B, S] ints, and label_weights [B, S], 1 at the first token of each word
    and 0 elsewhere, where the label may be any.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        num_labels: the number of labels.
        dropout: dropout rate of the tokens' output, in training.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> model = bert_tf.BertTagger(config, num_labels=3)
        >>> ids = np.array([[2, 5, 6, 3]])
        >>> inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        >>> model(inputs)["logits"].shape
        TensorShape([1, 4, 3])
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
        """Returns the records; each token with a sample weight counts as a word."""
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

    For packed rows, next_sentence_logits are [B, N, 2], for each sequence of a row; the
    labels are next_sentence_labels and next_sentence_weights [B, N]. The variables are
    the same, so a checkpoint can be used for rows of both kinds.

    With `left_to_right` in the config, it is a language model: the targets of
    `bert_tf.records.dynamic_masking` are the next token at every position.

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        next_sentence: whether to predict the next sentence. If not, the encoder has no
            pooler: nothing would train it.
        num_pair_labels: 2, or 3 if B may also be the sentence before A.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's, and `packed`, for rows that hold several
            sequences.

    Examples:
        >>> config = bert_tf.BertConfig(
        ...     vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1
        ... )
        >>> model = bert_tf.BertPretrainer(config)
        >>> ids = np.array([[2, 5, 6, 3]])
        >>> inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
        >>> inputs["masked_lm_positions"] = np.array([[1, 2]])
        >>> model(inputs)["masked_lm_logits"].shape
        TensorShape([1, 2, 9])
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
