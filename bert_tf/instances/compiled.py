"""How inner loops are compiled.

They are Python functions on numpy arrays. numba compiles them at their first call and
keeps the machine code beside the source (or in the user's cache folder, where that
cannot be written), so that only the first run on a machine waits for it. Where neither
can be written, each run waits.
"""

import contextlib
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numba
from absl import logging

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function, compiled."""
    try:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        # How numba says that there is no folder for the machine code.
        return numba.njit(**_OPTIONS)(function)
    if hasattr(dispatcher, "stats"):  # unless NUMBA_DISABLE_JIT says not to compile
        forget_older_code(dispatcher.stats.cache_path)
    return dispatcher


def say_if_not_compiled_yet(function: Any) -> None:
    """Logs that a function's first call will compile it, unless its code is kept."""
    if not hasattr(function, "stats"):
        return
    folder = function.stats.cache_path
    if folder is None:
        logging.warning(
            "Compiling inner loops, up to two minutes, as in every run: neither"
            " the package's folder nor the user's cache folder can be written, to keep"
            " the machine code. NUMBA_CACHE_DIR may name another folder."
        )
    elif not any(pathlib.Path(folder).glob(f"*.{function.__name__}-*.nbi")):
        logging.info(
            "Compiling inner loops, once after an installation: up to two minutes."
        )


@functools.cache
def forget_older_code(cache_folder: str) -> None:
    """Removes machine code that is older than a source of this folder.

    numba compares a function with its own source file alone, but the machine code holds
    the functions and constants of other files that it uses: after an update it would go
    on with theirs as they were.
    """
    sources = pathlib.Path(__file__).parent.glob("*.py")
    newest = max(source.stat().st_mtime_ns for source in sources)
    for index in pathlib.Path(cache_folder).glob("*.nbi"):
        # Another process may be doing the same.
        with contextlib.suppress(OSError):
            if index.stat().st_mtime_ns < newest:
                index.unlink()
