"""SQuAD's features beside the original's: a part of benchmarks/squad.py."""

import itertools
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from parts.squad_cases import SHORT, Case, Paths, original

CASES = (
    *(
        Case(name, is_training)
        for name in ("train-v1.1", "train-v2.0", "dev-v1.1", "dev-v2.0")
        for is_training in (False, True)
    ),
    Case("train-v1.1", True, "cased"),
    Case("dev-v2.0", False, "cased"),
    Case("dev-v1.1", False, "uncased", SHORT),
    Case("dev-v1.1", True, "uncased", SHORT),
)
TIMED = (Case("dev-v1.1"), Case("train-v1.1", True))


def run_features(paths: Paths, rounds: int) -> None:
    """Prints features a second, and how many differ from the original's."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        print(f"\nFeatures a second, JSON file to TFRecord file, medians of {rounds}")
        print("rounds: on one core of its processor time, on all of wall-clock time")
        print("with the start of the worker processes:\n")
        print("| file | | features | ours, one core | all | original | times |")
        print("|---|---|---|---|---|---|---|")
        for case in TIMED:
            print_speed(case, paths, folder, rounds)
        if paths.original_dir is None:
            return
        print("\nFeatures that differ from the original's in any field:\n")
        print("| file | | features | differ |")
        print("|---|---|---|---|")
        for case in CASES:
            count, differing = differences(case, paths, folder)
            print(f"| {case.label} | {count:,} | {differing} |", flush=True)


def print_speed(case: Case, paths: Paths, folder: pathlib.Path, rounds: int) -> None:
    """A row of the table of features a second; they take turns."""
    cores = len(os.sched_getaffinity(0))
    speeds: dict[str, list[float]] = {}
    count = 0
    for _ in range(rounds):
        for workers in (1, cores):
            count, seconds = our_records(case, paths, folder, workers)
            speeds.setdefault(f"{workers}", []).append(count / seconds)
        if paths.original_dir is not None:
            job = {**case.job(paths, folder), "records": str(folder / "theirs")}
            done = original(paths, job)
            speeds.setdefault("original", []).append(done["features"] / done["seconds"])
    one, all_of_them = (statistics.median(speeds[f"{n}"]) for n in (1, cores))
    theirs = statistics.median(speeds.get("original", [0.0]))
    times = f"{one / theirs:.1f} and {all_of_them / theirs:.1f}" if theirs else "-"
    print(
        f"| {case.label} | {count:,} | {one:,.0f} | {all_of_them:,.0f} | {theirs:,.0f}"
        f" | {times} |",
        flush=True,
    )


def our_records(
    case: Case, paths: Paths, folder: pathlib.Path, num_workers: int
) -> tuple[int, float]:
    """Records as run_squad writes them: how many, and the seconds that they took.

    Those of processor time where this process is the only one: others do not count.
    """
    from bert_tf.records.spec import RecordSpec
    from bert_tf.records.writing import ShardWriter
    from bert_tf.tasks.squad.windows import parallel_blocks

    length = case.lengths.max_seq_length
    spec = RecordSpec.spans(length, for_training=case.is_training)
    questions, featurizer = case.questions(paths, folder), case.featurizer(paths)
    path = folder / "ours"
    path.unlink(missing_ok=True)
    count = 0
    clock = time.process_time if num_workers == 1 else time.perf_counter
    began = clock()
    with ShardWriter([str(path)]) as writer:
        for block in parallel_blocks(questions, featurizer, num_workers=num_workers):
            writer.write(spec.serialize_block(block))
            count += len(block["unique_ids"])
    return count, clock() - began


def differences(case: Case, paths: Paths, folder: pathlib.Path) -> tuple[int, str]:
    """How many features there are, and how many differ, in which fields."""
    path = folder / "features.jsonl"
    done = original(paths, {**case.job(paths, folder), "features": str(path)})
    questions = list(case.questions(paths, folder))
    if [one.question_id for one in questions] != done["question_ids"]:
        return done["features"], "the questions are others"
    ours = our_features(list(case.featurizer(paths)(questions)), case)
    count = 0
    fields: dict[str, int] = {}
    with path.open() as file:
        for line, mine in itertools.zip_longest(file, ours):
            if line is None or mine is None:
                return done["features"], "all from the first one that is missing"
            theirs = json.loads(line)
            wrong = [name for name in theirs if theirs[name] != mine[name]]
            count += bool(wrong)
            for name in wrong:
                fields[name] = fields.get(name, 0) + 1
    return done["features"], f"{count}{f' ({fields})' if fields else ''}"


def our_features(features: Sequence[Any], case: Case) -> Iterator[dict[str, Any]]:
    """Ours, under the names of the original's attributes, in JSON's types."""
    from bert_tf.tasks.squad import windows

    blocks = windows.blocks(
        features, case.lengths.max_seq_length, for_training=case.is_training
    )
    # unique_ids, input_ids and so on, of one window after the other.
    rows = (
        {name: block[name][row].tolist() for name in block}
        for block in blocks
        for row in range(len(block["unique_ids"]))
    )
    for number, one in enumerate(features):
        words = one.paragraph.word_of_token
        for index, (window, best) in enumerate(
            zip(one.windows, one.max_context(), strict=True)
        ):
            row = next(rows)
            places = range(one.offset, one.offset + window.length)
            shown = words[window.start : window.start + window.length]
            yield {
                "unique_id": row["unique_ids"][0],
                "example_index": number,
                "doc_span_index": index,
                "token_to_orig_map": [list(p) for p in zip(places, shown, strict=True)],
                "token_is_max_context": [
                    list(pair) for pair in zip(places, best.tolist(), strict=True)
                ],
                "input_ids": row["input_ids"],
                "input_mask": row["input_mask"],
                "segment_ids": row["segment_ids"],
                "start_position": row["start_positions"][0]
                if case.is_training
                else None,
                "end_position": row["end_positions"][0] if case.is_training else None,
                "is_impossible": bool(row["is_impossible"][0])
                if case.is_training
                else False,
            }
