"""Helpers of the notebooks in colab/: device, packages, commands that must succeed.

    from bert_tf.addons.teaching import notebook
    from bert_tf.addons.teaching.notebook import run

    DEVICE_FLAGS = notebook.start("bert_tf_output")
    run(f"python -m bert_tf.run_classifier ... {DEVICE_FLAGS}")

The commands are processes of their own, so the notebook itself holds neither the TPU
nor the GPU's memory when the next one starts.
"""

import codecs
import glob
import importlib.util
import os
import pty
import shlex
import shutil
import subprocess
import sys
import termios
import time

import bert_tf
from bert_tf.base import files
from bert_tf.base.errors import InputError

AUTO, TPU, GPU, CPU = "auto", "tpu", "gpu", "cpu"
DEVICE_FLAGS = {
    TPU: "--backend=jax --distribution=tpu --precision=bfloat16",
    GPU: "--distribution=mirrored",
    CPU: "--distribution=default",
}


class CommandFailedError(Exception):
    """A command of a notebook ended with an error, which its output explains."""


def start(output: str, device: str = AUTO, *, install: bool = False) -> str:
    """Finds the device, installs the packages, and makes the output folder."""
    if device == AUTO:
        device = find_device()
    if device not in DEVICE_FLAGS:
        raise InputError(
            f"DEVICE must be one of {AUTO}, {', '.join(DEVICE_FLAGS)}, not {device}."
        )
    print(f"Device: {device}, so the flags are {DEVICE_FLAGS[device]}")
    if install:
        run(f"python -m pip install --quiet {shlex.join(_packages(device))}")
    else:
        print("bert_tf is installed already: nothing to install.")
    if output.startswith("/content/drive"):
        from google.colab import drive

        drive.mount("/content/drive")
    if files.is_remote(output):
        from google.colab import auth

        auth.authenticate_user()
    files.make_folder(output)
    return DEVICE_FLAGS[device]


def find_device() -> str:
    """Returns the machine's device without using it: a TPU serves one process."""
    # Some drivers of GPUs make /dev/accel* too, so GPUs are asked first.
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi:
        asked = subprocess.run([nvidia_smi], capture_output=True, check=False)
        if not asked.returncode:
            return GPU
    has_tpu = "TPU_ACCELERATOR_TYPE" in os.environ
    if has_tpu or glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*"):
        return TPU
    return CPU


def _packages(device: str) -> list[str]:
    """Returns pip's arguments; Colab's TPU runtimes come with JAX."""
    # bert_tf is installed; what it needs is not.
    needed = [f"bert-tf[train]=={bert_tf.__version__}"]
    if device == GPU:
        needed.append("tensorflow[and-cuda]")
    if device == TPU and importlib.util.find_spec("jax") is None:
        needed.append("jax[tpu]")
    return needed


def run(command: str) -> None:
    """Runs a command and shows its output, including progress bars."""
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    # Its own terminal: progress bars need one, and its width. Jupyter asks for colours.
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 100))
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        env={**os.environ, "NO_COLOR": "1"},
    )
    os.close(its)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    was_interrupted = False
    while True:
        try:
            if not (data := os.read(ours, 1 << 12)):
                break
            print(decoder.decode(data).replace("\r\n", "\n"), end="", flush=True)
        except KeyboardInterrupt:
            # The command is in our process group and has received the signal, too: its
            # output while it saves is read to the end.
            was_interrupted = True
        except OSError:  # EIO: it has closed its end
            break
    os.close(ours)
    code = process.wait()
    if was_interrupted:
        raise KeyboardInterrupt
    if code:
        raise CommandFailedError(
            f"{shlex.join(words[:3])} ... ended with exit code {code}: its last lines"
            " above say why. The cells below need what it makes."
        )


def run_until(command: str, path: str) -> None:
    """Runs a command and kills it, as if the machine were taken away."""
    process = subprocess.Popen(
        [sys.executable, *shlex.split(command)[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not files.exists(path):
        time.sleep(0.2)
    process.kill()
    process.wait()
    folder = os.path.dirname(path)
    print("Killed. What is there:", *sorted(files.names_in(folder)), sep="\n")
