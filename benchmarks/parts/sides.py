"""What benchmarks that fine-tune both sides share: flags, weights, and their runs.

The sides are this package and Hugging Face's transformers (PyTorch), in an environment
of its own; both start from the same real weights.
"""

import json
import pathlib
import shutil
import sys
import tempfile
from typing import Any

import conversion
import pretraining_step
from absl import app, flags

from parts.commands import finished
from parts.results import PEERS

OURS, HUGGING_FACE = SIDES = ["ours", "hugging_face"]

WORK_DIR = flags.DEFINE_string(
    "work_dir", None, "Where results are kept; else a temporary folder."
)
_INIT_CHECKPOINT = flags.DEFINE_string(
    "init_checkpoint", None, "A Hugging Face folder; else all-MiniLM-L6-v2."
)
SEEDS = flags.DEFINE_list("seeds", ["1"], "The seeds of the scores.")
CHOSEN = flags.DEFINE_list("sides", SIDES, "The sides.")
SCORE_PRECISION = flags.DEFINE_enum(
    "score_precision", "bfloat16", ["float32", "bfloat16"], "Precision of the scores."
)
EPOCHS = flags.DEFINE_float("num_train_epochs", 3.0, "Epochs of the scores.")
LEARNING_RATE = flags.DEFINE_float("learning_rate", 5e-5, "Of the scores.")


def check_known(flag: flags.FlagHolder, there: list[str]) -> None:
    """Refuses a list with a value that there is not."""
    unknown = set(flag.value) - set(there)
    if unknown:
        raise app.UsageError(f"--{flag.name}: {sorted(unknown)}; there are {there}")


def folders(temporary: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Of the results and of the environments; temporary where none is given."""
    given = (WORK_DIR.value, flags.FLAGS.env_dir)
    work_dir, environments = (pathlib.Path(one or temporary).resolve() for one in given)
    return work_dir, environments


def start(
    environments: pathlib.Path, *, alone: bool = False
) -> tuple[pathlib.Path, dict[str, str]] | None:
    """The weights and side (or ours `alone`) -> its Python; None where they are not."""
    folder = (
        pathlib.Path(_INIT_CHECKPOINT.value).resolve()
        if _INIT_CHECKPOINT.value
        else conversion.minilm_folder(environments)
    )
    if folder is None:
        return None
    if alone:
        return folder, {OURS: sys.executable}
    python = pretraining_step.python_of(pretraining_step.HUGGING_FACE, environments)
    if python is None:
        return None
    return folder, {OURS: sys.executable, HUGGING_FACE: python}


def worker_run(python: str, script: str, job: dict[str, Any]) -> dict[str, Any]:
    """A run of a script of peers/ that writes its result."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "result.json"
        told = json.dumps({**job, "output": str(output)})
        finished([python, str(PEERS / script), told])
        return json.loads(output.read_text())


def our_run(
    python: str, command: str, job: dict[str, Any], folder: pathlib.Path, *own: str
) -> float:
    """A run of one of our commands from the start; the seconds of its training."""
    # It would go on where a killed one stopped, but its time would be half a run's.
    shutil.rmtree(folder, ignore_errors=True)
    finished(
        [
            *(python, "-m", f"bert_tf.{command}", "--do_train=true"),
            *("--bias_correction=true", "--decay_from=warmup"),
            f"--init_checkpoint={job['checkpoint']}",
            f"--max_seq_length={job['max_seq_length']}",
            f"--train_batch_size={job['batch_size']}",
            f"--learning_rate={job['learning_rate']}",
            f"--num_train_epochs={job['epochs']}",
            f"--warmup_proportion={job['warmup_proportion']}",
            f"--precision={job['precision']}",
            f"--random_seed={job['seed']}",
            f"--output_dir={folder}",
            *own,
        ]
    )
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [m for m in map(json.loads, lines) if "learning_rate" in m][-1]["seconds"]
