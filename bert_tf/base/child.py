"""A command as a process of its own, which ends before this one does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # as in subprocess: negative for a signal
    output: str  # "" if it was shown
    seconds: float
    peak_bytes: int  # of its memory; as Linux counts, at least this process's own


def run_child(arguments: Sequence[str], *, shown: bool) -> Ended:
    """Runs a command to its end, and shows or keeps what it prints.

    A signal to stop goes on to the command, which saves what it has; once that has
    ended, this process exits as if stopped by the signal.
    """
    received: list[int] = []

    def tell(number: int, _: object) -> None:
        received.append(number)
        if process is not None and process.returncode is None:
            os.kill(process.pid, number)

    process: subprocess.Popen[str] | None = None
    # `nohup` has this process ignore one, and its children too.
    heard = [n for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, tell) for number in heard}
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
        )
        for number in received:  # before it was there
            os.kill(process.pid, number)
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise SystemExit(128 + received[0])
    seconds = time.monotonic() - began
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return Ended(process.returncode, output, seconds, usage.ru_maxrss * unit)
