"""Sequences a second of one training step of pre-training, ours and our peers.

    python benchmarks/pretraining_step.py --env_dir=ENVIRONMENTS

Forward, backward, clipping and AdamW update at length 128 with 20 predictions and
dropout 0.1, on the same batch: this package's engine; KerasHub's backbone and masked
LM head fitted by Keras; tf-models-official (Keras 2) and Hugging Face (PyTorch), each
in an environment of its own, which the first run makes under --env_dir and later ones
find there (about 4 GB; --peers=KerasHub needs none). Rows with huge pages have them
by GLIBC_TUNABLES=glibc.malloc.hugetlb=1.

Each library runs in a process of its own, and they take turns; the best of the rounds
counts. `core ms` is processor time of all cores a sequence: it tells what a step costs
also where other programs take a part of the machine, and what it costs in wall-clock
time follows from how well it uses all cores. `of the ceiling` is the step's model FLOPs
(bert_tf.training.throughput) over its processor time, over the same of the quickest
matrix products that TensorFlow makes in the same rounds.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from absl import app, flags
from parts.commands import Worker
from parts.results import REPOSITORY

OURS, KERAS_HUB, TF_MODELS, HUGGING_FACE = (
    "ours",
    "KerasHub",
    "tf-models",
    "Hugging Face",
)
# The same two on Keras' other back end.
OURS_JAX, KERAS_HUB_JAX = f"{OURS} JAX", f"{KERAS_HUB} JAX"
# And with memory in pages of 2 MB, where the kernel gives them to who asks.
HUGE_PAGES = " huge pages"
TUNABLES = "glibc.malloc.hugetlb=1"
CAPTUM = "captum"  # of explanations alone
SENTENCE_TRANSFORMERS = "sentence-transformers"  # of embeddings alone
CTRANSLATE2 = "CTranslate2"  # of serving alone, with transformers
ONNX_READERS = "ONNX readers"  # of conversion alone
PEFT = "PEFT"  # of conversion alone
CEILING = "ceiling"
CEILING_FLOPS = 2 * 2048**3  # as in peers/pretraining_steps.py
PEERS = [
    *(KERAS_HUB, TF_MODELS, HUGGING_FACE, OURS_JAX, KERAS_HUB_JAX),
    *(OURS + HUGE_PAGES, HUGGING_FACE + HUGE_PAGES),
]

_SIZES = flags.DEFINE_list("sizes", ["tiny", "small", "base"], "Released sizes.")
_PRECISIONS = flags.DEFINE_list("precisions", ["float32", "bfloat16"], "Precisions.")
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes", ["64", "32", "8"], "The batch size of each of --sizes."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each library.")
_SECONDS = flags.DEFINE_float("seconds", 1.5, "About how long a turn takes.")
_PEERS = flags.DEFINE_list("peers", PEERS, "The libraries to measure beside ours.")
_ENV_DIR = flags.DEFINE_string(
    "env_dir", None, "Where the peers' environments are kept; else a temporary folder."
)
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Length of the sequences.")
_PREDICTIONS = flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "Masked tokens of a sequence."
)
# `make benchmark` gives these to every script.
flags.DEFINE_string("data_dir", None, "Not needed: the batches are generated.")
flags.DEFINE_string("original_dir", None, "Not needed.")

WORKER = REPOSITORY / "benchmarks" / "peers" / "pretraining_steps.py"

# pip's arguments, one list after the other. What tf-models requires and these models do
# not import takes gigabytes more.
ENVIRONMENTS = {
    TF_MODELS: (
        [
            "tensorflow==2.20.0",
            "tf_keras==2.20.1",
            "gin-config",
            "tensorflow-model-optimization",
            "tensorflow-hub",
            "sentencepiece",
            "pyyaml",
            "setuptools<81",
        ],
        ["--no-deps", "tf-models-official==2.20.0"],
    ),
    HUGGING_FACE: (["torch==2.13.0", "transformers==5.23.0", "numpy"],),
    SENTENCE_TRANSFORMERS: (
        ["torch==2.14.1", "transformers==5.24.0", "sentence-transformers==6.2.0"],
        ["accelerate==1.15.0", "datasets==5.2.0", "scipy", "numpy"],
    ),
    CTRANSLATE2: (
        ["torch==2.14.1", "transformers==5.24.0", "ctranslate2==4.8.5", "numpy"],
    ),
    # optimum-onnx has not followed transformers to 5.
    ONNX_READERS: (
        ["torch==2.14.1", "transformers==4.57.6", "sentence-transformers==5.7.0"],
        ["optimum-onnx==0.1.0", "onnxruntime==1.32.0", "fastembed==0.9.1", "numpy"],
    ),
    PEFT: (["torch==2.14.1", "transformers==5.24.0", "peft==0.21.2", "numpy"],),
    CAPTUM: (["torch==2.13.0", "transformers==5.23.0", "captum==0.9.0", "numpy"],),
}
_JAX = (["--constraint", str(REPOSITORY / "constraints.txt"), f"{REPOSITORY}[jax]"],)
ENVIRONMENTS |= {OURS_JAX: _JAX, KERAS_HUB_JAX: _JAX}


def python_of(name: str, folder: pathlib.Path) -> str | None:
    """The Python that runs a library; None where its environment cannot be made."""
    name = name.removesuffix(HUGE_PAGES)
    if name not in ENVIRONMENTS:
        return sys.executable
    whose = name
    name = "JAX" if name in (OURS_JAX, KERAS_HUB_JAX) else name
    environment = folder / name.replace(" ", "-").lower()
    python = environment / "bin" / "python"
    complete = environment / "complete"
    if not complete.exists():
        print(f"{name}: making {environment}", flush=True)
        commands = [[sys.executable, "-m", "venv", environment]]
        for packages in ENVIRONMENTS[whose]:
            commands.append([python, "-m", "pip", "install", "--quiet", *packages])
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: skipped, cannot be installed: {done.stderr[-500:]}")
                return None
        complete.touch()
    return str(python)


def times(worker: Worker, count: int) -> tuple[float, float]:
    """Seconds, and processor seconds, of a step; so many are made."""
    seconds, processor_seconds = map(float, worker.answer(str(count)).split())
    return seconds / count, processor_seconds / count


def measure(size: str, precision: str, batch_size: int, pythons: dict) -> None:
    """Prints a table of one size, precision and batch."""
    from bert_tf.base.config import BertConfig
    from bert_tf.training.throughput import training_flops

    config = BertConfig.from_size(size)
    settings = {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads": config.num_attention_heads,
        "precision": precision,
        "batch": batch_size,
        "length": _LENGTH.value,
        "predictions": _PREDICTIONS.value,
        "folder": str(REPOSITORY),
    }
    workers = {
        name: Worker(
            [python, WORKER, name.removesuffix(HUGE_PAGES), json.dumps(settings)],
            KERAS_BACKEND="jax" if name.endswith("JAX") else "tensorflow",
            **({"GLIBC_TUNABLES": TUNABLES} if name.endswith(HUGE_PAGES) else {}),
        )
        for name, python in {CEILING: sys.executable, **pythons}.items()
    }
    for worker in workers.values():
        worker.answer()
    counts = {
        name: 8
        if name == CEILING
        else max(1, round(_SECONDS.value / times(worker, 1)[0]))
        for name, worker in workers.items()
    }
    runs: dict[str, list] = {name: [] for name in workers}
    for _ in range(_ROUNDS.value):
        for name, worker in workers.items():
            runs[name].append(times(worker, counts[name]))
    for worker in workers.values():
        worker.end()
    best = {
        name: [min(column) for column in zip(*pairs, strict=True)]
        for name, pairs in runs.items()
    }
    peak = CEILING_FLOPS / best.pop(CEILING)[1]
    flops = training_flops(
        config,
        {
            "input_ids": (batch_size, _LENGTH.value),
            "masked_lm_positions": (batch_size, _PREDICTIONS.value),
        },
    )
    print(
        f"{size}, {precision}, batch {batch_size}; "
        f"ceiling {peak / 1e9:,.0f} GFLOP/s a core"
    )
    head = "sequences/s  times ours  core ms  times ours  of the ceiling"
    print(f"{'':26}{head}")
    for name, (seconds, processor) in best.items():
        print(
            f"  {name:23s} {batch_size / seconds:11,.1f}"
            f" {best[OURS][0] / seconds:11.2f} {1000 * processor / batch_size:8,.1f}"
            f" {processor / best[OURS][1]:11.2f} {flops / processor / peak:15.0%}",
            flush=True,
        )


def main(_: list[str]) -> None:
    unknown = set(_PEERS.value) - set(PEERS)
    if unknown:
        raise app.UsageError(f"--peers: {sorted(unknown)}; there are {PEERS}")
    if len(_SIZES.value) != len(_BATCH_SIZES.value):
        raise app.UsageError("--batch_sizes must have as many values as --sizes")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.path.insert(0, str(REPOSITORY))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(_ENV_DIR.value or temporary).resolve()
        pythons = {name: python_of(name, folder) for name in [OURS, *_PEERS.value]}
        pythons = {name: python for name, python in pythons.items() if python}
        for size, batch_size in zip(_SIZES.value, _BATCH_SIZES.value, strict=True):
            for precision in _PRECISIONS.value:
                measure(size, precision, int(batch_size), pythons)


if __name__ == "__main__":
    app.run(main)
