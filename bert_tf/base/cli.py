"""From a command line to a function: parsing, `--help`, and errors in one line.

A script is a function `run(options)` of a class of options (`bert_tf.base.options`),
which it passes to `main` here. Flags are defined when `main` runs, so that several
scripts can run in one process (tests, the quickstart) and `--help` needs no TensorFlow.

Exit codes: 0 done; 1 wrong flags (absl's own code); 2 wrong input; 128 + N stopped by
signal N (143 for SIGTERM) with everything saved.
"""

import errno
import functools
import gc
import importlib
import importlib.util
import inspect
import io
import logging as python_logging
import os
import re
import signal
import sys
import textwrap
import time
import typing
from collections.abc import Callable, Container, Sequence
from typing import Any, NoReturn, TypeVar

from absl import app, flags, logging

import bert_tf
from bert_tf.base import keras_backend, options
from bert_tf.base.errors import InputError, cause_of, without_nodes
from bert_tf.training import launch

T = TypeVar("T", bound=options.Options)

EXIT_USAGE_ERROR = 1
EXIT_INPUT_ERROR = 2
_LONGEST_LINE = 2000
_SECONDS_FOR_OTHERS = 3.0


def command(run: Callable[[T], Any], **settings: Any) -> Callable[[], None]:
    """Returns the `main` of a script, which passes `run` and the settings to `main`."""
    return lambda: main(run, **settings)


def main(
    run: Callable[[T], Any],
    arguments: str | None = None,
    *,
    argument_kind: options.Path = options.Path.OUTPUT,
) -> None:
    """Parses `sys.argv`, runs the script and exits."""
    # `arguments` names the positional arguments, whose kind is `argument_kind`.
    # TensorFlow and Keras keep a million objects, and a graph about 100,000: searching
    # them for garbage every 700 objects takes a tenth of a short run's time.
    gc.set_threshold(20_000, 10, 10)
    kind = options_of(run)
    options.define(flags.FLAGS, kind)
    names = list(options.declarations(kind))
    if "version" not in names:  # evaluate_squad has such a flag: SQuAD's version
        version = f"bert_tf {bert_tf.__version__}"
        flags.DEFINE_flag(_PrintingFlag("version", "the version", lambda: version))
    module = inspect.getmodule(run)
    path = os.path.splitext(inspect.getfile(run))[0].removesuffix("/__main__")
    script = os.path.basename(path)
    # absl prints the main module's docstring above the flags.
    sys.modules["__main__"].__doc__ = (module and module.__doc__) or ""
    _set_up_logging()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # For text that the terminal's encoding lacks; stderr already does this.
        sys.stdout.reconfigure(errors="backslashreplace")
    read: list[T] = []

    def guarded(argv: Sequence[str]) -> None:
        del argv
        (found,) = read
        try:
            options.check_paths(found)
            for path in found.positional:
                options.check_path(path, "", argument_kind)
            workers = getattr(found, "local_workers", 1)
            if workers > 1 and not launch.is_one():
                sys.exit(launch.run(workers))
            with keras_backend.packages_of_training():
                run(found)
            if sys.stdout:
                sys.stdout.flush()
        except BrokenPipeError:
            raise
        except _users_errors() as error:
            print(f"{script}: {one_line(error)}", file=sys.stderr)
            _leave_other_processes()
            sys.exit(EXIT_INPUT_ERROR)
        except KeyboardInterrupt:
            # A second Ctrl-C, while Python ends, would print a traceback.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print(
                f"{script}: interrupted. Start the same command again to resume.",
                file=sys.stderr,
            )
            sys.exit(128 + signal.SIGINT)

    def parsed(argv: Sequence[str]) -> list[str]:
        # Flags after a stray argument are flags, too.
        flags.FLAGS.set_gnu_getopt()
        # Replaces absl's flag, which app.run has defined.
        flag = _PrintingFlag("help", "this help", lambda: _help(kind), short_name="?")
        flags.DEFINE_flag(flag)
        if _methods(kind):
            flag = _PrintingFlag(
                _HELP_METHODS, "these flags", lambda: _help(kind, True)
            )
            flags.DEFINE_flag(flag)
        try:
            left = flags.FLAGS(argv)
            if left[1:] and arguments is None:
                raise flags.Error(
                    f"Unexpected argument {left[1]!r}: flags are written --name=value"
                    " (a boolean too: --do_train=False), without spaces"
                )
            read.append(options.read(flags.FLAGS, kind, left[1:]))
            return left
        except flags.UnrecognizedFlagError as error:
            ours = _meaning(error.flagname, names)
            if not ours:
                _refuse_usage(error)
            _refuse_usage(f"Unknown command line flag {error.flagname!r}. Here: {ours}")
        except InputError as error:
            _refuse_usage(one_line(error))
        except (flags.Error, ValueError) as error:
            _refuse_usage(error)

    try:
        app.run(guarded, flags_parser=parsed)
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def options_of(run: Callable[[T], Any]) -> type[T]:
    """Returns the class of a script's options."""
    return typing.get_type_hints(run)["options"]


def parse(run: Callable[[T], Any], arguments: Sequence[str]) -> T:
    """Returns a script's options from arguments; absl's global flags do not change."""
    kind = options_of(run)
    flag_values = flags.FlagValues()
    flag_values.set_gnu_getopt()
    options.define(flag_values, kind)
    positional = flag_values(["bert_tf", *arguments])[1:]
    try:
        return options.read(flag_values, kind, positional)
    except InputError as error:
        message = _with_flags(str(error), options.declarations(kind))
        raise flags.IllegalFlagValueError(message) from error


def run_script(script: Any, **values: Any) -> None:
    """Runs a script in this process, with flags as on its command line but no Nones."""
    arguments = [
        f"--{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in values.items()
        if value is not None
    ]
    script.run(parse(script.run, arguments))


def _refuse_usage(message: object) -> NoReturn:
    given = re.search("--([a-z_]+=[a-z]+)", str(message))
    if given and (ours := _meaning(given[1], ())):
        message = f"{str(message).rstrip('.')}. {ours}"
    print(f"FATAL Flags parsing error: {message}", file=sys.stderr)
    print("Pass --help to see help on flags.", file=sys.stderr)
    sys.exit(EXIT_USAGE_ERROR)


@functools.cache
def _our_folders() -> tuple[str, ...]:
    # In a checkout tfrecords/ is next to bert_tf/, in a wheel within it.
    records = importlib.util.find_spec("bert_tf.tfrecords")
    others = records.submodule_search_locations if records else None
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return package, *(others or ())


class _OurLines(python_logging.Filter):
    """Keeps bert_tf's log, and warnings of any library."""

    def filter(self, record: python_logging.LogRecord) -> bool:
        # Harmless: each run in a process has its own functions, for few shapes.
        if "triggered tf.function retracing" in record.getMessage():
            return False
        return record.levelno >= python_logging.WARNING or record.pathname.startswith(
            _our_folders()
        )


class _PlainFormatter(python_logging.Formatter):
    """Formats a message, after its level unless that is INFO."""

    def format(self, record: python_logging.LogRecord) -> str:
        message = super().format(record)
        if record.pathname.startswith(_our_folders()):
            message = _with_flags(message)
        if record.levelno == python_logging.INFO:
            return message
        return f"{record.levelname}: {message}"


def _set_up_logging() -> None:
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.addFilter(_OurLines())
    handler.setFormatter(_PlainFormatter())


def show_log() -> None:
    """Shows the log if Python calls a `run`, unless a log level was already set."""
    own = logging.get_absl_logger()
    is_set_up = logging.get_absl_handler() in python_logging.root.handlers
    if is_set_up or own.level != python_logging.NOTSET:
        return
    if python_logging.root.handlers:  # set up by a notebook or by the calling program
        own.setLevel(min(python_logging.INFO, own.getEffectiveLevel()))
        return
    flags.FLAGS.mark_as_parsed()  # absl would warn that its flags have not been parsed
    _set_up_logging()


def _users_errors() -> tuple[type[Exception], ...]:
    """Returns errors of files, disks, networks or memory, rather than of our code."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return InputError, OSError
    errors = tensorflow.errors
    jax = sys.modules.get("jax")
    return (
        *((jax.errors.JaxRuntimeError,) if jax else ()),
        InputError,
        OSError,
        errors.AbortedError,
        errors.DataLossError,
        errors.DeadlineExceededError,
        errors.FailedPreconditionError,
        errors.NotFoundError,
        errors.PermissionDeniedError,
        errors.ResourceExhaustedError,
        errors.UnauthenticatedError,
        errors.UnavailableError,
    )


def _leave_other_processes() -> None:
    """Exits at once if JAX would wait minutes for processes that have failed."""
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return
    if jax.process_index() == 0:
        # If the first process is gone, the others end without a message of their own.
        time.sleep(_SECONDS_FOR_OTHERS)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(EXIT_INPUT_ERROR)


@keras_backend.packages_of_training()
def import_tensorflow(given: options.Options | None = None) -> None:
    """Imports TensorFlow, without the messages that its C++ code prints at import."""
    # Also chooses Keras' back end as given, and shows the log.
    show_log()
    keras_backend.choose(getattr(given, "backend", None))
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if level != "3" or "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nowhere, keras_backend.without_unused_packages():
        os.dup2(nowhere.fileno(), 2)
        try:
            importlib.import_module("tensorflow")  # and Keras, which it imports
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def require_packages(needed_for: str, *names: str) -> None:
    """Checks for rarely needed packages before any work, without importing them."""
    specs = {name: importlib.util.find_spec(name) for name in names}
    # A folder of this name in the working directory is a package without a file.
    missing = [name for name, spec in specs.items() if not (spec and spec.origin)]
    if missing:
        install = f"pip install {' '.join(missing)}"
        raise InputError(f"{needed_for} needs {' and '.join(missing)}: {install}")


def _with_flags(message: str, names: Container[str] | None = None) -> str:
    """Returns a message with a Python caller's `max_seq_length=640` as a flag."""
    known = set(flags.FLAGS) if names is None else names

    def flag(match: re.Match[str]) -> str:
        return f"--{match[1]}" if match[2] in known else match[0]

    return re.sub("`(([a-z_0-9]+)(?:=[^`]*)?)`", flag, message)


def one_line(error: Exception) -> str:
    """Returns an exception's message in one line; for TensorFlow's, the cause."""
    if isinstance(error, OSError) and error.strerror:
        return ": ".join([error.strerror, *filter(None, [error.filename])])
    text = str(error)
    # Only TensorFlow's errors have lines about the graph.
    if not isinstance(error, (InputError, OSError)):
        text = cause_of(text)
        if "gs://" in text and "HTTP" in text:
            text += (
                ". Check the network, and the credentials: gcloud auth"
                " application-default login"
            )
    text = _with_flags(without_nodes(text))
    # By its name, because nothing here imports TensorFlow.
    # A full disk raises this error, too, but its message is clear.
    of_disks = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
    is_exhausted = type(error).__name__ == "ResourceExhaustedError" or text.startswith(
        "RESOURCE_EXHAUSTED"
    )
    if is_exhausted and not any(reason in text for reason in of_disks):
        text += (
            ". Memory is short: make batches or sequences smaller, or train with"
            " --gradient_accumulation_steps or --recompute."
        )
    line = " ".join(text.split())
    if len(line) > _LONGEST_LINE:
        # A line of a file may have a megabyte; the advice comes last.
        line = f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 2 :]}"
    return line


# The output of --help and --version.

_WIDTH = 80
_SAYS_ITS_DEFAULT = ("Default:", "default is", "unless given", "by default")


class _PrintingFlag(flags.BooleanFlag):
    """A flag that prints a text and exits: --help, --version."""

    def __init__(self, name: str, what: str, text: Callable[[], str], **kwargs: Any):
        super().__init__(name, False, f"show {what}", allow_hide_cpp=True, **kwargs)
        self.allow_override = True
        self._text = text

    def parse(self, arg: str | bool) -> None:
        """Exits if the flag is set."""
        if self._parse(arg):
            print(self._text(), flush=True)
            sys.exit(0)


def _help(kind: type[options.Options], of_methods: bool = False) -> str:
    """Returns the page of the main module's flags, or of its methods alone."""
    # Flags given before --help are not defaults.
    flags.FLAGS.unparse_flags()
    flags.FLAGS.mark_as_parsed()
    if of_methods:
        entries = [_entry(flags.FLAGS[name]) for name in _methods(kind)]
        return "\n".join([f"{options.METHODS}:", *entries])
    return page(sys.modules["__main__"].__doc__ or "", flags.FLAGS, kind)


_HELP_METHODS = "help_methods"


def _methods(kind: type[options.Options]) -> list[str]:
    return options.groups(kind).get(options.METHODS, [])


def page(
    docstring: str, flag_values: flags.FlagValues, kind: type[options.Options]
) -> str:
    """Returns the text of --help: required flags, then the others by group."""
    names = list(options.declarations(kind))
    required = [name for name in names if options.is_required(kind, name)]
    rules = [_with_flags(rule, names) for rule in options.problems_of_defaults(kind)]
    parts = [docstring.strip()]
    if required or rules:
        entries = [_entry(flag_values[name]) for name in required]
        entries += [textwrap.indent(rule, "  ") for rule in dict.fromkeys(rules)]
        parts.append("\n".join(["Must be given:", *entries]))
    for title, group in options.groups(kind).items():
        entries = [_entry(flag_values[one]) for one in group if one not in required]
        if entries and title != options.METHODS:
            parts.append("\n".join([f"{title}:", *entries]))
    if methods := _methods(kind):
        flags_of_methods = ", ".join(f"--{name}" for name in methods)
        text = f"--{_HELP_METHODS} shows other ways to train: {flags_of_methods}."
        parts.append(textwrap.fill(text, _WIDTH, break_on_hyphens=False))
    parts.append("--helpfull shows the flags of absl, too.")
    return "\n\n".join(parts)


def _entry(flag: flags.Flag) -> str:
    usage = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    values = getattr(flag.parser, "enum_values", None) or ()
    # absl prints the values before the text.
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


# Flag names of other packages, for command lines that use them.

# Our names, and patterns of theirs with underscores for dashes. If commands have
# different names for it, all are listed, and this command's own name is suggested.
_OURS = {
    "--bert_config_file": "config_name config_overrides",
    "--bert_config_file or --bert_size": "model_type",
    "--best_metric": "metric_for_best_model greater_is_better",
    "--beta_1": "adam_beta1",
    "--beta_2": "adam_beta2",
    "--clip_norm": "max_grad_norm",
    "--dev_file or --predict_file or --eval_input_file": (
        "validation_file evaluation_file eval_data_path"
    ),
    "--dev_share": "validation_split_percentage",
    "--distribution": "local_rank ddp_.* fsdp.* deepspeed",
    "--do_lower_case=False": "cased",
    "--do_predict, which scores where answers are known": "do_eval",
    "--end_learning_rate": "end_lr",
    "--epsilon": "adam_epsilon",
    "--eval_batch_size or --predict_batch_size": "(per_(device|gpu)_)?eval_batch_size",
    "--eval_steps": "(eval|evaluation)_strategy do_eval_during_training",
    "--eval_steps, which keeps the best checkpoint in best/": "load_best_model_at_end",
    "--init_checkpoint or --checkpoint": "model_name_or_path",
    "--init_head=False": "ignore_mismatched_sizes",
    "--input_file": "input_files train_file",
    "--iterations_per_loop": "steps_per_loop",
    "--jit_compile": "enable_xla torch_compile.* jit_mode_eval",
    "--keep_checkpoint_max": "save_total_limit",
    "--label_column": "label_column_name",
    "--label_smoothing": "label_smoothing_factor",
    "--learning_rate": "lr",
    "--learning_rate_schedule": "lr_scheduler_(type|kwargs)",
    "--length_buckets": "group_by_length train_sampling_strategy",
    "--log_steps": "logging_(steps|strategy|first_step)",
    "--masked_lm_prob": "mlm_probability",
    "--max_eval_steps or a shorter file": "max_(eval|val)_samples",
    "--max_seq_length": "max_length",
    "--metrics": "metric_name",
    "--next_sentence": "use_next_sentence_label",
    "--num_train_steps or --num_train_epochs": "num_train_.* (num_)?epochs max_steps",
    "--num_warmup_steps or --warmup_proportion": "(num_)?warmup_(steps|ratio)",
    "--num_workers or none is needed": "(dataloader|preprocessing)_num_workers",
    "--optimizer": "optim optimizer_type adafactor",
    "--output_dir": "model_dir",
    "--output_dir or --output_file": "output_path",
    "--output_dir, which the run is named after": "run_name",
    "--overwrite or another --output_dir": "overwrite_output_dir",
    "--pad=max": "pad_to_max_length",
    "--patience or --stop_if": "early_stopping_(patience|threshold)",
    "--precision": "dtype torch_dtype (bf16|fp16)_full_eval",
    "--precision=bfloat16": "bf16",
    "--precision=float16": "fp16(_opt_level|_backend)?",
    "--predict_file": "(dev|test)_file",
    "--random_seed": "(data_)?seed full_determinism",
    "--recompute": "gradient_checkpointing(_kwargs)?",
    "--regression": "do_regression",
    "--save_checkpoints_steps": "save_(steps|strategy)",
    "--smart_weight, which also adds noise to embeddings": "neftune_noise_alpha",
    "--text_a_column": "text_column_names",
    "--tfds_name": "dataset_(config_)?name",
    "--tfds_splits": "(train|validation|test)_split_name",
    "--tpu_name": "tpu",
    "--train_batch_size": "batch_size bsz",
    "--train_batch_size of all devices": "per_(device|gpu)_train_batch_size",
    "--train_batch_size or --gradient_accumulation_steps": "auto_find_batch_size",
    "--train_file or --data_dir": "train_data_path",
    "--vocab_file": "tokenizer_name",
    "--weight_decay_rate": "weight_decay",
    "--word_column or --text_a_column": "text_column_name",
    "CUDA_VISIBLE_DEVICES= before the command": "no_cuda use_cpu",
    "TensorBoard's logs are always in --output_dir": (
        "logging_dir report_to=(tensorboard|none|all)"
    ),
    "a shorter file": "max_(train|predict)_samples",
    "absl's --verbosity": "log_level",
    "export_model, whose folder is then uploaded": "push_to_hub.* hub_(?!token).*",
    "HF_HOME and HF_TOKEN in the environment": "cache_dir (hub_|use_auth_)?token",
    "none is needed": "dataloader_.* use_fast_tokenizer tf32 disable_tqdm debug"
    " ignore_data_skip low_cpu_mem_usage trust_remote_code skip_memory_metrics",
    "none is needed: a changed file is read again": "overwrite_cache",
    "none is needed: the columns that flags name are read": "remove_unused_columns",
    "the same command given again resumes": "resume_from_checkpoint",
}


def _meaning(name: str, names: Sequence[str]) -> str:
    """Returns this command's name for an unknown flag; "" if there is none."""
    name = name.replace("-", "_")
    if name in names:
        return f"--{name}"
    fitting = (o for o, of in _OURS.items() if re.fullmatch(of.replace(" ", "|"), name))
    for ours in next(fitting, "").split(" or "):
        flag = re.match("--([a-z_0-9]+)", ours)
        if ours and (flag is None or flag[1] in names):
            return ours
    return ""
