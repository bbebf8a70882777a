"""GLUE's test scores that Devlin et al. 2018 report, in per cent.

Table 1 of https://arxiv.org/abs/1810.04805: one metric a task (F1 for QQP and MRPC,
Spearman correlation for STS-B, Matthews correlation for CoLA, accuracy for the others),
without WNLI. The single models that were best on the development sets, as the GLUE
server scored them.
"""

from collections.abc import Mapping

from bert_tf.metrics.glue import MISMATCHED

# Task -> metric -> score.
BERT_BASE: dict[str, dict[str, float]] = {
    "CoLA": {"matthews_correlation": 52.1},
    "SST-2": {"accuracy": 93.5},
    "MRPC": {"f1": 88.9},
    "STS-B": {"spearman": 85.8},
    "QQP": {"f1": 71.2},
    "MNLI": {"accuracy": 84.6, f"accuracy{MISMATCHED}": 83.4},
    "QNLI": {"accuracy": 90.5},
    "RTE": {"accuracy": 66.4},
}
BERT_LARGE: dict[str, dict[str, float]] = {
    "CoLA": {"matthews_correlation": 60.5},
    "SST-2": {"accuracy": 94.9},
    "MRPC": {"f1": 89.3},
    "STS-B": {"spearman": 86.5},
    "QQP": {"f1": 72.1},
    "MNLI": {"accuracy": 86.7, f"accuracy{MISMATCHED}": 85.9},
    "QNLI": {"accuracy": 92.7},
    "RTE": {"accuracy": 70.1},
}
PAPER = {"BERT-Base": BERT_BASE, "BERT-Large": BERT_LARGE}

# The columns of the table: (task, metric).
COLUMNS = tuple(
    (task, metric) for task, metrics in BERT_BASE.items() for metric in metrics
)


def paper_average(scores_by_task: Mapping[str, Mapping[str, float]]) -> float | None:
    """The paper's "Average": the mean of its nine columns, MNLI's two sets each one.

    GLUE's own average is another one: see `bert_tf.metrics.glue.glue_average`.

    Args:
        scores_by_task: task -> metric -> score, those of other metrics among them.

    Returns:
        The average; None where a column is missing.
    """
    found = [scores_by_task.get(task, {}).get(metric) for task, metric in COLUMNS]
    there = [score for score in found if score is not None]
    return sum(there) / len(there) if len(there) == len(COLUMNS) else None
