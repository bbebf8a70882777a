"""Processor seconds from a command to its first step, or to its first prediction.

    python benchmarks/start.py --env_dir=ENVIRONMENTS

A model of two layers of 64 and a text of a few lines, so that what is measured is the
start: imports, the reading of files, the making of the model, and the compilation of
its step. Ours are the commands that a user gives. transformers' are a script as its
documentation writes it, with Trainer and a pipeline, in an environment of its own,
which the first run makes under --env_dir and later ones find there (about 1 GB).

Each command runs in a process of its own, in turns; of --rounds the least counts.
`first batch` is when it is on the device, `first step` when its update is made; a
prediction counts to the end of the process. `import` is a process that imports the
library alone: TensorFlow, or PyTorch and transformers. Where onnx is installed, the
benchmark also predicts with an ONNX export, in a new environment that has nothing but
`bert-tf[serve]`, and counts its packages.
"""

import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import pretraining_step
from absl import app
from parts.results import PEERS, environment

_WORDS = [*"abcdefghijklmno"]
_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]
_CONFIG = {
    "vocab_size": len(_TOKENS),
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
_TRAINING = {
    "bert_config_file": "bert_config.json",
    "do_train": "true",
    "train_batch_size": "8",
}
# Command -> its flags. A command of ours and the peer's script have the same names.
COMMANDS = {
    "import": {},
    "run_pretraining": {
        **_TRAINING,
        "input_file": "records",
        "num_train_steps": "1",
        "num_warmup_steps": "0",
        "output_dir": "pretrained",
    },
    "run_classifier": {
        **_TRAINING,
        "train_file": "train.csv",
        "text_a_column": "text",
        "vocab_file": "vocab.txt",
        "max_seq_length": "32",
        "num_train_epochs": "1",
        "output_dir": "trained",
    },
    "predict": {
        "checkpoint": "trained",
        "input_file": "text.csv",
        "text_a_column": "text",
        "output_file": "predicted.csv",
    },
}
COMMANDS["predict (ONNX)"] = {**COMMANDS["predict"], "checkpoint": "served"}
SIDES = {"ours": "our_start.py", "transformers": "huggingface_start.py"}
SERVE = "bert-tf serve"
pretraining_step.ENVIRONMENTS[SERVE] = ([f"{pretraining_step.REPOSITORY}[serve]"],)


def has_onnx() -> bool:
    """Whether exports as ONNX can be made here."""
    return importlib.util.find_spec("onnx") is not None


def make_files(folder: pathlib.Path) -> None:
    """Writes what both sides read; records and a trained model are by our commands."""
    rng = random.Random(0)
    texts = [" ".join(rng.choices(_WORDS, k=20)) for _ in range(64)]
    rows = [f"{number % 2},{text}" for number, text in enumerate(texts)]
    for name, lines in (
        ("vocab.txt", _TOKENS),
        ("train.csv", ["label,text", *rows]),
        ("text.csv", ["text", texts[0]]),
        ("corpus.txt", [*texts[:4], "", *texts[4:]]),
        ("bert_config.json", [json.dumps(_CONFIG)]),
    ):
        (folder / name).write_text("\n".join(lines) + "\n")
    commands = [
        (
            "create_pretraining_data",
            {
                "input_file": "corpus.txt",
                "output_file": "records",
                "vocab_file": "vocab.txt",
                "max_seq_length": "32",
                "max_predictions_per_seq": "5",
            },
        ),
        ("run_classifier", COMMANDS["run_classifier"]),
    ]
    exports = {"huggingface": "exported"} | ({"onnx": "served"} if has_onnx() else {})
    for kind, output in exports.items():
        given = {"checkpoint": "trained", "output_dir": output, "format": kind}
        commands.append(("export_model", given))
    for name, given in commands:
        _output([sys.executable, "-m", "bert_tf", name, *_as_flags(given)], folder)


def _output(command: list[str], folder: pathlib.Path) -> str:
    """What a command prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment(), "PYTHONPATH": str(pretraining_step.REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[1:4]}: {done.stderr[-2000:]}")
    return done.stdout


def _as_flags(given: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in given.items()]


def seconds(
    python: str, script: str, command: str, folder: pathlib.Path
) -> dict[str, float]:
    """Event -> processor seconds from the start of a process to it."""
    given = {**COMMANDS[command]}
    with tempfile.TemporaryDirectory() as output:
        if "output_dir" in given:
            given["output_dir"] = output
        module = command.split()[0]
        command_line = [python, str(PEERS / script), module, *_as_flags(given)]
        return json.loads(_output(command_line, folder).splitlines()[-1])


def _installed(python: str) -> str:
    """Returns the packages' number, how many are TensorFlow's, and their size."""
    listed = subprocess.check_output([python, "-m", "pip", "list", "--format=json"])
    names = {one["name"] for one in json.loads(listed)} - {"pip", "setuptools"}
    of_tensorflow = [name for name in names if name.startswith(("tensorflow", "keras"))]
    (folder,) = pathlib.Path(python).parent.parent.glob("lib/python*/site-packages")
    size = sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
        and not path.relative_to(folder).parts[0].startswith(("pip", "setuptools"))
    )
    return (
        f"{len(names)} packages, {len(of_tensorflow)} of them TensorFlow's,"
        f" {size / 1e6:.0f} MB"
    )


def main(_: list[str]) -> None:
    """Measures in turns, and prints a row for each event."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        kept = pathlib.Path(pretraining_step._ENV_DIR.value or folder).resolve()
        pythons = {"ours": sys.executable}
        served = pretraining_step.python_of(SERVE, folder) if has_onnx() else None
        installed = _installed(served) if served else ""
        peer = pretraining_step.python_of(pretraining_step.SENTENCE_TRANSFORMERS, kept)
        if peer:
            pythons["transformers"] = peer
        make_files(folder)
        least: dict[tuple[str, str, str], float] = {}
        for _ in range(pretraining_step._ROUNDS.value):
            for command in COMMANDS:
                runs = {"ours": served} if command.endswith("(ONNX)") else pythons
                for side, python in runs.items():
                    if python is None:
                        continue
                    found = seconds(python, SIDES[side], command, folder)
                    for event, value in found.items():
                        key = side, command, event
                        least[key] = min(value, least.get(key, value))
    print(f"{'processor seconds to':32}{'ours':>8}{'above import':>14}", end="")
    print(f"{'transformers':>14}{'above import':>14}")
    for command, event in dict.fromkeys(key[1:] for key in least):
        print(f"{command + ', ' + event:32}", end="")
        for side, width in (("ours", 8), ("transformers", 14)):
            value = least.get((side, command, event))
            start = least.get((side, "import", "end"), 0.0)
            cell = "-" if value is None else f"{value:.2f}"
            # What ONNX Runtime alone predicts imports no TensorFlow.
            has_none = value is None or command.endswith("(ONNX)")
            above = "-" if has_none else f"{value - start:+.2f}"
            print(f"{cell:>{width}}{above:>14}", end="")
        print()
    if served:
        print(f"pip install 'bert-tf[serve]': {installed}")


if __name__ == "__main__":
    app.run(main)
