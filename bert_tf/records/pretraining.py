"""Pre-training records: text files in, a finished set of record files out.

The set is published in an order that loses nothing: the records are complete under
temporary names; then a manifest that says "not complete" and the vocabulary are there;
then the record files get their names; then the manifest says "complete". Whenever the
command is killed, the same command again ends with the same set.
"""

import dataclasses
import os
import time
from collections.abc import Sequence

from absl import logging
from tqdm import tqdm

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.instances.masking import num_predictions
from bert_tf.instances.pretraining import (
    InstanceSettings,
    PretrainingInstance,
    create_instances,
)
from bert_tf.instances.token_ids import TokenIds
from bert_tf.records.finished import find_finished
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    SourceFile,
    manifest_path,
    relative_name,
)
from bert_tf.records.schema import pretraining_schema
from bert_tf.records.shards import ShardWriter
from bert_tf.text.documents import Corpus, read_corpus
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

STATIC_MASKING = "static"


def create_pretraining_records(
    input_files: Sequence[str],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    do_lower_case: bool = True,
    overwrite: bool = False,
) -> Manifest:
    """Writes masked next-sentence records of plain text, with manifest and vocabulary.

    For the same seed and input the records are those of the original, in its order.

    Args:
        input_files: UTF-8 text, one sentence a line, a blank line between documents.
        output_files: the record files, dealt their records in turn.
        vocabulary: has [UNK], [CLS], [SEP] and [MASK].
        settings: lengths, rates and seed.
        do_lower_case: lower the text and strip accents.
        overwrite: replace a set of other settings, and files that no manifest knows.

    Returns:
        The manifest of the finished set, whether it was made now or before.

    Raises:
        InputError: the input is missing, not UTF-8 or gives no token; the vocabulary
            lacks a special token; what stands under the output's names may not be
            written over; two output files are one, or one is an input file.
        OSError: a file cannot be read or written, such as on a full disk.
    """
    vocabulary.require_special_tokens("--vocab_file")
    _check_output_files(input_files, output_files)
    wanted = _manifest(
        input_files, output_files, vocabulary, settings, do_lower_case=do_lower_case
    )
    if not overwrite:
        finished = find_finished(wanted, output_files)
        if finished:
            if not files.exists(finished.vocab_path):
                vocabulary.save(finished.vocab_path)
            logging.info(
                "All is done already: %d records in %d files, %s",
                finished.num_records,
                len(finished.shards),
                finished.path,
            )
            return finished

    started = time.monotonic()
    tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=do_lower_case)
    corpus = _read(wanted, tokenizer)
    logging.info(
        "Read %d documents, %d sentences, %d tokens from %d files (%.1f s)",
        len(corpus.documents),
        corpus.num_sentences,
        corpus.num_tokens,
        len(input_files),
        time.monotonic() - started,
    )
    started = time.monotonic()
    total = settings.dupe_factor * len(corpus.documents)
    with tqdm(total=total, desc="Masking", unit=" documents", disable=None) as bar:
        instances = create_instances(
            corpus.documents,
            TokenIds.from_vocabulary(vocabulary.ids),
            settings,
            bar.update,
        )
    logging.info(
        "Made %d instances (%.1f s)", len(instances), time.monotonic() - started
    )
    _warn_of_oddities(corpus, instances, settings)
    started = time.monotonic()
    manifest = _write(instances, wanted, output_files, vocabulary, settings)
    logging.info(
        "Wrote %d records (%.1f s)", manifest.num_records, time.monotonic() - started
    )
    for path, num_records in manifest.records_by_path().items():
        logging.info("  %s: %d records", path, num_records)
    return manifest


def _check_output_files(
    input_files: Sequence[str], output_files: Sequence[str]
) -> None:
    """Refuses outputs that would destroy each other or the input."""
    taken = {_identity(path): f"the input file {path}" for path in input_files}
    for path in output_files:
        if not path:
            raise InputError("--output_file: a name between two commas is empty.")
        if files.is_folder(path):
            raise InputError(f"--output_file: {path} is a folder; name a file in it.")
        other = taken.setdefault(_identity(path), path)
        if other is not path:
            raise InputError(f"--output_file: {path} is also {other}.")
        taken[_identity(path)] = f"the output file {path}"


def _identity(path: str) -> str:
    return path if files.is_remote(path) else os.path.realpath(path)


def _manifest(
    input_files: Sequence[str],
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
    *,
    do_lower_case: bool,
) -> Manifest:
    """The manifest of the set to be made, as far as it is known beforehand."""
    path = manifest_path(output_files)
    return Manifest(
        path=path,
        vocab_sha256=vocabulary.sha256,
        vocab_size=len(vocabulary),
        do_lower_case=do_lower_case,
        masking=STATIC_MASKING,
        source_files=tuple(SourceFile.describe(source) for source in input_files),
        shards=tuple(
            Shard(name=relative_name(name, path), num_records=0, num_bytes=0)
            for name in output_files
        ),
        complete=False,
        **dataclasses.asdict(settings),
    )


def _read(wanted: Manifest, tokenizer: WordPieceTokenizer) -> Corpus:
    num_bytes = sum(source.num_bytes for source in wanted.source_files)
    paths = [source.path for source in wanted.source_files]
    with tqdm(
        total=num_bytes, desc="Reading", unit="B", unit_scale=True, disable=None
    ) as bar:
        corpus = read_corpus(paths, tokenizer.encode, bar.update)
    if not corpus.documents:
        raise InputError(
            f"--input_file: nothing in {_listed(paths)}: no line gives a token."
        )
    if corpus.empty_files:
        logging.warning(
            "%d of %d input files have nothing in them: %s",
            len(corpus.empty_files),
            len(paths),
            _listed(corpus.empty_files),
        )
    if corpus.num_dropped_lines:
        logging.warning(
            "%d lines are not blank, yet give no token (control characters, say); they "
            "were dropped.",
            corpus.num_dropped_lines,
        )
    return corpus


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _warn_of_oddities(
    corpus: Corpus, instances: Sequence[PretrainingInstance], settings: InstanceSettings
) -> None:
    """Says what the original accepts in silence and is seldom meant, with counts."""
    num_random = sum(instance.is_random_next for instance in instances)
    if len(corpus.documents) == 1:
        logging.warning(
            "There is one document only: the %d random next sentences of %d instances "
            "come from itself. Put a blank line between documents.",
            num_random,
            len(instances),
        )
    elif num_random == len(instances):
        logging.warning(
            "All %d instances have a random next sentence: no document has two "
            "sentences that fit together. Documents are separated by blank lines, "
            "sentences by line ends alone.",
            num_random,
        )
    limit = settings.max_predictions_per_seq
    num_short = sum(
        num_predictions(len(instance.input_ids), settings.masked_lm_prob, limit + 1)
        > limit
        for instance in instances
    )
    full = num_predictions(
        settings.max_seq_length, settings.masked_lm_prob, settings.max_seq_length
    )
    if num_short and limit < full:
        logging.warning(
            "--max_predictions_per_seq=%d is few for --max_seq_length=%d: %d of %d "
            "instances mask less than --masked_lm_prob=%g of their tokens. A full one "
            "needs %d.",
            limit,
            settings.max_seq_length,
            num_short,
            len(instances),
            settings.masked_lm_prob,
            full,
        )


def _write(
    instances: Sequence[PretrainingInstance],
    wanted: Manifest,
    output_files: Sequence[str],
    vocabulary: Vocabulary,
    settings: InstanceSettings,
) -> Manifest:
    """Writes the set and publishes it; see the module's docstring for the order."""
    schema = pretraining_schema(
        settings.max_seq_length, settings.max_predictions_per_seq
    )
    with ShardWriter(output_files) as writer:
        for instance in tqdm(instances, desc="Writing", unit=" records", disable=None):
            writer.write(schema.serialize(instance.features(settings)))
        sizes = writer.close()
        manifest = dataclasses.replace(
            wanted,
            shards=tuple(
                Shard(name=shard.name, num_records=num_records, num_bytes=num_bytes)
                for shard, num_records, num_bytes in zip(
                    wanted.shards, writer.num_records, sizes, strict=True
                )
            ),
        )
        replaced = _replaced_files(manifest)
        files.write_atomically(manifest.path, manifest.to_json_string())
        vocabulary.save(manifest.vocab_path)
        for path in replaced:
            files.remove(path)
        writer.publish()
    manifest = dataclasses.replace(manifest, complete=True)
    files.write_atomically(manifest.path, manifest.to_json_string())
    return manifest


def _replaced_files(manifest: Manifest) -> list[str]:
    """Record files of the set that is overwritten which the new one will not have."""
    if not files.exists(manifest.path):
        return []
    try:
        old = Manifest.from_json_file(manifest.path)
    except InputError as error:
        logging.warning("%s It is replaced; its record files stay.", error)
        return []
    stale = old.records_by_path().keys() - manifest.records_by_path().keys()
    return [path for path in sorted(stale) if files.exists(path)]
