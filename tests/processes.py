"""New processes of Python, for what shows in those alone."""

import os
import resource
import subprocess
import sys
import time


def seconds_of_other_processes():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def has_ended(pid):
    """Whether a process has ended, within a minute."""
    end = time.monotonic() + 60.0
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.1)
    return not os.path.exists(f"/proc/{pid}")


def run_python(*arguments, without=(), modules=None, **environment):
    """`python ARGUMENTS`, and what it printed; of variables, some may be left out.

    The modules in the folder `modules` come before others of their names.
    """
    if modules is not None:
        paths = [modules, os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    ours = {name: x for name, x in os.environ.items() if name not in without}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**ours, **environment},
    )
