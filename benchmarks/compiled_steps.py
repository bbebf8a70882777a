"""Pre-training steps as the compilers of TPUs and GPUs make them, without either.

    make venv-accelerators
    .venv/accelerators/bin/python benchmarks/compiled_steps.py --devices=v5e:1x1,h100:1

Google's compiler for TPUs (`libtpu`) and XLA's for NVIDIA's GPUs compile the step of
this package on JAX for devices that are not here, and beside it that of KerasHub's
backbone and masked LM head as Keras fits it: bfloat16, dropout 0.1, a vocabulary of
30,522, forward, backward, clipping and the update of every weight. --steps=tasks
compiles the steps of every task, of training, evaluation and prediction, with each
task's head, a vocabulary of 30,522 and rows of different lengths. A step that does not
compile, or that calls the host, is a line with its name.

NOTHING IS RUN: every figure is the compiler's. Memory is what a device needs with all
arguments; the estimate is the sum of the instructions' estimated cycles, which counts
no waiting for memory or for other devices, and the share of the peak follows from it.
The compiler for GPUs makes no estimate.

A compilation takes one to three minutes on one core.
"""

import itertools
import json
import math
import os
import subprocess
import sys

from absl import app, flags
from parts import programs
from parts.results import REPOSITORY
from peers import pretraining_steps

OURS, KERAS_HUB, TASKS = "bert_tf", "KerasHub", "tasks"
SIZES = {"small": (4, 512), "base": (12, 768), "large": (24, 1024)}  # layers, hidden
PREDICTIONS = {128: 20, 512: 76}  # longer ones have as many per token as 512
HEAD = (
    f"{'':34}{'GiB':>6}{'M cycles':>10}{'ms':>7}{'peak':>6}{'GB moved':>9}"
    f"{'transposes':>11}{'copies':>7}  MB exchanged"
)

_DEVICES = flags.DEFINE_list(
    "devices",
    ["v5e:1x1", "h100:1"],
    "KIND:TOPOLOGY of TPUs, h100:NUMBER or a100:NUMBER of GPUs.",
)
_SIZES = flags.DEFINE_list("sizes", ["base"], f"Any of {', '.join(SIZES)}.")
_BATCHES = flags.DEFINE_list(
    "batches", ["128x128"], "SEQUENCESxLENGTH of each device, such as 32x512."
)
_WINDOWS = flags.DEFINE_list(
    "attention_windows",
    ["0"],
    "Of local attention, such as 256; 0: full.",
)
_GLOBAL = flags.DEFINE_integer("global_tokens", 0, "Of local attention.")
_STEPS = flags.DEFINE_list(
    "steps", [OURS, KERAS_HUB], f"The steps to compile: {OURS}, {KERAS_HUB}, {TASKS}."
)
flags.register_validator(
    _STEPS,
    lambda names: {*names} <= {OURS, KERAS_HUB, TASKS},
    message=f"there are {OURS}, {KERAS_HUB} and {TASKS}.",
)
_LARGEST = flags.DEFINE_bool("largest", False, "Also find the largest batch that fits.")
_OPTIONS = flags.DEFINE_list(
    "options", [], "NAME=VALUE for XLA, such as xla_gpu_deterministic_ops=true."
)
# `make benchmark` gives these to every script.
flags.DEFINE_string("data_dir", None, "Not needed: nothing is run.")
flags.DEFINE_string("original_dir", None, "Not needed.")


def figures(case: dict) -> dict:
    """Compiles one step, in a process of its own."""
    os.environ.update(programs.ENVIRONMENT)
    from bert_tf.base.config import BertConfig
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training.jax_step import JaxStrategy
    from bert_tf.training.throughput import peak_flops, training_flops

    strategy = JaxStrategy(programs.devices(case["devices"]))
    count = strategy.num_replicas_in_sync
    settings = {**case, "batch": case["batch"] * count, "precision": "bfloat16"}
    config = BertConfig(
        vocab_size=pretraining_steps.VOCAB_SIZE,
        hidden_size=case["hidden"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["heads"],
        intermediate_size=4 * case["hidden"],
        max_position_embeddings=max(512, case["length"]),
        attention_window=case["window"] or None,
        global_tokens=case["global"] or None,
    )
    batch = pretraining_steps.records(settings)
    options = case["options"]
    if case["step"] == OURS:
        program = programs.training_program(
            pretraining_task(config), strategy, batch, **options
        )
    elif case["step"] == KERAS_HUB:
        program = keras_program(strategy, settings)
    else:
        from benchmarks.parts import every_step

        of_task = every_step.cases(config, case["length"])[case["step"]]
        program = every_step.program(
            of_task, strategy, case["batch"], case["mode"], **options
        )
    if program.host_callbacks():
        raise SystemExit(f"Error: it calls the host: {program.host_callbacks()}")
    flops = training_flops(config, {key: value.shape for key, value in batch.items()})
    flops *= case["mode"] == ""  # of the pre-training step with full rows
    return {
        "memory": program.memory_bytes,
        "cycles": program.cycles,
        "moved": program.cost.get("bytes accessed", 0.0),
        "collectives": program.collective_bytes(),
        "transposes": program.count("transpose"),
        "copies": program.count("copy", "copy-start"),
        "seconds_at_peak": flops / peak_flops(strategy),
    }


def keras_program(strategy, settings: dict) -> programs.Program:
    """KerasHub's step, as Keras' `fit` has JAX compile it."""
    import jax

    model, data = pretraining_steps.keras_hub_model(settings)
    model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=data)
    state = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    return programs.compiled(
        jax.jit(model.train_step, donate_argnums=0),
        strategy,
        programs.abstract(state, strategy.replicated),
        programs.abstract(data, strategy.by_row),
        **settings["options"],
    )


def compile_apart(case: dict) -> dict | None:
    """`figures` of a new process; None, and the reason printed, where it fails."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(case)],
        env={**os.environ, **programs.ENVIRONMENT, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line]
        print(
            f"  {case['step']} {case['mode']}: {(lines or ['no message'])[-1][:300]}",
            flush=True,
        )
        return None
    return json.loads(done.stdout.splitlines()[-1])


def show(case: dict, found: dict) -> None:
    """Prints one row."""
    name = f"{case['step']}, {case['size']}, {case['batch']} x {case['length']}"
    if case["window"]:
        name += f", {case['window']}"
    if case["mode"]:
        name = f"{case['step']}: {case['mode']}"
    clock = programs.CLOCKS.get(case["devices"].split(":")[0])
    estimate = f"{'-':>10}{'-':>7}{'-':>6}{'-':>9}"
    if clock and found["cycles"]:
        seconds = found["cycles"] / clock
        estimate = (
            f"{found['cycles'] / 1e6:10.1f}{1e3 * seconds:7.1f}"
            f"{found['seconds_at_peak'] / seconds or math.nan:6.0%}"
            f"{found['moved'] / 1e9:9.1f}"
        )
    sizes = sorted(found["collectives"].items())
    exchanged = ", ".join(f"{kind} {size / 1e6:.1f}" for kind, size in sizes)
    print(
        f"  {name:32}{found['memory'] / 2**30:6.2f}{estimate}"
        f"{found['transposes']:11}{found['copies']:7}  {exchanged or '-'}",
        flush=True,
    )


def largest_batch(case: dict, found: dict) -> int:
    """The most sequences that fit, in eights: from two compilations, then confirmed."""
    limit = programs.MEMORY[case["devices"].split(":")[0]]
    twice = compile_apart({**case, "batch": 2 * case["batch"]})
    if twice is None:
        return 0
    slope = (twice["memory"] - found["memory"]) / case["batch"]
    batch = int((limit - found["memory"]) / slope + case["batch"]) // 8 * 8
    while batch > 0:
        there = compile_apart({**case, "batch": batch})
        if there is not None and there["memory"] <= limit:
            return batch
        batch = int(batch * 0.95) // 8 * 8
    return 0


def steps() -> list[tuple[str, str]]:
    """The steps that were asked for, and those of tasks with their mode."""
    found = [(name, "") for name in (OURS, KERAS_HUB) if name in _STEPS.value]
    if TASKS in _STEPS.value:
        os.environ.update(programs.ENVIRONMENT)
        sys.path.insert(0, str(REPOSITORY))
        from benchmarks.parts import every_step
        from bert_tf.base.config import BertConfig

        any_config = BertConfig(vocab_size=1)
        found += [(name, "training") for name in every_step.cases(any_config, 128)]
        for name in every_step.INFERENCE:
            found += [(name, "evaluation"), (name, "prediction")]
    return found


def main(_: list[str]) -> None:
    """Compiles all cases."""
    missing = programs.missing_packages()
    if missing:
        print(f"Nothing is compiled: not installed: {', '.join(missing)}.")
        return
    print("Figures of the compiler; nothing was run.", flush=True)
    known = {"true": True, "false": False}
    options = {
        name: known.get(value, value)
        for name, value in (option.split("=", 1) for option in _OPTIONS.value)
    }
    chosen = steps()
    for devices in _DEVICES.value:
        print(f"{devices}, for each device:\n{HEAD}", flush=True)
        for size in _SIZES.value:
            for shape in _BATCHES.value:
                batch, length = map(int, shape.split("x"))
                layers, hidden = SIZES[size]
                for window, (step, mode) in itertools.product(
                    map(int, _WINDOWS.value), chosen
                ):
                    case = {
                        "step": step,
                        "mode": mode,
                        "size": size,
                        "devices": devices,
                        "layers": layers,
                        "hidden": hidden,
                        "heads": hidden // 64,
                        "batch": batch,
                        "length": length,
                        "window": window,
                        "global": window and _GLOBAL.value,
                        "predictions": PREDICTIONS.get(length, 76 * length // 512),
                        "options": options,
                    }
                    found = compile_apart(case)
                    if found is not None:
                        show(case, found)
                        if _LARGEST.value:
                            most = largest_batch(case, found)
                            print(f"  {'':32}{most} sequences fit at most", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps(figures(json.loads(sys.argv[1]))))
    else:
        app.run(main)
