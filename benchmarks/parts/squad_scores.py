"""SQuAD scores of ours beside Hugging Face's: a part of benchmarks/squad.py."""

import json
import os
import pathlib
import statistics
import time
from typing import Any, NamedTuple

from parts.results import Result, compared, spread
from parts.sides import OURS, SIDES, our_run, worker_run

# With it every question is answered: texts and null odds are what thresholds are
# applied to, on both sides alike.
_NO_THRESHOLD = 1e9


class Bench(NamedTuple):
    """What all runs share.

    Attributes:
        files: "train-v1.1" and the like -> the file.
        work_dir: where results are kept.
        checkpoint: what both sides start from.
        pythons: side -> the Python that runs it.
        seeds: of the runs.
        sides: to run.
        settings: hyperparameters, the same for both sides.
    """

    files: dict[str, pathlib.Path]
    work_dir: pathlib.Path
    checkpoint: pathlib.Path
    pythons: dict[str, str]
    seeds: list[int]
    sides: list[str]
    settings: dict[str, Any]

    def job(self, version: str, seed: int) -> dict[str, Any]:
        """What a run is told; both sides are told the same."""
        return {
            **self.settings,
            "version_2": version == "2.0",
            "seed": seed,
            "checkpoint": str(self.checkpoint),
            "train": str(self.files[f"train-v{version}"]),
            "dev": str(self.files[f"dev-v{version}"]),
            "threads": os.cpu_count(),
        }

    def result(self, version: str, seed: int, side: str) -> Result:
        """The file of a run; where data and checkpoint lie makes no other run of it."""
        settings = {
            **self.settings,
            "checkpoint": self.checkpoint.name,
            "train": self.files[f"train-v{version}"].name,
            "dev": self.files[f"dev-v{version}"].name,
        }
        name = f"{version}-{seed}-{side}-{settings['precision']}.json"
        return Result(self.work_dir / "scores" / name, settings)


def run(bench: Bench, version: str) -> None:
    """Makes the runs of a version that are missing."""
    for seed in bench.seeds:
        for side in bench.sides:
            result = bench.result(version, seed, side)
            if result.read() is not None:
                continue
            job = bench.job(version, seed)
            began = time.perf_counter()
            python = bench.pythons[side]
            values = (
                our_result(bench, version, job)
                if side == OURS
                else worker_run(python, "huggingface_squad.py", job)
            )
            values["wall_seconds"] = time.perf_counter() - began
            result.write(values)
            print(
                f"SQuAD {version} seed {seed} {side}: {values['wall_seconds']:,.0f} s,"
                f" training"
                f" {values['train_questions'] / values['train_seconds']:.1f}"
                " questions/s",
                flush=True,
            )


def our_result(bench: Bench, version: str, job: dict[str, Any]) -> dict[str, Any]:
    """A run of run_squad; its folder stays, for `decoding`."""
    folder = bench.work_dir / "runs" / f"{version}-{job['seed']}-{job['precision']}"
    own = [
        *("--do_predict=true", "--pad=length", "--answer_text=offsets"),
        f"--train_file={job['train']}",
        f"--predict_file={job['dev']}",
        f"--version_2_with_negative={job['version_2']}",
        f"--doc_stride={job['doc_stride']}",
        f"--max_query_length={job['max_query_length']}",
        f"--predict_batch_size={job['batch_size']}",
        f"--n_best_size={job['n_best_size']}",
        f"--max_answer_length={job['max_answer_length']}",
    ]
    if job["version_2"]:
        own.append(f"--null_score_diff_threshold={_NO_THRESHOLD}")
    seconds = our_run(bench.pythons[OURS], "run_squad", job, folder, *own)
    null_odds = folder / "null_odds.json"
    return {
        "predictions": json.loads((folder / "predictions.json").read_text()),
        "null_odds": json.loads(null_odds.read_text()) if job["version_2"] else None,
        "train_questions": round(num_questions(job["train"]) * job["epochs"]),
        "train_seconds": seconds,
    }


def newest_run(work_dir: pathlib.Path, version: str) -> pathlib.Path | None:
    """The folder of our run that was made last; None where there is none."""
    runs = [
        path
        for path in (work_dir / "runs").glob(f"{version}-*")
        if (path / "checkpoint").exists()
    ]
    return max(runs, key=lambda path: path.stat().st_mtime, default=None)


def articles_of(path: str | pathlib.Path) -> list[dict[str, Any]]:
    """The articles of a file, as lists of their questions."""
    content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return [
        [
            question
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        for article in content["data"]
    ]


def num_questions(path: str | pathlib.Path) -> int:
    """The questions of a file."""
    return sum(map(len, articles_of(path)))


def golds_of(questions: list[dict[str, Any]]) -> dict[str, Any]:
    """What is right for each of some questions."""
    return {
        question["id"]: tuple(answer["text"] for answer in question["answers"])
        for question in questions
    }


def scores_of(path: pathlib.Path, values: dict[str, Any]) -> dict[str, float]:
    """A run's scores on a dev file, in percent."""
    from bert_tf.tasks.squad.scoring import best_thresholds, evaluate_v1, evaluate_v2

    articles = articles_of(path)
    texts, null_odds = values["predictions"], values["null_odds"]
    if null_odds is None:
        golds = golds_of([one for questions in articles for one in questions])
        return evaluate_v1(golds, texts)
    found_on, scored_on = (
        golds_of([one for questions in half for one in questions])
        for half in (articles[::2], articles[1::2])
    )
    threshold = best_thresholds(found_on, texts, null_odds)["best_f1_thresh"]
    scores = evaluate_v2(scored_on, texts, null_odds, threshold)
    names = [
        name for name in ("exact", "f1", "HasAns_f1", "NoAns_f1") if name in scores
    ]
    plain = evaluate_v2(scored_on, texts, null_odds, 0.0)
    silent = evaluate_v2(scored_on, dict.fromkeys(texts, ""), null_odds, threshold)
    return {
        "threshold": threshold,
        **{name: scores[name] for name in names},
        "f1 at threshold 0": plain["f1"],
        "f1 of never answering": silent["f1"],
        "best f1 of these articles": scores["best_f1"],
    }


def print_scores(bench: Bench, versions: list[str]) -> None:
    """The table of dev scores."""
    print(f"\nDev scores, {bench.settings['precision']}, seeds {bench.seeds}:")
    print("mean ± standard deviation. 2.0: the threshold found on every other article")
    print("of the dev file, scored on the rest. Range: of seeds, the larger side's.\n")
    print("| SQuAD | metric | ours | Hugging Face | difference | range |")
    print("|---|---|---|---|---|---|")
    for version in versions:
        dev = bench.files[f"dev-v{version}"]
        kept = {
            side: [
                values
                for seed in bench.seeds
                if (values := bench.result(version, seed, side).read())
            ]
            for side in SIDES
        }
        scores = {
            side: [scores_of(dev, values) for values in runs]
            for side, runs in kept.items()
        }
        for metric in next((runs[0] for runs in scores.values() if runs), ()):
            ours, theirs = ([one[metric] for one in scores[side]] for side in SIDES)
            print(
                f"| {version} | {metric} | {spread(ours)} | {spread(theirs)} |"
                f" {compared(ours, theirs)} |"
            )
        for label, measure in (
            ("seconds, the whole command", lambda one: one["wall_seconds"]),
            (
                "questions/s in training",
                lambda one: one["train_questions"] / one["train_seconds"],
            ),
        ):
            cells = [
                f"{statistics.median(map(measure, kept[side])):,.1f}"
                if kept[side]
                else "-"
                for side in SIDES
            ]
            print(f"| {version} | {label} | {' | '.join(cells)} | | |")
