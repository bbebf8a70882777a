"""Every task's step as the compilers of TPUs and GPUs make it.

For `make test-accelerators`. Nothing is run: see benchmarks/parts/programs.py.
"""

import os
import sys

import pytest

programs = pytest.importorskip("benchmarks.parts.programs", reason="in a checkout only")
missing = ", ".join(programs.missing_packages())
if missing or "keras" in sys.modules:
    reason = f"not installed: {missing}" if missing else "runs alone"
    pytest.skip(f"`make test-accelerators`: {reason}", allow_module_level=True)
os.environ.update(programs.ENVIRONMENT)

import functools  # noqa: E402

import numpy as np  # noqa: E402

from bert_tf.base.config import BertConfig  # noqa: E402
from bert_tf.base.errors import InputError  # noqa: E402
from bert_tf.modeling.heads import (  # noqa: E402
    BertClassifier,
    BertMultipleChoice,
    BertSpanPredictor,
    BertTagger,
)
from bert_tf.modeling.objectives import CLASSIFICATION, SPAN, TAGGING  # noqa: E402
from bert_tf.tasks.pretraining import pretraining_task  # noqa: E402
from bert_tf.training.jax_step import JaxStrategy  # noqa: E402
from bert_tf.training.regularization import Regularized  # noqa: E402
from bert_tf.training.strategy import check_batch_size  # noqa: E402
from bert_tf.training.task import Task  # noqa: E402
from bert_tf.training.training_options import LossOptions  # noqa: E402
from tests.modeling import examples  # noqa: E402

CONFIG = BertConfig(
    vocab_size=512,
    hidden_size=128,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=256,
    max_position_embeddings=32,
)
ELECTRA = {"generator_size": 0.5, "discriminator_weight": 50.0}
ROWS = 8  # of each device


def head(name, model, objective=CLASSIFICATION, **options):
    build = functools.partial(model, CONFIG, **options)
    return Task(name=name, build_model=build, objective=objective)


def distillation():
    def in_training(model):
        losses = LossOptions(
            teacher_checkpoint="t", distill_hidden=1.0, distill_attention=1.0
        )
        teacher = functools.partial(BertClassifier, CONFIG, 3)
        return Regularized(model, CLASSIFICATION, losses, make_teacher=teacher)

    return Task(
        name="distillation",
        build_model=functools.partial(BertClassifier, CONFIG, 3),
        objective=CLASSIFICATION,
        in_training=in_training,
    )


def packed(batch):
    """Each row as one sequence, with room for a second one."""
    whole = examples.random_records(CONFIG, batch=batch, length=32)
    first = np.arange(2)[None, :] == np.zeros((batch, 1))
    return {
        **whole,
        "sequence_ids": whole["input_mask"],
        "cls_positions": np.zeros((batch, 2), np.int32),
        "next_sentence_labels": first * whole["next_sentence_labels"],
        "next_sentence_weights": first.astype(np.float32),
    }


def records(batch):
    return examples.random_records(CONFIG, batch=batch, length=32)


# Name -> a task, its records, and how it is trained.
CASES = {
    "pretraining": (pretraining_task(CONFIG), records, {}),
    "float16": (pretraining_task(CONFIG), records, {"precision": "float16"}),
    "packed": (pretraining_task(CONFIG, packed=True), packed, {}),
    "electra": (pretraining_task(CONFIG, electra=ELECTRA), records, {}),
    "micro-batches": (pretraining_task(CONFIG), records, {"accumulation_steps": 4}),
    "recompute, LAMB": (
        pretraining_task(CONFIG, recompute=True),
        records,
        {"optimizer": "lamb"},
    ),
    "classification": (
        head("classification", BertClassifier, num_labels=3),
        records,
        {},
    ),
    "choices": (
        head("choices", BertMultipleChoice),
        lambda batch: examples.random_choices(CONFIG, batch=batch, length=32),
        {},
    ),
    "spans": (head("spans", BertSpanPredictor, SPAN), records, {}),
    "words": (
        head("words", BertTagger, TAGGING, num_labels=3),
        lambda batch: examples.random_tags(CONFIG, batch=batch, length=32),
        {},
    ),
    "distillation": (distillation(), records, {}),
}


def strategy(devices):
    return JaxStrategy(programs.devices(devices))


def training_program(name, devices):
    task, of_rows, options = CASES[name]
    on = strategy(devices)
    batch = of_rows(ROWS * on.num_replicas_in_sync)
    if on.device_kind == "TPU":  # compiles in half of the time
        options = {**options, "exec_time_optimization_effort": -1.0}
    program = programs.training_program(task, on, batch, **options)
    assert program.host_callbacks() == []
    return program


@pytest.mark.parametrize("name", CASES)
def test_what_a_chip_does_does_not_grow_with_the_number_of_chips(name):
    few, many = (training_program(name, chips) for chips in ("v5e:2x2", "v5e:4x4"))
    assert few.cycles > 0
    exchanged = [sum(one.collective_bytes().values()) for one in (few, many)]
    # Of micro-batches, the first one's exchange is counted with the loop's or apart.
    if name != "micro-batches":
        assert exchanged[1] == pytest.approx(exchanged[0], rel=0.01), many.collectives
    # The more chips, the smaller each one's share of the moments.
    assert many.memory_bytes < few.memory_bytes
    moved = [one.cost["bytes accessed"] for one in (few, many)]
    assert moved[1] < 1.01 * moved[0]
    assert few.collective_bytes()["reduce-scatter"] > 0
    check_gradients(name, few)


@pytest.mark.parametrize("name", CASES)
def test_eight_gpus(name):
    check_gradients(name, training_program(name, "h100:8"))


def check_gradients(name, program):
    """They are summed once per step; nothing else is exchanged but updated weights.

    Most are summed only where their share of the weights is updated. As it is, XLA
    leaves the sum within the loop over micro-batches: it is made after each of them.
    """
    sent = program.collective_bytes()
    assert sent["all-gather"] > 0, sent
    others = {"all-reduce", "reduce-scatter", "all-to-all", "collective-permute"}
    assert set(sent) <= {"all-gather"} | others, sent
    in_loop = [one for one in program.collectives if one.in_loop]
    assert bool(in_loop) == (name == "micro-batches"), in_loop


def test_one_gpu_exchanges_nothing():
    assert training_program("pretraining", "h100:1").collectives == []


@pytest.mark.parametrize("evaluates", [True, False])
@pytest.mark.parametrize("name", ["pretraining", "electra", "choices", "spans"])
def test_evaluation_and_prediction(name, evaluates):
    task, of_rows, _ = CASES[name]
    for devices in ("v5e:2x2", "h100:8"):
        on = strategy(devices)
        batch = of_rows(ROWS * on.num_replicas_in_sync)
        program = programs.inference_program(task, on, batch, evaluates=evaluates)
        assert program.host_callbacks() == []
        assert program.memory_bytes > 0


def test_a_batch_that_cannot_be_dealt_out_is_refused():
    message = "`train_batch_size=6` cannot be divided among 4 devices"
    with pytest.raises(InputError, match=message):
        check_batch_size(strategy("v5e:2x2"), 6)
