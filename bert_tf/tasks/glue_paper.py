"""GLUE's test scores that Devlin et al. 2018 report, in per cent.

Table 1 of https://arxiv.org/abs/1810.04805: one metric a task (F1 for QQP and MRPC,
Spearman correlation for STS-B, Matthews correlation for CoLA, accuracy for the others),
without WNLI. The single models that were best on the development sets, as the GLUE
server scored them. The table's "Average", 79.6 and 82.1, is the mean of its columns,
MNLI's two sets each one; GLUE's own is another: `bert_tf.metrics.glue.glue_average`.
"""

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
