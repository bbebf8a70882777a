"""SCRIPT N CHUNK_BYTES FLAGS: a command, killed before the n-th file gets its name."""

import importlib
import os
import signal
import subprocess
import sys

from bert_tf.base import cli
from bert_tf.text import sources

CHUNK_BYTES = 4 << 20


def was_killed(
    moment, arguments, chunk_bytes=CHUNK_BYTES, script="create_pretraining_data"
):
    """Runs the command; False where it has ended before that many names were given."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", __name__, script),
            *(str(moment), str(chunk_bytes), *arguments),
        ],
        capture_output=True,
    )
    if done.returncode == 0:
        return False
    assert done.returncode == -signal.SIGKILL, done.stderr
    return True


def main():
    script = importlib.import_module(f"tfrecords.{sys.argv[1]}")
    left, sources._CHUNK_BYTES = int(sys.argv[2]), int(sys.argv[3])
    replace = os.replace

    def replace_or_die(source, target):
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        replace(source, target)

    os.replace = replace_or_die
    script.run(cli.parse(script.run, sys.argv[4:]))


if __name__ == "__main__":
    main()
