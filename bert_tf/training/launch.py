"""Starts processes: a command that ends with this process, and --local_workers.

The processes of --local_workers=N train together: each has a TF_CONFIG that names all
of them, and its share of the GPUs. The first one prints as the command would; the
others' output is only shown if they fail. If one ends with an error, the others have
SECONDS_TO_END to end with a message of their own; then they are told to stop, and
finally killed.
"""

import contextlib
import ctypes
import glob
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

from bert_tf.base.errors import InputError

SECONDS_TO_END = 30.0
_OF_WORKERS = "BERT_TF_LOCAL_WORKER"
_LINES = 5  # shown of a worker that fails
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None)


class Ended(NamedTuple):
    """The end of a command."""

    code: int  # as in subprocess: negative for a signal
    output: str  # "" if it was shown
    seconds: float
    peak_bytes: int  # of memory; on Linux, at least this process's own


def end_with_parent() -> None:
    """Makes a new process get SIGTERM when its parent ends, even by SIGKILL (Linux)."""
    if sys.platform == "linux":
        _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGTERM)


def run_child(arguments: Sequence[str], *, shown: bool) -> Ended:
    """Runs a command to its end, and shows or returns its output.

    A signal to stop is passed on to the command, which saves its work. When the command
    has ended, this process exits as if stopped by the signal.
    """
    received: list[int] = []

    def hear(number: int, _: object) -> None:
        received.append(number)
        tell(number)

    def tell(number: int) -> None:
        """Passes a signal on; a closed terminal counts as SIGTERM."""
        if process is not None and process.returncode is None:
            told = signal.SIGTERM if number == signal.SIGHUP else number
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, told)

    process: subprocess.Popen[str] | None = None
    before = {}
    for heard in _SIGNALS:
        # `nohup` makes this process and its children ignore a signal.
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
            # Only this process passes signals on: the terminal's would come twice.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        for number in received:  # received before the process existed
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
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss, in bytes
    return Ended(process.returncode, output, seconds, usage.ru_maxrss * unit)


def is_one() -> bool:
    """Whether this process was started by `run`."""
    return _OF_WORKERS in os.environ


def run(count: int) -> int:
    """Starts `count` processes of this command; returns the exit code."""
    if os.environ.get("TF_CONFIG"):
        raise InputError(
            f"`local_workers={count}` and TF_CONFIG contradict each other: give one."
        )
    told: list[int] = []  # signals that this process has passed on

    def tell(received: int, _: object) -> None:
        told.append(received)
        _tell(workers, received)

    with contextlib.ExitStack() as stack:
        logs = [
            stack.enter_context(tempfile.TemporaryFile()) if number else None
            for number in range(count)
        ]
        addresses = _free_addresses(count)
        workers = [_start(number, addresses, log) for number, log in enumerate(logs)]
        stack.callback(_end, workers)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, tell)
        failed = _first_failure(workers)
        if failed is None:
            return 0
        # A shell's exit code for a process ended by a signal.
        code = workers[failed].returncode
        code = code if code > 0 else 128 - code
        if not told:
            print(
                f"worker {failed} of {count} has ended with exit code {code}."
                f"{_last_lines(logs[failed])}",
                file=sys.stderr,
            )
        return code


def _first_failure(workers: list[subprocess.Popen]) -> int | None:
    """Returns the first worker to fail, once the others have had time to end too."""
    failed, end = None, math.inf
    while True:
        ended = [one.poll() is not None for one in workers]
        if failed is None and any(one.returncode for one in workers):
            failed = [bool(one.returncode) for one in workers].index(True)
            end = time.monotonic() + SECONDS_TO_END
        if all(ended) or time.monotonic() > end:
            return failed
        time.sleep(0.1)


def _start(
    number: int, addresses: list[str], log: IO[bytes] | None
) -> subprocess.Popen:
    task = {"type": "worker", "index": number}
    environment = {
        **os.environ,
        _OF_WORKERS: str(number),
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task}),
    }
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = range(len(glob.glob("/dev/nvidia[0-9]*")))
    every = given.split(",") if given is not None else list(map(str, gpus))
    if every:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(every[number :: len(addresses)])
    return subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env=environment,
        stdout=log,
        stderr=log,
        # Only `run` passes signals on: the terminal's would come twice.
        start_new_session=True,
        preexec_fn=end_with_parent,
    )


def _free_addresses(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [f"localhost:{one.getsockname()[1]}" for one in sockets]


def _tell(workers: list[subprocess.Popen], number: int) -> None:
    for worker in workers:
        if worker.poll() is None:
            worker.send_signal(number)


def _end(workers: list[subprocess.Popen]) -> None:
    """Stops the workers that still run, and kills those that do not react."""
    _tell(workers, signal.SIGTERM)
    end = time.monotonic() + SECONDS_TO_END
    for worker in workers:
        try:
            worker.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _last_lines(log: IO[bytes] | None) -> str:
    if log is None:  # the lines have been printed
        return ""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()[-_LINES:]
    return "".join(f"\n  {line}" for line in lines)
