"""Experiment trackers that a run also reports to: `report_to`.

Each has its own run for an output_dir, with the flags as its config, and the metrics
under TensorBoard's names. OUTPUT_DIR/trackers.json has the ids by library: a run that
is resumed, or evaluated later, continues them. Steps that a killed run makes again are
reported again, under the same number.

    library   id                                 project
    wandb     wandb's                            WANDB_PROJECT, else bert_tf
    mlflow    MLflow's                           MLflow's experiment
    trackio   OUTPUT_DIR's last name, a number   TRACKIO_PROJECT, else bert_tf
"""

import importlib
import importlib.util
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import files, strict_json
from bert_tf.base.errors import InputError, first_line
from bert_tf.training.events import EVALUATION, Callback

TRACKERS_NAME = "trackers.json"

# The library, the run's name, its id if it has one, the folder, and the flags.
_Start = Callable[[Any, str, str | None, str, dict[str, Any]], "_Open"]


class _Open(NamedTuple):
    """A run that has been started or continued."""

    id: str
    log: Callable[[dict[str, float], int], Any]
    close: Callable[[], Any]


def _wandb(
    wandb: Any, name: str, known: str | None, folder: str, flags: dict[str, Any]
) -> _Open:
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "bert_tf"),
        name=name,
        dir=None if files.is_remote(folder) else folder,
        id=known,
        resume="allow",
        config=flags,
        allow_val_change=True,
    )
    # wandb's own step cannot fall, but a killed run's does.
    run.define_metric("*", step_metric="step")
    return _Open(
        run.id, lambda metrics, step: run.log({**metrics, "step": step}), run.finish
    )


def _mlflow(
    mlflow: Any, name: str, known: str | None, folder: str, flags: dict[str, Any]
) -> _Open:
    # Nested: a notebook may have a run open.
    run = mlflow.start_run(run_id=known, run_name=name, nested=True)
    if known is None:  # parameters cannot be changed
        mlflow.log_params(flags)
    return _Open(run.info.run_id, mlflow.log_metrics, mlflow.end_run)


def _trackio(
    trackio: Any, name: str, known: str | None, folder: str, flags: dict[str, Any]
) -> _Open:
    name = known or f"{name}-{secrets.token_hex(4)}"
    project = os.environ.get("TRACKIO_PROJECT", "bert_tf")
    run = trackio.init(
        project=project, name=name, config=flags, resume="allow", embed=False
    )
    return _Open(name, run.log, run.finish)


class _Library(NamedTuple):
    start: _Start
    error: str | None  # the base of its exceptions, if it has one


_LIBRARIES = {
    "wandb": _Library(_wandb, "errors.Error"),
    "mlflow": _Library(_mlflow, "exceptions.MlflowException"),
    "trackio": _Library(_trackio, None),
}
TRACKERS = tuple(_LIBRARIES)


def missing(names: Sequence[str]) -> list[str]:
    """Returns the libraries that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def require_installed(names: Sequence[str]) -> None:
    """Raises InputError if a library is missing."""
    for name in missing(names):
        raise InputError(f"`report_to={name}` needs {name}: pip install {name}")


def known_ids(folder: str) -> dict[str, str]:
    """Returns the ids of a folder's runs by library."""
    path = os.path.join(folder, TRACKERS_NAME)
    if not files.exists(path):
        return {}
    return strict_json.checked(dict[str, str], files.read_json(path), path, "file")


class Trackers:
    """The trackers of a run; without names there are none."""

    def __init__(
        self, names: Sequence[str], folder: str, flags: Mapping[str, Any]
    ) -> None:
        self._open: dict[str, _Open] = {}
        self._failed: set[str] = set()
        if not names:
            return
        require_installed(names)
        known = known_ids(folder)
        title = os.path.basename(files.absolute(folder).rstrip("/"))
        for name in names:
            start, library = _LIBRARIES[name].start, importlib.import_module(name)
            try:
                run = start(library, title, known.get(name), folder, dict(flags))
            except _errors_of(name) as error:
                self.close()
                message = f"`report_to={name}`: {first_line(error)}"
                raise InputError(message) from error
            self._open[name] = run
            known[name] = run.id
        path = os.path.join(folder, TRACKERS_NAME)
        files.write_atomically(path, json.dumps(known, sort_keys=True) + "\n")

    def log(self, line: Mapping[str, Any]) -> None:
        """Sends a line of metrics.jsonl to each tracker; drops those that fail."""
        metrics = {
            name if name.startswith(EVALUATION) else f"train/{name}": value
            for name, value in line.items()
            if name not in ("step", "seconds", "after_training")
        }
        for name, run in self._open.items():
            try:
                run.log(dict(metrics), line["step"])
            except _errors_of(name) as error:
                self._warn(name, error)

    def close(self) -> None:
        """Ends this start's part of each run."""
        while self._open:
            name, run = self._open.popitem()
            try:
                run.close()
            except _errors_of(name) as error:
                self._warn(name, error)

    def _warn(self, name: str, error: Exception) -> None:
        """Warns once per library that metrics are missing there."""
        if name not in self._failed:
            self._failed.add(name)
            logging.warning(
                "%s has not got all metrics, which metrics.jsonl has: %s",
                name,
                first_line(error),
            )


class Tracking(Callback):
    """Reports a training's metrics to trackers: `report_to`."""

    def __init__(self, names: Sequence[str]) -> None:
        require_installed(names)
        self._names = names

    @staticmethod
    def of_run(folder: str, flags: Mapping[str, Any]) -> Trackers:
        """Opens the trackers in a run's flags, if installed; warns of the others."""
        given = flags.get("report_to")
        names = [n for n in TRACKERS if n in given] if isinstance(given, list) else []
        absent = missing(names)
        for name in absent:
            message = "%s is not installed: it does not get this evaluation."
            logging.warning(message, name)
        return Trackers([name for name in names if name not in absent], folder, flags)

    def started(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Opens the trackers; the chief alone reports."""
        from bert_tf.training.strategy import is_chief

        names = self._names if is_chief(self.run.strategy) else ()
        self._trackers = Trackers(names, self.run.folder, self.run.flags)
        self.run.closing.callback(self._trackers.close)

    def logged(self, line: Mapping[str, Any]) -> None:
        """Reports a line."""
        self._trackers.log(line)


def _errors_of(name: str) -> tuple[type[Exception], ...]:
    """Returns the errors that a library raises for a wrong server or setting."""
    if (path := _LIBRARIES[name].error) is None:
        return OSError, RuntimeError, ValueError
    module, _, error = path.partition(".")
    return (getattr(getattr(importlib.import_module(name), module), error), OSError)
