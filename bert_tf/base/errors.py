"""The exceptions for user errors and for diverged training."""

import itertools
import re
from typing import Any

import numpy as np

_PLACE = re.compile("when (reading|writing|deleting|resuming|initiating|getting) ")


class InputError(ValueError):
    """Raised if a file, flag or checkpoint that a user gave cannot be used.

    The message is one line: what is wrong, where (file and line, or flag), what to do.
    `bert_tf.base.cli` prints it and exits with 2; any other exception is a bug and
    keeps its traceback.

    Examples:
        >>> try:
        ...     bert_tf.load("no_such_folder")
        ... except bert_tf.InputError as error:
        ...     print("no_such_folder" in str(error))
        True
    """


class DivergedError(InputError):
    """Raised if training gave numbers that are not finite; other settings may not."""


class NotReachedError(InputError):
    """Raised if `stop_if` ends a training, which the same command resumes."""


def refuse_not_finite(what: str, values: Any) -> None:
    """Raises DivergedError unless a trained model's numbers are finite."""
    if not np.isfinite(values).all():
        raise DivergedError(
            f"The {what} is not finite: the model's weights are too large to be of use."
            " Train again with a lower `learning_rate`."
        )


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cause_of(message: str) -> str:
    """Returns the line of a TensorFlow error's message that explains the cause."""
    # Errors from a `tf.function` begin with the places in Python that made the graph;
    # the cause precedes the graph's node.
    # TensorFlow's and JAX's message about a worker that is gone.
    if "Collective ops is aborted" in message or "Gloo" in message:
        return _stopped_worker(message)
    lines = [line.strip() for line in message.split("\n")]
    told = [
        line
        for line in lines
        if line
        and not line.startswith(("Graph execution error:", "Detected at", "File "))
    ]
    for before, line in itertools.pairwise(told):
        if line.startswith("[[{{node"):
            told = [before]
            break
    # If a remote file system could not reach a file, its name is on the next line.
    cause = " ".join([*told[:1], *(line for line in told[1:2] if _PLACE.match(line))])
    return without_nodes(re.sub(r" *\[Op:[^\]]*\].*$", "", cause))


def without_nodes(message: str) -> str:
    """Returns a message without TensorFlow's names for parts of a graph."""
    message = re.sub(r"\{\{function_node [^}]*\}\} *", "", message)
    return re.sub(r" *\[Op:[^\]]*\]( name:)? *", "", message)


def _stopped_worker(message: str) -> str:
    """Returns the message for other workers that can no longer be reached."""
    found = re.search(r"/job:(\w+)/replica:\d+/task:(\d+)", message)
    worker = f"{found[1]} {found[2]}" if found else "another worker"
    return (
        f"No answer from {worker}: it was stopped, or its machine is gone. Start the"
        " same command again on every worker; the run resumes from its last checkpoint."
    )
