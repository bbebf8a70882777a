"""What benchmarks of several runs share: kept results, and cells of their tables."""

import json
import os
import pathlib
import statistics
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / "benchmarks" / "peers"


class Result:
    """A file of what a run gave, and of the settings that it had."""

    def __init__(self, path: pathlib.Path, settings: dict[str, Any]) -> None:
        self.path, self._settings = path, settings

    def read(self) -> dict[str, Any] | None:
        """What is kept; None where it is not, or is of other settings."""
        if not self.path.exists():
            return None
        kept = json.loads(self.path.read_text())
        return kept if kept.pop("settings") == self._settings else None

    def write(self, values: dict[str, Any]) -> None:
        """Keeps it, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"settings": self._settings, **values}))
        temporary.replace(self.path)


def environment() -> dict[str, str]:
    """Of all workers: quiet, and nothing is asked of a server."""
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}


def spread(values: list[float], digits: int = 2) -> str:
    """Mean ± standard deviation."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def compared(ours: list[float], theirs: list[float]) -> str:
    """The difference of the means, and the larger of the ranges of the two sides."""
    if not ours or not theirs:
        return "- | -"
    difference = statistics.mean(ours) - statistics.mean(theirs)
    largest = max(max(values) - min(values) for values in (ours, theirs))
    return f"{difference:+.2f} | {largest:.2f}"


def machine() -> str:
    """Cores, processor and memory."""
    names = [
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {names[0]}, {memory:.0f} GB"
