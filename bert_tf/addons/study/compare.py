"""Comparisons of two runs on the same examples."""

import itertools
import json
import operator
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.addons.planning import reference_curves
from bert_tf.addons.study.significance import (
    Answers,
    Comparison,
    Summed,
    answers_of,
    compare,
    counted,
    mean_of,
)
from bert_tf.base import files
from bert_tf.base.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.base.errors import InputError
from bert_tf.base.options import RESULTS, Options, Path, flags_of_run, option
from bert_tf.base.pictures import figure, picture, table
from bert_tf.base.rows import read as read_rows
from bert_tf.tasks import run_log
from bert_tf.tasks.metrics import expected_best
from bert_tf.training.training_options import is_better


class CompareOptions(Options, title=RESULTS, decides="nothing"):
    """The predictions to compare, and the number of samples."""

    predict_file: str | None = option(
        None,
        "For runs of SQuAD: the file with the right answers. Default: the first run's"
        " --predict_file.",
        path=Path.FILE,
    )
    num_samples: int = option(
        10_000,
        "Samples of the bootstrap, and of the randomization.",
        least=100,
        decides="numbers",
    )
    random_seed: int = option(
        12345,
        "Seed of the bootstrap and of the randomization.",
        least=0,
        decides="numbers",
    )
    output_file: str | None = option(
        None,
        "For pre-training runs: a PNG of the evaluations of both runs over steps,"
        " tokens and hours.",
        path=Path.OUTPUT,
    )
    json: bool = option(False, "Print JSON.")


class Predicted(NamedTuple):
    """A run's answers to a split."""

    labels: list[str]  # true labels, which two runs must share
    answers: dict[str, Answers]  # by metric


def run(options: CompareOptions) -> None:
    """Prints the comparison."""
    if len(options.positional) != 2:
        raise InputError(
            "Give the folders of two runs: python -m bert_tf.compare RUN RUN"
        )
    found = [_predicted(folder, options) for folder in options.positional]
    if not any(found) and _compare_evaluations(options):
        return
    shared = [name for name in found[0] if name in found[1]]
    if not shared:
        files_of = " and ".join(
            f"{', '.join(one) or 'none'} in {folder}"
            for one, folder in zip(found, options.positional, strict=True)
        )
        raise InputError(
            f"The runs share no predictions of labelled examples: {files_of}. Evaluate"
            " both on the same development set (--do_eval)."
        )
    compared: dict[str, dict[str, Comparison]] = {}
    for name in shared:
        one, other = (each[name] for each in found)
        if one.labels != other.labels:
            raise InputError(
                f"{name} has other examples in {options.positional[0]} than in"
                f" {options.positional[1]}: {len(one.labels)} and"
                f" {len(other.labels)} labels, or different ones. Evaluate both on"
                " the same file."
            )
        compared[f"{name}, {len(one.labels)} examples"] = {
            metric: compare(
                answers,
                other.answers[metric],
                num_samples=options.num_samples,
                seed=options.random_seed,
            )
            for metric, answers in one.answers.items()
            if metric in other.answers
        }
    trials = {folder: _trials(folder) for folder in options.positional}
    if options.json:
        values = {
            name: {metric: one._asdict() for metric, one in rows.items()}
            for name, rows in compared.items()
        }
        print(json.dumps({"compared": values, "expected_best": trials}))
        return
    for name, rows in compared.items():
        print(f"{name}; A is {options.positional[0]}, B {options.positional[1]}\n")
        print(report(rows))
    for folder, expected in trials.items():
        if expected:
            numbers = range(1, len(expected) + 1)
            print(f"Expected best of n runs of {folder}, on the development set:\n")
            print(table(["n", *map(str, numbers)], [["best", *map(figure, expected)]]))


def _compare_evaluations(options: CompareOptions) -> bool:
    """Prints the scores of runs without predictions, such as pre-training, if any."""
    paths = [os.path.join(one, "eval_results.txt") for one in options.positional]
    if not all(map(files.exists, paths)):
        return False
    one, other = map(files.read_results, paths)
    values = {name: (one[name], other[name]) for name in one if name in other}
    data = [
        [flags_of_run(folder).get(name) for name in ("eval_input_file", "input_file")]
        for folder in options.positional
    ]
    names = [held_out or trained_on for held_out, trained_on in data]
    ahead = _leads(options) if names[0] == names[1] else {}
    if options.output_file is not None and not ahead:
        raise InputError(
            f"--output_file={options.output_file}: both runs must have been evaluated"
            " during training (--eval_steps), at least twice, on the same"
            " --eval_input_file."
        )
    if options.json:
        found = {"evaluations": values, "evaluated_on": names, "ahead": ahead}
        print(json.dumps(found))
        return True
    first, second = options.positional
    print(
        f"A is {first}, B {second}. Each was evaluated once, so the effect of"
        " chance is unknown.\n"
    )
    if names[0] != names[1]:
        print(f"They were evaluated on different records: {names[0]}, {names[1]}.\n")
    rows = [
        [name, figure(a), figure(b), f"{b - a:+.4f}"] for name, (a, b) in values.items()
    ]
    print(table(["metric", "A", "B", "B - A"], rows))
    if ahead:
        print("Which run is ahead, from where both were evaluated:\n")
        rows = [[axis, "; ".join(map(str, found))] for axis, found in ahead.items()]
        print(table(["over", "ahead"], rows))
    return True


# Two runs' evaluations during training.


class Lead(NamedTuple):
    """A stretch on which one of two runs is ahead."""

    run: str  # A or B
    start: float
    end: float

    def __str__(self) -> str:
        return f"{self.run} from {self.start:,.6g} to {self.end:,.6g}"


class Progress(NamedTuple):
    """A run's evaluations in order: the values of each axis, and the scores."""

    axes: dict[str, list[float]]
    scores: dict[str, list[float]]


def progress(folder: str) -> Progress | None:
    """Returns a run's evaluations during training; None if there are fewer than two."""
    from bert_tf.training import reporting

    entries = reporting.metrics_of(folder, after_training=False)
    found = [entry for entry in entries if f"{reporting.EVALUATION}loss" in entry]
    if len(found) < 2:
        return None
    at = [entry["step"] for entry in found]
    axes = {"steps": at, "hours": [entry["seconds"] / 3600 for entry in found]}
    steps, tokens = reporting.tokens_seen(entries)
    if len(steps) > 1:
        # The rate of the last interval holds beyond it, as in the first.
        rate = tokens[-1] / steps[-1]
        there = np.interp(at, [*steps, 2 * at[-1]], [*tokens, 2 * at[-1] * rate])
        axes["tokens"] = there.tolist()
    names = [
        name.removeprefix(reporting.EVALUATION)
        for name in found[0]
        if name.startswith(reporting.EVALUATION) and all(name in one for one in found)
    ]
    scores = {
        name: [one[f"{reporting.EVALUATION}{name}"] for one in found] for name in names
    }
    return Progress(axes, scores)


def leads(one: Progress, other: Progress, axis: str, metric: str) -> list[Lead]:
    """Returns the leads over the common range, with linear interpolation."""
    x = [np.array(run.axes[axis], float) for run in (one, other)]
    start, end = max(x[0][0], x[1][0]), min(x[0][-1], x[1][-1])
    points = np.unique(np.concatenate(x).clip(start, end))
    a, b = (
        np.interp(points, places, run.scores[metric])
        for places, run in zip(x, (one, other), strict=True)
    )
    lead = a - b if is_better(1.0, 0.0, metric) else b - a
    found: list[Lead] = []

    def add(who: str, begin: float, stop: float) -> None:
        if found and found[-1].run == who:
            begin = found.pop().start
        found.append(Lead(who, float(begin), float(stop)))

    for (p, q), (c, d) in zip(
        itertools.pairwise(points), itertools.pairwise(lead), strict=True
    ):
        crossing = p + (q - p) * c / (c - d) if c * d < 0 else q
        if c or d:
            add("A" if (c or d) > 0 else "B", p, crossing)
        if crossing < q:
            add("A" if d > 0 else "B", crossing, q)
    return found


def _leads(options: CompareOptions) -> dict[str, list[Lead]]:
    """Returns the leads by axis; draws them if a picture is asked for."""
    runs = [progress(folder) for folder in options.positional]
    one, other = runs
    if one is None or other is None:
        return {}
    shared = [name for name in one.scores if name in other.scores]
    metric = "masked_lm_loss" if "masked_lm_loss" in shared else "loss"
    axes = [name for name in ("steps", "tokens", "hours") if name in one.axes]
    axes = [name for name in axes if name in other.axes]
    if options.output_file is not None:
        content = progress_picture(
            dict(zip(options.positional, (one, other), strict=True)),
            axes,
            metric,
            behind=reference_curves.of_run(options.positional[0]),
        )
        files.write_atomically(options.output_file, content)
    return {axis: leads(one, other, axis, metric) for axis in axes}


def progress_picture(
    runs: dict[str, Progress],
    axes: Sequence[str],
    metric: str,
    behind: reference_curves.Reference | None = None,
) -> bytes:
    """Draws a panel for each axis, with a curve for each run."""
    end = (
        max(run.axes["tokens"][-1] for run in runs.values()) if "tokens" in axes else 0
    )

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(axes), squeeze=False, sharey=True)[0]
        for panel, axis in zip(panels, axes, strict=True):
            for name, run in runs.items():
                panel.plot(run.axes[axis], run.scores[metric], "o-", label=name)
            if behind is not None and axis == "tokens" and metric == "masked_lm_loss":
                curve, label = behind.until(end, metric), f"reference {behind.size}"
                if len(curve[0]) > 1:
                    panel.plot(*curve, "--", color="0.6", label=label)
            panel.set_xlabel(axis)
            panel.grid(alpha=0.3)
        panels[0].set_ylabel(f"{metric}, held-out")
        for panel in panels:
            for text in panel.legend(fontsize="small").get_texts():
                text.set_parse_math(False)

    return picture(draw, (4.5 * len(axes), 3.8))


def report(rows: dict[str, Comparison]) -> str:
    """Returns the comparison as a Markdown table."""
    return table(
        ["metric", "A", "B", "B - A", "95 % interval", "p"],
        [
            [
                metric,
                *map(figure, one.scores),
                f"{one.difference:+.4f}",
                f"{one.interval[0]:+.4f} to {one.interval[1]:+.4f}",
                f"{one.p_value:.4f}",
            ]
            for metric, one in rows.items()
        ],
    )


def _trials(folder: str) -> list[float]:
    """Returns the expected best of 1, 2, ... of a selection's finished runs."""
    if not files.exists(run_log.path_in(folder)):
        return []
    header, runs = run_log.read(folder)
    metric = header.metric
    scores = [one.score(metric) for one in runs if one.status == run_log.FINISHED]
    sign = 1.0 if is_better(1.0, 0.0, metric) else -1.0
    return [sign * score for score in expected_best([sign * one for one in scores])]


# Predictions, by the names of their files.


def _predicted(folder: str, options: CompareOptions) -> dict[str, Predicted]:
    if not files.is_folder(folder):
        raise InputError(f"No such folder: {folder}. {files.instead(folder)}")
    found: dict[str, Predicted] = {}
    for name in sorted(files.names_in(folder)):
        path, read = os.path.join(folder, name), None
        try:
            if name.endswith(("_predictions.tsv", "_predictions.csv")):
                read = _of_table(path, folder)
            elif name.endswith("_predictions.txt"):
                read = _of_words(path) if _has_labels(name, folder) else None
            elif name == "predictions.json":
                read = _of_questions(path, folder, options.predict_file)
        except InputError:
            raise
        except (KeyError, ValueError) as error:
            raise InputError(
                f"{path}: not as a fine-tuning command writes it: {error}. Evaluate"
                " the run again."
            ) from error
        if read is not None and read.labels:
            found[name] = read
    return found


def _of_table(path: str, folder: str) -> Predicted:
    """Reads classes, numbers or choices, as `write_predictions` writes them."""
    from bert_tf.conversion.reading import read_reading
    from bert_tf.conversion.tokenizer_files import read_labels
    from bert_tf.tasks.tables import Target

    names, found = read_rows(path)
    # With several labels, none of them is a label too: `correct` shows if it is known.
    cells_of = (row.cells for row in found if row.cells)
    rows = [row for row in cells_of if row.get("correct") or row["label"]]
    if not rows:
        return Predicted([], {})
    labels = tuple(name.removeprefix("p_") for name in names if name.startswith("p_"))
    cells = [[row[name] for row in rows] for name in ("label", "prediction")]
    kind = REGRESSION
    if labels:
        kind = read_labels(folder)[1] or (
            SINGLE_LABEL if {*cells[0], *cells[1]} <= {*labels} else MULTI_LABEL
        )
    separator = read_reading(folder).label_separator or ","
    target = Target(kind=kind, labels=labels, separator=separator)
    try:
        true, said = (
            np.array([target.encode(cell, path) for cell in column]) for column in cells
        )
    except InputError as error:
        if kind != REGRESSION:
            raise
        raise InputError(
            f"{path}: it has several numbers per text; compare reads one number per"
            " text."
        ) from error
    if kind != MULTI_LABEL:
        true, said = true[:, 0], said[:, 0]
    answers = {name: answers_of(name, said, true) for name in target.metrics}
    return Predicted(cells[0], answers)


def _has_labels(name: str, folder: str) -> bool:
    """Whether words had labels, which the file of a test set does not show."""
    results = os.path.join(folder, "eval_results.txt")
    return not name.startswith("test") or (
        files.exists(results)
        and any(each.startswith("test_") for each in files.read_results(results))
    )


def _of_words(path: str) -> Predicted:
    """Reads words in the official scorer's columns: F1 of entities, by sentence."""
    from bert_tf.tasks.tagging.labels import NO_SCHEME, entities, find_scheme

    sentences: list[list[list[str]]] = []
    lines = (line.removesuffix("\n") for line in files.lines(files.read_text(path)))
    for is_sentence, group in itertools.groupby(lines, key=bool):
        if is_sentence:
            columns = [line.rsplit(" ", 2)[-2:] for line in group]
            sentences.append([list(column) for column in zip(*columns, strict=True)])
    golds = [gold for gold, _ in sentences]
    right = [[sum(map(operator.eq, gold, said)), len(gold)] for gold, said in sentences]
    answers: dict[str, Answers] = {
        "accuracy": Summed(np.array(right, float), lambda sums: sums[:, 0] / sums[:, 1])
    }
    if find_scheme(golds) != NO_SCHEME:
        counts = []
        for pair in sentences:
            there, said = ({*entities(labels)} for labels in pair)
            counts.append([len(there & said), len(said), len(there)])
        answers["f1"] = counted(np.array(counts))
    return Predicted([*itertools.chain.from_iterable(golds)], answers)


def _of_questions(path: str, folder: str, predict_file: str | None) -> Predicted:
    """Reads SQuAD's predictions: official exact match and F1 per question."""
    from bert_tf.tasks.squad.evaluate_squad import read_by_question, read_golds
    from bert_tf.tasks.squad.scoring import evaluate_v1, scores_v2

    gold_path = predict_file or flags_of_run(folder).get("predict_file")
    if not gold_path:
        raise InputError(
            f"{path}: give the right answers: --predict_file=dev-v1.1.json"
        )
    data = read_golds(gold_path)
    predictions = read_by_question(path, "predictions file", str)
    if data.version == "2.0":
        of_each = scores_v2(data.golds, predictions, None)
        exact, f1 = (np.array([*scores.values()]) for scores in of_each)
    else:
        found = [evaluate_v1({key: data.golds[key]}, predictions) for key in data.golds]
        exact, f1 = (
            np.array([one[name] for one in found]) / 100.0
            for name in ("exact_match", "f1")
        )
    answers: dict[str, Answers] = {
        "exact_match": mean_of(exact, is_right=True),
        "f1": mean_of(f1),
    }
    return Predicted([*data.golds], answers)
