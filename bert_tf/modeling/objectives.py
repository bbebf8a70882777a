"""Losses and metrics of a batch of records and a model's outputs.

Devlin et al. 2018: pre-training minimises the sum of the mean negative log-likelihoods
of the masked LM and of next sentence prediction (section A.2). A classifier minimises
the mean cross-entropy of its labels (section 4.1). So do multiple choice (4.4), whose
labels are the choices, span prediction (4.2), whose labels are the tokens, and a tagger
(5.3), whose examples are words.

Each is a `Mean`: a weighted sum and the weight that divides it. Both are summed
separately over replicas, micro-batches and evaluation batches and divided once, so N
replicas, or k micro-batches, equal one large batch. All are computed in float32.

A contrastive loss compares the rows of a batch with each other: it is `across_rows`,
and each replica computes its rows' values from the rows of all replicas. It refuses
micro-batches.

Shapes: B batch, S sequence, P predictions, N rows of scores, V vocabulary, C classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from keras import ops

from bert_tf.base import config
from bert_tf.base.errors import InputError
from bert_tf.modeling.fused import compiled

# The original adds this to the number of predictions, to avoid a division by 0.
MASKED_LM_EPSILON = 1e-5

Records = Mapping[str, Any]
Outputs = Mapping[str, Any]


class Mean(NamedTuple):
    """A weighted mean before the division: total / (weight + epsilon)."""

    total: Any  # scalar float32 tensor, the weighted sum
    weight: Any  # scalar float32 tensor, the sum of the weights
    epsilon: float = 0.0  # added to the weight of the whole batch
    factor: float = 1.0  # multiplies the mean that is minimised, not the reported one

    def value(self, weight: Any = None) -> Any:
        """Returns the mean, 0 without weight; a part's uses the given weight."""
        weight = self.weight if weight is None else weight
        mean = ops.divide_no_nan(self.total, weight + self.epsilon)
        return mean if self.factor == 1.0 else self.factor * mean


class RowsOfReplica(Protocol):
    """One replica's rows among all replicas' rows."""

    def of_all(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns all replicas' rows, in order; gradients reach each row's replica."""

    def own(self, values: Any) -> Any:
        """Returns this replica's part of all replicas' rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
    """A mean whose weights depend on the records alone.

    Thus the weight of a global batch is known before any part of it is computed.
    """

    values: Callable[[Records, Outputs], Any]  # of any shape, float32
    weights: Callable[[Records], Any]  # of the same shape
    epsilon: float = 0.0
    factor: float = 1.0  # multiplies the mean that is minimised
    # The names of its scores, [..., C] each, and their kind: SINGLE_LABEL, MULTI_LABEL
    # or REGRESSION of `bert_tf.base.config`.
    logits: tuple[str, ...] = ()
    kind: str = config.SINGLE_LABEL
    # Whether a row's values, [B, ...], also depend on the other rows of the batch.
    across_rows: bool = False

    def __call__(
        self,
        records: Records,
        outputs: Outputs,
        sample_weight: Any = None,
        rows: RowsOfReplica | None = None,
    ) -> Mean:
        """Returns the mean of a batch, or of a replica's rows in it.

        Keras' sample weights, one per example or per value, multiply the values alone:
        the mean is not divided by them.
        """
        weights = ops.cast(self.weights(records), "float32")
        if self.across_rows and rows is not None:
            values = self.values(rows.of_all(records), rows.of_all(outputs))
            values = ops.reshape(rows.own(values), ops.shape(weights)) * weights
        else:
            values = self.values(records, outputs) * weights
        if sample_weight is not None:
            factors = _flat(ops.cast(sample_weight, "float32"))
            values = ops.reshape(values, (ops.shape(factors)[0], -1))
            values *= factors[:, None]
        return Mean(ops.sum(values), ops.sum(weights), self.epsilon, self.factor)

    def weight(self, records: Records) -> Any:
        """Returns the sum of a batch's weights."""
        return ops.sum(ops.cast(self.weights(records), "float32"))

    def scaled(self, factor: float) -> "Loss":
        """Returns the loss times a factor."""
        return dataclasses.replace(self, factor=self.factor * factor)

    def of_scores(self, function: Callable[..., Any], *prefixes: str) -> "Loss":
        """Returns a mean, equally weighted, of a function of the scores, [N, C] to [N].

        The function gets the kind, and the scores named with each of the prefixes. For
        several scores (a span's start and end), the values are averaged.
        """

        def values(records: Records, outputs: Outputs) -> Any:
            found = [
                function(
                    self.kind,
                    *(
                        ops.cast(_rows(outputs[prefix + name]), "float32")
                        for prefix in prefixes
                    ),
                )
                for name in self.logits
            ]
            return sum(found[1:], start=found[0]) / len(found)

        return dataclasses.replace(self, values=values)


@dataclasses.dataclass(frozen=True)
class Objective:
    """Losses, minimised as the sum of their means, and further metrics."""

    losses: Mapping[str, Loss]  # by their reported names
    metrics: Mapping[str, Callable[[Records, Outputs], Mean]] = dataclasses.field(
        default_factory=dict
    )

    def __add__(self, other: "Objective") -> "Objective":
        """Returns both objectives as one."""
        return Objective(
            {**self.losses, **other.losses}, {**self.metrics, **other.metrics}
        )

    @property
    def across_rows(self) -> list[str]:
        """The losses and metrics that compare a batch's rows."""
        functions = {**self.losses, **self.metrics}
        return [
            name
            for name, mean in functions.items()
            if isinstance(mean, Loss) and mean.across_rows
        ]

    def means(
        self, records: Records, outputs: Outputs, rows: RowsOfReplica | None = None
    ) -> dict[str, Mean]:
        """Returns all losses and metrics of a batch, or of a replica's rows of it."""
        functions: dict[str, Any] = {**self.losses, **self.metrics}
        compared = self.across_rows
        return {
            name: mean(records, outputs, **({"rows": rows} if name in compared else {}))
            for name, mean in functions.items()
        }

    def weights(self, records: Records) -> dict[str, Any]:
        """Returns the weights of a batch's losses, from its records alone."""
        return {name: loss.weight(records) for name, loss in self.losses.items()}


# Masked LM: -log p(id) at the masked positions (Devlin et al. 2018, section 3.1), from
# logits [B, P, V] and ids [B, P]; slots without a prediction have the weight 0.
#
# Compiled: with tens of thousands of tokens in the vocabulary, a batch's scores fill
# more memory than all else in a small model. Each kernel reads them once or twice.


def _masked_lm_loss(records: Records, outputs: Outputs) -> Any:
    """Returns log(sum_v exp(logits_v)) - logits_id: [N]."""
    logits, ids = _masked_lm_rows(records, outputs)
    logits = ops.cast(logits, "float32")

    @ops.custom_gradient
    def likelihood(logits: Any) -> Any:
        loss, log_sum = _likelihood_and_log_sum(logits, ids)

        def gradient(upstream: Any) -> Any:
            return _likelihood_gradient(logits, ids, log_sum, upstream)

        return loss, gradient

    return likelihood(logits)


def _masked_lm_accuracy(records: Records, outputs: Outputs) -> Any:
    return _is_first_of_largest(*_masked_lm_rows(records, outputs))


def _masked_lm_rows(records: Records, outputs: Outputs) -> tuple[Any, Any]:
    """Returns logits [N, V] and int32 ids [N]."""
    ids = ops.cast(_flat(records["masked_lm_ids"]), "int32")
    return _rows(outputs["masked_lm_logits"]), ids


@compiled
def _likelihood_and_log_sum(logits: Any, ids: Any) -> tuple[Any, Any]:
    largest = ops.max(logits, axis=-1, keepdims=True)
    log_sum = ops.log(ops.sum(ops.exp(logits - largest), axis=-1)) + largest[:, 0]
    return log_sum - _at(logits, ids), log_sum


@compiled
def _likelihood_gradient(logits: Any, ids: Any, log_sum: Any, upstream: Any) -> Any:
    probabilities = ops.exp(logits - log_sum[:, None])
    is_id = _index(logits) == ids[:, None]
    return ops.where(is_id, probabilities - 1.0, probabilities) * upstream[:, None]


@compiled
def _is_first_of_largest(logits: Any, ids: Any) -> Any:
    """Returns 1.0 where the id is the first of the largest (argmax), else 0.0: [N]."""
    own = _at(logits, ids)[:, None]
    is_before = _index(logits) < ids[:, None]
    is_better = ops.where(is_before, logits >= own, logits > own)
    # XLA's maximum of floats is faster than its `any`.
    return 1.0 - ops.max(ops.cast(is_better, "float32"), axis=-1)


def _at(logits: Any, ids: Any) -> Any:
    """Returns logits[i, ids[i]] of [N, V] and [N]: [N]."""
    return ops.take_along_axis(logits, ids[:, None], axis=1)[:, 0]


def _index(logits: Any) -> Any:
    """Returns 0, 1, 2, ... V - 1: [1, V]."""
    return ops.arange(ops.shape(logits)[1], dtype="int32")[None, :]


MASKED_LM = Objective(
    {
        "masked_lm_loss": Loss(
            values=_masked_lm_loss,
            weights=lambda records: _flat(records["masked_lm_weights"]),
            epsilon=MASKED_LM_EPSILON,
            logits=("masked_lm_logits",),
        )
    },
    {
        "masked_lm_accuracy": Loss(
            values=_masked_lm_accuracy,
            weights=lambda records: _flat(records["masked_lm_weights"]),
        )
    },
)


# Replaced-token detection (Clark et al. 2020, "ELECTRA", section 2): the mean over all
# tokens but padding of -log p(replaced, or not), with p the sigmoid of the
# discriminator's logits [B, S]. The model also outputs which tokens were replaced.


def replaced_tokens(weight: float) -> Objective:
    """Returns the discriminator's loss, with the given weight, and its metrics."""

    def loss(records: Records, outputs: Outputs) -> Any:
        logits = ops.cast(_flat(outputs["discriminator_logits"]), "float32")
        labels = _flat(outputs["is_replaced"])
        return ops.binary_crossentropy(labels, logits, from_logits=True)

    def accuracy(records: Records, outputs: Outputs) -> Any:
        said = _flat(outputs["discriminator_logits"]) > 0
        return ops.cast(said == (_flat(outputs["is_replaced"]) > 0.5), "float32")

    def weights(records: Records) -> Any:
        return _flat(records["input_mask"])

    def share(records: Records, outputs: Outputs) -> Any:
        return _flat(outputs["is_replaced"])

    return Objective(
        {"discriminator_loss": Loss(values=loss, weights=weights, factor=weight)},
        {
            "discriminator_accuracy": Loss(values=accuracy, weights=weights),
            "replaced_share": Loss(values=share, weights=weights),
        },
    )


# The likelihood of labels: of sequences or tokens, with logits [..., C].


def check_labels(labels: Any, scores: Any, kind: str) -> None:
    """Raises InputError for labels whose shape does not fit such scores."""
    # While a step is traced, their rank or length may be unknown.
    if getattr(labels.shape, "rank", 0) is None:
        return
    shape, count = tuple(labels.shape), scores.shape[-1]
    received = f"Received: labels of shape {shape}. Write"
    length = shape[-1] if len(shape) > 1 else 1
    if kind == config.SINGLE_LABEL:
        if len(shape) == len(scores.shape) and length not in (None, 1):
            raise InputError(
                f"Labels are the numbers of their classes, from 0. {received}"
                " np.argmax(y, axis=-1) for labels that are one-hot."
            )
    elif length not in (None, count):
        are_classes = kind == config.MULTI_LABEL and length == 1
        raise InputError(
            f"Labels are {count} numbers for each example, [B, {count}]. {received}"
            + (
                f" np.eye({count})[np.ravel(y)] for labels that are numbers of classes."
                if are_classes
                else f" num_labels={length} for a model of such labels."
            )
        )


def _label_loss(logits: Any, ids: Any) -> Any:
    """Returns -log p(id): [N]."""
    ids = ops.convert_to_tensor(ids)
    check_labels(ids, logits, config.SINGLE_LABEL)
    return ops.sparse_categorical_crossentropy(
        _flat(ids), ops.cast(_rows(logits), "float32"), from_logits=True
    )


def _label_accuracy(logits: Any, ids: Any) -> Any:
    """Returns 1.0 where the likeliest label is right, else 0.0: [N]."""
    likeliest = ops.argmax(_rows(logits), axis=-1)
    return ops.cast(
        ops.equal(likeliest, ops.cast(_flat(ids), likeliest.dtype)), "float32"
    )


def _of_labels(logits_name: str, ids_name: str, weights: Callable, *names: str) -> Any:
    """Returns the loss and the accuracy of labels, by these names, as an Objective."""
    loss_name, accuracy_name = names

    def of(function: Callable) -> Loss:
        return Loss(
            values=lambda records, outputs: function(
                outputs[logits_name], records[ids_name]
            ),
            weights=weights,
            logits=(logits_name,),
        )

    return Objective({loss_name: of(_label_loss)}, {accuracy_name: of(_label_accuracy)})


def real_examples(labels: str) -> Callable[[Records], Any]:
    """Returns a function for examples' weights, 0 for padding in `labels`' rows."""

    def weights(records: Records) -> Any:
        if "is_real_example" in records:
            return _flat(records["is_real_example"])
        # While a step of Keras' is traced, the rank of labels may be unknown.
        rows = records["input_ids" if "input_ids" in records else labels]
        return ops.ones(ops.shape(rows)[0], "float32")

    return weights


def _next_sentence_weights(records: Records) -> Any:
    """Returns the weights of the rows or, if rows are packed, of their sequences."""
    if "next_sentence_weights" in records:
        return _flat(records["next_sentence_weights"])
    return ops.ones_like(_flat(records["next_sentence_labels"]))


# Label 1 is a random sentence.
NEXT_SENTENCE = _of_labels(
    "next_sentence_logits",
    "next_sentence_labels",
    _next_sentence_weights,
    "next_sentence_loss",
    "next_sentence_accuracy",
)
CLASSIFICATION = _of_labels(
    "logits", "label_ids", real_examples("label_ids"), "cross_entropy", "accuracy"
)
# Only the first token of each word has a weight.
TAGGING = _of_labels(
    "logits",
    "label_ids",
    lambda records: _flat(records["label_weights"]),
    "cross_entropy",
    "accuracy",
)


# Numbers, and several labels at once: logits and label_ids [B, C].


def _squared_error(records: Records, outputs: Outputs) -> Any:
    """Returns an example's mean squared error, over one number or several."""
    logits, labels = _outputs_and_labels(records, outputs, config.REGRESSION)
    return ops.mean(ops.square(logits - labels), axis=-1)


def _multi_label_loss(records: Records, outputs: Outputs) -> Any:
    """Returns the mean binary cross-entropy over an example's labels.

    Each label is a separate question, with p its sigmoid; so the loss is the mean over
    B C questions, as in Hugging Face's multi-label classifiers.
    """
    logits, labels = _outputs_and_labels(records, outputs, config.MULTI_LABEL)
    likelihood = ops.binary_crossentropy(labels, logits, from_logits=True)
    return ops.mean(likelihood, axis=-1)


def _exact_match(records: Records, outputs: Outputs) -> Any:
    """Returns 1.0 where all labels are right, each present if p > 0.5, else 0.0."""
    logits, labels = _outputs_and_labels(records, outputs, config.MULTI_LABEL)
    is_right = ops.equal(logits > 0, labels > 0.5)
    return ops.min(ops.cast(is_right, "float32"), axis=-1)


def _outputs_and_labels(
    records: Records, outputs: Outputs, kind: str
) -> tuple[Any, Any]:
    """Returns both as float32 [B, C]."""
    logits = ops.cast(outputs["logits"], "float32")
    labels = ops.cast(records["label_ids"], "float32")
    check_labels(labels, logits, kind)
    return logits, ops.reshape(labels, (-1, logits.shape[-1]))


def _of_examples(function: Callable, kind: str) -> Loss:
    weights = real_examples("label_ids")
    return Loss(values=function, weights=weights, logits=("logits",), kind=kind)


REGRESSION = Objective(
    {"mean_squared_error": _of_examples(_squared_error, config.REGRESSION)}
)
MULTI_LABEL = Objective(
    {"cross_entropy": _of_examples(_multi_label_loss, config.MULTI_LABEL)},
    {"exact_match": _of_examples(_exact_match, config.MULTI_LABEL)},
)
# The objectives of classifiers by problem type.
CLASSIFIERS = {
    config.SINGLE_LABEL: CLASSIFICATION,
    config.REGRESSION: REGRESSION,
    config.MULTI_LABEL: MULTI_LABEL,
}


# Spans: start_logits and end_logits [B, S], and the answer's first and last token.
# Probabilities are over all S tokens, padding included.


def _span_loss(records: Records, outputs: Outputs) -> Any:
    """Returns the mean of -log p(start) and -log p(end); the paper uses their sum."""
    start = _label_loss(outputs["start_logits"], records["start_positions"])
    end = _label_loss(outputs["end_logits"], records["end_positions"])
    return 0.5 * (start + end)


def _span_accuracy(records: Records, outputs: Outputs) -> Any:
    """Returns 1.0 where the likeliest start and end are both right, else 0.0."""
    start = _label_accuracy(outputs["start_logits"], records["start_positions"])
    end = _label_accuracy(outputs["end_logits"], records["end_positions"])
    return start * end


_SPAN_WEIGHTS = real_examples("start_positions")
SPAN = Objective(
    {
        "cross_entropy": Loss(
            values=_span_loss,
            weights=_SPAN_WEIGHTS,
            logits=("start_logits", "end_logits"),
        )
    },
    {"span_accuracy": Loss(values=_span_accuracy, weights=_SPAN_WEIGHTS)},
)


def _rows(logits: Any) -> Any:
    """Maps [..., V] to [N, V]."""
    logits = ops.convert_to_tensor(logits)
    # A span's number of tokens may be unknown.
    return logits if logits.ndim == 2 else ops.reshape(logits, (-1, logits.shape[-1]))


def _flat(x: Any) -> Any:
    return ops.reshape(x, (-1,))
