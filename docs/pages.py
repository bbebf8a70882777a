"""The pages of the site: a hook of MkDocs, which `make docs` runs.

No page is kept by hand; the guides stand in the order of a user's way (`_WAY`):

    README.md, docs/*.md, ...          as they are, under their own names
    docs/one_file_bert.md              docs/one_file_bert.py, as a page
    commands/NAME.md                   a command of setup.cfg: docstring and flags
    api/NAME.md                        a package: the docstrings of its modules

A Markdown file has the address that it has in the repository, so that the links between
them work in both places; other files that they link to are copied.
"""

import ast
import configparser
import importlib
import json
import pathlib
import re
import sys
from typing import Any

from absl import flags
from annotated import PAGE, with_outputs
from docstrings import as_markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from bert_tf.base import cli, options

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bert_tf"
_ONE_FILE = "docs/one_file_bert.py"
# The tabs, and their guides; one that is in none is in the last.
_WAY = {
    "Start": ("README.md", "docs/annotated_bert.md", _ONE_FILE, "colab/README.md"),
    "Fine-tune": (
        "docs/finetuning.md",
        "docs/long_texts.md",
        "docs/keras.md",
        "docs/python.md",
    ),
    "Predict and serve": ("docs/serving.md", "docs/checkpoints.md", "docs/features.md"),
    "Pre-train": (
        "docs/recipes.md",
        "docs/pretraining.md",
        "tfrecords/README.md",
        "docs/paper.md",
    ),
    "Scale": ("docs/scaling.md",),
    "More": (
        "docs/results.md",
        "docs/speedrun.md",
        "docs/how_it_works.md",
        "docs/moving_here.md",
        "docs/troubleshooting.md",
    ),
}
_LAST = ("CONTRIBUTING.md", "CHANGELOG.md")
# The search's weight of internals: below guides even where a heading has the words.
_OF_INTERNALS = 0.001
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the navigation."""
    sys.path.insert(0, str(ROOT))  # this checkout's bert_tf, whatever is installed
    config.nav = [
        *({tab: pages} for tab, pages in _guides().items()),
        {"Commands": ["commands/index.md", *map(_command_page, commands())]},
        {"Python API": ["api/index.md", *map(_api_page, packages())]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    for path in documents():
        file = File(path, str(ROOT), config.site_dir, config.use_directory_urls)
        file.inclusion = InclusionLevel.INCLUDED  # although mkdocs.yml excludes docs/
        files.append(file)
    texts = {"commands/index.md": _commands_text(), "api/index.md": _api_text()}
    source = (ROOT / _ONE_FILE).read_text("utf-8")
    texts[_page_of(_ONE_FILE)] = f"# BERT in one file\n\n```python\n{source}```\n"
    for name, module in commands().items():
        texts[_command_page(name)] = _command_text(name, module)
    for package in packages():
        texts[_api_page(package)] = _package_text(package)
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Makes the search list guides before internals; shows what a page has drawn."""
    path = page.file.src_uri
    if path in _LAST or (path.startswith("api/") and path != _api_page("bert_tf")):
        page.meta["search"] = {"boost": _OF_INTERNALS}
    if path == PAGE.relative_to(ROOT).as_posix():
        notebook = ROOT / "colab" / f"{PAGE.stem}.ipynb"
        return with_outputs(markdown, json.loads(notebook.read_text("utf-8")))
    return markdown


def _guides() -> dict[str, list[str | dict[str, str]]]:
    """The pages of each tab, as MkDocs' navigation has them."""
    there = [path for path in documents() if path.endswith(".md")]
    placed = {path for paths in _WAY.values() for path in paths}
    others = [path for path in there if path not in placed]
    others.sort(key=lambda path: path in _LAST)
    found = {}
    for tab, paths in _WAY.items():
        paths = [*paths, *others] if tab == [*_WAY][-1] else paths
        found[tab] = [
            _page_of(path) if path == _ONE_FILE else {_title(path): path}
            for path in paths
            if path in there or path == _ONE_FILE
        ]
    return found


def documents() -> list[str]:
    """README.md and the like, and every file of the repository that they link to.

    Returns:
        Paths relative to the repository.
    """
    found = ["README.md", *_LAST]
    for path in found:  # grows while it is read
        if not path.endswith(".md"):
            continue
        folder = (ROOT / path).parent
        for link in _LINK.findall((ROOT / path).read_text("utf-8")):
            target = (folder / link).resolve()
            if target.is_file() and target.is_relative_to(ROOT):
                name = target.relative_to(ROOT).as_posix()
                if name not in found:
                    found.append(name)
    return found


def commands() -> dict[str, str]:
    """The installed commands: name -> module, as setup.cfg has them."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    pairs = (re.split(r"\s*=\s*|:", line) for line in lines)
    return {name: module for name, module, _ in pairs}


def packages() -> list[str]:
    """Every package under bert_tf/, bert_tf itself first."""
    patterns = ("*", "addons/*", "addons/*/*")
    files = [file for one in patterns for file in PACKAGE.glob(f"{one}/__init__.py")]
    folders = sorted(path.parent.relative_to(ROOT) for path in files)
    return ["bert_tf", *(".".join(folder.parts) for folder in folders)]


def _modules(package: str) -> list[str]:
    """The modules of a package that are no commands."""
    folder = ROOT / package.replace(".", "/")
    scripts = set(commands().values())
    names = [f"{package}.{path.stem}" for path in sorted(folder.glob("*.py"))]
    return [
        name
        for name in names
        if not name.rpartition(".")[2].startswith("__") and name not in scripts
    ]


def _page_of(path: str) -> str:
    return path.removesuffix(".py") + ".md"


def _command_page(name: str) -> str:
    return f"commands/{name.removeprefix('bert-tf-').replace('-', '_')}.md"


def _api_page(package: str) -> str:
    return f"api/{package.removeprefix('bert_tf.')}.md"


def _title(path: str) -> str:
    if path == "README.md":
        return "bert_tf"
    heading = re.search(r"^# (.+)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
    return heading[1] if heading else path


def _docstring(path: pathlib.Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def _first_line(path: pathlib.Path) -> str:
    return _docstring(path).split("\n\n")[0].replace("\n", " ")


def _script(module: str) -> pathlib.Path:
    """The file of a command; bert_tf.tfrecords is the folder tfrecords here."""
    name = module.removeprefix("bert_tf.") if ".tfrecords." in module else module
    return ROOT / (name.replace(".", "/") + ".py")


def _run_as(module: str) -> str:
    """The module's name in a checkout."""
    parts = _script(module).relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__main__")


def _commands_text() -> str:
    lines = [
        "# Commands",
        "",
        "| command | installed, also | what it does |",
        "|---|---|---|",
    ]
    for name, module in commands().items():
        page = _command_page(name).removeprefix("commands/")
        lines.append(
            f"| [`python -m {module.removesuffix('.__main__')}`]({page}) | `{name}` |"
            f" {_cell(_first_line(_script(module)))} |"
        )
    return "\n".join(lines) + "\n"


def _command_text(name: str, module: str) -> str:
    values = flags.FlagValues()
    script = importlib.import_module(_run_as(module) + _main_of(module))
    kind = cli.options_of(script.run)
    options.define(values, kind)
    lines = [
        f"# {_run_as(module).rpartition('.')[2]}",
        "",
        as_markdown(_docstring(_script(module))),
        "",
        f"Installed, the command is `{name}`.",
        "",
    ]
    required = [n for n in options.declarations(kind) if options.is_required(kind, n)]
    for title, names in {"Must be given": required, **options.groups(kind)}.items():
        rows = [
            f"| {_usage(values[one])} | {_meaning(values[one])} |"
            for one in names
            if title == "Must be given" or one not in required
        ]
        if rows:
            lines += [
                f"## {title}",
                "",
                "| flag | what it is |",
                "|---|---|",
                *rows,
                "",
            ]
    return "\n".join(lines)


def _main_of(module: str) -> str:
    return ".__main__" if module.endswith(".__main__") else ""


def _usage(flag: flags.Flag) -> str:
    # Whole, also on a phone.
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    return f'<code style="white-space: nowrap">{name}</code>'


def _meaning(flag: flags.Flag) -> str:
    # absl writes the words that are allowed before the help, too.
    text = _cell(re.sub(r"^<[^<>]*>: ", "", flag.help))
    if values := getattr(flag.parser, "enum_values", None):
        text += f" One of {', '.join(f'`{value}`' for value in values)}."
    if flag.default not in (None, "", []):
        serialized = flag.serializer and flag.serializer.serialize(flag.default)
        text += f" Default: `{serialized or flag.default}`"
    return text


def _cell(text: str) -> str:
    """Text for a cell of a table; what stands between backticks is code already."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [re.sub(r"([\[\]<*_])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _api_text() -> str:
    homes = importlib.import_module("bert_tf")._HOMES
    lines = ["# Python API", "", "::: bert_tf", "    options:", "      members: []"]
    lines += ["      show_root_heading: false", "", "| name | |", "|---|---|"]
    for name in sorted(homes):
        link = f"[`bert_tf.{name}`][{homes[name]}.{name}]"
        lines.append(f"| {link} | {_cell(_summary(homes[name], name))} |")
    lines += ["", "| package | |", "|---|---|"]
    for package in packages():
        path = ROOT / package.replace(".", "/") / "__init__.py"
        page = _api_page(package).removeprefix("api/")
        lines.append(f"| [`{package}`]({page}) | {_cell(_first_line(path))} |")
    return "\n".join(lines) + "\n"


def _summary(module: str, name: str) -> str:
    """The first paragraph of a function's or a class's docstring."""
    path = ROOT / (module.replace(".", "/") + ".py")
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").split("\n\n")[0]
        names = [a.name for a in node.names] if isinstance(node, ast.ImportFrom) else []
        if name in names:
            return _summary(node.module, name)
    return ""


def _package_text(package: str) -> str:
    lines = [f"# {package}", ""]
    if package != "bert_tf":
        lines += [f"::: {package}", "    options:", "      members: []"]
        lines += ["      show_root_heading: false", ""]
    else:  # what commands are in Python; the commands have pages of their own
        homes = importlib.import_module("bert_tf")._HOMES
        scripts = set(commands().values())
        for name, home in homes.items():
            if home in scripts:
                lines += [f"::: {home}.{name}", ""]
    for module in _modules(package):
        lines += [f"::: {module}", ""]
    return "\n".join(lines) + "\n"
