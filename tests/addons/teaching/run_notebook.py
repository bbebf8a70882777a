"""Runs a notebook's cells by IPython in this process: NOTEBOOK.ipynb REPORT.json.

The report has what each cell showed, up to the first one that fails: exit code 1.
"""

import base64
import json
import os
import pathlib
import sys

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from bert_tf.addons.teaching import notebook


def code_cells(path):
    """The source of each code cell."""
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    return ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]


def run(path, report):
    shell = InteractiveShell.instance()
    commands = []
    run_command = notebook.run

    def recorded(command):
        commands.append(command)
        run_command(command)

    notebook.run = recorded
    cells = []
    folder = os.path.dirname(report)
    for number, source in enumerate(code_cells(path)):
        commands.clear()
        with capture_output() as captured:
            result = shell.run_cell(source)
        displayed = [shown.data for shown in captured.outputs]
        cells.append(
            {
                "source": source,
                "output": captured.stdout + captured.stderr,
                "commands": list(commands),
                "displayed": displayed,
                "pictures": write_pictures(displayed, folder, number),
                "error": repr(result.error_before_exec or result.error_in_exec or ""),
            }
        )
        with open(report, "w", encoding="utf-8") as file:
            json.dump(cells, file, indent=1)
        if not result.success:
            return 1
    return 0


def write_pictures(displayed, folder, number):
    """Writes the PNGs that a cell showed; their paths."""
    paths = []
    for data in displayed:
        content = data.get("image/png")
        if content is None:
            continue
        if isinstance(content, bytes):
            content = base64.b64encode(content).decode("ascii")
        data["image/png"] = content
        paths.append(os.path.join(folder, f"cell-{number:02d}-{len(paths)}.png"))
        pathlib.Path(paths[-1]).write_bytes(base64.b64decode(content))
    return paths


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
