"""Checks of a Markdown file against the project: where, what is wrong, what to do."""

import importlib
import pathlib
import re
from collections.abc import Iterator, Mapping

from tests.readme import markdown
from tests.readme.commands import Script, commands, error_of, script_of_file
from tests.readme.project import Project

# A block's language: commands, Python, or what is neither run nor checked.
LANGUAGES = ("sh", "python", "text", "json", "js")
# A page shows so many without scrolling.
COMMAND_COLUMNS = 72
# What a table's column is headed with that names another project's flags and files.
THEIR_COLUMNS = re.compile(
    r"(the original|theirs|peer|google-research|tf-models|Model Garden|Hugging Face"
    r"|transformers|KerasHub|`?run_)",
    re.IGNORECASE,
)
# Commands of others, whose flags are theirs.
OTHERS_COMMANDS = (
    *("cd", "curl", "export", "gcloud", "git", "gunicorn", "mkdir", "pip", "python3"),
    *("docker", "node", "npm", "source", "uvicorn"),
    *("tar", "tensorboard", "unzip", "wget", "gsutil", "hf"),
)
# Not a value to check, but what a reader puts there: DIR, $GLUE_DIR, N:M, "...".
_PLACEHOLDER = re.compile(r"[A-Z_,:]+|.*(\$|\.\.\.|…).*")

_FLAG = re.compile(r"(?<![\w-])--(\w[\w-]*)(?:=([^\s`;)]*))?")
_FOLDERS = "bert_tf|tfrecords|benchmarks|tests|colab|docs"
_PATH = re.compile(rf"^(?:{_FOLDERS})/[\w./*-]*$")
_TOP_LEVEL = re.compile(
    r"^([A-Z]+\.md|LICENSE|Makefile|setup\.cfg|pyproject\.toml|mkdocs\.yml"
    r"|(constraints|requirements)[\w.-]*\.txt)$"
)
_DOTTED = re.compile(r"(?<![\w./-])((?:bert_tf|tfrecords)(?:\.[A-Za-z_]\w*)+)(?![\w*])")
_SHELL = re.compile(r"^(    |\t)(\$ )?(python|make|pip) ")


def block_problems(text: str, project: Project) -> Iterator[str]:
    """Blocks of no known kind, and commands that stand in none."""
    del project
    for block in markdown.blocks(text):
        if block.language not in LANGUAGES:
            yield (
                f"line {block.line - 1}: a block is ```{block.language}. Commands that"
                f" are run are ```sh; other blocks are of {', '.join(LANGUAGES[1:])}."
            )
        elif block.language == "sh":
            for number, line in enumerate(block.text.splitlines(), block.line):
                if len(line) > COMMAND_COLUMNS:
                    yield f"line {number}: more than {COMMAND_COLUMNS} columns: {line}"
        elif block.language == "python":
            try:
                compile(block.text, "block", "exec")
            except SyntaxError as error:
                yield f"line {block.line + (error.lineno or 1) - 1}: {error.msg}"
        elif block.language == "text":
            for number, line in enumerate(block.text.splitlines(), block.line):
                if re.match(r"\s*(\$ )?python3? (-m )?[\w.]+", line):
                    yield f"line {number}: a command stands in a ```text block: {line}"
    for number, line in enumerate(markdown.prose(text), start=1):
        if _SHELL.match(line):
            yield f"line {number}: a command stands in no ```sh block: {line.strip()}"


def command_problems(text: str, project: Project, folder: str) -> Iterator[str]:
    """Commands that cannot be parsed: no such script, flag, value or make target."""
    own: dict[str, Script] = {}
    for block in markdown.blocks(text):
        if block.title and f"python {block.title} " in text:
            path = pathlib.Path(folder, block.title)
            path.write_text(block.text, "utf-8")
            own[block.title] = script_of_file(str(path))
    for command in commands(text):
        for words in command.parts():
            problem = _problem(words, project, own)
            if problem:
                yield f"line {command.line}: {command.text}\n    {problem}"


def _problem(
    words: list[str], project: Project, own: Mapping[str, Script]
) -> str | None:
    """What is wrong with one command."""
    name, *arguments = words
    if name == "python" and arguments[:1] == ["-m"]:
        module, *arguments = arguments[1:]
        if module not in project.scripts:
            return f"no such script. There are {', '.join(project.scripts)}."
        return error_of(project.scripts[module], arguments)
    if name == "python" and arguments and arguments[0] in own:
        return error_of(own[arguments[0]], arguments[1:])
    if name == "python" and arguments and arguments[0].startswith("benchmarks/"):
        return _benchmark_problem(" ".join(arguments), project)
    if name == "make":
        return _make_problem(arguments, project.makefile())
    if name == "pip":
        missing = [
            word
            for word in arguments
            if re.search(r"\.(txt|cfg)$", word) and not (project.root / word).exists()
        ]
        return f"no such file: {missing[0]}" if missing else None
    if name in OTHERS_COMMANDS:
        return None
    return f"no test knows what {name!r} starts: tests/readme/checks.py has the list."


def _make_problem(arguments: list[str], makefile: str) -> str | None:
    for word in arguments:
        pattern = rf"^{word.split('=')[0]} *\?=" if "=" in word else rf"^{word}:"
        if not re.search(pattern, makefile, re.MULTILINE):
            return f"the Makefile has no {word}"
    return None


def _benchmark_problem(text: str, project: Project) -> str | None:
    path = text.split()[0]
    if not (project.root / path).is_file():
        return f"no such benchmark: {path}"
    unknown = [
        name
        for name, _ in _FLAG.findall(text)
        if name not in project.benchmark_flags(path)
    ]
    return f"{path} has no --{unknown[0]}" if unknown else None


def flag_problems(text: str, project: Project) -> Iterator[str]:
    """Flags between the blocks that no script has, and values that none takes."""
    lines = markdown.without_columns(markdown.prose(text), THEIR_COLUMNS)
    for span in markdown.code_spans(lines):
        words = span.text.split()
        if words[0] in OTHERS_COMMANDS:
            continue
        if path := re.search(r"benchmarks/\w+\.py", span.text):
            problem = _benchmark_problem(span.text[path.start() :], project)
            if problem:
                yield f"line {span.line}: `{span.text}`: {problem}"
            continue
        for name, value in _FLAG.findall(span.text):
            if not project.has_flag(name):
                yield f"line {span.line}: no script has --{name}: `{span.text}`"
                continue
            for each in value.split("|") if value else ():
                each = each.rstrip(",:").strip("'\"")
                if not _PLACEHOLDER.fullmatch(each) and not project.takes(name, each):
                    yield f"line {span.line}: no script takes --{name}={each}"
    # Flags belong between backticks; elsewhere nobody would look for them.
    for paragraph in markdown.paragraphs(lines):
        bare = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", paragraph.text)
        for name, _ in _FLAG.findall(bare):
            yield f"line {paragraph.line}: --{name} stands outside of backticks"


def name_problems(text: str, project: Project, path: str) -> Iterator[str]:
    """Files, modules, functions and links that are not there."""
    lines = markdown.without_columns(markdown.prose(text), THEIR_COLUMNS)
    for span in markdown.code_spans(lines):
        for word in span.text.split():
            is_path = _PATH.match(word) or _TOP_LEVEL.match(word)
            if is_path and not any(project.root.glob(word.rstrip("/"))):
                yield f"line {span.line}: there is no {word}"
        for name in _DOTTED.findall(span.text):
            if not name.rpartition(".")[2].isupper() and not _exists(name):
                yield f"line {span.line}: there is no {name}"
    anchors = markdown.anchors(markdown.prose(text))
    for link in markdown.links(markdown.prose(text)):
        if link.text.startswith("#"):
            if link.text[1:] not in anchors:
                yield f"line {link.line}: no heading is {link.text}"
        elif "://" not in link.text and not any(
            (project.root / path).parent.glob(link.text.split("#")[0])
        ):
            yield f"line {link.line}: there is no {link.text}"


def _exists(name: str) -> bool:
    """Whether a dotted name is a module of the package, or something in one."""
    try:
        importlib.import_module(name)
        return True
    except ModuleNotFoundError as error:
        # Another one is missing: then the name itself is there.
        if error.name is None or not name.startswith(error.name):
            return True
    parent, _, last = name.rpartition(".")
    return "." in parent + "." and _has(parent, last)


def _has(parent: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(parent), name)
    except ModuleNotFoundError:
        outer, _, inner = parent.rpartition(".")
        if not outer:
            return False
        found = getattr(importlib.import_module(outer), inner, None)
        return hasattr(found, name)
