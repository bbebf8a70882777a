"""The table of GLUE: OUTPUT_DIR/glue.md, glue.json and glue.png.

Ours are scores on the development sets, of the runs that were chosen on them; the
paper's (Devlin et al. 2018, table 1) are the server's, on the test sets. The table says
so: on the test sets expect less than on the development sets.
"""

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence

from bert_tf import files
from bert_tf.finetuning.glue_picture import Paper, picture, short_name
from bert_tf.finetuning.glue_results import TaskResult
from bert_tf.finetuning.markdown import figure, table
from bert_tf.finetuning.trials import clock
from bert_tf.metrics.glue import glue_average
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.glue_paper import COLUMNS, PAPER

# They are in no average: Devlin et al. 2018 leave WNLI out, and AX has no labels.
NOT_AVERAGED = ("WNLI", "AX")


def write_report(
    results: Sequence[TaskResult], folder: str, paper: Paper = PAPER
) -> None:
    """Writes the table in its three forms."""
    files.write_atomically(os.path.join(folder, "glue.md"), report(results, paper))
    average, tasks = average_of(results)
    values = {
        "tasks": {result.task: result.to_json() for result in results},
        "average": None if math.isnan(average) else average,
        "average_over": tasks,
    }
    files.write_atomically(
        os.path.join(folder, "glue.json"), json.dumps(values, indent=1) + "\n"
    )
    files.write_atomically(os.path.join(folder, "glue.png"), picture(results, paper))


def average_of(results: Sequence[TaskResult]) -> tuple[float, list[str]]:
    """GLUE's average over the tasks that count, and which these are.

    NaN where none counts.
    """
    scores = {one.task: one.scores for one in results if one.task not in NOT_AVERAGED}
    return (glue_average(scores) if scores else math.nan), [*scores]


def report(results: Sequence[TaskResult], paper: Paper = PAPER) -> str:
    """The table as Markdown; scores in per cent."""
    header = [
        *("task", "metric", "best, dev", "mean ± sd of restarts", "runs", "failed"),
        *("best settings", "duration"),
        *(f"{model}, test" for model in paper),
    ]
    rows = [_row(result, paper) for result in results]
    rows += _averages(results, paper, len(header))
    _, tasks = average_of(results)
    return (
        "# GLUE\n\n"
        "Ours: the development sets, in per cent, of the runs that were chosen on them."
        f" Devlin et al. 2018 ({', '.join(paper)}): the test sets, as GLUE's server"
        " scored them. The two are not the same measure: on its test set a run scores"
        " less than on the development set that it was chosen by.\n\n"
        f"{table(header, rows)}\n"
        "Restarts: runs with the best run's settings and other seeds; their deviation"
        " is that of a sample (n - 1). Failed runs are no better than always answering"
        " the same, or diverged."
        f"{_of_average(tasks)}\n"
    )


def _averages(
    results: Sequence[TaskResult], paper: Paper, num_columns: int
) -> list[list[str]]:
    """GLUE's average, and the paper's, which alone can stand beside the paper's own."""
    average, tasks = average_of(results)
    if not tasks:
        return []
    scores = {result.task: result.scores for result in results}
    columns = [one for one in COLUMNS if one[1] in scores.get(one[0], {})]

    def mean(of: Mapping[str, Mapping[str, float]]) -> float:
        return statistics.fmean(of[task][metric] for task, metric in columns)

    empty = [""] * (num_columns - 3 - len(paper))
    rows = [
        [
            f"GLUE's average of {len(tasks)} tasks",
            "",
            figure(average, 100, 1),
            *empty,
            *([""] * len(paper)),
        ]
    ]
    if columns:
        label = f"the paper's average of {len(columns)} of its {len(COLUMNS)} columns"
        papers = [figure(mean(models), 1, 1) for models in paper.values()]
        rows.append([label, "", figure(mean(scores), 100, 1), *empty, *papers])
    return rows


def _of_average(tasks: Sequence[str]) -> str:
    if not tasks:
        return ""
    missing = [one for one in GLUE_TASKS if one not in (*tasks, *NOT_AVERAGED)]
    return (
        f" GLUE's average is the mean over {', '.join(tasks)} of the mean of each"
        " task's metrics, without WNLI"
        + (f"; missing: {', '.join(missing)}." if missing else ".")
        + " The paper's average is that of its table's columns, one metric each, and"
        " MNLI has two."
    )


def _row(result: TaskResult, paper: Paper) -> list[str]:
    spread = ""
    if len(result.restarts) > 1:
        spread = f" ± {figure(result.standard_deviation, 100, 1)}"
    rate, batch, epochs, _ = result.run.split("_")
    return [
        result.task,
        " / ".join(map(short_name, result.scores)),
        " / ".join(figure(score, 100, 1) for score in result.scores.values())
        + (" (failed)" if result.has_failed else ""),
        f"{figure(result.mean, 100, 1)}{spread} ({len(result.restarts)})",
        str(result.num_runs),
        str(result.num_failed),
        f"rate {rate.removeprefix('lr')}, batch {batch.removeprefix('bs')},"
        f" epochs {epochs.removeprefix('ep')}",
        clock(result.seconds),
        *(
            " / ".join(
                figure(scores.get(name, math.nan), 1, 1) for name in result.scores
            )
            for scores in (models.get(result.task, {}) for models in paper.values())
        ),
    ]
