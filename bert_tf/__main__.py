"""Lists the commands of this package, one line each.

    bert-tf

Each command shows its flags with --help.
"""

import ast
import importlib.metadata
import importlib.util
import pathlib
from collections.abc import Iterator

from bert_tf import cli
from bert_tf.errors import InputError
from bert_tf.options import Options

_DISTRIBUTION = "bert-tf"


def commands() -> Iterator[tuple[str, str]]:
    """The name of each installed command, and what it does."""
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("bert_tf is not installed: pip install .") from error
    for command in distribution.entry_points:
        spec = importlib.util.find_spec(command.module)
        if command.module != "bert_tf.__main__" and spec and spec.origin:
            # The docstring alone: an import would take a second for all of them.
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


main = cli.command(run)

if __name__ == "__main__":
    main()
