"""Compilation of inner loops, and its results on disk."""

import contextlib
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numba
from absl import logging

# Inner loops are Python functions on numpy arrays. numba compiles them at their first
# call and keeps the machine code next to the source (or in the user's cache folder, if
# the source's is not writable), so that only the first run on a machine waits for it.
# If neither is writable, each run waits.

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, compiled: a decorator."""
    try:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        # numba's error if there is no folder for the machine code.
        return numba.njit(**_OPTIONS)(function)
    if hasattr(dispatcher, "stats"):  # absent if NUMBA_DISABLE_JIT forbids compiling
        forget_older_code(dispatcher.stats.cache_path)
    return dispatcher


def log_compilation_of(function: Any) -> None:
    """Logs that a function's first call will compile it, unless its code is cached."""
    if not hasattr(function, "stats"):
        return
    folder = function.stats.cache_path
    if folder is None or not any(
        pathlib.Path(folder).glob(f"*.{function.__name__}-*.nbi")
    ):
        logging.info(
            "Compiling inner loops takes up to two minutes. The result is kept for the"
            " next runs if the package's folder, the user's or NUMBA_CACHE_DIR can be"
            " written."
        )


@functools.cache
def forget_older_code(cache_folder: str) -> None:
    """Removes machine code that is older than a source file of this folder.

    numba compares a function only with its own source file, but the machine code
    includes functions and constants from other files: after an update it would still
    use the old ones.
    """
    sources = pathlib.Path(__file__).parent.glob("*.py")
    newest = max(source.stat().st_mtime_ns for source in sources)
    for index in pathlib.Path(cache_folder).glob("*.nbi"):
        # Another process may be doing the same.
        with contextlib.suppress(OSError):
            if index.stat().st_mtime_ns < newest:
                index.unlink()
