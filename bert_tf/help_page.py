"""What --help and --version print.

The page has what must be given first, then the flags in their groups, each with its
default, unless its text says what that is.
"""

import re
import sys
import textwrap

from absl import app, flags

import bert_tf
from bert_tf import flag_groups

_WIDTH = 80
_SAYS_ITS_DEFAULT = ("Default:", "default is", "unless given", "by default")


class VersionFlag(flags.BooleanFlag):
    """--version: prints it, and exits."""

    def __init__(self) -> None:
        super().__init__("version", False, "show the version", allow_hide_cpp=True)

    def parse(self, arg: str | bool) -> None:
        """Exits if the flag is set."""
        if self._parse(arg):
            print(f"bert_tf {bert_tf.__version__}")
            sys.exit(0)


class HelpFlag(app.HelpFlag):
    """--help: prints the page of the main module's flags, and exits."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.allow_override = True
        self._names = names

    def parse(self, arg: str | bool) -> None:
        """Exits if the flag is set."""
        if self._parse(arg):
            # What is given before --help is no default.
            flags.FLAGS.unparse_flags()
            flags.FLAGS.mark_as_parsed()
            doc = sys.modules["__main__"].__doc__ or ""
            print(page(doc, flags.FLAGS, self._names), flush=True)
            sys.exit(0)


def page(docstring: str, flag_values: flags.FlagValues, names: list[str]) -> str:
    """The page of a command."""
    required, rules = _to_be_given(flag_values, names)
    parts = [docstring.strip()]
    if required or rules:
        entries = [_entry(flag_values[name]) for name in required]
        entries += [textwrap.indent(rule, "  ") for rule in rules]
        parts.append("\n".join(["Must be given:", *entries]))
    for title in flag_groups.TITLES:
        entries = [
            _entry(flag_values[name])
            for name in names
            if name not in required
            and flag_values[name].name == name
            and flag_groups.group_of(flag_values[name]) == title
        ]
        if entries:
            parts.append("\n".join([f"{title}:", *entries]))
    parts.append("--helpfull shows the flags of absl, too.")
    return "\n\n".join(parts)


def _to_be_given(
    flag_values: flags.FlagValues, names: list[str]
) -> tuple[list[str], list[str]]:
    """The flags that must be given, and what else the defaults alone lack."""
    required, rules = [], []
    for name in names:
        for validator in flag_values[name].validators:
            try:
                validator.verify(flag_values)
            except flags.ValidationError as error:
                if validator.get_flags_names() == [name]:
                    required.append(name)
                else:
                    rules.append(str(error)[:1].upper() + str(error)[1:])
    return required, list(dict.fromkeys(rules))


def _entry(flag: flags.Flag) -> str:
    usage = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    values = getattr(flag.parser, "enum_values", None) or ()
    # absl has the values before the text.
    text = re.sub(r"^<[^<>]*>: ", "", flag.help)
    if values:
        text = f"{' | '.join(values)}. {text}"
    text = " ".join(f"{text} {_default(flag)}".split())
    return f"  {usage}\n" + textwrap.fill(
        text,
        _WIDTH,
        initial_indent="      ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )


def _default(flag: flags.Flag) -> str:
    help_text = " ".join(flag.help.split())
    if flag.default is None or any(words in help_text for words in _SAYS_ITS_DEFAULT):
        return ""
    value = flag.default
    if flag.boolean:
        value = str(value).lower()
    elif isinstance(value, list):
        value = ",".join(map(str, value))
    return f"(default: {value})" if value != "" else ""
