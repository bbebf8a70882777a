"""Docstrings as Markdown: what is indented below a line of text stays as it is.

The docstrings of this project set tables, formats and command lines in by four columns,
often right below the line that introduces them. Markdown would take these as more of
the paragraph, unless an empty line comes between.
"""

import re

import griffe

# What griffe reads as a section of Google's style is not ours to touch.
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Warns|Examples?):$")


def as_markdown(text: str) -> str:
    """Puts an empty line before each indented block that follows a line of text."""
    lines: list[str] = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        is_code = line.startswith("    ") and line.strip()
        follows_text = before.strip() and not before.startswith("    ")
        if is_code and follows_text and not _SECTION.match(before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    """Has all docstrings of a package read so."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Changes one object's docstring."""
        del kwargs
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = as_markdown(obj.docstring.value)
