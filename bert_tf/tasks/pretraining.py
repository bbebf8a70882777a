"""Pre-training as a task: the masked LM and next sentence prediction together.

Devlin et al. 2018, section A.2: the loss is the sum of the mean masked LM likelihood
and the mean next sentence prediction likelihood.
"""

from bert_tf.config import BertConfig
from bert_tf.modeling import losses
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.task import Batch, Mean, Outputs, Task


def pretraining_task(config: BertConfig) -> Task:
    """The task of pre-training a model of that architecture."""
    return Task(
        name="pretraining",
        build_model=lambda: BertPretrainer(config),
        losses={
            "masked_lm_loss": _masked_lm_loss,
            "next_sentence_loss": _next_sentence_loss,
        },
        metrics={
            "masked_lm_accuracy": _masked_lm_accuracy,
            "next_sentence_accuracy": _next_sentence_accuracy,
        },
    )


def _masked_lm_loss(batch: Batch, outputs: Outputs) -> Mean:
    total, weight = losses.masked_lm_loss(
        outputs["masked_lm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    return Mean(total, weight, losses.MASKED_LM_EPSILON)


def _masked_lm_accuracy(batch: Batch, outputs: Outputs) -> Mean:
    return Mean(
        *losses.masked_lm_accuracy(
            outputs["masked_lm_logits"],
            batch["masked_lm_ids"],
            batch["masked_lm_weights"],
        )
    )


def _next_sentence_loss(batch: Batch, outputs: Outputs) -> Mean:
    return Mean(
        *losses.next_sentence_loss(
            outputs["next_sentence_logits"], batch["next_sentence_labels"]
        )
    )


def _next_sentence_accuracy(batch: Batch, outputs: Outputs) -> Mean:
    return Mean(
        *losses.next_sentence_accuracy(
            outputs["next_sentence_logits"], batch["next_sentence_labels"]
        )
    )
