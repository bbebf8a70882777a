"""Commands that benchmarks run as a user would, and how much memory they held."""

import subprocess
import tempfile
import time

import psutil
from pretraining_step import REPOSITORY

from parts.results import environment

_BETWEEN_LOOKS = 0.3  # seconds
_SHOWN_OF_ERRORS = 4000


def finished(command: list[str]) -> None:
    """Runs a command to its end; its own words where it fails."""
    measured(command)


def measured(command: list[str]) -> tuple[int, float]:
    """The most bytes that a command held at once, and the seconds that it took.

    The memory is that of the process and its children, looked at every 0.3 seconds.
    """
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = psutil.Popen(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment(),
        )
        peak = 0
        while process.poll() is None:
            try:
                family = [process, *process.children(recursive=True)]
                peak = max(peak, sum(one.memory_info().rss for one in family))
                process.wait(timeout=_BETWEEN_LOOKS)
            except psutil.TimeoutExpired:
                pass
            except psutil.NoSuchProcess:
                pass  # one of them has just ended
        seconds = time.perf_counter() - began
        if process.returncode:
            errors.seek(0)
            shown = errors.read()[-_SHOWN_OF_ERRORS:].decode()
            raise SystemExit(f"{' '.join(command)}\n{shown}")
    return peak, seconds
