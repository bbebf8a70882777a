"""What is known of each run of a selection, kept in OUTPUT_DIR/selection.jsonl.

The first line says what the runs have in common: what was trained on, what it started
from, and the metric that they are compared by. Then one JSON object a run:

    {"made_with": {"init_checkpoint": ..., ...}, "metric": "accuracy"}
    {"name": "lr5e-05_bs16_ep3_seed12345", "learning_rate": 5e-05,
     "train_batch_size": 16, "num_train_epochs": 3.0, "random_seed": 12345,
     "status": "finished", "scores": {"0.3": {"accuracy": 0.7}, "1.0": {...}},
     "step": 687, "seconds": 41.2}

`scores` are those on the development set, by the share of the run's steps after which
they were measured; `step` is the step of the last ones. `status` is `finished`,
`stopped` (before its last step, to be gone on with later) or `failed` (its numbers were
not finite: `failure` says where). `seconds` are those of the starts that came to a
score. The file is written before the first run, which others must not go on with, and
anew after each run; a run that is in it is not run again.
"""

import dataclasses
import glob
import json
import math
import os
from collections.abc import Mapping
from typing import Any

from bert_tf import files, strict_json
from bert_tf.errors import InputError
from bert_tf.finetuning.settings import Settings
from bert_tf.training.checkpoint_files import STATE_NAME

RECORDS_NAME = "selection.jsonl"
RUNS_NAME = "runs"

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One run.

    Attributes:
        settings: what it was run with.
        scores: share of its steps -> its scores by name after them.
        step: the step of the last of these scores.
        seconds: how long they took, with their evaluations.
        failure: why it ended without a score; empty if it did not.
    """

    settings: Settings
    scores: Mapping[float, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    step: int = 0
    seconds: float = 0.0
    failure: str = ""

    @property
    def status(self) -> str:
        """`finished`, `stopped` or `failed`."""
        if self.failure:
            return FAILED
        return FINISHED if 1.0 in self.scores else STOPPED

    @property
    def share(self) -> float:
        """The share of its steps that the run has done."""
        return max(self.scores, default=0.0)

    def score(self, metric: str, share: float = 1.0) -> float:
        """The score after a share of the steps; NaN where there is none.

        Where that share was not measured, the next larger one that was.
        """
        later = [at for at in self.scores if at >= share]
        return self.scores[min(later)][metric] if later else math.nan

    def to_json(self) -> dict[str, Any]:
        """The object as the file has it."""
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
    def from_json(cls, values: Any, metric: str, source: str) -> "Record":
        """The record that such an object describes."""
        line = strict_json.from_values(_Line, values, source)
        scores = {_share(share, source): named for share, named in line.scores.items()}
        for named in scores.values():
            if not math.isfinite(named.get(metric, math.nan)):
                raise InputError(f"{source}: `scores` must have a finite {metric}.")
        return cls(
            settings=Settings(
                line.learning_rate,
                line.train_batch_size,
                line.num_train_epochs,
                line.random_seed,
            ),
            scores=scores,
            step=line.step,
            seconds=line.seconds,
            failure=line.failure,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Header:
    """The first line."""

    made_with: dict
    metric: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Line:
    """The line of a run."""

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


def _share(text: str, source: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{source}: `scores` has {text!r} for a share.") from error


class Records:
    """The records of a folder, in the order in which its runs first came to one."""

    def __init__(
        self,
        folder: str,
        metric: str,
        made_with: Mapping[str, Any],
        *,
        is_chief: bool = True,
    ) -> None:
        self._path = os.path.join(folder, RECORDS_NAME)
        self._is_chief = is_chief
        # As it comes back from the file: tuples as lists.
        self._header = json.loads(
            json.dumps({"made_with": dict(made_with), "metric": metric})
        )
        self._records: dict[Settings, Record] = {}
        if files.exists(self._path):
            self._read()

    def __getitem__(self, settings: Settings) -> Record:
        """The run with these settings, or a new record of it."""
        return self._records.get(settings, Record(settings=settings))

    def all(self) -> list[Record]:
        """All runs, those of earlier starts with other settings too."""
        return list(self._records.values())

    def put(self, record: Record) -> None:
        """Adds a run, or replaces it in its place."""
        self._records[record.settings] = record
        self._write()

    def begin(self) -> None:
        """Writes down what the runs have in common, before the first of them begins."""
        if not self._records:
            self._write()

    def _write(self) -> None:
        if not self._is_chief:
            return
        lines = [self._header, *(one.to_json() for one in self._records.values())]
        files.make_folder(os.path.dirname(self._path))
        files.write_atomically(
            self._path, "".join(json.dumps(line) + "\n" for line in lines)
        )

    def _read(self) -> None:
        lines = files.read_text(self._path).splitlines() or [""]
        advice = "Give another --output_dir."
        try:
            for number, line in enumerate(lines, start=1):
                source = f"{self._path}:{number}"
                values = files.parse_json(line, self._path, number)
                if number == 1:
                    header = strict_json.from_values(_Header, values, source)
                    advice = "Remove the line, and that run is made again."
                    continue
                record = Record.from_json(values, header.metric, source)
                self._records[record.settings] = record
        except InputError as error:
            raise InputError(f"{error} {advice}") from error
        if self._records or self._have_begun():
            self._refuse_others(header.made_with, header.metric)

    def _have_begun(self) -> bool:
        """Whether a run that came to no record has something to go on from."""
        runs = os.path.join(os.path.dirname(self._path), RUNS_NAME)
        return bool(files.glob(os.path.join(glob.escape(runs), "*", STATE_NAME)))

    def _refuse_others(self, there: Mapping[str, Any], metric: str) -> None:
        here = self._header["made_with"]
        # A name that only one of them knows is a flag that the other version lacks.
        differing = [name for name in here if name in there]
        differing = [name for name in differing if here[name] != there[name]]
        pairs = [(name, there[name], here[name]) for name in differing]
        if metric != self._header["metric"]:
            pairs.append(("the metric", metric, self._header["metric"]))
        if pairs:
            name, old, new = pairs[0]
            raise InputError(
                f"{self._path} has other runs than these: {name} is {old} there, {new}"
                " here. Give another --output_dir."
            )
