"""What the workers of parallel_test.py do; they import no TensorFlow."""

import os
import signal
import time


def slow_square(number):
    # The first pieces take longest: without care they would come last.
    time.sleep(0.02 * max(0, 5 - number))
    return number * number


def fail_at_three(number):
    if number == 3:
        raise KeyError("three")
    return number


def process_id(_):
    return os.getpid()


def slow_process_id(_):
    # So long that no worker does all of the work.
    time.sleep(0.2)
    return os.getpid()


def end_this_process(number):
    os.kill(os.getpid(), signal.SIGKILL)


def remember(known, number):
    known.append(number)
    return list(known)
