"""Runs a notebook in this process, cell by cell, in the working directory.

    python -m tests.colab.run_notebook NOTEBOOK.ipynb REPORT.json

IPython itself runs the cells, as in Colab: `!` lines, `%` lines, what is displayed. A
kernel, its sockets and a client would add nothing but their installation. REPORT.json
has, for each cell that was run, its `source`, its `output`, its `commands` with their
exit codes, and the PNGs it showed, as files beside the report. The first cell that
fails, or has a command that fails, is the last one; the exit code is 1 then.
"""

import base64
import json
import os
import sys

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils import process
from IPython.utils.capture import capture_output


def code_cells(path):
    """The source of each code cell."""
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    return ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]


def run(notebook, report):
    shell = InteractiveShell.instance()
    commands = []

    def system(command):
        """What `!` lines call: {names} are looked up where the line stands."""
        command = shell.var_expand(command, depth=1)
        exit_code = process.system(command)
        shell.user_ns["_exit_code"] = exit_code
        commands.append({"command": command, "exit_code": exit_code})

    shell.system = system
    cells = []
    folder = os.path.dirname(report)
    for number, source in enumerate(code_cells(notebook)):
        commands.clear()
        with capture_output() as captured:
            result = shell.run_cell(source)
        cells.append(
            {
                "source": source,
                "output": captured.stdout + captured.stderr,
                "commands": list(commands),
                "pictures": write_pictures(captured.outputs, folder, number),
                "error": repr(result.error_before_exec or result.error_in_exec or ""),
            }
        )
        with open(report, "w", encoding="utf-8") as file:
            json.dump(cells, file, indent=1)
        if not result.success or any(one["exit_code"] for one in commands):
            return 1
    return 0


def write_pictures(outputs, folder, number):
    """Writes the PNGs that a cell showed; their paths."""
    paths = []
    for shown in outputs:
        content = shown.data.get("image/png")
        if content is None:
            continue
        if isinstance(content, str):
            content = base64.b64decode(content)
        paths.append(os.path.join(folder, f"cell-{number:02d}-{len(paths)}.png"))
        with open(paths[-1], "wb") as file:
            file.write(content)
    return paths


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
