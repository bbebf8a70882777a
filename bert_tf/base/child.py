"""A command as a process of its own, which ends before this one does."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None)


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # as in subprocess: negative for a signal
    output: str  # "" if it was shown
    seconds: float
    peak_bytes: int  # of its memory; as Linux counts, at least this process's own


def end_with_parent() -> None:
    """Of a new process: SIGTERM where its parent ends, even by SIGKILL; Linux alone."""
    if sys.platform == "linux":
        _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGTERM)


def run_child(arguments: Sequence[str], *, shown: bool) -> Ended:
    """Runs a command to its end, and shows or keeps what it prints.

    A signal to stop goes on to the command, which saves what it has; once that has
    ended, this process exits as if stopped by the signal.
    """
    received: list[int] = []

    def hear(number: int, _: object) -> None:
        received.append(number)
        tell(number)

    def tell(number: int) -> None:
        """The command hears that a terminal is closed as it hears SIGTERM."""
        if process is not None and process.returncode is None:
            told = signal.SIGTERM if number == signal.SIGHUP else number
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, told)

    process: subprocess.Popen[str] | None = None
    before = {}
    for heard in _SIGNALS:
        # `nohup` has this process ignore one, and its children too.
        if signal.getsignal(heard) is not signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # not the main thread
                before[heard] = signal.signal(heard, hear)
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            arguments,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
            text=True,
            errors="replace",
            # Signals come from here alone: the terminal's would come twice.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        for number in received:  # before it was there
            tell(number)
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        name = signal.Signals(received[0]).name
        print(
            f"Stopped by {name}. Start the same command again to resume.",
            file=sys.stderr,
        )
        raise SystemExit(128 + received[0])
    seconds = time.monotonic() - began
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return Ended(process.returncode, output, seconds, usage.ru_maxrss * unit)
