"""Pre-training records as input: found, checked against the model, read.

What the user does not say (lengths, vocabulary, casing), the records' manifest does;
what the user does say must agree with it. Records without a manifest, such as the
original's, are checked by their first record.

Records with "masking": "dynamic" in their manifest are masked as they are read; how
often and how much, the user may say too.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.instances.settings import DYNAMIC_MASKING, FULL_SENTENCES
from bert_tf.instances.token_ids import TokenIds
from bert_tf.records.dynamic_masking import DynamicMasking
from bert_tf.records.manifest import find_manifests
from bert_tf.records.masking_options import MaskingOptions, log_masking
from bert_tf.records.mixing import agreed, alike
from bert_tf.records.pipeline import (
    evaluation_dataset,
    first_record,
    training_dataset,
)
from bert_tf.records.record_counts import count_records
from bert_tf.records.schema import pretraining_schema, unmasked_schema
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
        max_predictions_per_seq: masked-LM slots; None to take the records' own. Only
            where the records are masked as they are read it may be another number.
        vocab_file: the vocabulary's file; None to take the records' own.
        masking: how to mask the records that are masked as they are read.

    Attributes:
        paths: the files, in the order of the patterns.
        manifests: of the sets that they belong to.
        max_seq_length: the sequences' length.
        max_predictions_per_seq: masked-LM slots.
        is_dynamic: whether the records are masked as they are read.
        has_pairs: whether there is a next sentence to predict.
        schema: what a record holds.

    Raises:
        InputError: no file or no record; the records do not fit what was asked for
            (names both values); records of two vocabularies, with masks and without,
            or with pairs and without.
    """

    def __init__(
        self,
        patterns: str,
        *,
        flag: str = "input_file",
        max_seq_length: int | None = None,
        max_predictions_per_seq: int | None = None,
        vocab_file: str | None = None,
        masking: MaskingOptions | None = None,
    ) -> None:
        self.paths = record_files(patterns, flag)
        self.manifests = find_manifests(self.paths)
        self._vocab_file = vocab_file
        first = self.manifests[0] if self.manifests else None
        if max_seq_length is None:
            max_seq_length = first.max_seq_length if first else DEFAULT_MAX_SEQ_LENGTH
        self._check_lengths("max_seq_length", max_seq_length)
        self.refuse_other_vocabulary(self)
        self.is_dynamic = alike(
            self.paths,
            self.manifests,
            lambda manifest: manifest.masking == DYNAMIC_MASKING,
            ("without masks", "that are masked"),
        )
        self.has_pairs = not alike(
            self.paths,
            self.manifests,
            lambda manifest: manifest.pairs == FULL_SENTENCES,
            ("without sentence pairs", "with pairs"),
        )
        if max_predictions_per_seq is None:
            max_predictions_per_seq = (
                agreed(self.manifests, "max_predictions_per_seq")
                if self.is_dynamic
                else first.max_predictions_per_seq
                if first
                else DEFAULT_MAX_PREDICTIONS_PER_SEQ
            )
        if not self.is_dynamic:
            self._check_lengths("max_predictions_per_seq", max_predictions_per_seq)
        self.max_seq_length = max_seq_length
        self.max_predictions_per_seq = max_predictions_per_seq
        self.schema = (
            unmasked_schema(max_seq_length)
            if self.is_dynamic
            else pretraining_schema(max_seq_length, max_predictions_per_seq)
        )
        found = first_record(self.paths)
        if found is None:
            raise InputError(f"--{flag}: there is no record in {patterns}.")
        path, record = found
        self.schema.check(record, path)
        self._masking = (
            self._settled(masking or MaskingOptions()) if self.is_dynamic else None
        )

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
            vocab_size=self._id_limit(vocab_size),
            transform=self._masking and self._masking(seed=seed),
        )

    def evaluation_dataset(
        self, batch_size: int, *, repeat: bool, vocab_size: int | None = None
    ) -> tf.data.Dataset:
        """Batches in order; see `bert_tf.records.pipeline.evaluation_dataset`.

        Records that are masked as they are read have the same masks at every
        evaluation, whatever the run: those of the seed that they were made with.
        """
        seed = self.manifests[0].random_seed if self.is_dynamic else 0
        return evaluation_dataset(
            self.paths,
            self.schema,
            batch_size=batch_size,
            repeat=repeat,
            vocab_size=self._id_limit(vocab_size),
            transform=self._masking and self._masking(seed=seed),
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

    def vocabulary(self, do_lower_case: bool | None) -> tuple[Vocabulary | None, bool]:
        """The vocabulary and its casing.

        Args:
            do_lower_case: the user's; None to take the records' own.

        Returns:
            The vocabulary, None where nobody says it, and whether it is lower-cased.

        Raises:
            InputError: the user's and the records' contradict each other.
        """
        vocabulary = self._vocabulary
        if not self.manifests:
            if vocabulary is None:
                logging.warning(
                    "The records have no manifest, so the run will have no vocab.txt:"
                    " fill_mask will not work. Give --vocab_file."
                )
            return vocabulary, do_lower_case is not False
        manifest = self.manifests[0]
        if do_lower_case is not None and do_lower_case != manifest.do_lower_case:
            raise InputError(
                f"--do_lower_case={do_lower_case}, but the records of {manifest.path}"
                f" were made with {manifest.do_lower_case}."
            )
        if vocabulary is None:
            logging.warning(
                "%s is missing: the run will have no vocab.txt. Give --vocab_file.",
                manifest.vocab_path,
            )
        return vocabulary, manifest.do_lower_case

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary | None:
        """The user's vocabulary, or else that beside the records, if there is one."""
        manifest = self.manifests[0] if self.manifests else None
        if self._vocab_file:
            given = Vocabulary.from_file(self._vocab_file)
            given.require_special_tokens(self._vocab_file)
            if manifest and given.sha256 != manifest.vocab_sha256:
                raise InputError(
                    f"--vocab_file={self._vocab_file} ({len(given)} tokens) is not the"
                    f" vocabulary of {manifest.path} ({manifest.vocab_size} tokens)."
                )
            return given
        if manifest is None or not files.exists(manifest.vocab_path):
            return None
        own = Vocabulary.from_file(manifest.vocab_path)
        if own.sha256 != manifest.vocab_sha256:
            raise InputError(
                f"{manifest.vocab_path} was replaced: it is not the vocabulary that"
                f" {manifest.path} names."
            )
        return own

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

    def refuse_other_pairs(self, other: "PretrainingRecords") -> None:
        """Raises InputError if only one of the two has a next sentence to predict."""
        if self.has_pairs != other.has_pairs:
            raise InputError(
                f"{self.paths[0]} and {other.paths[0]} cannot be used together: only"
                " one of them has sentence pairs (--pairs)."
            )

    def _settled(self, options: MaskingOptions) -> Callable[..., DynamicMasking]:
        """How to mask the records, but for the seed."""
        if self._vocabulary is None:
            raise InputError(
                f"{self.manifests[0].vocab_path} is missing: the records cannot be"
                " masked without their vocabulary. Give --vocab_file."
            )
        arguments = options.settled(self.manifests) | {
            "max_seq_length": self.max_seq_length,
            "max_predictions_per_seq": self.max_predictions_per_seq,
        }
        log_masking(**arguments)
        ids = TokenIds.from_vocabulary(self._vocabulary.ids)
        return functools.partial(DynamicMasking, ids, **arguments)

    def _id_limit(self, vocab_size: int | None) -> int | None:
        """The first id that a record must not have: masking looks its ids up."""
        if not self.is_dynamic:
            return vocab_size
        num_tokens = self.manifests[0].vocab_size
        return num_tokens if vocab_size is None else min(num_tokens, vocab_size)

    def _check_lengths(self, name: str, wanted: int) -> None:
        for manifest in self.manifests:
            found = getattr(manifest, name)
            if found != wanted:
                raise InputError(
                    f"--{name}={wanted}, but the records of {manifest.path} were made"
                    f" with {found}."
                )


def pretraining_dataset(
    patterns: str,
    *,
    batch_size: int,
    seed: int = 12345,
    training: bool = True,
    max_predictions_per_seq: int | None = None,
    **masking: Any,
) -> tf.data.Dataset:
    """Batches of pre-training records, for a notebook's `fit` and `evaluate`.

    Args:
        patterns: globs of record files, with commas between.
        batch_size: sequences a batch.
        seed: decides the order, and the masks of records without.
        training: endless shuffled batches (give `fit` its `steps_per_epoch`), or else
            all records once, in order.
        max_predictions_per_seq: masked-LM slots; None to take the records' own.
        **masking: the arguments of MaskingOptions, for records that are masked as they
            are read: masking_unit, masked_lm_prob, mask_rate, random_rate.

    Returns:
        A dataset of dicts of tensors, named as in `bert_tf.records.schema`.

    Raises:
        InputError: as PretrainingRecords, or `masking` is for other records.
    """
    options = MaskingOptions(**masking)
    records = PretrainingRecords(
        patterns, max_predictions_per_seq=max_predictions_per_seq, masking=options
    )
    if not records.is_dynamic:
        options.refuse_where_unused(records.paths[0])
    if training:
        return records.training_dataset(batch_size, seed=seed)
    return records.evaluation_dataset(batch_size, repeat=False)
