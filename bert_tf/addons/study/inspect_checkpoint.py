"""A printed summary of a checkpoint."""

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bert_tf.addons.study.inspect_records import manifest_lines
from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, declarations, flags_of_run
from bert_tf.tasks.data_set_options import ClassifierOptions
from bert_tf.tasks.pretraining_options import PretrainingOptions

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

_SAID_BY_PHASES = ("max_seq_length", "train_batch_size", "num_train_steps")
_ENCODER = ("embeddings", "encoder", "pooler")
_OTHER = "other"


def report(source: "Source") -> str:
    """Returns a page on a checkpoint."""
    lines = [source.path, f"  {'format':30} {source.format}"]
    lines += [f"  {name:30} {value}".rstrip() for name, value in _facts(source)]
    return "\n".join(lines)


def _facts(source: "Source") -> Iterator[tuple[str, str]]:
    from bert_tf.conversion.source import OF_TENSORFLOW
    from bert_tf.conversion.tensorflow import step_of

    yield "weights", source.weights.path
    if source.format in OF_TENSORFLOW:
        step = step_of(source.weights.path)
        if step is not None:
            yield "step", f"{step:,}"
    if source.config is None:
        yield "configuration", "none: its config file is missing"
    else:
        yield "configuration", ""
        for name, value in source.config.to_dict().items():
            yield f"  {name}", str(value)
    yield from _parameters(source)
    tokenizer = source.tokenizer
    if tokenizer.vocabulary is None:
        yield "vocabulary", "none"
    else:
        yield "vocabulary", f"{len(tokenizer.vocabulary):,} tokens, {tokenizer.path}"
        yield "  sha256", tokenizer.vocabulary.sha256
    casing = {True: "lower-cased", False: "cased", None: "not said"}
    yield "casing", casing[tokenizer.do_lower_case]
    if tokenizer.has_segmenter:
        yield "segmenter", str(tokenizer.segmenter)
    if tokenizer.difference:
        yield "tokenizer", f"another one than ours: {tokenizer.difference}"
    yield from _training(source)


def _parameters(source: "Source") -> Iterator[tuple[str, str]]:
    from bert_tf.conversion import names

    shapes = source.weights.shapes
    parts = dict.fromkeys((*_ENCODER, *names.HEADS, _OTHER), 0)
    head_of_weight = {
        row.original: head.name for head in names.HEADS.values() for row in head.weights
    }
    for name, shape in shapes.items():
        first, _, rest = name.partition("/")
        part = rest.partition("/")[0] if first == "bert" else _OTHER
        part = head_of_weight.get(name) or (part if part in _ENCODER else _OTHER)
        parts[part] += math.prod(shape)
    yield "parameters", f"{sum(parts.values()):,} in {len(shapes)} tensors"
    for part, size in parts.items():
        if size:
            yield f"  {part}", f"{size:>13,}"
    heads = names.heads_of(shapes)
    yield "heads", ", ".join(heads) or "none"
    if source.labels is not None:
        yield "labels", ", ".join(source.labels) or "none: regression"
    if source.problem_type is not None:
        yield "problem type", source.problem_type


def summary_names() -> list[str]:
    """Returns the names of the flags that describe a run's training."""
    found = declarations(PretrainingOptions) | declarations(ClassifierOptions)
    return [name for name, declared in found.items() if declared.in_summary]


def _training(source: "Source") -> Iterator[tuple[str, str]]:
    """Yields the contents of a run's files, and of its records' manifests, if any."""
    from bert_tf.records.manifest import find_manifests

    values = flags_of_run(source.folder)
    if not values:
        return
    yield "trained by", os.path.join(source.folder, "flags.json")
    unused = _SAID_BY_PHASES if values.get("phases") else ()
    for name in summary_names():
        if values.get(name) is not None and name not in unused:
            yield f"  --{name}", str(values[name])
    if not values.get("input_file"):
        return
    patterns = files.split_paths(str(values["input_file"]))
    paths = [path for pattern in patterns for path in files.matching(pattern)]
    manifests = find_manifests(paths)
    if not manifests:
        yield "records", "no manifest of them is there any more"
    for manifest in manifests:
        first, *others = manifest_lines(manifest)
        yield "records", first
        yield from (("", line) for line in others)


def run(options: Options) -> None:
    """Prints a page for each checkpoint."""
    if not options.positional:
        raise InputError("Give a checkpoint: python -m bert_tf.inspect_checkpoint PATH")
    cli.import_tensorflow(options)
    from bert_tf.conversion.source import open_source

    for path in options.positional:
        print(report(open_source(path)))
