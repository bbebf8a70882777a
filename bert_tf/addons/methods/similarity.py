"""Sentence vectors: their head, and losses that bring texts of one meaning together.

Reimers and Gurevych 2019 ("Sentence-BERT"): a text's vector is a pooled output of BERT,
and the cosine of two vectors says how similar the texts are. Names and equations are
those of sentence-transformers. s is the scale, t_i the example's vectors in the order
of its texts, and padding is in no sum.

    multiple_negatives_ranking   anchors a, positives p, perhaps negatives n
        -log( exp(s cos(a_i, p_i)) / sum_j exp(s cos(a_i, c_j)) )
        with all p and n of the batch as candidates c: in-batch negatives (Henderson et
        al. 2017, "Efficient Natural Language Response Suggestion", section 4.4)
    simcse   the same for a text and itself, with two dropout masks (Gao et al. 2021,
        "SimCSE", equation 1; s = 1 / temperature)
    cosine_similarity   pairs u, v with a score y
        (cos(u_i, v_i) - y_i)^2
    cosent   pairs with a score, of which only the order counts (Su 2022, "CoSENT")
        log( 1 + sum_ij exp(s (cos(u_j, v_j) - cos(u_i, v_i))) ) where y_i > y_j

All are in float32. Sums over the batch include the parts on all devices.

Shapes: B batch, N texts of an example, H hidden.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.base.config import BertConfig
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.heads import in_parallel
from bert_tf.modeling.objectives import Loss, Objective, Outputs, Records, real_examples
from bert_tf.modeling.pooling import POOLINGS, SentencePooling

# The score of entries that are left out, whose exponential is 0.
_NEVER = -1e9

_weights = real_examples("input_ids")


def unit(vectors: Any) -> Any:
    """Returns vectors [..., H] of length 1; 0 stays 0, and has a gradient."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))


def cosine(one: Any, other: Any) -> Any:
    """Returns cosines: [..., H] twice to [...]."""
    return ops.sum(unit(one) * unit(other), axis=-1)


def multiple_negatives_ranking(
    scale: float, name: str = "multiple_negatives_ranking_loss"
) -> Objective:
    """In-batch negatives: the positive is the likeliest candidate."""

    def loss(records: Records, outputs: Outputs) -> Any:
        vectors = outputs["embeddings"]
        anchors, others = unit(vectors[:, 0]), unit(vectors[:, 1:])
        # All first ones, the positives, then all second ones: [(N - 1) B, H].
        candidates = ops.reshape(
            ops.transpose(others, (1, 0, 2)), (-1, vectors.shape[-1])
        )
        scores = scale * ops.matmul(anchors, ops.transpose(candidates))
        of_own = scale * ops.sum(anchors * others[:, 0], axis=-1)
        is_real = ops.broadcast_to(_weights(records) > 0, ops.shape(others)[1::-1])
        scores = ops.where(ops.reshape(is_real, (1, -1)), scores, _NEVER)
        return ops.logsumexp(scores, axis=-1) - of_own

    return Objective({name: Loss(values=loss, weights=_weights, across_rows=True)})


def simcse(scale: float) -> Objective:
    """Each text is nearest to itself, under another dropout mask."""
    return multiple_negatives_ranking(scale, "simcse_loss")


def cosine_similarity(scale: float) -> Objective:
    """The squared error of the cosine, which has no scale."""
    del scale

    def loss(records: Records, outputs: Outputs) -> Any:
        cosines, scores = _cosines_and_scores(records, outputs)
        return ops.square(cosines - scores)

    return Objective({"cosine_similarity_loss": Loss(values=loss, weights=_weights)})


def cosent(scale: float) -> Objective:
    """The order of the cosines; one number, the same for all rows of the batch."""

    def loss(records: Records, outputs: Outputs) -> Any:
        cosines, scores = _cosines_and_scores(records, outputs)
        is_real = _weights(records) > 0
        is_ordered = scores[:, None] > scores[None, :]
        is_ordered &= is_real[:, None] & is_real[None, :]
        exponents = scale * (cosines[None, :] - cosines[:, None])
        exponents = ops.reshape(ops.where(is_ordered, exponents, _NEVER), (-1,))
        zero = ops.zeros((1,), "float32")  # the exponent of the 1
        whole = ops.logsumexp(ops.concatenate([zero, exponents]))
        return ops.broadcast_to(whole, ops.shape(cosines))

    return Objective(
        {"cosent_loss": Loss(values=loss, weights=_weights, across_rows=True)}
    )


def _cosines_and_scores(records: Records, outputs: Outputs) -> tuple[Any, Any]:
    """Returns the cosines and scores of pairs, [B] each."""
    vectors = outputs["embeddings"]
    scores = ops.cast(ops.reshape(records["label_ids"], (-1,)), "float32")
    return cosine(vectors[:, 0], vectors[:, 1]), scores


# Functions of the scale, by name.
LOSSES: dict[str, Callable[[float], Objective]] = {
    function.__name__: function
    for function in (multiple_negatives_ranking, simcse, cosine_similarity, cosent)
}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbedder(HeadModel):
    """Vectors of texts, near to each other where the texts mean the same.

    It adds no weight to the encoder (Reimers and Gurevych 2019).

    Inputs: the encoder's, each with a dimension for the texts of an example: input_ids,
    input_mask, segment_ids [B, N, S]. N may be another one in each batch. Output, in
    float32: embeddings [B, N, H], of any length. Labels in the records: for losses of
    scores label_ids [B, 1] floats; and, where present, is_real_example [B, 1].

    Args:
        config: a BertConfig, a dict of its fields, or a size's name.
        pooling: "mean", "max" or "cls": how a text's vector is made from its tokens'.
        loss: a name of LOSSES.
        scale: the factor of the cosines in the loss.
        dtype: as BertClassifier's.
        name: the model's name.
        **options: as BertClassifier's.

    Raises:
        ValueError: there is no such pooling or loss.
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any] | str,
        *,
        pooling: str = "mean",
        loss: str = "multiple_negatives_ranking",
        scale: float = 20.0,
        dtype: Any = None,
        name: str = "bert_embedder",
        **options: Any,
    ):
        for argument, given, names in (
            ("pooling", pooling, POOLINGS),
            ("loss", loss, LOSSES),
        ):
            if given not in names:
                raise ValueError(
                    f"`{argument}` must be one of {', '.join(names)}. Received:"
                    f" {given!r}"
                )

        # === Layers ===
        encoder = BertEncoder(config, use_pooler=False, dtype=dtype, **options)
        sentence_pooling = SentencePooling(pooling, dtype=dtype, name="pooling")

        # === Functional Model ===
        inputs, encoded = in_parallel(encoder, "merge_texts")
        vectors = sentence_pooling(encoded["sequence_output"], inputs["input_mask"])

        # === Config ===
        super().__init__(
            encoder,
            inputs,
            {"embeddings": vectors},
            LOSSES[loss](scale),
            name,
            pooling=pooling,
            loss=loss,
            scale=scale,
        )
        if loss in ("cosine_similarity", "cosent"):
            self.label_names = ("label_ids",)
