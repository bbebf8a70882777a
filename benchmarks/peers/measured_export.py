"""Runs bert_tf.export_model, and prints what it takes beyond its imports.

    python measured_export.py --checkpoint=... --format=... --output_dir=...

The last line printed is JSON: seconds, and the most memory that the process held above
what it held when all was imported. Linux only: the kernel keeps that number.
"""

import json
import os
import sys
import time


def kilobytes(field: str) -> int:
    """A field of /proc/self/status."""
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(field + ":"))
    return int(line.split()[1])


def main() -> None:
    import tensorflow as tf

    import bert_tf.addons.serving.export_model  # noqa: F401
    from bert_tf import export_model
    from bert_tf.conversion import (
        source,  # noqa: F401
    )

    if any("kerashub" in argument for argument in sys.argv):
        import keras_hub  # noqa: F401
    # What is set up at the first operation is no conversion either.
    tf.constant(0.0).numpy()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # Forget the peak so far.
    before = kilobytes("VmRSS")
    began = time.perf_counter()
    try:
        export_model.main()
    except SystemExit as ended:
        if ended.code:
            raise
    seconds = time.perf_counter() - began
    peak = 1024 * (kilobytes("VmHWM") - before)
    print(json.dumps({"seconds": seconds, "bytes": peak}))


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    main()
