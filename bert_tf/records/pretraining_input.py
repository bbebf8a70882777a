"""Pre-training records as input: found, checked against the model, read.

Settings that the user does not give (lengths, vocabulary, casing) come from the
manifest; given settings must agree with it. Records without a manifest, such as the
original's, are checked by their first record. Unmasked records are masked as they are
read; for a left-to-right model, each next token is the target instead.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from bert_tf.base import files
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.instances.masking import masking_of, num_predictions, warn_if_few
from bert_tf.instances.settings import (
    DYNAMIC_MASKING,
    FULL_SENTENCES,
    PIECE,
    PREVIOUS_OR_NEXT,
    WORD,
)
from bert_tf.records.dynamic_masking import (
    ONE_DIRECTION,
    UNMASKED,
    DynamicMasking,
    MaskingOptions,
    neighbour_targets,
)
from bert_tf.records.manifest import (
    Manifest,
    Shard,
    fingerprint,
    listed_files,
    manifests_of,
    shared_text,
)
from bert_tf.records.pipeline import (
    ALL_ROWS,
    Batch,
    InputShard,
    RecordKeys,
    Transform,
    compression_of,
    evaluation_dataset,
    first_record,
    record_counts,
    training_dataset,
)
from bert_tf.records.spec import RecordSpec
from bert_tf.records.writing import record_files
from bert_tf.text.vocabulary import Vocabulary


def files_by_length(paths: Sequence[str]) -> dict[int, list[str]]:
    """Returns record files by max_seq_length, from manifests or first records."""
    listed = listed_files(paths)
    lengths: dict[int, list[str]] = {}
    for path in paths:
        if path in listed:
            length = listed[path][0].max_seq_length
        elif found := first_record([path]):
            length = RecordSpec.of_record(found[1], path).max_seq_length
        else:
            continue
        lengths.setdefault(length, []).append(path)
    return lengths


class RecordKind(NamedTuple):
    """The properties that sets of records used together must share."""

    masking: str = "static"
    pairs: str = "nsp"
    packed: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._asdict().items())


def common_kind(
    paths: Sequence[str], listed: Mapping[str, tuple[Manifest, Shard]]
) -> RecordKind:
    """Returns the kind of all record files: without a manifest, the original's."""
    found: dict[RecordKind, str] = {}
    for path in paths:
        kind = RecordKind()
        if path in listed:
            manifest, _ = listed[path]
            kind = RecordKind(manifest.masking, manifest.pairs, manifest.packed)
        found.setdefault(kind, path)
    if len(found) > 1:
        first, second, *_ = (f"{path} ({kind})" for kind, path in found.items())
        raise InputError(
            f"Records of different kinds cannot be used together: {first} and {second}."
        )
    return next(iter(found))


def common_value(
    manifests: Sequence[Manifest], name: str, flag: str = "", *, remedy: str = ""
) -> Any:
    """Returns the value of a field, which must be the same in all manifests."""
    first = manifests[0]
    value = getattr(first, name)
    for manifest in manifests[1:]:
        if (other := getattr(manifest, name)) != value:
            raise InputError(
                f"The records of {first.path} were made with {name}={value}, those of"
                f" {manifest.path} with {other}: {remedy or f'give `{flag or name}`'}."
            )
    return value


def enough_slots(own: int, length: int, masked_lm_prob: float | None) -> int:
    """Returns a sequence's slots: the records', or more if another share needs them."""
    return max(own, num_predictions(length, masked_lm_prob or 0.0, length))


def masking_from(
    options: MaskingOptions,
    manifests: Sequence[Manifest],
    vocabulary: Vocabulary | None,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    max_predictions_per_sequence: int,
) -> DynamicMasking:
    """Returns how records are masked as they are read: by the options or manifests."""
    if vocabulary is None:
        raise InputError(
            f"{manifests[0].vocab_path} is missing: the records cannot be masked"
            " without their vocabulary. Give `vocab_file`."
        )
    unit, share = options.masking_unit, options.masked_lm_prob
    if unit is None:
        is_whole = common_value(manifests, "do_whole_word_mask", "masking_unit")
        unit = WORD if is_whole else PIECE
    if share is None:
        share = common_value(manifests, "masked_lm_prob")
    logging.info(
        "The records are masked as they are read: %ss, %g of the tokens, of these"
        " %g %s and %g random.",
        *(unit, share, options.mask_rate, options.mask_token, options.random_rate),
    )
    warn_if_few(max_predictions_per_seq, max_seq_length, share)
    masking = masking_of(
        vocabulary,
        unit=unit,
        masked_lm_prob=share,
        max_predictions_per_seq=max_predictions_per_sequence,
        mask_rate=options.mask_rate,
        random_rate=options.random_rate,
        mask_token=options.mask_token,
    )
    return DynamicMasking(masking, max_predictions_per_seq)


def refuse_mixed_text(manifests: Sequence[Manifest]) -> None:
    """Raises InputError for sets with different vocabularies, casing or segmenters."""
    used = {
        (one.vocab_sha256, one.do_lower_case, one.segmenter): one for one in manifests
    }
    if len(used) > 1:
        first, second, *_ = used.values()
        if first.vocab_sha256 == second.vocab_sha256:
            if first.segmenter != second.segmenter:
                raise InputError(
                    f"{first.path} and {second.path} cannot be used together: one"
                    f" was made with `segmenter={first.segmenter}`, the other with"
                    f" {second.segmenter}."
                )
            raise InputError(
                f"{first.path} and {second.path} cannot be used together: one is"
                " of lower-cased text, the other is not (`do_lower_case`)."
            )
        raise InputError(
            f"{first.path} and {second.path} cannot be used together: they have"
            " different vocabularies. Make the records again with one of them."
        )


def refuse_other_vocabulary(
    vocabulary: Vocabulary, path: str, manifest: Manifest | None, *, is_given: Any
) -> None:
    """Raises InputError for a vocabulary that the records were not made with."""
    if manifest and vocabulary.sha256 != manifest.vocab_sha256:
        remedy = "It was changed: give `vocab_file`."
        if is_given:
            remedy = (
                "Leave `vocab_file` out: the one that the records were made with"
                " lies next to them."
            )
        raise InputError(
            f"{path} ({len(vocabulary)} tokens) is not the vocabulary of"
            f" {manifest.path} ({manifest.vocab_size} tokens). {remedy}"
        )


class PretrainingRecords:
    """The record files that a flag names."""

    def __init__(
        self,
        patterns: str | Sequence[str],
        *,
        flag: str = "input_file",
        max_seq_length: int | None = None,
        max_predictions_per_seq: int | None = None,
        vocab_file: str | None = None,
        masking: MaskingOptions | None = None,
        left_to_right: bool = False,
        right_to_left: bool = False,
        counts_cache: str | None = None,
    ) -> None:
        is_one = isinstance(patterns, str)
        self.paths = record_files(patterns, flag) if is_one else patterns
        self._listed = listed_files(self.paths)
        self.manifests = manifests_of(self._listed)
        self._vocab_file = vocab_file
        self._counts_cache = counts_cache
        self._kind = common_kind(self.paths, self._listed)
        self.refuse_other(self)
        if not (first := first_record(self.paths)):
            raise InputError(f"`{flag}`: there is no record in {self.paths[0]}.")
        path, record = first
        self.spec = RecordSpec.of_record(record, path)
        if self.spec.lacks_labels and not self.manifests:
            self._kind = self._kind._replace(pairs=FULL_SENTENCES)
            logging.warning(
                "%s: no `next_sentence_labels`: read as records without pairs.", path
            )
        self.is_dynamic = self._kind.masking == DYNAMIC_MASKING
        self.pairs = self._kind.pairs
        self.has_pairs = self.pairs != FULL_SENTENCES
        # How many different labels the pairs have.
        self.num_pair_labels = 3 if self.pairs == PREVIOUS_OR_NEXT else 2
        self.is_packed = self._kind.packed
        self._targets: Transform | None = None
        self._masking: DynamicMasking | None = None
        self._vocab_size: int | None = None  # of the model that reads them
        # Whether records of one sequence are read as packed rows of one, for a model
        # of packed rows.
        self.as_packed = False
        masking = masking or MaskingOptions()
        self._is_one_way = left_to_right or right_to_left
        self._settle_lengths(
            max_seq_length, max_predictions_per_seq, masking.masked_lm_prob
        )
        # The targets are the records' own masks, new masks, or neighbours.
        if self._is_one_way:
            if not self.is_dynamic:
                raise InputError(
                    f"{self.paths[0]}: the records are masked, but a model that reads"
                    f" in one direction predicts every token. {UNMASKED}."
                )
            slots = max_predictions_per_seq
            masking.refuse_masking(ONE_DIRECTION, max_predictions_per_seq=slots)
            self._targets = functools.partial(
                neighbour_targets, of_left_to_right=left_to_right
            )
        elif self.is_dynamic:
            self._masking = masking_from(
                masking,
                self.manifests,
                self.vocabulary,
                max_seq_length=self.max_seq_length,
                max_predictions_per_seq=self.max_predictions_per_seq,
                max_predictions_per_sequence=self._max_predictions_per_sequence,
            )
        self.spec.check(record, path)

    def fingerprints(self, counts: Sequence[int]) -> list[int]:
        """Returns the fingerprint of the records, and the one of earlier versions."""
        identities = [manifest.identity for manifest in self.manifests]
        of_names = self.paths, counts, self.max_seq_length
        return [fingerprint(*of_names, identities), fingerprint(*of_names)]

    def _settle_lengths(
        self,
        max_seq_length: int | None,
        max_predictions_per_seq: int | None,
        masked_lm_prob: float | None,
    ) -> None:
        """Sets the lengths, and a spec with them: the user's or the manifests'."""
        # Tokens of a record; of a packed row's sequence see max_sequence_length.
        self.max_seq_length = self._settled("max_seq_length", max_seq_length)
        # Masked-LM slots of a batch's records.
        if self._is_one_way:
            self.max_predictions_per_seq = self.max_seq_length - 1
        elif self.is_dynamic:
            self.max_predictions_per_seq = max_predictions_per_seq or enough_slots(
                common_value(self.manifests, "max_predictions_per_seq"),
                self.max_seq_length,
                masked_lm_prob,
            )
        else:
            self.max_predictions_per_seq = self._settled(
                "max_predictions_per_seq", max_predictions_per_seq
            )
        self.max_sequence_length = self.max_seq_length
        self._max_predictions_per_sequence = self.max_predictions_per_seq
        max_sequences_per_row = None
        if self.is_packed:
            max_sequences_per_row, self._max_predictions_per_sequence = (
                common_value(
                    self.manifests, name, remedy="they cannot be used together"
                )
                for name in ("max_sequences_per_row", "max_predictions_per_sequence")
            )
            lengths = (manifest.max_sequence_length for manifest in self.manifests)
            self.max_sequence_length = max(lengths)
            self._max_predictions_per_sequence = enough_slots(
                self._max_predictions_per_sequence,
                self.max_sequence_length,
                masked_lm_prob,
            )
        self.spec = RecordSpec.pretraining(
            self.max_seq_length,
            None if self.is_dynamic else self.max_predictions_per_seq,
            max_sequences_per_row,
            None if self.manifests else self.spec.stored,
        )

    @property
    def masked_lm_prob(self) -> float | None:
        """The share of tokens masked as they are read; None for fixed masks."""
        return self._masking.masking.masked_lm_prob if self._masking else None

    def _settled(self, name: str, given: int | None) -> int:
        """Returns a length: the user's, the manifests' or the first record's."""
        if given is None:
            first = self.manifests[0] if self.manifests else self.spec
            given = getattr(first, name) or 1
        for manifest in self.manifests:
            if (found := getattr(manifest, name)) != given:
                raise InputError(
                    f"`{name}={given}`, but the records of {manifest.path} were made"
                    f" with {found}."
                )
        return given

    def check_model(self, config: BertConfig) -> None:
        """Raises InputError for a model that is too small; notes its vocab_size."""
        self._vocab_size = config.vocab_size
        # Positions restart with each of a packed row's sequences.
        config.check_sequences(self.max_sequence_length, 1 + self.has_pairs)
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

    def check_hosts(self, strategy: Any) -> None:
        """Raises InputError if a TPU's hosts, on other machines, would have to mask."""
        if self._masking is None or not isinstance(strategy, tf.distribute.TPUStrategy):
            return
        # Tasks on other machines belong to the job "worker".
        if any("localhost" not in name for name in strategy.extended.worker_devices):
            raise InputError(
                f"{self.paths[0]}: the records have no masks, and the TPU's hosts,"
                " which read them, cannot draw masks. Write them with"
                " `masking=static`, or run this on the TPU VM, with `tpu_name=local`."
            )

    def training_dataset(
        self,
        batch_size: int,
        *,
        seed: int,
        start: int = 0,
        shard: InputShard = ALL_ROWS,
    ) -> tf.data.Dataset:
        """Returns endless shuffled batches; see `pipeline.training_dataset`."""
        return training_dataset(
            self.paths,
            self.counts,
            self.spec,
            batch_size=batch_size,
            seed=seed,
            start=start,
            shard=shard,
            **self._reading(seed),
        )

    def stream(
        self, batch_size: int, seed: int
    ) -> Callable[[int, InputShard], tf.data.Dataset]:
        """Returns a function from a position and a worker's rows to batches."""
        return lambda position, shard: self.training_dataset(
            batch_size, seed=seed, start=position, shard=shard
        )

    def evaluation_dataset(
        self, batch_size: int, repeat: bool = False
    ) -> tf.data.Dataset:
        """Returns batches in order; see `pipeline.evaluation_dataset`."""
        _ = self.counts  # refuses incomplete files: `first_record` does not
        # Every evaluation uses the same masks, in all runs.
        seed = self.manifests[0].random_seed if self.is_dynamic else 0
        return evaluation_dataset(
            self.paths,
            self.spec,
            batch_size=batch_size,
            repeat=repeat,
            **self._reading(seed),
        )

    @functools.cached_property
    def counts(self) -> list[int]:
        """The number of records in each file, from manifests or counted."""
        unknown = [path for path in self.paths if path not in self._listed]
        counted = record_counts(unknown, self._counts_cache)
        counts = dict(zip(unknown, counted, strict=True))
        counts |= {path: shard.num_records for path, (_, shard) in self._listed.items()}
        return [counts[path] for path in self.paths]

    def vocabulary_and_casing(
        self, do_lower_case: bool | None
    ) -> tuple[Vocabulary | None, bool | None]:
        """Returns the vocabulary and its casing."""
        if self.vocabulary is None:
            logging.warning(
                "There is no vocabulary next to the records, so the run will have no"
                " vocab.txt: fill_mask will not work. Give `vocab_file`."
            )
        for manifest in self.manifests[:1]:
            if do_lower_case not in (None, manifest.do_lower_case):
                raise InputError(
                    f"`do_lower_case={do_lower_case}`, but the records of"
                    f" {manifest.path} were made with {manifest.do_lower_case}."
                )
            do_lower_case = manifest.do_lower_case
        return self.vocabulary, do_lower_case

    @property
    def segmenter(self) -> str | None:
        """The segmenter that separated words, if there is a manifest."""
        return self.manifests[0].segmenter if self.manifests else None

    @functools.cached_property
    def vocabulary(self) -> Vocabulary | None:
        """The user's vocabulary, or else the one next to the records, if any."""
        manifest = self.manifests[0] if self.manifests else None
        path = self._vocab_file or (manifest.vocab_path if manifest else "")
        if not self._vocab_file and not (path and files.exists(path)):
            return None
        vocabulary = Vocabulary.from_file(path)
        if self._vocab_file:
            vocabulary.require_special_tokens(path)
        refuse_other_vocabulary(vocabulary, path, manifest, is_given=self._vocab_file)
        return vocabulary

    def refuse_other(self, other: "PretrainingRecords") -> None:
        """Raises InputError if ids or labels mean different things in both."""
        if self._kind.pairs != other._kind.pairs:
            raise InputError(
                f"{self.paths[0]} (pairs={self._kind.pairs}) and {other.paths[0]}"
                f" (pairs={other._kind.pairs}) cannot be used together."
            )
        refuse_mixed_text([*self.manifests[:1], *other.manifests])

    def _reading(self, seed: int) -> dict[str, Any]:
        """Returns the arguments that both kinds of data sets share."""
        vocab_size = self._vocab_size
        steps: list[Transform] = []
        if self._targets is not None:
            steps.append(self._targets)
        elif self._masking is not None:
            self._masking.compile()
            steps.append(functools.partial(self._masking, seed=seed))
            # Masking looks ids up in the records' vocabulary.
            num_tokens = self.manifests[0].vocab_size
            vocab_size = min(num_tokens, vocab_size or num_tokens)
        if self.as_packed and not self.is_packed:
            steps.append(lambda batch, _: as_packed(batch))

        def transform(batch: Batch, keys: RecordKeys) -> Batch:
            for step in steps:
                batch = step(batch, keys)
            return batch

        return {
            # Files named in a manifest are not compressed.
            "compressions": [
                "" if path in self._listed else compression_of(path)
                for path in self.paths
            ],
            "vocab_size": vocab_size,
            "transform": transform if steps else None,
        }


def as_packed(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns records of one sequence as packed rows, for a model of packed rows."""
    labels = batch["next_sentence_labels"]
    return {
        **batch,
        "sequence_ids": batch["input_mask"],
        "cls_positions": tf.zeros_like(labels),
        "next_sentence_weights": tf.ones_like(labels, tf.float32),
    }


def pretraining_dataset(
    patterns: str,
    *,
    batch_size: int,
    seed: int = 12345,
    training: bool = True,
    max_predictions_per_seq: int | None = None,
    left_to_right: bool = False,
    right_to_left: bool = False,
    packed: bool = False,
    **masking: Any,
) -> tf.data.Dataset:
    """Returns batches of pre-training records for a notebook's `fit` and `evaluate`.

    Args:
        patterns: globs of record files, with commas between.
        batch_size: sequences per batch.
        seed: decides the order, and the masks of unmasked records.
        training: endless shuffled batches (give `fit` its `steps_per_epoch`), or else
            all records once, in order.
        max_predictions_per_seq: masked-LM slots; None to take the records' own.
        left_to_right: for a left-to-right model, which needs unmasked records.
        right_to_left: for a right-to-left model, likewise.
        packed: whether records that are not packed are turned into packed rows of one
            sequence.
        **masking: the arguments of MaskingOptions, for records that are masked as they
            are read: masking_unit, masked_lm_prob, mask_rate, random_rate.

    Returns:
        A dataset of dicts of tensors, named as in `bert_tf.records.spec`.

    Raises:
        InputError: as PretrainingRecords, or `masking` is for other records.

    Examples:
        >>> records = bert_tf.pretraining_dataset("records.tfrecord", batch_size=4)
        >>> next(iter(records))["input_ids"].shape
        TensorShape([4, 12])
    """
    options = MaskingOptions(**masking)
    records = PretrainingRecords(
        patterns,
        max_predictions_per_seq=max_predictions_per_seq,
        masking=options,
        left_to_right=left_to_right,
        right_to_left=right_to_left,
        flag="patterns",
    )
    if not records.is_dynamic:
        options.refuse_where_unused(records.paths[0])
    records.as_packed = packed
    if training:
        return records.training_dataset(batch_size, seed=seed)
    return records.evaluation_dataset(batch_size)


def records_of_lengths(
    patterns: str,
    lengths: Sequence[int] | None,
    *,
    flag: str,
    max_seq_length: int | None,
    **settings: Any,
) -> list[PretrainingRecords]:
    """Opens the records of the given lengths, once per length; all if none is given."""
    paths = record_files(patterns, flag)
    if lengths is None:
        by_length: dict[Any, list[str]] = {max_seq_length: paths}
    else:
        by_length = dict(files_by_length(paths))
    wanted = [max_seq_length] if lengths is None else lengths
    for length in wanted:
        if length not in by_length:
            found = ", ".join(map(str, sorted(by_length)))
            raise InputError(
                f"`phases` asks for records of length {length}; those of `{flag}`"
                f" have {found or 'no records'}."
            )
    opened = {
        length: PretrainingRecords(
            by_length[length], flag=flag, max_seq_length=length, **settings
        )
        for length in dict.fromkeys(wanted)
    }
    return [opened[length] for length in wanted]


def warn_of_shared_text(
    held_out: Sequence[PretrainingRecords], training: Sequence[PretrainingRecords]
) -> None:
    """Warns if the training reads text that a model is evaluated on."""
    scored, read = (
        [manifest for records in each for manifest in records.manifests]
        for each in (held_out, training)
    )
    if seen := shared_text(scored, read):
        logging.warning(
            "`eval_input_file`: the training reads %s too, so that its scores are not"
            " those of held-out text.",
            ", ".join(seen),
        )
