"""Lists the commands of this package, one line each, or runs one.

    bert-tf
    bert-tf run-classifier --help

Each command shows its flags with --help.
"""

import ast
import difflib
import importlib.metadata
import importlib.util
import pathlib
import sys
from collections.abc import Iterator

from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options

_DISTRIBUTION = "bert-tf"


def _installed() -> importlib.metadata.EntryPoints:
    try:
        return importlib.metadata.distribution(_DISTRIBUTION).entry_points
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("bert_tf is not installed: pip install '.[train]'") from error


def commands() -> Iterator[tuple[str, str]]:
    """Yields the name of each installed command, and a summary."""
    for command in _installed():
        spec = importlib.util.find_spec(command.module)
        if command.module != "bert_tf.__main__" and spec and spec.origin:
            # Read without importing: imports would take a second in all.
            tree = ast.parse(pathlib.Path(spec.origin).read_text("utf-8"))
            summary = (ast.get_docstring(tree) or "").partition("\n\n")[0]
            yield command.name, " ".join(summary.split())


def run(options: Options) -> None:
    """Prints the list."""
    del options
    listed = list(commands())
    width = max(len(name) for name, _ in listed)
    for name, summary in listed:
        print(f"{name:{width}}  {summary}")


def main() -> None:
    """Runs the command named by the first argument, or lists all commands."""
    name = next(iter(sys.argv[1:]), "")
    if not name or name.startswith("-"):
        cli.main(run)
    try:
        found = {one.name: one for one in _installed()}
    except InputError as error:
        sys.exit(f"bert-tf: {error}")
    wanted = f"{_DISTRIBUTION}-{name.replace('_', '-')}"
    if wanted not in found:
        near = difflib.get_close_matches(wanted, found, 1)
        hint = f" Did you mean {near[0].removeprefix('bert-tf-')}?" if near else ""
        print(
            f"bert-tf: no command {name!r}.{hint} bert-tf lists them.", file=sys.stderr
        )
        sys.exit(cli.EXIT_USAGE_ERROR)
    del sys.argv[0]
    found[wanted].load()()


if __name__ == "__main__":
    main()
