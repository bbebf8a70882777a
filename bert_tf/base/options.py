"""Options: frozen dataclasses whose fields are a command's flags.

    class Devices(Options, title="Where to run", decides="nothing"):
        distribution: str = option("default", "Devices: ...", choices=DISTRIBUTIONS)
        num_tpu_cores: int = option(8, "Number of cores.", least=1)

A command's options are one such class, which inherits the groups that it needs, and
hides the options that it lacks (`hides=["num_tpu_cores"]`). Every option, or its class,
declares the part of a run that it decides, so no list of options by name is needed to
know which runs are the same. The same object is the Python interface:
`run_swag.run(ChoiceOptions(...))`; for other settings use
`dataclasses.replace(options, learning_rate=3e-5)`. Values are checked when the object
is made, on the command line before TensorFlow is imported.
"""

import dataclasses
import enum
import functools
import inspect
import math
import numbers
import os
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from absl import flags

from bert_tf.base import files
from bert_tf.base.errors import InputError

# In the order of --help.
TITLES = (
    DATA := "Data",
    MODEL := "Model",
    WHAT_TO_DO := "What to do",
    TASK := "Of this command",
    LENGTHS := "Lengths and padding",
    TRAINING := "Training",
    SEVERAL_RUNS := "Several runs",
    RESULTS := "Results",
    DEVICES := "Where to run",
    METHODS := "Other ways to train",  # listed by --help_methods
)

# The largest integer that every part of a run accepts: sizes, steps, seeds.
_MOST = 2**31 - 1

T = TypeVar("T", bound="Options")
Other = TypeVar("Other", bound="Options")


class Path(enum.Enum):
    """The kinds of path that an option takes."""

    FILE = enum.auto()
    FOLDER = enum.auto()
    # Files or folders, as comma-separated names or globs.
    FILES = enum.auto()
    # A folder, a file or prefix in it, or the name of a preset.
    CHECKPOINT = enum.auto()
    # Nothing needs to exist yet.
    OUTPUT = enum.auto()


# The part of a run that depends on an option.
Decides = Literal[
    "numbers",  # what is computed
    # How texts are read, and so what is computed: later commands read as the training.
    "reading",
    # The model's heads and objective, and so what is computed; later commands take
    # them from the training.
    "model",
    "setting",  # what is computed; a selection puts it into each run's name
    # The outcome, but no step: where a run begins, which checkpoint is the best.
    "result",
    "nothing",  # where things are (their content counts), speed, and display
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declared:
    """A field's declaration, except its type and default."""

    help: str
    decides: Decides | None = None  # None: the class decides
    least: float | None = None  # the smallest value
    most: float | None = None  # the largest value
    above: float | None = None  # a bound that is itself excluded, like `below`
    below: float | None = None
    choices: Sequence[str] = ()  # the values of a string
    path: Path | None = None  # what must exist there
    # Options of which one must be set before the path is used.
    needed_for: Sequence[str] = ()
    within: str | None = None  # the option with the folder that the path is relative to
    # The option, or option=value, without which this one has no effect.
    only_with: str | None = None
    title: str | None = None  # the group in --help, if not the class's
    in_summary: bool = False  # whether inspect_checkpoint shows the option for a run
    is_dashed: bool = False  # whether dashes are also allowed in the flag's name
    is_repeated: bool = False  # whether each of several strings has a flag of its own


# The default of a required option.
REQUIRED: Any = dataclasses.MISSING


def option(default: Any, help_text: str, **declared: Any) -> Any:
    """Returns a field that is a flag, with default and --help text; see `Declared`."""
    declaration = Declared(help=help_text, **declared)
    return dataclasses.field(default=default, metadata={"option": declaration})


def with_default(kind: type["Options"], name: str, default: Any, **changes: Any) -> Any:
    """Returns another class's field with another default and a changed declaration."""
    declared = dataclasses.replace(declarations(kind)[name], **changes)
    return dataclasses.field(default=default, metadata={"option": declared})


class _Given(frozenset[str]):
    """The names that were given, with all values at that time."""

    values: Mapping[str, Any]


def _noting(make: Callable[..., None]) -> Callable[..., None]:
    """Returns a class's __init__ that notes which options it is given."""

    @functools.wraps(make)
    def noting(
        self: Any, *, given_names: frozenset[str] | None = None, **values: Any
    ) -> None:
        given = {*(values if given_names is None else given_names)}
        if isinstance(given_names, _Given):  # `dataclasses.replace` passes all values
            before = given_names.values
            given |= {name for name in before if values.get(name) != before[name]}
        names = frozenset(name for name in given if values.get(name) is not None)
        make(self, given_names=names, **values)

    return noting


class _Signature(inspect.Signature):
    """A signature that is short: the docstring lists the options."""

    def __str__(self) -> str:
        return "(*, option=value, ...)"


class _Kind(type):
    # The metaclass of options. `help` shows a class's docstring alone, which gets the
    # options when it is requested.

    @property
    def __doc__(cls) -> str:  # type: ignore[override]
        text = inspect.cleandoc(vars(cls).get("__doc__") or cls.__name__)
        return _described(cls, text) if "__signature__" in vars(cls) else text

    def __dir__(cls) -> list[str]:
        return []


@typing.dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,)
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(metaclass=_Kind):
    """The base of all options; subclasses become frozen dataclasses."""

    title: ClassVar[str] = TASK

    # Options set on the command line, or in Python, where `dataclasses.replace` adds
    # those that it changes. None is not a value.
    given_names: frozenset[str] = dataclasses.field(
        default=frozenset(), repr=False, compare=False
    )
    # Arguments that are not flags.
    positional: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __init_subclass__(
        cls,
        title: str = TASK,
        decides: Decides | None = None,  # for its options that do not declare it
        hides: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.title = title
        for name, field in vars(cls).items():
            declared = getattr(field, "metadata", {}).get("option")
            if declared and declared.decides is None:
                if decides is None:
                    raise TypeError(f"{cls.__name__}.{name} does not say `decides`.")
                declared = dataclasses.replace(declared, decides=decides)
                field.metadata = types.MappingProxyType({"option": declared})
        # Inherited options that the command lacks: attributes with their defaults, or
        # with the class's own values.
        for name in hides:
            cls.__annotations__ = {**inspect.get_annotations(cls), name: Any}
            value = dataclasses.field(default=getattr(cls, name), init=False)
            setattr(cls, name, value)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        make = cls.__init__
        cls.__init__ = _noting(make)  # type: ignore[method-assign]
        parameters = inspect.signature(make).parameters.values()
        cls.__signature__ = _Signature([*parameters][1:])  # type: ignore[attr-defined]

    def __post_init__(self) -> None:
        for name, declared in declarations(type(self)).items():
            value = _type_of(type(self), name).converted(name, getattr(self, name))
            if declared.path and value:
                value = _expanded(value)
            object.__setattr__(self, name, value)
        given = _Given(self.given_names)
        given.values = {name: getattr(self, name) for name in declarations(type(self))}
        object.__setattr__(self, "given_names", given)
        for problem in self.problems():
            raise InputError(problem)

    def problems(self) -> Iterator[str]:
        """Yields the errors in the values, each in one sentence."""
        for name, declared in declarations(type(self)).items():
            value = getattr(self, name)
            empty = "" if is_required(type(self), name) else ()
            if value == empty != default_of(type(self), name):
                yield f"`{name}` must not be empty."
            several = isinstance(value, tuple)
            for one in value if several else [value]:
                problem = _problem(one, declared)
                if problem:
                    of_each = ", each of them" if several else ""
                    yield f"`{name}={one}` {problem}{of_each}."
            needed = declared.only_with
            if needed and self.has(needed.partition("=")[0]):
                yield from self.require_for([name], needs=needed)

    def has(self, name: str) -> bool:
        """Whether there is an option of that name."""
        return name in declarations(type(self))

    def is_given(self, name: str) -> bool:
        """Whether it was set on the command line or in Python, to any value."""
        return name in self.given_names

    def value_if_given(self, name: str) -> Any:
        """Returns an option's value if it was given, else None."""
        return getattr(self, name) if self.is_given(name) else None

    def with_defaults(self: T, **values: Any) -> T:
        """Returns a copy with other values, which do not count as given."""
        given = frozenset(self.given_names)
        return dataclasses.replace(self, given_names=given, **values)

    def to(self, options_class: type[Other], **changes: Any) -> Other:
        """Returns options of another class, with the shared values and some changes."""
        fields = [one for one in dataclasses.fields(options_class) if one.init]
        names = [field.name for field in fields if hasattr(self, field.name)]
        values = {name: getattr(self, name) for name in names}
        values["given_names"] = self.given_names | changes.keys()
        return options_class(**values | changes)

    def as_flags(self) -> dict[str, Any]:
        """Returns every option's value by name, as JSON."""
        values = {name: getattr(self, name) for name in declarations(type(self))}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    def need_one_of(self, *names: str) -> Iterator[str]:
        """Yields a problem if none of these options is set."""
        if not any(getattr(self, name) for name in names):
            wanted = ", ".join(f"`{name}`" for name in names)
            yield f"Nothing to do: give at least one of {wanted}."

    def need_one_given(self, *names: str) -> Iterator[str]:
        """Yields a problem if none of these options is given."""
        if all(getattr(self, name) is None for name in names):
            yield f"Give {' or '.join(f'`{name}`' for name in names)}."

    def need_with(self, name: str, *others: str) -> Iterator[str]:
        """Yields a problem if an option is set without any of the others."""
        if getattr(self, name) and not any(getattr(self, other) for other in others):
            yield f"`{name}` needs {' or '.join(f'`{other}`' for other in others)}."

    def refuse_together(
        self, *names: str, why: str = "mean the same: give one of them"
    ) -> Iterator[str]:
        """Yields a problem if options that exclude each other are set."""
        values = [getattr(self, name) if self.is_given(name) else "" for name in names]
        if all(value is not False and value not in ("", ()) for value in values):
            yield f"{' and '.join(f'`{name}`' for name in names)} {why}."

    def require_for(self, names: Iterable[str], needs: str) -> Iterator[str]:
        """Yields a problem if options are set without the one that they need."""
        # Giving a default does no harm.
        kind = type(self)
        changed = [
            name for name in names if getattr(self, name) != default_of(kind, name)
        ]
        useless = [name for name in changed if self.is_given(name)]
        name, _, wanted = needs.partition("=")
        value = getattr(self, name)
        if useless and not (value == wanted if wanted else value):
            needed = f"{needs}=true" if isinstance(value, bool) else needs
            yield f"`{useless[0]}` has no effect without `{needed}`: give both or none."


def declarations(kind: type[Options]) -> dict[str, Declared]:
    """Returns the options of a class by name, in the order of its groups."""
    return {
        field.name: field.metadata["option"]
        for field in dataclasses.fields(kind)
        if "option" in field.metadata
    }


def deciding(kind: type[Options], *words: Decides) -> list[str]:
    """Returns the options of a class that decide one of these."""
    found = declarations(kind).items()
    return [name for name, declared in found if declared.decides in words]


def default_of(kind: type[Options], name: str) -> Any:
    """Returns an option's default; MISSING if it must be given."""
    return kind.__dataclass_fields__[name].default


def is_required(kind: type[Options], name: str) -> bool:
    """Whether an option has no default."""
    return default_of(kind, name) is dataclasses.MISSING


def title_of(kind: type[Options], name: str) -> str:
    """Returns an option's title, or else the title of the class declaring it first."""
    if title := declarations(kind)[name].title:
        return title
    first: Any = next(
        each
        for each in reversed(kind.__mro__)
        if name in vars(each).get("__annotations__", ())
    )
    return first.title


def groups(kind: type[Options]) -> dict[str, list[str]]:
    """Returns the names of options by title, in the order of --help."""
    found: dict[str, list[str]] = {title: [] for title in TITLES}
    for name in declarations(kind):
        found[title_of(kind, name)].append(name)
    return {title: names for title, names in found.items() if names}


def _described(kind: Any, text: str) -> str:
    """Returns a text with the options of a class, in the groups of --help."""
    for title, names in groups(kind).items():
        text += "\n".join([f"\n\n{title}:", *(_entry(kind, name) for name in names)])
    return text


def _entry(kind: type[Options], name: str) -> str:
    """Returns the entry for an option in `help`."""
    declared, default = declarations(kind)[name], default_of(kind, name)
    head = f"    {name}: {inspect.formatannotation(_hints(kind)[name])}"
    if default is not dataclasses.MISSING:
        head += f" = {default!r}"
    text = re.sub("--(?=[a-z])", "", declared.help)
    if declared.choices:
        text = f"One of {', '.join(map(repr, declared.choices))}. {text}"
    lines = textwrap.wrap(text, 72, break_on_hyphens=False)
    return "\n".join([head, *(8 * " " + line for line in lines)])


class _Type(NamedTuple):
    """The type of an option's values."""

    element: type
    is_several: bool
    is_optional: bool

    def converted(self, name: str, value: Any) -> Any:
        """Returns a value, converted if need be (1 to 1.0), or raises InputError."""
        several = self.is_several and isinstance(value, list | tuple)
        values = value if several else [value]
        if self.is_optional and (value is None or not values):
            return None
        kind, words = _KINDS[self.element]
        for one in values:
            is_other = isinstance(one, bool) and self.element is not bool
            if is_other or not isinstance(one, kind):
                of_each = ", or several of them" if self.is_several else ""
                raise InputError(f"`{name}={one!r}` must be {words}{of_each}.")
        convert = os.fspath if self.element is str else self.element
        converted = tuple(map(convert, values))
        return converted if self.is_several else converted[0]


# The values accepted for each type, and their names.
_KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: ((str, os.PathLike), "a string"),
}

_hints: Any = functools.cache(typing.get_type_hints)


def _type_of(kind: type[Options], name: str) -> _Type:
    """Returns an option's type, from its annotation."""
    hint = _hints(kind)[name]
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    (element,) = [member for member in members if member is not type(None)]
    is_several = typing.get_origin(element) is tuple
    element = typing.get_args(element)[0] if is_several else element
    return _Type(element, is_several, len(members) > 1)


def define(flag_values: flags.FlagValues, kind: type[Options]) -> None:
    """Defines a flag for every option."""
    for name, declared in declarations(kind).items():
        default = default_of(kind, name)
        is_required = default is dataclasses.MISSING
        default = None if is_required else default
        if isinstance(default, tuple):
            default = list(default)
        define_flag = _definer(_type_of(kind, name), declared)
        define_flag(
            name=name, default=default, help=declared.help, flag_values=flag_values
        )
        flag_values[name].group = title_of(kind, name)  # type: ignore[attr-defined]
        if declared.is_dashed:
            dashed = name.replace("_", "-")
            flags.DEFINE_alias(dashed, name, flag_values=flag_values)
        if is_required:
            why = f"must be given. {declared.help.partition('.')[0]}."
            flags.register_validator(name, lambda x: x is not None, why, flag_values)


def read(
    flag_values: flags.FlagValues, kind: type[T], positional: Sequence[str] = ()
) -> T:
    """Returns the options that a command line gives."""
    names = list(declarations(kind))
    values = {name: flag_values[name].value for name in names}
    given = frozenset(name for name in names if flag_values[name].present)
    return kind(**values, given_names=given, positional=tuple(positional))


FLAGS_NAME = "flags.json"  # a run's flags, in its folder
BEST_FOLDER = "best"  # in it, the checkpoint of the best evaluation


def flags_of_run(folder: str) -> dict[str, Any]:
    """Returns the flags of the run in a folder; none if it has no run."""
    path = os.path.join(folder, FLAGS_NAME)
    return files.read_object(path) if files.exists(path) else {}


def problems_of_defaults(kind: type[Options]) -> list[str]:
    """Returns problems of the defaults alone, for --help."""
    blank = object.__new__(kind)
    for field in dataclasses.fields(kind):
        is_required = field.default is dataclasses.MISSING
        object.__setattr__(blank, field.name, "." if is_required else field.default)
    object.__setattr__(blank, "given_names", frozenset())
    return list(blank.problems())


def check_paths(options: Options) -> None:
    """Raises InputError unless the given paths exist. Does not import TensorFlow."""
    for name, declared in declarations(type(options)).items():
        value = getattr(options, name)
        if declared.path is None or not value or not options.is_given(name):
            continue
        needed = [getattr(options, use) for use in declared.needed_for]
        if needed and not any(needed):
            continue
        folder = (getattr(options, declared.within) or "") if declared.within else ""
        if isinstance(value, str):
            is_list = declared.path is Path.FILES
            value = files.split_paths(value) if is_list else [value]
        for path in value:
            check_path(os.path.join(folder, path), f"`{name}`: ", declared.path)


# Possible names of KerasHub presets; KerasHub has the list of existing ones.
_PRESET = re.compile("[a-z0-9_]+")
# Possible names of models on the Hugging Face Hub.
_ON_THE_HUB = re.compile(r"(?!.*ckpt)[\w-]+(/[\w.-]+)?")


def check_path(path: str, where: str, kind: Path) -> None:
    """Raises InputError if a local path does not exist or is of the wrong kind."""
    if not path or files.is_remote(path):
        return
    if kind is Path.OUTPUT or files.exists(path):
        if kind is Path.FOLDER and not files.is_folder(path):
            raise InputError(f"{where}{path} is a file, not a folder.")
        if kind is Path.FILE and files.is_folder(path):
            raise InputError(f"{where}{path} is a folder; give a file.")
    elif kind is Path.FOLDER or (kind is Path.FILE and path != "-"):  # - is stdin
        what = kind.name.lower()
        raise InputError(f"{where}no such {what}: {path}. {files.instead(path)}")
    elif kind is Path.FILES and not files.matching(path):
        raise InputError(f"{where}no file matches {path!r}. {files.instead(path)}")
    elif (
        kind is Path.CHECKPOINT
        and not _PRESET.fullmatch(path)
        and not files.exists(path + ".index")
    ):
        raise InputError(f"{where}{no_checkpoint(path)}")


def no_checkpoint(path: str) -> str:
    """Returns the message for a missing checkpoint, neither a folder nor a prefix."""
    message = f"No checkpoint {path}: there is no such folder, and no {path}.index."
    if files.exists_here(os.path.dirname(path)) or not _ON_THE_HUB.fullmatch(path):
        return f"{message} {files.instead(path)}"
    return (
        f"{message} If it is on the Hugging Face Hub, download it and give FOLDER: pip"
        f" install huggingface_hub; hf download {path} --local-dir FOLDER"
    )


def _expanded(value: str | Sequence[str]) -> Any:
    """Returns a path, or several, with the user's folder for `~`."""
    if isinstance(value, str):
        return ",".join(files.expanded(path) for path in value.split(","))
    return tuple(files.expanded(path.strip()) for path in value)


def _problem(value: Any, declared: Declared) -> str:
    """Returns the error in a value; "" if there is none."""
    if value is None or isinstance(value, bool):
        return ""
    if declared.choices and value not in declared.choices:
        return f"must be one of {', '.join(declared.choices)}"
    if isinstance(value, str):
        return ""
    if math.isnan(value):
        return "must be a number"
    most = declared.most
    if most is None:
        most = _MOST if isinstance(value, int) else sys.float_info.max
    if declared.least is not None and value < declared.least:
        return f"must be at least {declared.least}"
    if value > most:
        return f"must be at most {most}"
    if declared.above is not None and value <= declared.above:
        return f"must be above {declared.above}"
    if declared.below is not None and value >= declared.below:
        return f"must be below {declared.below}"
    return ""


class _NumbersParser(flags.ArgumentParser):
    """Parses comma-separated numbers, such as 5e-5,3e-5, to a list."""

    syntactic_help = "numbers with commas between"

    def __init__(self, number: Callable[[Any], Any]) -> None:
        super().__init__()
        self._number = number

    def parse(self, argument: Any) -> list[Any]:
        """Returns the numbers in a flag's text, or in a default."""
        parts = argument.split(",") if isinstance(argument, str) else argument
        try:
            return [self._number(part) for part in parts]
        except ValueError as error:
            kind = "whole numbers" if self._number is int else "numbers"
            raise ValueError(f"must be {kind} with commas between") from error

    def flag_type(self) -> str:
        """Returns the type's name in --help."""
        return "numbers"


def _definer(of: _Type, declared: Declared) -> Callable[..., Any]:
    """Returns absl's function for defining a flag of this type, with keywords."""
    if of.is_several:
        if declared.is_repeated:
            return flags.DEFINE_multi_string
        if of.element is str:
            return flags.DEFINE_list
        serializer = flags.CsvListSerializer(",")
        parser = _NumbersParser(of.element)
        return functools.partial(flags.DEFINE, parser, serializer=serializer)
    if declared.choices:
        return functools.partial(flags.DEFINE_enum, enum_values=declared.choices)
    by_kind: dict[type, Callable[..., Any]] = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    return by_kind[of.element]
