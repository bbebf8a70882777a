"""Multiple choice and tagging after fine-tuning: a part of benchmarks/features.py."""

import csv
import os
import pathlib
import shutil
import statistics
import time
from collections import Counter, defaultdict
from typing import Any

from parts.features_data import Bench, Split
from parts.results import Result, compared, spread
from parts.sides import HUGGING_FACE, OURS, our_run, worker_run

SWAG, NER = "swag", "ner"


def run_scores(
    bench: Bench, kind: str, split: Split, settings: dict[str, Any], seeds: list[int]
) -> None:
    """Makes the runs that are missing, and prints the table.

    Args:
        bench: what all parts share.
        kind: "swag" or "ner".
        split: its files.
        settings: hyperparameters, the same for both sides.
        seeds: of the runs.
    """
    for seed in seeds:
        for side in bench.sides:
            result = kept_run(bench, kind, split, settings, seed, side)
            if result.read() is not None:
                continue
            job = {
                **settings,
                "kind": kind,
                "seed": seed,
                "checkpoint": str(bench.checkpoint),
                "train": str(split.train),
                "dev": str(split.dev),
                "threads": os.cpu_count(),
            }
            began = time.perf_counter()
            values = (
                our_result(bench, job)
                if side == OURS
                else worker_run(bench.pythons[side], "huggingface_heads.py", job)
            )
            values["wall_seconds"] = time.perf_counter() - began
            golds = golds_of(kind, split.dev)
            right = map(str.__eq__, map(str, values.pop("predictions")), golds)
            values["accuracy"] = 100 * sum(right) / len(golds)
            result.write(values)
            print(
                f"{kind} seed {seed} {side}: {values['wall_seconds']:,.0f} s,"
                f" {values['accuracy']:.2f} %",
                flush=True,
            )
    print_scores(bench, kind, split, settings, seeds)


def kept_run(
    bench: Bench,
    kind: str,
    split: Split,
    settings: dict[str, Any],
    seed: int,
    side: str,
) -> Result:
    """The file of a run; where data and checkpoint lie makes no other run of it."""
    described = {
        **settings,
        "checkpoint": bench.checkpoint.name,
        "train": split.train.name,
        "dev": split.dev.name,
    }
    name = f"{seed}-{side}-{settings['precision']}.json"
    return Result(bench.work_dir / kind / name, described)


def our_result(bench: Bench, job: dict[str, Any]) -> dict[str, Any]:
    """A run of run_swag or run_ner."""
    folder = bench.work_dir / "runs" / f"{job['kind']}-{job['seed']}"
    files = [pathlib.Path(job[name]) for name in ("train", "dev")]
    if job["kind"] == NER:
        files = [path.with_suffix(".conll") for path in files]
    own = [
        *("--do_eval=true", "--pad=length"),
        f"--train_file={files[0]}",
        f"--dev_file={files[1]}",
        f"--eval_batch_size={job['batch_size']}",
    ]
    seconds = our_run(bench.pythons[OURS], f"run_{job['kind']}", job, folder, *own)
    if job["kind"] == SWAG:
        with (folder / "dev_predictions.csv").open(newline="") as file:
            predictions = [row["prediction"] for row in csv.DictReader(file)]
    else:
        text = (folder / "dev_predictions.txt").read_text(encoding="utf-8")
        predictions = [line.rpartition(" ")[2] for line in text.split("\n") if line]
    num_examples = num_of(job["kind"], pathlib.Path(job["train"]))
    shutil.rmtree(folder)
    return {
        "predictions": predictions,
        "train_examples": round(num_examples * job["epochs"]),
        "train_seconds": seconds,
    }


def num_of(kind: str, path: pathlib.Path) -> int:
    """The examples of a file: of swag rows, of ner sentences."""
    if kind == SWAG:
        return len(golds_of(SWAG, path))
    return len(path.read_text(encoding="utf-8").splitlines())


def golds_of(kind: str, path: pathlib.Path) -> list[str]:
    """What is right: of swag the ending's number, of ner each word's tag."""
    if kind == SWAG:
        with path.open(encoding="utf-8", newline="") as file:
            return [row["label"] for row in csv.DictReader(file)]
    cells = path.read_text(encoding="utf-8").split()
    return [cell.rpartition("/")[2] for cell in cells]


def without_a_model(kind: str, split: Split) -> float:
    """What needs no model, in percent: the commonest ending; each word's commonest tag.

    Words that training has not have the commonest tag of all.
    """
    golds = golds_of(kind, split.dev)
    usual = Counter(golds_of(kind, split.train)).most_common(1)[0][0]
    if kind == SWAG:
        return 100 * golds.count(usual) / len(golds)
    tags: dict[str, Counter] = defaultdict(Counter)
    for cell in split.train.read_text(encoding="utf-8").split():
        word, _, tag = cell.rpartition("/")
        tags[word][tag] += 1
    words = (
        cell.rpartition("/")[0]
        for cell in split.dev.read_text(encoding="utf-8").split()
    )
    found = (
        tags[word].most_common(1)[0][0] if word in tags else usual for word in words
    )
    return 100 * sum(map(str.__eq__, found, golds)) / len(golds)


def print_scores(
    bench: Bench, kind: str, split: Split, settings: dict[str, Any], seeds: list[int]
) -> None:
    """The table of a kind."""
    title = {SWAG: "Multiple choice, HellaSwag's rows", NER: "Brown's parts of speech"}
    print(
        f"\n{title[kind]}: {num_of(kind, split.train):,} examples to train on,"
        f" {len(golds_of(kind, split.dev)):,} labels to score;"
        f" {settings['epochs']:g} epochs, batch {settings['batch_size']}, learning rate"
        f" {settings['learning_rate']:g}, {settings['precision']}, seeds {seeds}."
        f" Without a model: {without_a_model(kind, split):.2f} %.\n"
    )
    print("| | ours | Hugging Face | difference | range |")
    print("|---|---|---|---|---|")
    kept = {
        side: [
            values
            for seed in seeds
            if (values := kept_run(bench, kind, split, settings, seed, side).read())
        ]
        for side in (OURS, HUGGING_FACE)
    }
    ours, theirs = ([one["accuracy"] for one in kept[side]] for side in kept)
    cells = [spread(ours), spread(theirs), compared(ours, theirs)]
    print(f"| accuracy, % | {' | '.join(cells)} |")
    for label, measure in (
        ("seconds, the whole command", lambda one: one["wall_seconds"]),
        (
            "examples/s in training",
            lambda one: one["train_examples"] / one["train_seconds"],
        ),
    ):
        cells = [
            f"{statistics.median(map(measure, runs)):,.1f}" if runs else "-"
            for runs in kept.values()
        ]
        print(f"| {label} | {' | '.join(cells)} | | |")
