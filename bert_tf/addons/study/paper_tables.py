"""The tables of Devlin et al. 2018 as data: rows, columns, and the paper's numbers.

A row is a pre-trained model and options of its fine-tuning; rows share equal runs. Rows
without a model are other authors' results, as the paper gives them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base import pictures
from bert_tf.base.config import BertConfig
from bert_tf.base.pictures import figure, table
from bert_tf.tasks.glue import COLUMNS, PAPER
from bert_tf.tasks.metrics import (
    LEVEL,
    MISMATCHED,
    mean,
    paired_test,
    standard_deviation,
)
from bert_tf.tasks.tagging.tagging_options import FEATURE_CHOICES

# The pre-trained models, by the options in which they differ.
PRETRAININGS: Mapping[str, Mapping[str, Any]] = {
    "bert": {},
    "no_nsp": {"next_sentence": False},
    "ltr": {"direction": "left_to_right", "next_sentence": False},
    "rtl": {"direction": "right_to_left", "next_sentence": False},
    **{
        f"masks_{mask}_{same}_{random}": {
            "mask_rate": mask / 100,
            "random_rate": random / 100,
        }
        for mask, same, random in (
            *((100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100)),
        )
    },
    # Sizes, as multiples of the base model's: layers, heads, width of a head.
    **{
        f"size_{name}": {"size": factors}
        for name, factors in {
            "3_768_12": (1 / 4, 1, 1),
            "6_768_3": (1 / 2, 1 / 4, 4),
            "6_768_12": (1 / 2, 1, 1),
            "12_1024_16": (1, 4 / 3, 1),
            "24_1024_16": (2, 4 / 3, 1),
        }.items()
    },
}
# The checkpoint that --init_checkpoint names.
GIVEN = "given"


def sized(config: BertConfig, factors: tuple[float, float, float]) -> BertConfig:
    """Returns a config in the proportions of a row of table 6 to BERT-Base."""
    layers, heads, width = factors
    num_heads = max(1, round(config.num_attention_heads * heads))
    head_size = config.hidden_size // config.num_attention_heads
    if width != 1:  # the same hidden size with fewer heads
        head_size = config.hidden_size // num_heads
    hidden_size = num_heads * head_size
    return dataclasses.replace(
        config,
        num_hidden_layers=max(1, round(config.num_hidden_layers * layers)),
        num_attention_heads=num_heads,
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
    )


@dataclasses.dataclass(frozen=True)
class Column:
    """A task, and its score in a table."""

    name: str
    task: str  # GLUE's, or SQUAD_1, SQUAD_2, SWAG, NER, or LM for pre-training's own
    metric: str
    split: str = "dev"
    # Options of the task, for this column.
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pretraining: str | None = None  # if not the row's
    unit: float = 100.0  # the factor of our scores


@dataclasses.dataclass(frozen=True)
class Row:
    """A model, and the paper's numbers by column; None where there are none."""

    name: str
    pretraining: str | None = None
    paper: Sequence[float | None] = ()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    second: str | None = None  # a second pre-trained model, concatenated
    share: float = 1.0  # of the pre-training's steps before the fine-tuning


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows and columns; the others are compared with the first row that has a model."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    # Options of all its tasks, where not given.
    protocol: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""

    @property
    def pretrainings(self) -> set[str]:
        """The pre-trained models of its rows."""
        named = {one for row in self.rows for one in (row.pretraining, row.second)}
        named |= {column.pretraining for column in self.columns}
        return {name for name in named if name}

    def paper(self, row: Row, column: Column) -> float | None:
        """Returns the paper's number, if there is one."""
        place = self.columns.index(column)
        return row.paper[place] if place < len(row.paper) else None


LM, SQUAD_1, SQUAD_2, SWAG, NER = "LM", "SQuAD 1.1", "SQuAD 2.0", "SWAG", "NER"
MNLI, MRPC, SST_2 = (
    Column(name, task, "accuracy")
    for name, task in (("MNLI-m", "MNLI"), ("MRPC", "MRPC"), ("SST-2", "SST-2"))
)
QNLI = Column("QNLI", "QNLI", "accuracy")
SQUAD_F1 = Column("SQuAD F1", SQUAD_1, "f1", unit=1.0)
NER_DEV = Column("NER dev F1", NER, "f1")
_CONCATENATED = {"features": "concat_last_four"}


def _glue_column(task: str, metric: str) -> Column:
    if task == MNLI.task:
        is_second = metric.endswith(MISMATCHED)
        second = dataclasses.replace(MNLI, name="MNLI-mm", split=f"dev{MISMATCHED}")
        return second if is_second else MNLI
    name = {"matthews_correlation": f"{task} MCC", "f1": f"{task} F1"}
    return Column(name.get(metric, task), task, metric)


def _glue_row(name: str, of: Mapping[str, Mapping[str, float]]) -> Row:
    return Row(name, None, [of[task][metric] for task, metric in COLUMNS])


_SQUAD_COLUMNS = [
    Column("EM", SQUAD_1, "exact_match", unit=1.0),
    Column("F1", SQUAD_1, "f1", unit=1.0),
]
TABLES: Mapping[str, Table] = {
    "1": Table(
        "Table 1: GLUE",
        [_glue_column(task, metric) for task, metric in COLUMNS],
        [
            *(
                Row(f"{name}, test set", None, scores)
                for name, *scores in (
                    ("Pre-OpenAI SOTA", 35, 93.2, 86, 81, 66.1, 80.6, 80.1, 82.3, 61.7),
                    ("ELMo", 36, 90.4, 84.9, 73.3, 64.8, 76.4, 76.1, 79.8, 56.8),
                    ("OpenAI GPT", 45.4, 91.3, 82.3, 80, 70.3, 82.1, 81.4, 87.4, 56),
                )
            ),
            *(_glue_row(f"{name}, test set", of) for name, of in PAPER.items()),
            Row("this checkpoint", GIVEN),
        ],
        note="The paper's numbers are the server's, on the test sets; ours are of the"
        " development sets.",
    ),
    "2": Table(
        "Table 2: SQuAD 1.1, development set",
        _SQUAD_COLUMNS,
        [
            Row("BiDAF+ELMo (single)", None, [None, 85.6]),
            Row("R.M. Reader (ensemble)", None, [81.2, 87.9]),
            Row("BERT-Base (single)", None, [80.8, 88.5]),
            Row("BERT-Large (single)", None, [84.1, 90.9]),
            Row("BERT-Large (ensemble)", None, [85.8, 91.8]),
            Row("BERT-Large (single, TriviaQA)", None, [84.2, 91.1]),
            Row("BERT-Large (ensemble, TriviaQA)", None, [86.2, 92.2]),
            Row("this checkpoint", GIVEN),
        ],
        protocol={"learning_rates": (5e-5,), "num_train_epochs": (3.0,)},
    ),
    "3": Table(
        "Table 3: SQuAD 2.0, development set",
        [
            Column("EM", SQUAD_2, "exact", unit=1.0),
            Column("F1", SQUAD_2, "f1", unit=1.0),
        ],
        [
            Row("human", None, [86.3, 89.0]),
            Row("BERT-Large (single)", None, [78.7, 81.9]),
            Row("this checkpoint", GIVEN),
        ],
        protocol={
            "learning_rates": (5e-5,),
            "num_train_epochs": (2.0,),
            "train_batch_sizes": (48,),
        },
    ),
    "4": Table(
        "Table 4: SWAG, development set",
        [Column("accuracy", SWAG, "accuracy")],
        [
            Row("ESIM+GloVe", None, [51.9]),
            Row("ESIM+ELMo", None, [59.1]),
            Row("BERT-Base", None, [81.6]),
            Row("BERT-Large", None, [86.6]),
            Row("this checkpoint", GIVEN),
        ],
        protocol={
            "learning_rates": (2e-5,),
            "num_train_epochs": (3.0,),
            "train_batch_sizes": (16,),
        },
        note="On the test set: OpenAI GPT 78.0, BERT-Large 86.3, an expert 85.0, five"
        " annotators 88.0.",
    ),
    "5": Table(
        "Table 5: the pre-training tasks",
        [MNLI, QNLI, MRPC, SST_2, SQUAD_F1],
        [
            Row("BERT", "bert", [84.4, 88.4, 86.7, 92.7, 88.5]),
            Row("No NSP", "no_nsp", [83.9, 84.9, 86.5, 92.6, 87.9]),
            Row("LTR & No NSP", "ltr", [82.1, 84.3, 77.5, 92.1, 77.8]),
            Row("+ BiLSTM", "ltr", [82.1, 84.1, 75.7, 91.6, 84.9], {"bilstm": True}),
            Row("LTR and RTL, concatenated", "ltr", second="rtl"),
        ],
    ),
    "6": Table(
        "Table 6: the size",
        [Column("LM perplexity", LM, "perplexity", unit=1.0), MNLI, MRPC, SST_2],
        [
            Row("12/768/12", "bert", [3.99, 84.4, 86.7, 92.9]),
            Row("3/768/12", "size_3_768_12", [5.84, 77.9, 79.8, 88.4]),
            Row("6/768/3", "size_6_768_3", [5.24, 80.6, 82.2, 90.7]),
            Row("6/768/12", "size_6_768_12", [4.68, 81.9, 84.8, 91.3]),
            Row("12/1024/16", "size_12_1024_16", [3.54, 85.7, 86.9, 93.3]),
            Row("24/1024/16", "size_24_1024_16", [3.23, 86.6, 87.8, 93.7]),
        ],
        note="Layers/hidden size/heads; for another base model in the same proportion"
        " to it.",
    ),
    "7": Table(
        "Table 7: words, fine-tuned and from features",
        [NER_DEV, dataclasses.replace(NER_DEV, name="NER test F1", split="test")],
        [
            Row("ELMo", None, [95.7, 92.2]),
            Row("CVT", None, [None, 92.6]),
            Row("CSE", None, [None, 93.1]),
            Row("fine-tuning, BERT-Large", None, [96.6, 92.8]),
            Row("fine tuned", "bert", [96.4, 92.4]),
            *(
                Row(way.replace("_", " "), "bert", [choice.dev_f1], {"features": way})
                for way, choice in FEATURE_CHOICES.items()
            ),
        ],
    ),
    "8": Table(
        "Table 8: what replaces a token that is predicted (MASK/SAME/RND)",
        [MNLI, NER_DEV, Column("NER from features", NER, "f1", options=_CONCATENATED)],
        [
            Row("80/10/10", "bert", [84.2, 95.4, 94.9]),
            Row("100/0/0", "masks_100_0_0", [84.3, 94.9, 94.0]),
            Row("80/0/20", "masks_80_0_20", [84.1, 95.2, 94.6]),
            Row("80/20/0", "masks_80_20_0", [84.4, 95.2, 94.7]),
            Row("0/20/80", "masks_0_20_80", [83.7, 94.8, 94.6]),
            Row("0/0/100", "masks_0_0_100", [83.6, 94.9, 94.6]),
        ],
    ),
    "figure5": Table(
        "Figure 5: the number of training steps",
        [
            dataclasses.replace(MNLI, name=name, pretraining=of)
            for name, of in (("masked LM", "bert"), ("left-to-right", "ltr"))
        ],
        [
            Row(f"{share:.0%} of the steps", "bert", share=share)
            for share in (0.2, 0.4, 0.6, 0.8, 1.0)
        ],
        note="In the paper the masked LM passes the other model almost at once.",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """The scores of one row in one column."""

    by_seed: dict[str, float]  # seed -> score, in the table's unit
    metric: str  # the column's, or accuracy for words without entities
    settings: str = ""  # chosen on the development set

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return mean([*self.by_seed.values()])

    @property
    def deviation(self) -> float:
        """The sample standard deviation over the seeds; NaN below two."""
        return standard_deviation([*self.by_seed.values()])


# Row -> column -> its cell, where it was made.
Cells = Mapping[str, Mapping[str, Cell]]


def markdown(of: Table, columns: Sequence[Column], cells: Cells) -> str:
    """Returns the table, with ours next to the paper's, and the conclusions."""
    header = ["row"]
    for column in columns:
        found = [row[column.name] for row in cells.values() if column.name in row]
        others = {cell.metric for cell in found} - {column.metric}
        header += [f"{column.name}, paper", f"ours ± sd{', '.join(['', *others])}"]
    rows = []
    for row in of.rows:
        line = [row.name]
        for column in columns:
            paper = of.paper(row, column)
            line.append("–" if paper is None else f"{paper:g}")
            cell = cells.get(row.name, {}).get(column.name)
            numbers = (cell.mean, cell.deviation) if cell else ()
            line.append(" ± ".join(figure(x, digits=2) for x in numbers) or "–")
        rows.append(line)
    note = f"{of.note}\n\n" * bool(of.note)
    said = "".join(f"- {line}\n" for line in conclusions(of, columns, cells))
    return f"## {of.title}\n\n{table(header, rows)}\n{note}{said}"


def conclusions(of: Table, columns: Sequence[Column], cells: Cells) -> list[str]:
    """Yields each row's difference from the first one, and whether seeds explain it."""
    made = [(number, row) for number, row in enumerate(of.rows) if row.name in cells]
    if len(made) < 2:
        return []
    (_, first), *others = made
    lines = []
    for column in columns:
        reference = cells[first.name].get(column.name)
        for _, row in others:
            cell = cells[row.name].get(column.name)
            if reference is None or cell is None:
                continue
            p_value, low, high = paired_test(reference.by_seed, cell.by_seed)
            difference = cell.mean - reference.mean
            line = f"{column.name}: {row.name} {difference:+.2f} against {first.name}"
            before, after = (of.paper(one, column) for one in (first, row))
            if before is not None and after is not None:
                line += f" (the paper: {after - before:+.1f})"
            if math.isnan(p_value):
                line += "; of one seed, so nothing is known of chance."
            else:
                explained = "within what" if p_value >= 1.0 - LEVEL else "more than"
                interval = ""
                if not math.isnan(low):
                    interval = f", {LEVEL:.0%} interval {low:+.2f} to {high:+.2f}"
                line += f": {explained} seeds explain (p = {p_value:.3f}{interval})."
            lines.append(line)
    return lines


def picture(of: Table, columns: Sequence[Column], cells: Cells) -> bytes:
    """Draws means and deviations by row, a line for each column, as a PNG."""
    names = [row.name for row in of.rows if row.name in cells]

    def draw(drawn: Any) -> None:
        axes = drawn.add_subplot()
        for column in columns:
            there = [name for name in names if column.name in cells[name]]
            found = [cells[name][column.name] for name in there]
            if not found:
                continue
            axes.errorbar(
                [names.index(name) for name in there],
                [cell.mean for cell in found],
                yerr=[0.0 if math.isnan(c.deviation) else c.deviation for c in found],
                marker="o",
                capsize=3,
                label=column.name,
            )
        axes.set_xticks(range(len(names)), names, fontsize=8, rotation=15)
        axes.set_title(of.title, fontsize=10)
        axes.legend(fontsize=8)

    return pictures.picture(draw, (2 + 1.4 * len(names), 4.5))
