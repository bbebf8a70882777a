"""create_pretraining_data, killed just before the n-th file or folder gets its name.

python -m tests.tfrecords.killed_command N CHUNK_BYTES FLAGS
"""

import os
import signal
import subprocess
import sys

from bert_tf import cli, text_flags
from tfrecords import create_pretraining_data

CHUNK_BYTES = 4 << 20


def was_killed(moment, arguments, chunk_bytes=CHUNK_BYTES):
    """Runs the command; False where it has ended before that many names were given."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(moment), str(chunk_bytes), *arguments],
        capture_output=True,
    )
    if done.returncode == 0:
        return False
    assert done.returncode == -signal.SIGKILL, done.stderr
    return True


def main():
    left, text_flags._CHUNK_BYTES = int(sys.argv[1]), int(sys.argv[2])
    replace = os.replace

    def replace_or_die(source, target):
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        replace(source, target)

    os.replace = replace_or_die
    create_pretraining_data.run(
        cli.parse(create_pretraining_data.define_flags, sys.argv[3:])
    )


if __name__ == "__main__":
    main()
