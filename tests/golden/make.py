"""Writes the golden outputs anew, or some of them.

    python -m tests.golden.make [NAME ...]
    python -m tests.golden.make --runs

A change of golden outputs is a change of what the package does: say why in the commit.
The second line also makes the runs that runs/ lacks: those that are there stay, as runs
of earlier code.
"""

import json
import os
import pathlib
import sys
import tempfile
import time

from tests.golden import cases, inputs

FOLDER = os.path.dirname(__file__)


def path_of(name):
    """Where a case's golden outputs are."""
    return os.path.join(FOLDER, f"{name}.json")


def folder():
    """A context of a new folder."""
    return tempfile.TemporaryDirectory(prefix="golden")


def outcome(name, inputs_folder, folder):
    """Runs a case; what it returns, as JSON has it."""
    os.makedirs(folder)
    return json.loads(json.dumps(cases.CASES[name](inputs_folder, folder)))


def write(name, value):
    """Writes a case's golden outputs, a line for each part that is not deep."""
    pathlib.Path(path_of(name)).write_text(_spelled(value) + "\n", "utf-8")


def _spelled(value, indent=""):
    """JSON with short lists in one line."""
    plain = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if (
        len(plain) + len(indent) <= 100
        or not isinstance(value, (dict, list))
        or not value
    ):
        return plain
    if isinstance(value, list) and all(
        isinstance(part, (int, float)) for part in value
    ):
        return plain
    inner = indent + " "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_spelled(value[key], inner)}"
            for key in sorted(value)
        ]
    else:
        parts = [_spelled(part, inner) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


def main(arguments):
    """The command line."""
    names = [name for name in arguments if name != "--runs"] or list(cases.CASES)
    with folder() as parent:
        made = f"{parent}/inputs"
        inputs.write(made)
        if "--runs" in arguments:
            cases.make_runs(made)
        for name in names:
            began = time.monotonic()
            write(name, outcome(name, made, f"{parent}/{name}"))
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
