"""From a command line to a function: parsing, `--help`, and errors in one line.

A script has two functions, `define_flags(flag_values)` and `run(flag_values)`, and a
`main` that hands them to `main` here. Nothing is defined at import, so that several
scripts live in one process (tests, the quickstart) and `--help` needs no TensorFlow.

Exit codes: 0 done; 1 wrong flags (absl's own code); 2 wrong input; 128 + N stopped by
signal N (143 for SIGTERM) with everything saved.
"""

import errno
import importlib
import importlib.util
import inspect
import io
import logging as python_logging
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import app, flags, logging

from bert_tf import help_page, keras_backend, other_names, path_flags
from bert_tf.errors import InputError, cause_of, without_nodes

DefineFlags = Callable[[flags.FlagValues], None]
Run = Callable[[flags.FlagValues], None]

EXIT_USAGE_ERROR = 1
EXIT_INPUT_ERROR = 2
_LONGEST_LINE = 2000


def main(
    define_flags: DefineFlags,
    run: Run,
    arguments: str | None = None,
    *,
    argument_kind: path_flags.Path = path_flags.Path.OUTPUT,
) -> None:
    """Parses `sys.argv`, runs the script and exits."""
    before = set(flags.FLAGS)
    define_flags(flags.FLAGS)
    names = [name for name in flags.FLAGS if name not in before]
    if "version" not in names:  # evaluate_squad's is that of SQuAD
        flags.DEFINE_flag(help_page.VersionFlag())
    module = inspect.getmodule(run)
    path = os.path.splitext(inspect.getfile(run))[0].removesuffix("/__main__")
    script = os.path.basename(path)
    # absl prints the main module's docstring above the flags.
    sys.modules["__main__"].__doc__ = (module and module.__doc__) or ""
    _set_up_logging()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Of text that the terminal's encoding cannot spell; stderr does so anyway.
        sys.stdout.reconfigure(errors="backslashreplace")

    def guarded(argv: Sequence[str]) -> None:
        positional = list(argv[1:])
        try:
            path_flags.check(flags.FLAGS)
            for path in positional:
                path_flags.check_path(path, "", argument_kind)
            run(with_positional(flags.FLAGS, positional))
            if sys.stdout:
                sys.stdout.flush()
        except BrokenPipeError:
            raise
        except _users_errors() as error:
            print(f"{script}: {one_line(error)}", file=sys.stderr)
            sys.exit(EXIT_INPUT_ERROR)
        except KeyboardInterrupt:
            print(
                f"{script}: interrupted. Start the same command again to go on.",
                file=sys.stderr,
            )
            sys.exit(128 + signal.SIGINT)

    def parsed(argv: Sequence[str]) -> list[str]:
        # Flags are flags behind a stray word, too.
        flags.FLAGS.set_gnu_getopt()
        # In the place of absl's, which app.run has defined.
        flags.DEFINE_flag(help_page.HelpFlag(names))
        try:
            left = flags.FLAGS(argv)
            for name in names:
                value = flags.FLAGS[name].value
                if isinstance(value, float) and math.isnan(value):
                    raise flags.Error(f"flag --{name}=nan: must be a number")
            if left[1:] and arguments is None:
                raise flags.Error(
                    f"Unexpected argument {left[1]!r}: flags are written --name=value"
                    " (a boolean too: --do_train=False), without spaces"
                )
            return left
        except flags.UnrecognizedFlagError as error:
            ours = other_names.meaning(error.flagname, flags.FLAGS)
            if not ours:
                _refuse_usage(error)
            _refuse_usage(f"Unknown command line flag {error.flagname!r}. Here: {ours}")
        except (flags.Error, ValueError) as error:
            _refuse_usage(error)

    try:
        app.run(guarded, flags_parser=parsed)
    except BrokenPipeError:
        # The reader, such as `head`, has all that it wants. Nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _refuse_usage(message: object) -> NoReturn:
    print(f"FATAL Flags parsing error: {message}", file=sys.stderr)
    print("Pass --help to see help on flags.", file=sys.stderr)
    sys.exit(EXIT_USAGE_ERROR)


class _OurLines(python_logging.Filter):
    """Keeps what bert_tf says, and warnings of anybody.

    Except that functions are traced anew: of several runs in a process each has
    functions of its own, each traced for a few shapes.
    """

    def filter(self, record: python_logging.LogRecord) -> bool:
        """Whether a line is shown."""
        if "triggered tf.function retracing" in record.getMessage():
            return False
        ours = os.path.dirname(os.path.abspath(__file__))
        return record.levelno >= python_logging.WARNING or record.pathname.startswith(
            ours
        )


class _PlainFormatter(python_logging.Formatter):
    """The message alone; its level before it where it is not just information."""

    def format(self, record: python_logging.LogRecord) -> str:
        """A line of the log."""
        message = super().format(record)
        if record.levelno == python_logging.INFO:
            return message
        return f"{record.levelname}: {message}"


def _set_up_logging() -> None:
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.addFilter(_OurLines())
    handler.setFormatter(_PlainFormatter())


def _users_errors() -> tuple[type[Exception], ...]:
    """What tells of files, disks, networks and memory, not of our code."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return InputError, OSError
    errors = tensorflow.errors
    return (
        InputError,
        OSError,
        errors.AbortedError,
        errors.DataLossError,
        errors.DeadlineExceededError,
        errors.FailedPreconditionError,
        errors.NotFoundError,
        errors.PermissionDeniedError,
        errors.ResourceExhaustedError,
        errors.UnauthenticatedError,
        errors.UnavailableError,
    )


def import_tensorflow() -> None:
    """Imports TensorFlow without what its C++ parts print at import.

    They report drivers and processor features to stderr, whatever the log level, before
    any log is set up. Who wants to see it sets TF_CPP_MIN_LOG_LEVEL to less than 3.
    """
    keras_backend.require_tensorflow()
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if level != "3" or "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            importlib.import_module("tensorflow")
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def require_packages(needed_for: str, *names: str, pip_options: str = "") -> None:
    """Asks for packages that few need, before any work, without importing them."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        install = " ".join(["pip install", *pip_options.split(), *missing])
        raise InputError(f"{needed_for} needs {' and '.join(missing)}: {install}")


def parse(define_flags: DefineFlags, arguments: Sequence[str]) -> flags.FlagValues:
    """Parses arguments without touching absl's global flags."""
    flag_values = flags.FlagValues()
    flag_values.set_gnu_getopt()
    define_flags(flag_values)
    positional = flag_values(["bert_tf", *arguments])[1:]
    return with_positional(flag_values, positional)


def with_positional(
    flag_values: flags.FlagValues, positional: list[str]
) -> flags.FlagValues:
    """Lets `flag_values.positional` hold what follows the flags."""
    object.__setattr__(flag_values, "positional", positional)
    return flag_values


def _with_flags(message: str) -> str:
    """A message with flags in the place of the arguments of those names.

    Messages are for callers in Python as well: they say `max_seq_length=640`.
    """

    def flag(match: re.Match[str]) -> str:
        return f"--{match[1]}" if match[2] in flags.FLAGS else match[0]

    return re.sub("`(([a-z_]+)(?:=[^`]*)?)`", flag, message)


def one_line(error: Exception) -> str:
    """An exception's message as one line; of TensorFlow's traces what went wrong."""
    if isinstance(error, OSError) and error.strerror:
        return ": ".join([error.strerror, *filter(None, [error.filename])])
    text = str(error)
    # Only TensorFlow's have lines about the graph.
    if not isinstance(error, (InputError, OSError)):
        text = cause_of(text)
        if "gs://" in text and "HTTP" in text:
            text += (
                ". Check the network, and the credentials: gcloud auth"
                " application-default login."
            )
    text = _with_flags(without_nodes(text))
    # By its name: nothing here imports TensorFlow.
    # A full disk is one too, and says what it is.
    of_disks = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
    if type(error).__name__ == "ResourceExhaustedError" and not any(
        reason in text for reason in of_disks
    ):
        text += (
            ". Memory is short: make batches or sequences smaller, or train with"
            " --gradient_accumulation_steps or --recompute."
        )
    line = " ".join(text.split())
    if len(line) > _LONGEST_LINE:
        # A file's line may be a megabyte; what to do about it comes last.
        line = f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 2 :]}"
    return line
