"""SQuAD as a task: where in a window of a paragraph the answer starts and ends.

Devlin et al. 2018, sections 4.2 and 4.3: [CLS] question [SEP] window [SEP]; of every
token a score for the answer's start and one for its end. Where there is no answer, both
are at [CLS]. The windows and their records are made in `bert_tf.squad`.
"""

import functools
from typing import Any

from bert_tf.config import BertConfig
from bert_tf.modeling.heads import BertSpanPredictor
from bert_tf.modeling.objectives import SPAN
from bert_tf.records.spec import RecordSchema, squad_schema
from bert_tf.squad.records import CutQuestions, blocks, parallel_blocks
from bert_tf.training.task import Task
from bert_tf.training.throughput import span_flops

__all__ = ["CutQuestions", "blocks", "parallel_blocks", "schema", "task"]


def task(
    config: BertConfig, *, name: str = "squad", recompute: bool = False, **options: Any
) -> Task:
    """The task of finding answers."""
    return Task(
        name=name,
        build_model=lambda: BertSpanPredictor(config, recompute=recompute, **options),
        objective=SPAN,
        training_flops=functools.partial(span_flops, config),
    )


def schema(max_seq_length: int, *, for_training: bool) -> RecordSchema:
    """What a record holds; for training, where the answer is, too."""
    return squad_schema(max_seq_length, for_training)
