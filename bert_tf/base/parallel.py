"""Work on several cores: pieces of work to worker processes, results in order.

The result never depends on the number of workers: each piece is a function of itself,
and results come back in the order of the pieces.

Workers are spawned, not forked: a fork of a process with threads (TensorFlow's, a
progress bar's) may hang. So their arguments must be picklable, and a user's script
that uses workers must keep its work under `if __name__ == "__main__"`.
"""

import concurrent.futures
import math
import multiprocessing
import os
import pathlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# Pieces handed out in advance: enough that no worker waits, few enough that results do
# not pile up behind a slow one.
_AHEAD = 2
# Where Linux gives a container's limits.
_CONTROL_GROUP = pathlib.Path("/sys/fs/cgroup")


def grouped(
    items: Iterable[Piece], most: int, weight: Callable[[Piece], int] = lambda item: 1
) -> Iterator[list[Piece]]:
    """Yields the items in groups, each complete when it reaches this weight."""
    group: list[Piece] = []
    total = 0
    for item in items:
        group.append(item)
        total += weight(item)
        if total >= most:
            yield group
            group, total = [], 0
    if group:
        yield group


def available_cores() -> int:
    """Returns the number of cores to use, by affinity and a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota())))


def _quota() -> float:
    """Returns how many cores the process's control group may use (version 2 or 1)."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            text = " ".join((_CONTROL_GROUP / name).read_text() for name in names)
            quota, period = text.split()
            if quota not in ("max", "-1"):
                return int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):  # none, or another system's
            continue
    return math.inf


class Workers:
    """Worker processes, as a context manager; one worker is this process.

    Args:
        num_workers: the number of processes.
        shared: the first arguments of every call. A worker gets them once and keeps
            them, with their caches, from one piece to the next.
    """

    def __init__(
        self,
        num_workers: int,
        shared: tuple[Any, ...] = (),
    ) -> None:
        self._num_workers = num_workers
        self._shared = shared
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self._num_workers > 1:
            self._executor = ProcessPoolExecutor(
                self._num_workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(self._shared,),
            )
        return self

    def map(
        self, function: Callable[..., Result], pieces: Iterable[object]
    ) -> Iterator[Result]:
        """Yields `function(*shared, piece)` for each piece, in order."""
        if self._executor is None:
            yield from (function(*self._shared, piece) for piece in pieces)
            return
        try:
            waiting: deque[concurrent.futures.Future[Result]] = deque()
            for piece in pieces:
                waiting.append(self._executor.submit(_work, function, piece))
                if len(waiting) >= self._num_workers + _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise ChildProcessError(
                "A worker process was killed, perhaps because memory ran out; try a"
                " smaller `num_workers`."
            ) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._executor is None:
            return
        if kind is not None:
            # Not public before Python 3.14; running tasks may last minutes.
            processes = getattr(self._executor, "_processes", None) or {}
            for process in list(processes.values()):
                process.terminate()
        self._executor.shutdown(cancel_futures=True)


def ordered_map(
    function: Callable[..., Result],
    pieces: Iterable[object],
    *,
    num_workers: int,
    shared: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """Yields `function(*shared, piece)` for each piece, in order, by new `Workers`."""
    with Workers(num_workers, shared) as workers:
        yield from workers.map(function, pieces)


# Shared objects in a worker: a call gets nothing from the executor's initializer.
_kept: tuple[Any, ...] = ()


def _start_worker(shared: tuple[Any, ...]) -> None:
    global _kept
    _kept = shared
    # Only the parent responds to Ctrl-C: it stops the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(
        target=_end_with, args=(parent.sentinel,), name="parent-watch", daemon=True
    ).start()


def _work(function: Callable[..., Result], piece: object) -> Result:
    return function(*_kept, piece)


def _end_with(sentinel: int) -> None:
    """Ends this process as soon as its parent has ended, for whatever reason."""
    connection.wait([sentinel])
    os._exit(1)
