"""Pre-training records by Apache Beam: the files of a local run, made on a cluster.

    chunks -> tokenize -> (drop repetitions) -> (drop short documents)
           -> group by document number modulo --num_shards -> sort -> record file

The machines share no disk but the one that the records go to. Tokens travel in Beam's
own shuffle, one element a document, and each group's record file is made in one piece
by one worker, from the same documents in the same order and with the same random stream
as locally: the files are the same, byte for byte.

Beside the records, in `.NAME.beam-HASH`, each worker writes what is known of a finished
file, and the last step the outcome of all; the hash is that of everything the files
depend on. The same command again thus knows which of the record files are its own and
makes only the others, after tokenizing the text once more. A file may be made by two
workers at once, as Beam sees fit: both write the same bytes under different temporary
names, and either may take the name last.
"""

import contextlib
import glob
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from absl import logging
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.settings import InstanceSettings
from bert_tf.parallel import available_cores
from bert_tf.records import beam_steps
from bert_tf.records.beam_pipeline import FIRST_OCCURRENCES, lay_out
from bert_tf.records.generation import ShardJob, ShardResult, finished_shard
from bert_tf.records.manifest import Manifest
from bert_tf.records.record_planning import plan_record_set
from bert_tf.records.record_sets import RecordSet
from bert_tf.records.shards import remove_leftovers
from bert_tf.records.tokenized_chunks import TokenizedChunk
from bert_tf.records.tokenized_corpus import REPEATED_DOCUMENTS, REPEATED_PARAGRAPHS
from bert_tf.text.documents import Chunk
from bert_tf.text.tokenized import DOCUMENTS, NO_DEDUPLICATION, PARAGRAPHS
from bert_tf.text.vocabulary import Vocabulary


def create_records_on_beam(
    chunks: Sequence[Chunk],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    runner: str,
    num_shards: int,
    beam_options: Sequence[str] = (),
    do_lower_case: bool = True,
    deduplicate: str = NO_DEDUPLICATION,
    min_document_tokens: int = 0,
    overwrite: bool = False,
) -> Manifest:
    """Writes what `create_pretraining_records` writes for `num_shards`, with Beam.

    Unlike there, a set that is overwritten is given up before the text is read.
    """
    pipeline = _pipeline(runner, beam_options)
    record_set = plan_record_set(
        chunks,
        output_files,
        vocabulary,
        settings,
        do_lower_case=do_lower_case,
        num_shards=num_shards,
        deduplicate=deduplicate,
        min_document_tokens=min_document_tokens,
        num_workers=available_cores(),
    )
    if not overwrite and (finished := record_set.find_finished()):
        return finished
    folder = _open_folder(record_set)
    outcome_path = os.path.join(folder, "outcome.json")
    jobs = [
        ShardJob(
            work_folder=folder,
            group=group,
            num_groups=num_shards,
            path=files.absolute(path),
            vocab_file=files.absolute(record_set.manifest.vocab_path),
            settings=shard_settings,
        )
        for group, path, shard_settings in record_set.shard_settings()
    ]
    unfinished = {job.group: job for job in jobs if finished_shard(job) is None}
    if len(unfinished) < len(jobs):
        logging.info(
            "%d of %d shards are finished already; going on with the others",
            len(jobs) - len(unfinished),
            len(jobs),
        )
    if files.exists(outcome_path):
        files.remove(outcome_path)
    logging.info("Running on %s", runner)
    lay_out(pipeline, record_set, unfinished, outcome_path)
    state = pipeline.run().wait_until_finish()
    if state not in (None, PipelineState.DONE):
        raise ChildProcessError(f"{runner} ended with {state}; its log says why.")
    outcome = _read_outcome(outcome_path)
    tokenized = _check_outcome(record_set, folder, outcome)
    results = [_result(job) for job in jobs]
    dropped = _dropped(record_set.manifest, tokenized, outcome["counts"])
    manifest = record_set.complete(tokenized, dropped, results)
    files.remove(folder)
    for job in jobs:
        remove_leftovers(job.path)
    return manifest


def _pipeline(runner: str, beam_options: Sequence[str]) -> beam.Pipeline:
    complaint = io.StringIO()
    try:
        # Beam's parser prints its usage, of several hundred lines, and exits.
        with contextlib.redirect_stderr(complaint):
            options = PipelineOptions(list(beam_options), runner=runner)
            options.get_all_options()
    except SystemExit as error:
        reason = complaint.getvalue().rstrip().rpartition("error: ")[2]
        raise InputError(f"--beam_option: {reason}") from error
    try:
        return beam.Pipeline(options=options)
    except (ValueError, ImportError) as error:
        raise InputError(f"--runner={runner}: {error}") from error


def _open_folder(record_set: RecordSet) -> str:
    """Takes the set's names, and returns the folder where its results are kept."""
    parent, base = os.path.split(files.absolute(record_set.name))
    identity = json.dumps(record_set.identity, sort_keys=True).encode()
    prefix = os.path.join(parent, f".{base}.beam-")
    folder = prefix + files.sha256(identity)[:16]
    files.make_folder(parent)
    record_set.announce()
    for other in files.glob(glob.escape(prefix) + "*"):
        if other.rstrip("/") != folder:
            files.remove(other)
    if not files.exists(folder):
        # What has the names now is another set's, and might pass for this one's.
        for path in filter(files.exists, record_set.output_files):
            files.remove(path)
        files.make_folder(folder)
    return folder


def _read_outcome(path: str) -> dict[str, Any]:
    if not files.exists(path):
        raise _not_seen(path)
    return files.read_json(path, "outcome of the pipeline")


def _result(job: ShardJob) -> ShardResult:
    result = finished_shard(job)
    if result is None:
        raise _not_seen(job.path)
    return result


def _not_seen(path: str) -> InputError:
    return InputError(
        f"--output_file: the workers have written {path}, and it is not to be seen "
        "here; name a folder that all machines share."
    )


def _check_outcome(
    record_set: RecordSet, folder: str, outcome: dict[str, Any]
) -> list[TokenizedChunk]:
    """What was read; refuses what the workers found wrong."""
    try:
        _refuse(outcome["problems"], beam_steps.READING)
        tokenized = [TokenizedChunk(**summary) for summary in outcome["chunks"]]
        record_set.check_read(tokenized)
        _refuse(outcome["problems"], beam_steps.WRITING)
    except InputError:
        if not any(map(files.exists, record_set.output_files)):
            # Nothing was written: the same names may serve for the mended text.
            manifest = record_set.manifest
            for path in (manifest.path, manifest.vocab_path, folder):
                files.remove(path)
        raise
    return tokenized


def _refuse(problems: Sequence[tuple[int, int, str]], refused_step: int) -> None:
    messages = [message for step, _, message in problems if step == refused_step]
    if messages:
        more = f" ({len(messages) - 1} more like this.)" if messages[1:] else ""
        raise InputError(messages[0] + more)


def _dropped(
    manifest: Manifest, tokenized: Sequence[TokenizedChunk], counts: dict[str, int]
) -> Counter[str]:
    """What was left out after reading, by reason."""
    dropped = Counter(counts)
    num_firsts = dropped.pop(FIRST_OCCURRENCES, 0)
    if manifest.deduplicate == DOCUMENTS:
        num_documents = sum(chunk.num_documents for chunk in tokenized)
        dropped[REPEATED_DOCUMENTS] = num_documents - num_firsts
    elif manifest.deduplicate == PARAGRAPHS:
        num_paragraphs = sum(chunk.num_paragraphs for chunk in tokenized)
        dropped[REPEATED_PARAGRAPHS] = num_paragraphs - num_firsts
    return +dropped
