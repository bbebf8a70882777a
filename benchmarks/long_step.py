"""A training step on long texts, and its memory, beside transformers' Longformer.

    python benchmarks/long_step.py --env_dir=ENVIRONMENTS

A classifier of a released size whose tokens see --attention_window tokens to each side,
and [CLS] all; rows of --max_seq_length tokens, float32, dropout 0.1. Transformers makes
the weights at random and this package reads them: the first loss, without dropout, is
the same. Transformers (PyTorch) runs in an environment of its own, which the first run
makes under --env_dir (about 1 GB); so does this package on JAX (--peers).

Each library runs in a process of its own, and they take turns; the best of the rounds
counts. Seconds are processor time of all cores, memory the most that the process held
at once, the libraries and the optimizer's moments included. With --recompute a step
computes each layer twice and keeps less.
"""

import json
import os
import pathlib
import sys
import tempfile

import pretraining_step
from absl import app, flags
from parts.commands import Worker
from parts.results import PEERS, REPOSITORY, machine
from pretraining_step import HUGGING_FACE, OURS, OURS_JAX

RECOMPUTE = f"{OURS}, --recompute"

_SIZE = flags.DEFINE_string("size", "small", "A released size.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 8, "Texts of a step.")
_WINDOW = flags.DEFINE_integer("attention_window", 256, "Tokens to each side.")
_STEPS = flags.DEFINE_integer("steps", 3, "Of a turn.")


def main(_: list[str]) -> None:
    sys.path.insert(0, str(REPOSITORY))
    from bert_tf.base.config import BertConfig

    config = BertConfig.from_size(_SIZE.value)
    length = flags.FLAGS.max_seq_length
    with tempfile.TemporaryDirectory() as temporary:
        environments = pathlib.Path(flags.FLAGS.env_dir or temporary).resolve()
        settings = {
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "heads": config.num_attention_heads,
            "batch": _BATCH_SIZE.value,
            "length": length,
            "window": _WINDOW.value,
            "folder": f"{temporary}/longformer",
        }
        workers, losses = {}, {}
        for name in [HUGGING_FACE, OURS, RECOMPUTE, *flags.FLAGS.peers]:
            settings["recompute"] = name == RECOMPUTE
            python = pretraining_step.python_of(name, environments)
            if python is None and name == HUGGING_FACE:
                return
            if python is not None:
                workers[name] = Worker(
                    [python, PEERS / "long_steps.py", name, json.dumps(settings)],
                    KERAS_BACKEND="jax" if name == OURS_JAX else "tensorflow",
                )
                losses[name] = float(workers[name].answer())
        best = dict.fromkeys(workers, (float("inf"), 0.0))
        for round_number in range(flags.FLAGS.rounds + 1):
            for name, worker in workers.items():
                answer = worker.answer(str(_STEPS.value))
                _, seconds, peak = map(float, answer.split())
                if round_number:  # the first one compiles
                    best[name] = (min(best[name][0], seconds / _STEPS.value), peak)
        for worker in workers.values():
            worker.end()
    print(
        f"{_SIZE.value}, {_BATCH_SIZE.value} x {length}, window {_WINDOW.value},"
        f" {machine()}\n{'':19}{'core s a step':>14}{'theirs / its':>14}"
        f"{'MB':>8}{'its / theirs':>14}  first loss"
    )
    for name, (seconds, peak) in best.items():
        print(
            f"  {name:17}{seconds:14.2f}{best[HUGGING_FACE][0] / seconds:14.2f}"
            f"{peak / 1e6:8,.0f}{peak / best[HUGGING_FACE][1]:14.2f}"
            f"  {losses[name]:.7f}"
        )


if __name__ == "__main__":
    flags.set_default(pretraining_step._LENGTH, 2048)
    flags.set_default(pretraining_step._PEERS, [OURS_JAX])
    flags.set_default(pretraining_step._ROUNDS, 3)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    app.run(main)
