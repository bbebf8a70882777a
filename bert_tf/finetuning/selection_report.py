"""A selection in words: OUTPUT_DIR/selection.md, and the log."""

import os

from absl import logging

from bert_tf import files
from bert_tf.finetuning.markdown import figure, table
from bert_tf.finetuning.records import FAILED, STOPPED, Record
from bert_tf.finetuning.scoring import MAJORITY
from bert_tf.finetuning.selection import Selection
from bert_tf.finetuning.statistics import Group, grouped, has_failed
from bert_tf.finetuning.trials import clock

REPORT_NAME = "selection.md"


def write_report(selection: Selection, folder: str) -> None:
    """Writes the report, and logs what it says of each of the settings."""
    files.write_atomically(os.path.join(folder, REPORT_NAME), report(selection))
    for line in _groups(selection).splitlines():
        logging.info("%s", line)
    logging.info("%s", _headline(selection))


def report(selection: Selection) -> str:
    """The report, as Markdown: the best run, the settings, all runs."""
    return (
        f"# {_headline(selection)}\n\n"
        f"By the {selection.metric} on the development set, which the runs were chosen"
        f" by: on other data expect less than the best run's. {_failed(selection)}\n\n"
        f"{_groups(selection)}\n"
        "Standard deviations are those of samples (n - 1). Runs that were stopped early"
        " are in no figure; their checkpoints wait to be gone on with.\n\n"
        f"{_runs(selection)}"
    )


def _headline(selection: Selection) -> str:
    best = selection.best
    return (
        f"Best of {len(selection.records)} runs: {best.settings.name},"
        f" {selection.metric} {best.score(selection.metric):.4f}"
    )


def _failed(selection: Selection) -> str:
    if selection.baseline is None:
        return "A failed run is one whose numbers were not finite."
    return (
        "A failed run is one that is no better than always answering the same"
        f" ({selection.baseline:.4f}; Mosbach et al. 2021), or whose numbers were not"
        " finite."
    )


def _groups(selection: Selection) -> str:
    header = [
        *("learning rate", "batch", "epochs", "runs"),
        *("mean", "standard deviation", "maximum", "minimum", "failed"),
        "stopped early",
    ]
    groups = grouped(selection.records, selection.metric, selection.baseline)
    return table(header, [_group(group) for group in groups])


def _group(group: Group) -> list[str]:
    return [
        f"{group.settings.learning_rate:g}",
        str(group.settings.train_batch_size),
        f"{group.settings.num_train_epochs:g}",
        str(group.num_runs),
        figure(group.mean),
        figure(group.standard_deviation),
        figure(group.maximum),
        figure(group.minimum),
        str(group.num_failed),
        str(group.num_stopped),
    ]


def _runs(selection: Selection) -> str:
    others = {
        name: None
        for record in selection.records
        for scores in record.scores.values()
        for name in scores
        if name not in (selection.metric, MAJORITY)
    }
    header = ["run", "status", selection.metric, *others, "at step", "duration"]
    return table(header, [_run(one, selection, [*others]) for one in selection.records])


def _run(record: Record, selection: Selection, others: list[str]) -> list[str]:
    status = record.status
    if status == STOPPED:
        status = f"stopped at {record.share:g}"
    elif status != FAILED and has_failed(record, selection.metric, selection.baseline):
        status += ", failed"
    scores = record.scores[record.share] if record.scores else {}
    return [
        record.settings.name,
        status,
        *(figure(scores.get(n, float("nan"))) for n in (selection.metric, *others)),
        str(record.step),
        clock(record.seconds),
    ]
