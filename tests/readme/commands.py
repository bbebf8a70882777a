"""The command lines of a Markdown file's blocks "sh", and what each one starts.

Of the shell's language, variables before a command, pipes and "&&" are known.
"""

import contextlib
import importlib
import io
import re
import runpy
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple
from unittest import mock

from absl import flags

from bert_tf.base import cli, options
from bert_tf.tasks import glue
from tests.readme.markdown import blocks

_OPERATORS = {"|", "&&", ";", "&"}


class Command(NamedTuple):
    """A command line."""

    line: int
    text: str

    def parts(self) -> list[list[str]]:
        """The words of each command between pipes and "&&", variables left out."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        found: list[list[str]] = [[]]
        for word in lexer:
            if word in _OPERATORS:
                found.append([])
            elif found[-1] or not re.match(r"[A-Z]\w*=", word):
                found[-1].append(word)
        return [words for words in found if words]


def commands(markdown: str) -> list[Command]:
    """All commands of the blocks "sh", in their order."""
    found = []
    for block in blocks(markdown):
        if block.language != "sh":
            continue
        start, text = 0, ""
        for number, line in enumerate(block.text.splitlines(), start=block.line):
            start = start if text else number
            text += line
            if text.endswith("\\"):
                text = text[:-1]
                continue
            if _is_open(text):
                text += " "
                continue
            if text.strip() and not text.lstrip().startswith("#"):
                found.append(Command(start, re.sub(r" +", " ", text.strip())))
            text = ""
        assert not text, f"line {start}: a backslash or a quote, and nothing follows"
    return found


def _is_open(text: str) -> bool:
    """Whether a quote is not closed yet."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


class Script(NamedTuple):
    """What a script's `main` hands to `cli.main`."""

    run: Callable[[options.Options], None]
    takes_arguments: bool

    def flags(self) -> flags.FlagValues:
        """Its flags, with their defaults."""
        values = flags.FlagValues()
        options.define(values, cli.options_of(self.run))
        return values

    def parse(self, arguments: Sequence[str]) -> None:
        """Raises absl.flags.Error as the command line would."""
        values = cli.parse(self.run, arguments)
        if values.positional and not self.takes_arguments:
            raise flags.Error(f"unexpected argument {values.positional[0]!r}")


def script_of_module(module: str) -> Script:
    """What `python -m MODULE` is."""
    name = f"{module}.__main__" if module == "bert_tf" else module
    return _handed_over(importlib.import_module(name).main)


def script_of_file(path: str) -> Script:
    """What `python FILE.py` is, of a file that calls a script of ours."""
    with mock.patch.dict(glue.TASKS):
        return _handed_over(lambda: runpy.run_path(path, run_name="__main__"))


def _handed_over(main: Callable[[], object]) -> Script:
    with mock.patch.object(cli, "main") as called:
        main()
    run, *arguments = called.call_args.args
    return Script(run, bool(arguments or called.call_args.kwargs))


def error_of(script: Script, arguments: Sequence[str]) -> str | None:
    """What the script says of its arguments; None where it takes them."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            script.parse(arguments)
    except flags.Error as error:
        return str(error)
    return None
