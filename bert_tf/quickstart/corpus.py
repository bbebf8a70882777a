"""English prose that every Python has: the language reference and the docstrings.

CPython ships `pydoc_data.topics` (the language reference as text) and a standard
library full of docstrings: more than 1 MB of prose with document boundaries, a topic or
a module being a document. Code, grammar and tables are left out.
"""

import ast
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

# Folders of the library that are no prose (tests), or that not every Python has.
_LEFT_OUT = {"__pycache__", "idlelib", "lib2to3", "site-packages", "test", "turtledemo"}

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(*]*[A-Z])")
_PROMPT_OR_GRAMMAR = re.compile(r">>>|\.\.\. |::=|^\s*[|+\\/]|={4}|-{4}|\*{4}|~{4}")
_MARKUP = re.compile(r"[*`]+|:(?:\w+:)+")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*[,.;:!?]?")

_MINIMUM_WORDS = 4


class Document(NamedTuple):
    """A document: its name, and its sentences in order."""

    name: str
    sentences: list[str]


def read_documents(progress: Callable[[], None] = lambda: None) -> Iterator[Document]:
    """The documents, in an order that depends on the Python version alone."""
    from pydoc_data import topics

    for name in sorted(topics.topics):
        yield Document(f"topic {name}", sentences_of(topics.topics[name]))
        progress()
    library = sysconfig.get_path("stdlib")
    for path in _python_files(library):
        text = "\n\n".join(_docstrings(path))
        yield Document(os.path.relpath(path, library), sentences_of(text))
        progress()


def sentences_of(text: str) -> list[str]:
    """The sentences of a text's prose.

    A paragraph counts as prose if it has no prompt, grammar or ruled line in it; a
    sentence if it ends like one and most of it are words.
    """
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
        if _PROMPT_OR_GRAMMAR.search(paragraph):
            continue
        plain = _SPACE.sub(" ", _MARKUP.sub("", paragraph)).strip(" -")
        sentences += [s for s in _SENTENCE_END.split(plain) if _is_prose(s)]
    return sentences


def _is_prose(sentence: str) -> bool:
    parts = sentence.split(" ")
    words = sum(1 for part in parts if _WORD.fullmatch(part))
    return (
        words >= _MINIMUM_WORDS
        and words >= 0.6 * len(parts)
        and sentence[0].isupper()
        and sentence[-1] in ".!?:"
    )


def _python_files(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(root, name)


def _docstrings(path: str) -> Iterator[str]:
    """The docstrings of a module, its classes and functions, in order."""
    with open(path, "rb") as file, warnings.catch_warnings():
        # Old modules have invalid escapes in their strings.
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield inspect.cleandoc(docstring)
