"""Commands that benchmarks run as a user would, and how much memory they held."""

import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import psutil

from parts.results import REPOSITORY, environment

_BETWEEN_LOOKS = 0.3  # seconds
_SHOWN_OF_ERRORS = 4000


def command(module: str, **settings: Any) -> list[str]:
    """A command of this package."""
    given = {name: value for name, value in settings.items() if value is not None}
    return [
        *(sys.executable, "-m", f"bert_tf.{module}"),
        *(f"--{name}={value}" for name, value in given.items()),
    ]


def finished(command: list[str]) -> None:
    """Runs a command to its end; its own words where it fails."""
    measured(command)


def seconds() -> float:
    """The processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident_bytes(process: psutil.Process) -> int:
    """What a process holds."""
    return process.memory_info().rss


def measured(
    command: list[str],
    held: Callable[[psutil.Process], int] = resident_bytes,
    **variables: str,
) -> tuple[int, float]:
    """The most bytes that a command held at once, and the seconds that it took.

    The memory is that of the process and its children, looked at every 0.3 seconds:
    more often would take the second core's time.

    Args:
        command: what is run.
        held: the bytes of one process.
        **variables: of its environment.
    """
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = psutil.Popen(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment() | variables,
        )
        peak = 0
        while process.poll() is None:
            try:
                family = [process, *process.children(recursive=True)]
                peak = max(peak, sum(map(held, family)))
                process.wait(timeout=_BETWEEN_LOOKS)
            except psutil.TimeoutExpired:
                pass
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                pass  # one of them has just ended
        seconds = time.perf_counter() - began
        if process.returncode:
            errors.seek(0)
            shown = errors.read()[-_SHOWN_OF_ERRORS:].decode()
            raise SystemExit(f"{' '.join(command)}\n{shown}")
    return peak, seconds


class Worker:
    """A process that works when it is told to, and waits otherwise."""

    def __init__(self, command: list[str | pathlib.Path], **variables: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment() | variables,
        )

    def answer(self, told: str | None = None) -> str:
        """The next line that it prints, after it was told one."""
        assert self._process.stdin and self._process.stdout
        if told is not None:
            self._process.stdin.write(f"{told}\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        if not line:
            self._errors.seek(0)
            raise SystemExit(self._errors.read()[-_SHOWN_OF_ERRORS:].decode())
        return line

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()
