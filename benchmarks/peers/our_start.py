"""A command of ours, up to the first step: processor seconds to its events."""

import json
import os
import runpy
import sys
import time
from typing import Any, NoReturn

_seconds: dict[str, float] = {}


def happened(event: str) -> None:
    """Notes the processor time since the start of the process."""
    _seconds[event] = time.process_time()


def leave() -> NoReturn:
    """Prints what was noted; nothing that a run does at its end counts."""
    print(json.dumps(_seconds), flush=True)
    os._exit(0)


def watch_first_step() -> None:
    """Makes a training command tell its first batch and step, and end there."""
    from bert_tf.base import cli

    import_tensorflow = cli.import_tensorflow

    def imported(*args: Any) -> None:
        import_tensorflow(*args)
        from bert_tf.training import tensorflow_step

        training_steps = tensorflow_step.training_steps

        def watched(*args: Any, **options: Any) -> Any:
            run_steps = training_steps(*args, **options)

            def one_step(iterator: Any, count: int) -> NoReturn:
                next(iterator)
                happened("first batch")
                run_steps(iterator, count)
                happened("first step")
                leave()

            return one_step

        tensorflow_step.training_steps = watched

    cli.import_tensorflow = imported


if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[0] == "import":
        import tensorflow  # noqa: F401

        happened("end")
        leave()
    watch_first_step()
    try:
        runpy.run_module(f"bert_tf.{sys.argv[0]}", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    happened("end")
    leave()
