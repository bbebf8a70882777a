"""Features of sentences, ours beside Hugging Face's: a part of benchmarks/features.py.

Speed, memory over the number of lines, and whether the numbers are the same.
"""

import itertools
import json
import os
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from parts.commands import finished, measured
from parts.features_data import Bench, sentences_file
from parts.results import PEERS, Result
from parts.sides import HUGGING_FACE, OURS

WORKER = PEERS / "huggingface_features.py"
LAYERS = [-1, -2, -3, -4]
BATCH_SIZE = 32
MAX_SEQ_LENGTH = 128


class Way(NamedTuple):
    """A side, what it writes, and how it pads."""

    side: str
    format: str
    padding: str

    @property
    def name(self) -> str:
        """For tables."""
        side = {OURS: "ours", HUGGING_FACE: "Hugging Face"}[self.side]
        padded = {"max": "all to 128", "length": "by length", "dynamic": "by batch"}
        return f"{side} | {self.format} | {padded[self.padding]}"


WAYS = (
    Way(OURS, "jsonl", "length"),
    Way(HUGGING_FACE, "jsonl", "dynamic"),
    Way(OURS, "jsonl", "max"),
    Way(HUGGING_FACE, "jsonl", "max"),
    Way(OURS, "npz", "length"),
    Way(HUGGING_FACE, "npz", "dynamic"),
)
# Of the memory.
STREAMED = tuple(way for way in WAYS if way.padding != "max")


def command_of(
    bench: Bench, way: Way, path: pathlib.Path, output: pathlib.Path, layers: list[int]
) -> list[str]:
    """The command that writes a file's features."""
    if way.side == OURS:
        return [
            *(bench.pythons[OURS], "-m", "bert_tf.extract_features"),
            f"--input_file={path}",
            f"--output_file={output}",
            f"--format={way.format}",
            f"--pad={way.padding}",
            f"--init_checkpoint={bench.checkpoint}",
            f"--layers={','.join(map(str, layers))}",
            f"--max_seq_length={MAX_SEQ_LENGTH}",
            f"--batch_size={BATCH_SIZE}",
        ]
    job = {
        "checkpoint": str(bench.checkpoint),
        "input": str(path),
        "output": str(output),
        "format": way.format,
        "padding": way.padding,
        "layers": layers,
        "max_seq_length": MAX_SEQ_LENGTH,
        "batch_size": BATCH_SIZE,
        "threads": os.cpu_count(),
        "seed": 1,
    }
    return [bench.pythons[HUGGING_FACE], str(WORKER), json.dumps(job)]


def extract(bench: Bench, way: Way, count: int, layers: list[int]) -> dict[str, Any]:
    """Writes the features of so many sentences: seconds, most bytes, bytes written."""
    path = sentences_file(bench, count)
    output = bench.work_dir / f"features.{way.format}"
    remove(output)
    peak, seconds = measured(command_of(bench, way, path, output, layers))
    written = output.stat().st_size
    remove(output)
    return {"peak": peak, "seconds": seconds, "bytes": written}


def remove(output: pathlib.Path) -> None:
    """Removes an output; what a killed run has left beside it, too."""
    for path in output.parent.glob(f"{output.name}*"):
        if path.is_file():
            path.unlink()


def kept_run(
    bench: Bench, kind: str, way: Way, count: int, number: int, layers: list[int]
) -> Result:
    """The file of a run."""
    settings = {
        "checkpoint": bench.checkpoint.name,
        "layers": layers,
        "max_seq_length": MAX_SEQ_LENGTH,
        "batch_size": BATCH_SIZE,
    }
    name = "-".join(map(str, (*way, count, number)))
    return Result(bench.work_dir / kind / f"{name}.json", settings)


def run_missing(
    bench: Bench, kind: str, wanted: list[tuple[Way, int, int]], layers: list[int]
) -> None:
    """Makes the runs of (way, sentences, number) that are not kept."""
    for way, count, number in wanted:
        result = kept_run(bench, kind, way, count, number, layers)
        if way.side not in bench.sides or result.read() is not None:
            continue
        values = extract(bench, way, count, layers)
        result.write(values)
        print(
            f"{kind}: {' '.join(way)}, {count} lines: {values['seconds']:.1f} s",
            flush=True,
        )


# Speed.


def run_speed(bench: Bench, count: int, rounds: int) -> None:
    """Prints sentences a second of each way; they take turns."""
    kind = "extraction"
    # What starts takes as long, whatever is written.
    starts = {way.side: way for way in STREAMED if way.format == "jsonl"}
    runs = [(way, count, number) for number in range(rounds) for way in WAYS]
    run_missing(bench, kind, [(way, 1, 0) for way in starts.values()] + runs, LAYERS)
    print(
        f"\nFeatures of {count:,} sentences, layers -1 to -4, batches of {BATCH_SIZE};"
    )
    print(f"medians of {rounds}. After the start: less what one line takes.\n")
    print(
        "| | format | padded | seconds | sentences/s | sentences/s after the start |"
        " MB written |"
    )
    print("|---|---|---|---|---|---|---|")
    for way in WAYS:
        one = kept_run(bench, kind, starts[way.side], 1, 0, LAYERS).read()
        kept = [
            values
            for number in range(rounds)
            if (values := kept_run(bench, kind, way, count, number, LAYERS).read())
        ]
        if not one or not kept:
            continue
        seconds = statistics.median(values["seconds"] for values in kept)
        after = seconds - one["seconds"]
        rate = f"{(count - 1) / after:,.1f}" if after > 0 else "-"
        print(
            f"| {way.name} | {seconds:,.1f} | {count / seconds:,.1f} | {rate} |"
            f" {kept[0]['bytes'] / 1e6:,.0f} |"
        )


# Memory.


def run_memory(bench: Bench, counts: list[int]) -> None:
    """Prints the most memory over the number of lines; the last layer alone."""
    layers = LAYERS[:1]
    wanted = [(way, count, 0) for count in counts for way in STREAMED]
    run_missing(bench, "memory", wanted, layers)
    print("\nMost MB of the process and its children over the lines, the last layer:\n")
    heads = "".join(f" {count:,} lines |" for count in counts)
    print(f"| | format | padded |{heads} MB written |")
    print("|---|---|---|" + "---|" * (len(counts) + 1))
    for way in STREAMED:
        kept = [
            kept_run(bench, "memory", way, count, 0, layers).read() for count in counts
        ]
        runs = [values for values in kept if values]
        if len(runs) < len(counts):
            continue
        cells = "".join(f" {values['peak'] / 1e6:,.0f} |" for values in runs)
        print(f"| {way.name} |{cells} {runs[-1]['bytes'] / 1e6:,.0f} |")


# Equality.


def run_equality(bench: Bench, count: int) -> None:
    """Prints how far the two sides' numbers lie apart."""
    settings = {"checkpoint": bench.checkpoint.name, "layers": LAYERS}
    result = Result(bench.work_dir / "equality" / f"{count}.json", settings)
    values = result.read()
    if values is None:
        ours, theirs = WAYS[0], Way(HUGGING_FACE, "jsonl", "max")
        path = sentences_file(bench, count)
        outputs = {way: bench.work_dir / f"{way.side}.jsonl" for way in (ours, theirs)}
        for way, output in outputs.items():
            remove(output)
            finished(command_of(bench, way, path, output, LAYERS))
        values = compared(outputs[ours], outputs[theirs])
        for output in outputs.values():
            remove(output)
        result.write(values)
    print(
        f"\nThe same lines, ours beside Hugging Face's: {values['lines']:,}, of which"
        f" {values['other_tokens']:,} have other tokens. Of {values['numbers']:,}"
        f" numbers {values['differing']:,} differ in what is written; the largest"
        f" difference is {values['largest']:.1e}, of numbers up to"
        f" {values['magnitude']:.1f}."
    )


def compared(ours: pathlib.Path, theirs: pathlib.Path) -> dict[str, Any]:
    """What differs between two files of the original's layout."""
    found: dict[str, Any] = {
        "lines": 0,
        "other_tokens": 0,
        "numbers": 0,
        "differing": 0,
        "largest": 0.0,
        "magnitude": 0.0,
    }
    for (index, here, our_heads), (there_index, there, their_heads) in zip(
        read(ours), read(theirs), strict=True
    ):
        assert index == there_index
        found["lines"] += 1
        if our_heads != their_heads:
            found["other_tokens"] += 1
            continue
        difference = np.abs(here - there)
        found["numbers"] += here.size
        # They have six decimals.
        found["differing"] += int((difference > 1e-7).sum())
        found["largest"] = max(found["largest"], float(difference.max()))
        found["magnitude"] = max(found["magnitude"], float(np.abs(there).max()))
    return found


def read(path: pathlib.Path) -> Iterator[tuple[int, np.ndarray, list[Any]]]:
    """Of each line its number, its numbers, and what these are of."""
    with path.open() as file:
        for line in file:
            entry = json.loads(line)
            heads = [
                (token["token"], [layer["index"] for layer in token["layers"]])
                for token in entry["features"]
            ]
            numbers = [
                layer["values"]
                for layer in itertools.chain.from_iterable(
                    token["layers"] for token in entry["features"]
                )
            ]
            yield entry["linex_index"], np.array(numbers), heads
