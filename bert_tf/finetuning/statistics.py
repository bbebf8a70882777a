"""How the runs of a selection came out, those that differ in their seed together."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from bert_tf.finetuning.records import FAILED, FINISHED, STOPPED, Record
from bert_tf.finetuning.settings import Settings
from bert_tf.training.checkpoints import is_better


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of the same settings, whatever their seed.

    Attributes:
        settings: those of its first run.
        scores: of its finished runs that have one.
        num_stopped: runs that were stopped early; they are in no figure.
        num_failed: runs that diverged, or finished without a better score than who
            always answers the same: failed runs, as Mosbach et al. 2021 define them.
            The latter are in the figures.
    """

    settings: Settings
    scores: tuple[float, ...]
    num_stopped: int
    num_failed: int

    @property
    def num_runs(self) -> int:
        """Runs that ended."""
        return len(self.scores)

    @property
    def mean(self) -> float:
        """The mean score; NaN where no run has one."""
        return statistics.fmean(self.scores) if self.scores else math.nan

    @property
    def standard_deviation(self) -> float:
        """That of the sample, over n - 1; NaN for fewer than two runs."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else math.nan

    @property
    def maximum(self) -> float:
        """The largest score; NaN where no run has one."""
        return max(self.scores, default=math.nan)

    @property
    def minimum(self) -> float:
        """The smallest score; NaN where no run has one."""
        return min(self.scores, default=math.nan)


def grouped(
    records: Sequence[Record], metric: str, baseline: float | None = None
) -> list[Group]:
    """The runs by settings, in the order in which settings first appear."""
    members: dict[tuple[float, int, float], list[Record]] = {}
    for record in records:
        members.setdefault(record.settings[:3], []).append(record)
    return [_group(those, metric, baseline) for those in members.values()]


def has_failed(record: Record, metric: str, baseline: float | None) -> bool:
    """Whether a run diverged, or finished no better than who always says the same."""
    if record.status == FAILED:
        return True
    if record.status == STOPPED:
        return False
    score = record.score(metric)
    if math.isnan(score):
        return True
    return baseline is not None and not is_better(score, baseline, metric)


def _group(records: Sequence[Record], metric: str, baseline: float | None) -> Group:
    finished = [record.score(metric) for record in records if record.status == FINISHED]
    return Group(
        settings=records[0].settings,
        scores=tuple(score for score in finished if not math.isnan(score)),
        num_stopped=sum(record.status == STOPPED for record in records),
        num_failed=sum(has_failed(record, metric, baseline) for record in records),
    )
