"""Runs the installed commands in this process, so that TensorFlow is imported once.

A command is known by its name alone: `run_ner` is what `bert-tf-run-ner` starts.
Nothing here names a module of the package.
"""

import contextlib
import importlib.metadata
import io
import shlex
import sys
from unittest import mock

from absl import flags

_PREFIX = "bert-tf-"
_ABSLS = ("help", "helpfull", "helpshort", "helpxml", "only_check_flags")


def names():
    """The commands' names, sorted."""
    return sorted(_entry_points())


def run(line):
    """Runs a command line; what it printed to stdout."""
    command, *arguments = shlex.split(line)
    return _run(command, arguments)[0]


def defaults(command):
    """A command's flags, aliases included, and their defaults, as JSON has them."""
    found = _run(command, ["--help"])[1]
    return {name: flag.default for name, flag in sorted(found.items())}


def choices(command):
    """The values that a command's flags allow, of those that list them."""
    found = _run(command, ["--help"])[1]
    values = {
        name: getattr(flag.parser, "enum_values", None) for name, flag in found.items()
    }
    return {name: list(words) for name, words in sorted(values.items()) if words}


def _entry_points():
    distribution = importlib.metadata.distribution("bert-tf")
    return {
        entry.name.removeprefix(_PREFIX).replace("-", "_"): entry
        for entry in distribution.entry_points
        if entry.name.startswith(_PREFIX)
    }


def outcome(command, *arguments):
    """(exit code, stdout, stderr, the command's own flags) of a command line."""
    main = _entry_points()[command].load()
    before = set(flags.FLAGS)
    was_parsed = flags.FLAGS.is_parsed()
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    own = {}
    try:
        with (
            mock.patch.object(sys, "argv", [command, *arguments]),
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            main()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        # The commands define their flags on absl's one set of them.
        own = {name: flags.FLAGS[name] for name in set(flags.FLAGS) - before}
        for name in own:
            delattr(flags.FLAGS, name)
        if not was_parsed:
            flags.FLAGS.unparse_flags()
    own = {name: flag for name, flag in own.items() if not _is_absls(flag)}
    return code, stdout.getvalue(), stderr.getvalue(), own


def _run(command, arguments):
    """(what was printed to stdout, the command's own flags)."""
    code, stdout, stderr, own = outcome(command, *arguments)
    if code:
        raise RuntimeError(f"{command} {' '.join(arguments)}: {code}\n{stderr}")
    return stdout, own


def _is_absls(flag):
    """Whether every command has the flag; evaluate_squad's --version is another."""
    return flag.name in _ABSLS or (flag.name == "version" and flag.boolean)
