"""The file of a selection, OUTPUT_DIR/selection.jsonl: a record of each run.

Its first line describes all runs. Then comes one JSON object per run:

    {"made_with": {"init_checkpoint": ..., ...}, "metric": "accuracy"}
    {"name": "lr5e-05_bs16_ep3_seed12345", "learning_rate": 5e-05,
     "train_batch_size": 16, "num_train_epochs": 3.0, "random_seed": 12345,
     "status": "finished", "scores": {"0.3": {"accuracy": 0.7}, "1.0": {...}},
     "step": 687, "seconds": 41.2}

`scores` are measured on the development set; each key is the share of the run's steps
before it, and `step` is the step of the last ones. `status` is `finished`, `stopped`
(before the last step, to be resumed later) or `failed` (its numbers were not finite:
`failure` gives the step). `seconds` count the starts that led to a score.
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.base import files, strict_json
from bert_tf.base.errors import InputError
from bert_tf.tasks.run_options import RunSetting
from bert_tf.training.training_options import is_better

NAME = "selection.jsonl"
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
Scores = Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run of a selection."""

    settings: RunSetting
    # Share of the run's steps -> scores by name after them.
    scores: Mapping[float, Scores] = dataclasses.field(default_factory=dict)
    step: int = 0  # step of the last scores
    seconds: float = 0.0
    failure: str = ""  # reason for a run without scores

    @property
    def status(self) -> str:
        """`finished`, `stopped` or `failed`."""
        if self.failure:
            return FAILED
        return FINISHED if 1.0 in self.scores else STOPPED

    @property
    def share(self) -> float:
        """The share of the run's steps that are done."""
        return max(self.scores, default=0.0)

    def score(self, metric: str, share: float = 1.0) -> float:
        """Returns the score after a share of the steps, or at the next one; or NaN."""
        later = [at for at in self.scores if at >= share]
        return self.scores[min(later)][metric] if later else math.nan

    def has_failed(self, metric: str, baseline: float | None) -> bool:
        """Whether the run diverged, or does not beat the baseline (Mosbach et al.)."""
        if self.status != FINISHED:
            return self.status == FAILED
        score = self.score(metric)
        is_worse = baseline is not None and not is_better(score, baseline, metric)
        return math.isnan(score) or is_worse

    def to_json(self) -> dict[str, Any]:
        """Returns the run's object in the file."""
        return {
            "name": self.settings.name,
            **self.settings._asdict(),
            "status": self.status,
            "scores": {str(share): dict(s) for share, s in self.scores.items()},
            "step": self.step,
            "seconds": round(self.seconds, 3),
            **({"failure": self.failure} if self.failure else {}),
        }

    @classmethod
    def from_json(cls, values: Any, metric: str, source: str) -> "RunRecord":
        """Returns the record of an object in the file."""
        line = strict_json.from_values(_Line, values, source)
        try:
            scores = {float(share): named for share, named in line.scores.items()}
        except ValueError as error:
            raise InputError(f"{source}: `scores`: {error}") from error
        for named in scores.values():
            if not math.isfinite(named.get(metric, math.nan)):
                raise InputError(f"{source}: `scores` must have a finite {metric}.")
        settings = RunSetting(*(getattr(line, name) for name in RunSetting._fields))
        return cls(
            settings=settings,
            scores=scores,
            step=line.step,
            seconds=line.seconds,
            failure=line.failure,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a selection's file, common to all runs."""

    made_with: dict  # values that decide a run's result besides its settings
    metric: str  # chooses the best run


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Line:
    name: str
    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    random_seed: int
    status: str
    scores: dict[str, dict[str, float]]
    step: int
    seconds: float
    failure: str = ""


def path_in(folder: str) -> str:
    """Returns the path of a selection's file."""
    return os.path.join(folder, NAME)


def read(folder: str) -> tuple[Header, list[RunRecord]]:
    """Reads the file; an InputError gives the line number and advice."""
    path = path_in(folder)
    header: Header | None = None
    records: list[RunRecord] = []
    advice = "Give another `output_dir`."
    try:
        for number, line in enumerate(files.read_text(path).splitlines() or [""], 1):
            source = f"{path}:{number}"
            values = files.parse_json(line, path, number)
            if header is None:
                header = strict_json.from_values(Header, values, source)
                advice = "Remove the line, and that run is made again."
            else:
                records.append(RunRecord.from_json(values, header.metric, source))
    except InputError as error:
        raise InputError(f"{error} {advice}") from error
    assert header is not None  # an empty file counts as one empty line
    return header, records


def write(folder: str, header: Header, records: Iterable[RunRecord]) -> None:
    """Replaces the file atomically."""
    lines = [dataclasses.asdict(header), *(one.to_json() for one in records)]
    files.make_folder(folder)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    files.write_atomically(path_in(folder), text)
