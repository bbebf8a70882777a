"""A checkout, for what a Markdown file may say of it."""

import pathlib
import re
from collections.abc import Iterator

from absl import flags

from tests.readme.commands import script_of_module

# Flags that are in the text and none of our scripts': whose they are.
OTHERS_FLAGS = {
    "help": "absl's, which every script has",
    "help_methods": "of the commands that train",
    "env_dir": "benchmarks'",
    "strict": "twine's",
}


class Project:
    """A checkout: its scripts, its make targets, its files."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.scripts = {name: script_of_module(name) for name in self._modules()}
        self.flags: dict[str, list[flags.Flag]] = {}
        for script in self.scripts.values():
            values = script.flags()
            for name in values:
                self.flags.setdefault(name, []).append(values[name])

    def _modules(self) -> Iterator[str]:
        for path in sorted(
            [*self.root.glob("bert_tf/**/*.py"), *self.root.glob("tfrecords/*.py")]
        ):
            if re.search(
                r"^def run\(options: .*\n(.*\n)*main = cli\.command\(",
                path.read_text("utf-8"),
                re.M,
            ):
                parts = path.relative_to(self.root).with_suffix("").parts
                name = ".".join(parts).removesuffix(".__main__")
                # The name that works both in a checkout and after `pip install`.
                yield re.sub(r"^tfrecords\.", "bert_tf.tfrecords.", name)

    def has_flag(self, name: str) -> bool:
        """Whether a script has it, or its `no`."""
        return self._found(name) != [] or name in OTHERS_FLAGS

    def _found(self, name: str) -> list[flags.Flag]:
        positive = [f for f in self.flags.get(name.removeprefix("no"), []) if f.boolean]
        return self.flags.get(name) or (positive if name.startswith("no") else [])

    def takes(self, name: str, value: str) -> bool:
        """Whether a flag takes a value, in one script at least."""
        for flag in self._found(name):
            try:
                flag.parser.parse(value)
            except (ValueError, TypeError):
                continue
            return True
        return False

    def benchmark_flags(self, path: str) -> set[str]:
        """The flags of a benchmark and of the modules beside it, by their text."""
        texts = [self.root / path, *self.root.glob("benchmarks/parts/*.py")]
        pattern = re.compile(r'(?:DEFINE_\w+\(|add_argument\()\s*"(?:--)?(\w+)"')
        return {
            name for each in texts for name in pattern.findall(each.read_text("utf-8"))
        }

    def makefile(self) -> str:
        """The Makefile."""
        return (self.root / "Makefile").read_text("utf-8")
