"""Pre-training as a task: the masked LM and next sentence prediction together."""

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.objectives import MASKED_LM, NEXT_SENTENCE
from bert_tf.task import Task


def pretraining_task(config: BertConfig) -> Task:
    """The task of pre-training a model of that architecture."""
    return Task(
        name="pretraining",
        build_model=lambda: BertPretrainer(config),
        objective=MASKED_LM + NEXT_SENTENCE,
    )
