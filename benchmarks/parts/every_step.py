"""Every task's steps, for benchmarks/compiled_steps.py and `make test-accelerators`.

Import it after `programs.ENVIRONMENT` is set.
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.parts import programs
from bert_tf.addons.methods.loss_options import LossOptions
from bert_tf.addons.methods.regularization import Regularized
from bert_tf.base.config import BertConfig
from bert_tf.modeling.heads import (
    BertClassifier,
    BertMultipleChoice,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.objectives import CLASSIFICATION, SPAN, TAGGING
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training.jax_step import JaxStrategy
from bert_tf.training.task import Task
from tests.modeling import examples

ELECTRA = {"generator_size": 0.5, "discriminator_weight": 50.0}
# Those whose evaluation and prediction are no other's.
INFERENCE = ("pretraining", "electra", "classification", "choices", "spans", "words")


class Case(NamedTuple):
    """A task, its records of so many rows, and how it is trained."""

    task: Task
    records: Callable[[int], dict[str, np.ndarray]]
    options: Mapping[str, Any] = MappingProxyType({})


def cases(config: BertConfig, length: int) -> dict[str, Case]:
    """Name -> a case, with sequences of this many tokens."""
    predictions = max(5, length * 20 // 128)

    def records(rows: int) -> dict[str, np.ndarray]:
        return examples.random_records(
            config, batch=rows, length=length, predictions=predictions
        )

    def packed(rows: int) -> dict[str, np.ndarray]:
        """Each row as one sequence, with room for a second one."""
        whole = records(rows)
        first = np.arange(2)[None, :] == np.zeros((rows, 1))
        return {
            **whole,
            "sequence_ids": whole["input_mask"],
            "cls_positions": np.zeros((rows, 2), np.int32),
            "next_sentence_labels": first * whole["next_sentence_labels"],
            "next_sentence_weights": first.astype(np.float32),
        }

    def choices(rows: int) -> dict[str, np.ndarray]:
        return examples.random_choices(config, batch=rows, length=length)

    def tags(rows: int) -> dict[str, np.ndarray]:
        return examples.random_tags(config, batch=rows, length=length)

    def head(model: Any, objective: Any = CLASSIFICATION, **options: Any) -> Task:
        build = functools.partial(model, config, **options)
        return Task(name="", build_model=build, objective=objective)

    def with_teacher(model: Any) -> Any:
        losses = LossOptions(
            teacher_checkpoint="t", distill_hidden=1.0, distill_attention=1.0
        )
        teacher = functools.partial(BertClassifier, config, 3)
        return Regularized(model, CLASSIFICATION, losses, make_teacher=teacher)

    classifier = head(BertClassifier, num_labels=3)
    pretraining = pretraining_task(config)
    return {
        "pretraining": Case(pretraining, records),
        "float16": Case(pretraining, records, {"precision": "float16"}),
        "packed": Case(pretraining_task(config, packed=True), packed),
        "electra": Case(pretraining_task(config, electra=ELECTRA), records),
        "micro-batches": Case(pretraining, records, {"accumulation_steps": 4}),
        "recompute, LAMB": Case(
            pretraining_task(config, recompute=True), records, {"optimizer": "lamb"}
        ),
        "classification": Case(classifier, records),
        "choices": Case(head(BertMultipleChoice), choices),
        "spans": Case(head(BertSpanPredictor, SPAN), records),
        "words": Case(head(BertTagger, TAGGING, num_labels=3), tags),
        "distillation": Case(
            Task(
                name="",
                build_model=classifier.build_model,
                objective=CLASSIFICATION,
                in_training=with_teacher,
            ),
            records,
        ),
    }


def program(
    case: Case, strategy: JaxStrategy, rows: int, mode: str, **options: Any
) -> programs.Program:
    """A step of "training", "evaluation" or "prediction"; rows are each device's."""
    batch = case.records(rows * strategy.num_replicas_in_sync)
    if mode == "training":
        options = {**case.options, **options}
        return programs.training_program(case.task, strategy, batch, **options)
    evaluates = mode == "evaluation"
    return programs.inference_program(
        case.task, strategy, batch, evaluates=evaluates, **options
    )
