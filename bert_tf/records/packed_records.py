"""Packed rows: pre-training records in, a finished set of rows out.

Each output file is made, on any core, of a stretch of the input's records, read some
millions of tokens at a time: their sequences lose their padding and are dealt to rows
(`packing`). The set is published as `bert_tf.records.pretraining` says, so that it is
whole or not there, and the same command again goes on where it was killed.
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.parallel import Workers
from bert_tf.records import reports
from bert_tf.records.finished import find_finished
from bert_tf.records.generation import ShardResult
from bert_tf.records.manifest import MANIFEST_SUFFIX, Manifest
from bert_tf.records.packed_planning import PackingPlan, plan_packing
from bert_tf.records.packed_shards import PackJob, pack_shard
from bert_tf.records.record_counts import count_records
from bert_tf.records.record_planning import shard_seed
from bert_tf.records.record_sets import announce, with_counts
from bert_tf.records.shards import record_files, remove_leftovers
from bert_tf.records.statistics import row_figures
from bert_tf.records.work_folder import (
    hold_work_folder,
    open_work_folder,
    remove_finished,
    work_folder_path,
)
from bert_tf.text.vocabulary import MASK

# To be raised when the same records come to give other rows.
_WAY_OF_MAKING = 1


def pack_pretraining_records(
    patterns: str,
    output_file: str,
    *,
    max_seq_length: int = 512,
    max_predictions_per_seq: int | None = None,
    max_sequences_per_row: int | None = None,
    num_shards: int | None = None,
    random_seed: int = 12345,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    num_workers: int = 1,
    work_dir: str | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Packs the sequences of pre-training records into rows, each sequence once."""
    started = time.monotonic()
    plan = plan_packing(
        record_files(patterns, "input_file"),
        output_file,
        max_seq_length=max_seq_length,
        max_predictions_per_seq=max_predictions_per_seq,
        max_sequences_per_row=max_sequences_per_row,
        num_shards=num_shards,
        random_seed=random_seed,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        num_workers=num_workers,
    )
    name = plan.manifest.path.removesuffix(MANIFEST_SUFFIX)
    folder = work_folder_path(name, work_dir)
    if not overwrite and (finished := find_finished(plan.manifest, plan.output_files)):
        if not files.exists(finished.vocab_path):
            plan.vocabulary.save(finished.vocab_path)
        logging.info(
            "All is done already: %d rows in %d files, %s",
            finished.num_records,
            len(finished.shards),
            finished.path,
        )
        remove_finished(folder, _identity(plan))
        return finished
    with (
        hold_work_folder(folder),
        Workers(min(num_workers, len(plan.output_files))) as workers,
    ):
        open_work_folder(folder, _identity(plan), plan.vocabulary)
        announce(plan.manifest, plan.vocabulary)
        jobs = _jobs(plan, folder)
        results = list(
            tqdm(
                workers.map(pack_shard, jobs),
                total=len(jobs),
                desc="Packing",
                unit=" files",
                disable=None,
            )
        )
        return _complete(plan.manifest, results, started)


def _jobs(plan: PackingPlan, folder: str) -> list[PackJob]:
    num_shards = len(plan.output_files)
    return [
        PackJob(
            stretches=stretches,
            layout=plan.layout,
            path=path,
            result_path=os.path.join(folder, f"shard-{shard:05d}.json"),
            manifest=plan.manifest,
            mask_id=plan.vocabulary.ids[MASK],
            random_seed=shard_seed(plan.manifest.packing_seed, shard, num_shards),
        )
        for shard, (path, stretches) in enumerate(
            zip(plan.output_files, _stretches(plan.paths, num_shards), strict=True)
        )
    ]


def _stretches(
    paths: Sequence[str], num_shards: int
) -> Iterator[list[tuple[str, int, int | None]]]:
    """The input, cut into as many stretches of equally many records."""
    if num_shards == len(paths):
        for path in paths:
            yield [(path, 0, None)]
        return
    counts = [count_records(path) for path in paths]
    starts = np.cumsum([0, *counts]).tolist()
    for shard in range(num_shards):
        begin, end = (starts[-1] * (shard + k) // num_shards for k in (0, 1))
        yield [
            (path, max(0, begin - start), min(end - start, count))
            for path, start, count in zip(paths, starts, counts, strict=False)
            if begin < start + count and start < end
        ]


def _identity(plan: PackingPlan) -> dict[str, Any]:
    """All that the rows depend on, for JSON; of the input its content."""
    nameless = dataclasses.replace(
        plan.manifest,
        record_files=tuple(
            dataclasses.replace(source, path="")
            for source in plan.manifest.record_files
        ),
    )
    return {
        "way": _WAY_OF_MAKING,
        "manifest": nameless.to_json_string(),
        "outputs": [files.absolute(path) for path in plan.output_files],
    }


def _complete(
    wanted: Manifest, results: Sequence[ShardResult], started: float
) -> Manifest:
    """Writes the manifest of the set whose files have their names, and says so."""
    statistics = reports.merged_statistics(results)
    manifest = with_counts(wanted, results)
    manifest = dataclasses.replace(
        manifest,
        complete=True,
        report={
            "sequences": statistics.figures(),
            "rows": row_figures(
                statistics,
                manifest.num_records,
                max_seq_length=manifest.max_seq_length,
            ),
        },
    )
    files.write_atomically(manifest.path, manifest.to_json_string())
    for path in (manifest.path, manifest.vocab_path):
        remove_leftovers(path)
    rows = manifest.report["rows"]
    for line in statistics.lines():
        logging.info("%s", line)
    logging.info(
        "Packed %s sequences into %s rows of %d tokens: %.2f a row; %.2f%% of all"
        " places are padding",
        f"{rows['sequences']:,}",
        f"{rows['rows']:,}",
        manifest.max_seq_length,
        rows["sequences_per_row"],
        100 * rows["padding_share"],
    )
    logging.info(
        "Wrote %d rows to %d files, %s (%.1f s)",
        manifest.num_records,
        len(manifest.shards),
        manifest.path,
        time.monotonic() - started,
    )
    return manifest
