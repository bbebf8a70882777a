"""Stores setup.cfg's address and, with --run, the outputs of a small run in colab/.

`make notebooks` does both. Without an address the links open Colab itself.
"""

import configparser
import json
import re
import runpy
import sys
import tempfile

from tests.addons.teaching import notebook_files
from tests.addons.teaching.executed_notebooks_test import run_notebook

ROOT = notebook_files.FOLDER.parent
ANNOTATED = "annotated_bert"
# Its pictures are pyplot's, as Jupyter shows them.
_INLINE = "module://matplotlib_inline.backend_inline"
COLAB = "https://colab.research.google.com/"

_LINK = re.compile(
    rf'\({COLAB}(?:github/[\w.-]+/[\w.-]+/blob/main/| "Upload )(colab/\w+\.ipynb)"?\)'
)
_SOURCE = re.compile(r'^SOURCE = ".*?"', re.MULTILINE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def address():
    """setup.cfg's url; "" where it has none."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup["metadata"]["url"].strip()


def with_address(text, url):
    """Markdown or code with the address in its place."""
    repository = url.removeprefix("https://github.com/").removesuffix(".git")
    link = f"github/{repository}/blob/main/{{}}" if url else ' "Upload {}"'
    text = _LINK.sub(lambda found: f"({COLAB}{link.format(found[1])})", text)
    return _SOURCE.sub(f'SOURCE = "{url}"', text)


def shown_text(text, folder):
    """A cell's printed text as a terminal shows it at its end, without the folder."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace(f"{folder}/", "")
    lines = []
    for line in text.split("\n"):
        shown = line.rstrip("\r").rpartition("\r")[2]
        if shown.strip() or "\r" not in line:  # a progress bar goes when it is full
            lines.append(shown.rstrip())
    return "\n".join(lines)


def outputs_of(cell, folder):
    """A cell of a report as the file's format has it."""
    outputs = []
    text = shown_text(cell["output"], folder)
    if text:
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": _lines(text)}
        )
    for data in cell["displayed"]:
        data = {
            kind: value if kind == "image/png" else _lines(value)
            for kind, value in data.items()
        }
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return outputs


def store(name, *, runs):
    notebook = notebook_files.content(name)
    url = address()
    if name == ANNOTATED:
        annotated = runpy.run_path(str(ROOT / "docs" / "annotated.py"))
        text = annotated["PAGE"].read_text("utf-8")
        notebook = annotated["as_notebook"](text, notebook)
    for cell in notebook["cells"]:
        cell["source"] = _lines(with_address("".join(cell["source"]), url))
    if runs:
        with tempfile.TemporaryDirectory() as folder:
            code, report = run_notebook(
                notebook_files.path_of(name),
                folder,
                BERT_TF_SMALL="1",
                **({"MPLBACKEND": _INLINE} if name == ANNOTATED else {}),
            )
            if code:
                sys.exit(f"{name}: {report[-1]['error']}\n{report[-1]['output']}")
            cells = (one for one in notebook["cells"] if one["cell_type"] == "code")
            for number, (cell, run) in enumerate(
                zip(cells, report, strict=True), start=1
            ):
                cell["execution_count"] = number
                cell["outputs"] = outputs_of(run, folder)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    notebook_files.path_of(name).write_text(text, "utf-8")


def _lines(text):
    return text.splitlines(keepends=True)


def main():
    readme = notebook_files.FOLDER / "README.md"
    readme.write_text(with_address(readme.read_text("utf-8"), address()), "utf-8")
    for name in notebook_files.names():
        store(name, runs="--run" in sys.argv[1:])


if __name__ == "__main__":
    main()
