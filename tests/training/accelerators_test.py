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

from benchmarks.parts import every_step  # noqa: E402
from bert_tf.base.config import BertConfig  # noqa: E402
from bert_tf.base.errors import InputError  # noqa: E402
from bert_tf.training.jax_step import JaxStrategy  # noqa: E402
from bert_tf.training.strategy import check_batch_size  # noqa: E402

CONFIG = BertConfig(
    vocab_size=509,  # which no number of devices divides: its columns are shared
    hidden_size=128,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=256,
    max_position_embeddings=32,
)
ROWS = 8  # of each device
CASES = every_step.cases(CONFIG, length=32)


def strategy(devices):
    return JaxStrategy(programs.devices(devices))


def compiled(name, devices, mode="training"):
    on = strategy(devices)
    # It compiles in half of the time.
    options = {"exec_time_optimization_effort": -1.0} if on.device_kind == "TPU" else {}
    program = every_step.program(CASES[name], on, ROWS, mode, **options)
    assert program.host_callbacks() == []
    return program


@pytest.mark.parametrize("name", CASES)
def test_what_a_chip_does_does_not_grow_with_the_number_of_chips(name):
    few, many = (compiled(name, chips) for chips in ("v5e:2x2", "v5e:4x4"))
    assert few.cycles > 0
    exchanged = [sum(one.collective_bytes().values()) for one in (few, many)]
    # Of micro-batches, the first one's exchange is counted with the loop's or apart.
    if name != "micro-batches":
        assert exchanged[1] == pytest.approx(exchanged[0], rel=0.01), many.collectives
    # The more chips, the smaller each one's share of the moments.
    arguments = [one.memory.argument_size_in_bytes for one in (few, many)]
    assert arguments[1] < arguments[0]
    assert many.memory_bytes < 1.02 * few.memory_bytes
    moved = [one.cost["bytes accessed"] for one in (few, many)]
    assert moved[1] < 1.01 * moved[0]
    assert few.collective_bytes()["reduce-scatter"] > 0
    check_gradients(name, few)


@pytest.mark.parametrize("name", CASES)
def test_eight_gpus(name):
    check_gradients(name, compiled(name, "h100:8"))


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
    assert compiled("pretraining", "h100:1").collectives == []


@pytest.mark.parametrize("mode", ["evaluation", "prediction"])
@pytest.mark.parametrize("name", every_step.INFERENCE)
def test_evaluation_and_prediction(name, mode):
    for devices in ("v5e:2x2", "h100:8"):
        assert compiled(name, devices, mode).memory_bytes > 0


def test_a_batch_that_cannot_be_dealt_out_is_refused():
    message = "`train_batch_size=6` cannot be divided among 4 devices"
    with pytest.raises(InputError, match=message):
        check_batch_size(strategy("v5e:2x2"), 6)
