"""Pre-training records as input: found, checked against the model, read.

What the user does not say (lengths, vocabulary, casing), the records' manifest does;
what the user does say must agree with it. Records without a manifest, such as the
original's, are checked by their first record.
"""

import functools

import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.records.manifest import find_manifests
from bert_tf.records.pipeline import (
    count_records,
    evaluation_dataset,
    first_record,
    training_dataset,
)
from bert_tf.records.schema import pretraining_schema
from bert_tf.records.shards import record_files
from bert_tf.text.vocabulary import Vocabulary

# The original's defaults, for records without a manifest.
DEFAULT_MAX_SEQ_LENGTH = 128
DEFAULT_MAX_PREDICTIONS_PER_SEQ = 20


class PretrainingRecords:
    """The record files that a flag names.

    Args:
        patterns: globs with commas between.
        flag: the flag that they come from, for messages.
        max_seq_length: the sequences' length; None to take the records' own.
        max_predictions_per_seq: masked-LM slots; None to take the records' own.

    Attributes:
        paths: the files, in the order of the patterns.
        manifests: of the sets that they belong to.
        max_seq_length: the sequences' length.
        schema: what a record holds.

    Raises:
        InputError: no file or no record; the records do not fit what was asked for
            (names both values); records of two vocabularies.
    """

    def __init__(
        self,
        patterns: str,
        *,
        flag: str = "input_file",
        max_seq_length: int | None = None,
        max_predictions_per_seq: int | None = None,
    ) -> None:
        self.paths = record_files(patterns, flag)
        self.manifests = find_manifests(self.paths)
        first = self.manifests[0] if self.manifests else None
        if max_seq_length is None:
            max_seq_length = first.max_seq_length if first else DEFAULT_MAX_SEQ_LENGTH
        if max_predictions_per_seq is None:
            max_predictions_per_seq = (
                first.max_predictions_per_seq
                if first
                else DEFAULT_MAX_PREDICTIONS_PER_SEQ
            )
        self._check_lengths("max_seq_length", max_seq_length)
        self._check_lengths("max_predictions_per_seq", max_predictions_per_seq)
        self.refuse_other_vocabulary(self)
        self.max_seq_length = max_seq_length
        self.schema = pretraining_schema(max_seq_length, max_predictions_per_seq)
        found = first_record(self.paths)
        if found is None:
            raise InputError(f"--{flag}: there is no record in {patterns}.")
        path, record = found
        self.schema.check(record, path)

    def check_model(self, config: BertConfig) -> None:
        """Refuses a model that is too small for the records.

        Raises:
            InputError: too few positions, or a smaller vocabulary.
        """
        config.check_sequence_length(self.max_seq_length)
        for manifest in self.manifests[:1]:
            config.check_vocabulary(
                manifest.vocab_size, f"The vocabulary of {manifest.path}"
            )
            if manifest.vocab_size < config.vocab_size:
                logging.warning(
                    "The model's vocab_size is %d, the records' vocabulary has %d"
                    " tokens: the embeddings of the others stay untrained.",
                    config.vocab_size,
                    manifest.vocab_size,
                )

    def training_dataset(
        self,
        batch_size: int,
        *,
        seed: int,
        start: int = 0,
        vocab_size: int | None = None,
    ) -> tf.data.Dataset:
        """Endless shuffled batches; see `bert_tf.records.pipeline.training_dataset`."""
        return training_dataset(
            self.paths,
            self.counts,
            self.schema,
            batch_size=batch_size,
            seed=seed,
            start=start,
            vocab_size=vocab_size,
        )

    def evaluation_dataset(
        self, batch_size: int, *, repeat: bool, vocab_size: int | None = None
    ) -> tf.data.Dataset:
        """Batches in order; see `bert_tf.records.pipeline.evaluation_dataset`."""
        return evaluation_dataset(
            self.paths,
            self.schema,
            batch_size=batch_size,
            repeat=repeat,
            vocab_size=vocab_size,
        )

    @functools.cached_property
    def counts(self) -> list[int]:
        """The number of records in each file: the manifest's, or else counted."""
        known = {}
        for manifest in self.manifests:
            known.update(manifest.records_by_path())
        return [
            known[path] if path in known else count_records(path) for path in self.paths
        ]

    def vocabulary(
        self, vocab_file: str | None, do_lower_case: bool | None
    ) -> tuple[Vocabulary | None, bool]:
        """The vocabulary and its casing.

        Args:
            vocab_file: the user's; None to take the records' own.
            do_lower_case: the user's; None to take the records' own.

        Returns:
            The vocabulary, None where nobody says it, and whether it is lower-cased.

        Raises:
            InputError: the user's and the records' contradict each other.
        """
        given = None
        if vocab_file:
            given = Vocabulary.from_file(vocab_file)
            given.require_special_tokens(vocab_file)
        if not self.manifests:
            if given is None:
                logging.warning(
                    "The records have no manifest, so the run will have no vocab.txt:"
                    " fill_mask will not work. Give --vocab_file."
                )
            return given, do_lower_case is not False
        manifest = self.manifests[0]
        if given is not None and given.sha256 != manifest.vocab_sha256:
            raise InputError(
                f"--vocab_file={vocab_file} ({len(given)} tokens) is not the vocabulary"
                f" of {manifest.path} ({manifest.vocab_size} tokens)."
            )
        if do_lower_case is not None and do_lower_case != manifest.do_lower_case:
            raise InputError(
                f"--do_lower_case={do_lower_case}, but the records of {manifest.path}"
                f" were made with {manifest.do_lower_case}."
            )
        if given is None and files.exists(manifest.vocab_path):
            given = Vocabulary.from_file(manifest.vocab_path)
        if given is None:
            logging.warning(
                "%s is missing: the run will have no vocab.txt. Give --vocab_file.",
                manifest.vocab_path,
            )
        return given, manifest.do_lower_case

    def refuse_other_vocabulary(self, other: "PretrainingRecords") -> None:
        """Raises InputError if other records were made with another vocabulary."""
        for here in self.manifests[:1]:
            for there in other.manifests:
                if (here.vocab_sha256, here.do_lower_case) != (
                    there.vocab_sha256,
                    there.do_lower_case,
                ):
                    raise InputError(
                        "Records of two vocabularies cannot be used together:"
                        f" {here.path} and {there.path} name different ones."
                    )

    def _check_lengths(self, name: str, wanted: int) -> None:
        for manifest in self.manifests:
            found = getattr(manifest, name)
            if found != wanted:
                raise InputError(
                    f"--{name}={wanted}, but the records of {manifest.path} were made"
                    f" with {found}."
                )


def pretraining_dataset(
    patterns: str, *, batch_size: int, seed: int = 12345, training: bool = True
) -> tf.data.Dataset:
    """Batches of pre-training records, for a notebook's `fit` and `evaluate`.

    Args:
        patterns: globs of record files, with commas between.
        batch_size: sequences a batch.
        seed: decides the order.
        training: endless shuffled batches (give `fit` its `steps_per_epoch`), or else
            all records once, in order.

    Returns:
        A dataset of dicts of tensors, named as in `bert_tf.records.schema`.

    Raises:
        InputError: as PretrainingRecords.
    """
    records = PretrainingRecords(patterns)
    if training:
        return records.training_dataset(batch_size, seed=seed)
    return records.evaluation_dataset(batch_size, repeat=False)
