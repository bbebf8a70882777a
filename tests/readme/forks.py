"""`python forks.py SOCKET -m MODULE ...`: that command in a fork of `Server`'s process.

That one has imported what takes seconds. This file imports nothing slow itself.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys

_LISTENING = "--listen"
_IMPORTED = (
    *("keras_hub", "tensorflow_text", "matplotlib.pyplot"),
    *("bert_tf.tasks.finetuning", "bert_tf.tasks.pretraining"),
)


class Server:
    """The process that the commands are forks of; a context manager."""

    def __init__(self, path, environment):
        self._path, self._environment = path, environment

    def __enter__(self):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self._path)
            listening.listen()
            self._process = subprocess.Popen(
                [sys.executable, __file__, _LISTENING, str(listening.fileno())],
                # Commands ask for silence before their imports: here they come first.
                env={**self._environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        return self

    def __exit__(self, *error):
        # The forks are of its group.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _listen(number):
    """Serves each caller by a fork; returns in the fork that is to run the command."""
    listening = socket.socket(fileno=number)
    for name in _IMPORTED:
        importlib.import_module(name)
    while True:
        caller, _ = listening.accept()
        if os.fork():
            caller.close()
            os.waitpid(-1, os.WNOHANG)  # one that has ended since
            continue
        listening.close()
        command = os.fork()
        if command:
            status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            caller.sendall(bytes([status if status >= 0 else 128 - status]))
            os._exit(0)
        request, files, _, _ = socket.recv_fds(caller, 1 << 16, 3)
        while not request.endswith(b"\n"):
            request += caller.recv(1 << 16)
        caller.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return json.loads(request)


def _call(path, arguments):
    """The exit code of a command that a server's fork runs."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        request = json.dumps([os.getcwd(), dict(os.environ), arguments]) + "\n"
        sent = socket.send_fds(server, [request.encode()], [0, 1, 2])
        server.sendall(request.encode()[sent:])
        return server.recv(1) or sys.exit("the server is gone")


def _run(folder, environment, arguments):
    # Whether they can be sought in, and what is buffered, is the caller's matter now.
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    kind, *rest = arguments
    if kind == "-m":
        sys.path[0] = folder
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-":
        sys.path[0] = folder
        sys.argv = arguments
        code = compile(sys.stdin.read(), "<stdin>", "exec")
        exec(code, {"__name__": "__main__"})
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        sys.argv = arguments
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == _LISTENING:
        _run(*_listen(int(sys.argv[2])))
    else:
        sys.exit(_call(sys.argv[1], sys.argv[2:])[0])
