"""The annotated BERT in its other forms: a notebook, a page for keras.io, the site's.

    python docs/annotated.py --notebook=colab/annotated_bert.ipynb
    python docs/annotated.py --keras_io=annotated_bert.py

Both are made of docs/annotated_bert.md. A block of Python becomes a cell of code, but
for those of answers, which stay in the text. A notebook that is there keeps the outputs
of cells that are still the same. keras.io's form is a Python file: a docstring with the
page's title and date, then text in strings of three quotes, and code between them.
"""

import argparse
import hashlib
import json
import pathlib
import re

PAGE = pathlib.Path(__file__).with_name("annotated_bert.md")
MARKDOWN, CODE = "markdown", "code"
_BLOCK = re.compile(r"^```python(?P<info>[^\n]*)\n(?P<code>.*?)^```\n", re.S | re.M)
_ANSWER = 'title="answer"'
# To another page of this folder.
_LINK = re.compile(r"\[([^\]]*)\]\(([\w.]+)\)")
_KERAS_IO = '''\
"""
Title: {title}
Author: The bert_tf authors
Date created: {date}
Last modified: {date}
Description: {description}
Accelerator: None
"""
'''


def blocks(text: str) -> list[tuple[str, str]]:
    """Returns the code of each block of Python, and what is behind its ```python."""
    return [(one["code"], one["info"].strip()) for one in _BLOCK.finditer(text)]


def cells(text: str) -> list[tuple[str, str]]:
    """Returns the kind and the text of each cell."""
    found, start = [], 0
    for block in _BLOCK.finditer(text):
        if _ANSWER in block["info"]:
            continue
        found.append((MARKDOWN, text[start : block.start()]))
        found.append((CODE, block["code"]))
        start = block.end()
    found.append((MARKDOWN, text[start:]))
    return [(kind, part.strip("\n")) for kind, part in found if part.strip()]


def as_notebook(text: str, before: dict | None = None) -> dict:
    """Returns a notebook of format 4.5, with the outputs that one before has."""
    ran = {
        "".join(cell["source"]): cell
        for cell in (before or {"cells": []})["cells"]
        if cell["cell_type"] == CODE
    }
    made = []
    for number, (kind, part) in enumerate(cells(text)):
        name = hashlib.sha256(f"{number} {part}".encode()).hexdigest()[:12]
        cell = {"cell_type": kind, "id": name, "metadata": {}}
        linked = _LINK.sub(r"[\1](../docs/\2)", part) if kind == MARKDOWN else part
        cell["source"] = linked.splitlines(keepends=True)
        if kind == CODE:
            old = ran.get(part, {"execution_count": None, "outputs": []})
            cell |= {key: old[key] for key in ("execution_count", "outputs")}
        made.append(cell)
    return {
        "cells": made,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def with_outputs(text: str, notebook: dict) -> str:
    """Returns the page with what the notebook's cells have printed and drawn."""
    outputs = {
        "".join(cell["source"]): cell.get("outputs") for cell in notebook["cells"]
    }

    def shown(block: re.Match[str]) -> str:
        parts = [block[0]]
        # A picture's words are the paragraph above its code.
        *_, above = _BLOCK.sub("", text[: block.start()]).strip().split("\n\n")
        words = " ".join(re.sub(r"[\[\]`*]", "", above).split())
        for output in outputs.get(block["code"].strip("\n")) or ():
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).strip()}\n```\n")
            elif png := output["data"].get("image/png"):
                content = "".join("".join(png).split())
                parts.append(f"![{words}](data:image/png;base64,{content})\n")
        return "\n".join(parts)

    return _BLOCK.sub(shown, text)


def as_keras_io(text: str, date: str) -> str:
    """Returns the page as keras.io has its own; the date as 2018/10/11."""
    title, _, rest = text.partition("\n")
    description = "Devlin et al. 2018 from NumPy and Keras, part by part."
    parts = [_KERAS_IO.format(title=title[2:], date=date, description=description)]
    for kind, part in cells(rest):
        unlinked = _LINK.sub(r"\1", part)
        parts.append(part if kind == CODE else f'"""\n{unlinked}\n"""')
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Writes what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebook", type=pathlib.Path)
    parser.add_argument("--keras_io", type=pathlib.Path)
    parser.add_argument("--date", default="2018/10/11", help="of keras.io's page")
    given = parser.parse_args()
    text = PAGE.read_text("utf-8")
    if path := given.notebook:
        before = json.loads(path.read_text("utf-8")) if path.exists() else None
        content = json.dumps(as_notebook(text, before), indent=1, ensure_ascii=False)
        path.write_text(content + "\n", "utf-8")
    if given.keras_io:
        given.keras_io.write_text(as_keras_io(text, given.date), "utf-8")


if __name__ == "__main__":
    main()
