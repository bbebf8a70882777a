"""Inspects record files, whole or broken: examples, counts and broken rules.

Problems that training refuses are warnings here: an incomplete set, a file whose size
differs from the manifest, a truncated file, one with other features than the first.

A record must be built as [CLS] A [SEP] B [SEP], where B may be empty; a packed row, as
several of these. Masking touches neither [CLS] nor [SEP].

An example is text, with a mark for each prediction: [MASK→river] where the model sees
[MASK] and must predict "river", [the→river] where it sees another token, [river=] where
it sees the token itself. Pieces are joined to words where nothing is predicted.
"""

import functools
import os
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import logging

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, Path, option
from bert_tf.records.manifest import Manifest, settings_of
from bert_tf.records.statistics import RecordStatistics, row_figures
from bert_tf.records.writing import is_companion, is_temporary
from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, SEP, Vocabulary

if TYPE_CHECKING:
    from bert_tf.addons.study.readable_records import ReadableRecords

Columns = Mapping[str, np.ndarray]


class InspectionOptions(Options, decides="nothing"):
    """The records to show, and how."""

    vocab_file: str | None = option(
        None, "The WordPiece vocabulary: one token per line.", path=Path.FILE
    )
    num_examples: int = option(3, "Number of records to print.", least=0)
    start: int = option(
        0, "The first record to print, counted from 0 over all files.", least=0
    )
    statistics: bool = option(
        True,
        "Read all records, count lengths, predictions and labels, and check each one.",
    )


def opened(patterns: Sequence[str], vocab_file: str | None = None) -> "ReadableRecords":
    """Returns the records that patterns name, as far as they can be read."""
    from bert_tf.addons.study.readable_records import ReadableRecords

    return ReadableRecords(_find_files(patterns), vocab_file)


def _find_files(patterns: Sequence[str]) -> list[str]:
    """Returns the record files that patterns name, without accompanying files."""
    found = list(dict.fromkeys(files.expand_globs(patterns, "files")))
    records = [path for path in found if not is_companion(path)]
    records = records or [path for path in found if is_temporary(path)]
    if not records:
        raise InputError(f"No record file, only {found[0]} and the like.")
    for path in records:
        if files.is_folder(path):
            raise InputError(f"{path} is a folder; name {os.path.join(path, '*')}.")
    return records


class _Block:
    """A block of records [N], with values that rules share.

    Without a vocabulary, only negative ids can be wrong, and the special tokens' ids
    match no token.
    """

    def __init__(
        self, columns: Columns, vocabulary: Vocabulary | None, pairs: str
    ) -> None:
        self.columns = columns
        self.pairs = pairs
        self.has_vocabulary = vocabulary is not None
        self.size = np.iinfo(np.int64).max if vocabulary is None else len(vocabulary)
        self.cls, self.sep, self.mask = (
            -1 if vocabulary is None else vocabulary.ids.get(token, -1)
            for token in (CLS, SEP, MASK)
        )
        self.ids = columns["input_ids"]
        num_tokens = columns["input_mask"].sum(axis=1)
        self.is_token = np.arange(self.ids.shape[1]) < num_tokens[:, None]
        # The sequences [M] of packed rows, with their rows, or the records themselves.
        self.sequences, self.rows, _ = _sequences(columns)
        self.lengths = self.sequences["input_mask"].sum(axis=1)
        self.a_lengths = self.lengths - self.sequences["segment_ids"].sum(axis=1)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @functools.cached_property
    def is_used(self) -> np.ndarray:
        """Whether slots [N, P] hold predictions."""
        return self["masked_lm_weights"] > 0

    def with_sequences(self, is_broken: np.ndarray) -> np.ndarray:
        """Returns whether records [N, 1] have any of these sequences [M]."""
        numbers = np.bincount(self.rows[is_broken], minlength=len(self.ids))
        return numbers[:, None] > 0


def _has_other_input_mask(block: _Block) -> np.ndarray:
    return block["input_mask"] != block.is_token


def _has_ids_in_padding(block: _Block) -> np.ndarray:
    return (block.ids != 0) & ~block.is_token


def _has_other_segments(block: _Block) -> np.ndarray:
    offsets = np.arange(block.ids.shape[1])
    a_lengths = block.a_lengths[:, None]
    in_b = (offsets < block.lengths[:, None]) & (offsets >= a_lengths)
    is_other = (block.sequences["segment_ids"] != in_b).any(axis=1)
    in_padding = (block["segment_ids"] != 0) & ~block.is_token
    return in_padding | block.with_sequences(is_other | (block.a_lengths < 0))


def _has_unknown_ids(block: _Block) -> np.ndarray:
    ids = block.ids
    if "masked_lm_ids" in block.columns:
        ids = np.concatenate([ids, block["masked_lm_ids"]], axis=1)
    return (ids < 0) | (ids >= block.size)


def _begins_with_other(block: _Block) -> np.ndarray:
    return block.with_sequences(block.sequences["input_ids"][:, 0] != block.cls)


def _ends_with_other(block: _Block) -> np.ndarray:
    ids = block.sequences["input_ids"]
    has_b = block.a_lengths < block.lengths
    is_broken = np.zeros(len(ids), bool)
    for ends in (block.lengths, np.where(has_b, block.a_lengths, block.lengths)):
        last = (ends - 1).clip(0, ids.shape[1] - 1)[:, None]
        is_broken |= np.take_along_axis(ids, last, axis=1)[:, 0] != block.sep
    return block.with_sequences(is_broken)


def _has_other_rows(block: _Block) -> np.ndarray:
    ids = block["sequence_ids"]
    steps = np.diff(ids, axis=1, prepend=0)
    slots = np.arange(1, block["cls_positions"].shape[1] + 1)
    is_own = ids[:, :, None] == slots
    is_used = is_own.any(axis=1)
    return np.concatenate(
        [
            ((steps != 0) & (steps != 1) & (ids != 0)),
            (ids != 0) != (block["input_mask"] != 0),
            block["next_sentence_weights"] != is_used,
            # Without a token, `argmax` gives 0.
            block["cls_positions"] != is_own.argmax(axis=1),
            (block["next_sentence_labels"] != 0) & ~is_used,
        ],
        axis=1,
    )


def _has_other_weights(block: _Block) -> np.ndarray:
    weights, is_used = block["masked_lm_weights"], block.is_used
    in_front = np.arange(weights.shape[1]) < is_used.sum(axis=1)[:, None]
    is_filled = (block["masked_lm_positions"] != 0) | (block["masked_lm_ids"] != 0)
    return (weights != in_front) | (is_filled & ~is_used)


def _has_other_positions(block: _Block) -> np.ndarray:
    positions = block["masked_lm_positions"]
    falls = np.diff(positions, axis=1, prepend=-1) <= 0
    num_tokens = block["input_mask"].sum(axis=1, keepdims=True)
    outside = (positions < 0) | (positions >= num_tokens)
    return (falls | outside) & block.is_used


def _predicts_special(block: _Block) -> np.ndarray:
    return np.isin(block["masked_lm_ids"], (block.cls, block.sep)) & block.is_used


def _has_mask_elsewhere(block: _Block) -> np.ndarray:
    is_mask = block.ids == block.mask
    if "masked_lm_positions" in block.columns:
        places = block["masked_lm_positions"].clip(0, block.ids.shape[1] - 1)
        is_mask[np.nonzero(block.is_used)[0], places[block.is_used]] = False
    return is_mask


def _has_unknown_label(block: _Block) -> np.ndarray:
    labels = block["next_sentence_labels"]
    meanings = _LABELS.get(block.pairs, _LABELS["nsp"])
    return (labels < 0) | (labels >= len(meanings))


class Rule(NamedTuple):
    """A rule's description, and its check [N, any]."""

    text: str
    is_broken: Callable[[_Block], np.ndarray]
    feature: str = "input_ids"  # the rule is only checked where this exists
    of_vocabulary: bool = False  # whether the check needs a vocabulary


MISFIT = "cannot be read, or has other features than the first record"

# Rules by name, in the order of the report.
RULES = {
    "input_mask": Rule("input_mask is not ones, then zeros", _has_other_input_mask),
    "padding": Rule("input_ids are not 0 in the padding", _has_ids_in_padding),
    "segments": Rule(
        "segment_ids are not 0 for A, 1 for B, 0 in the padding", _has_other_segments
    ),
    "vocabulary": Rule("an id is outside the vocabulary", _has_unknown_ids),
    "cls": Rule("the first token is not [CLS]", _begins_with_other, of_vocabulary=True),
    "sep": Rule(
        "a segment does not end with [SEP]", _ends_with_other, of_vocabulary=True
    ),
    "rows": Rule(
        "sequence_ids are not 1, 2, ... then 0 in the padding, or cls_positions and"
        " next_sentence_weights do not fit them",
        _has_other_rows,
        "sequence_ids",
    ),
    "weights": Rule(
        "masked_lm_weights are not ones, then zeros with empty slots",
        _has_other_weights,
        "masked_lm_weights",
    ),
    "positions": Rule(
        "masked_lm_positions do not ascend, or lie outside the tokens",
        _has_other_positions,
        "masked_lm_positions",
    ),
    "special": Rule(
        "[CLS] or [SEP] is to be predicted",
        _predicts_special,
        "masked_lm_ids",
        of_vocabulary=True,
    ),
    "mask": Rule(
        "[MASK] stands where nothing is predicted",
        _has_mask_elsewhere,
        "next_sentence_labels",
        of_vocabulary=True,
    ),
    "label": Rule(
        "next_sentence_labels has a label that such pairs do not have",
        _has_unknown_label,
        "next_sentence_labels",
    ),
}


def broken_rules(
    columns: Columns, vocabulary: Vocabulary | None, pairs: str = "nsp"
) -> dict[str, np.ndarray]:
    """Returns whether records [N] break a rule, for each rule that can be checked."""
    block = _Block(columns, vocabulary, pairs)
    return {
        name: np.asarray(rule.is_broken(block).any(axis=1))
        for name, rule in RULES.items()
        if rule.feature in columns and (block.has_vocabulary or not rule.of_vocabulary)
    }


def survey(
    records: "ReadableRecords", progress: Callable[[int], object]
) -> Iterator[str]:
    """Yields the statistics of all records and the number that break each rule."""
    vocabulary, spec = records.vocabulary, records.spec
    statistics = RecordStatistics(
        max_seq_length=spec.max_seq_length,
        mask_id=None if vocabulary is None else vocabulary.ids.get(MASK),
    )
    # Rule -> the number of records that break it, and the first one.
    violations: dict[str, tuple[int, str]] = {}
    labels: Counter[int] = Counter()
    num_rows = num_padding = 0
    for block in records.blocks():
        columns: Columns = block.columns
        rows = np.array(block.rows, np.int64)
        broken = {MISFIT: np.setdiff1d(np.arange(block.num_records), rows)}
        if "is_real_example" in columns:
            is_real = columns["is_real_example"][:, 0] != 0
            num_padding += int(np.count_nonzero(~is_real))
            columns = {name: values[is_real] for name, values in columns.items()}
            rows = rows[is_real]
        num_rows += len(rows)
        statistics.add(_sequences(columns)[0])
        for rule, is_broken in broken_rules(columns, vocabulary, records.pairs).items():
            broken[rule] = rows[is_broken]
        for rule, numbers in broken.items():
            if len(numbers):
                first = f"record {block.first_in_file + numbers[0]} of {block.path}"
                count, first = violations.get(rule, (0, first))
                violations[rule] = count + len(numbers), first
        if spec.has_classes:
            labels.update(columns["label_ids"].ravel().tolist())
        progress(block.num_bytes)
    if spec.max_sequences_per_row:
        length = spec.max_seq_length
        figures = row_figures(statistics, num_rows, max_seq_length=length)
        yield (
            f"rows               {figures['rows']:,} of {length} tokens,"
            f" {figures['sequences_per_row']:.2f} sequences in each;"
            f" {figures['padding_share']:.2%} of all places are padding"
        )
        yield "the sequences, as if unpacked into as many records:"
    yield from statistics.lines()
    if labels:
        counts = (f"{label}: {n:,}" for label, n in sorted(labels.items()))
        yield f"labels             {', '.join(counts)}"
    if num_padding:
        yield (
            f"padding            {num_padding:,} more records only fill the last batch"
            " up"
        )
    texts = {MISFIT: MISFIT, **{name: rule.text for name, rule in RULES.items()}}
    for name, text in texts.items():
        if name in violations:
            count, first = violations[name]
            found = f"{count:,} record{'s' * (count > 1)}"
            yield f"{found}: {text}; the first is {first}"
    if not violations:
        yield f"all {num_rows:,} records keep the rules"
    if vocabulary is None:
        yield "not checked without a vocabulary: ids, [CLS], [SEP], [MASK]"


def _sequences(columns: Columns) -> tuple[Columns, np.ndarray, np.ndarray]:
    """Returns sequences, their rows, and their numbers (from 1) in packed rows."""
    if "sequence_ids" in columns:
        unpacked, rows, numbers = unpacked_columns(columns)
        return unpacked, rows, numbers + 1
    rows = np.arange(len(columns["input_ids"]))
    return columns, rows, np.zeros_like(rows)


def unpacked_columns(
    columns: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Returns the sequences of packed rows as records, and their rows and slots."""
    ids = columns["sequence_ids"]
    num_slots = columns["cls_positions"].shape[1]
    is_used = columns["next_sentence_weights"] > 0
    is_used |= (ids[:, :, None] == np.arange(1, num_slots + 1)).any(axis=1)
    rows, numbers = np.nonzero(is_used)
    is_own = ids[rows] == numbers[:, None] + 1
    # A stable sort brings a sequence's tokens to the front, in order.
    places = np.argsort(~is_own, axis=1, kind="stable")
    in_front = np.take_along_axis(is_own, places, axis=1)
    unpacked = {
        name: np.where(
            in_front, np.take_along_axis(columns[name][rows], places, axis=1), 0
        )
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    unpacked["next_sentence_labels"] = columns["next_sentence_labels"][rows, numbers][
        :, None
    ]
    if "masked_lm_positions" in columns:
        positions = columns["masked_lm_positions"][rows]
        inside = positions.clip(0, ids.shape[1] - 1)
        is_own = np.take_along_axis(is_own, inside, axis=1) & (
            columns["masked_lm_weights"][rows] > 0
        )
        begins = columns["cls_positions"][rows, numbers][:, None]
        slots = np.argsort(~is_own, axis=1, kind="stable")
        in_front = np.take_along_axis(is_own, slots, axis=1)
        for name, values in (
            ("masked_lm_positions", positions - begins),
            ("masked_lm_ids", columns["masked_lm_ids"][rows]),
            ("masked_lm_weights", columns["masked_lm_weights"][rows]),
        ):
            values = np.take_along_axis(values, slots, axis=1)
            unpacked[name] = np.where(in_front, values, 0).astype(values.dtype)
    return unpacked, rows, numbers


# The manifest's `pairs` -> the meanings of next_sentence_labels.
_LABELS = {
    "nsp": ("B follows A", "B is random"),
    "sop": ("A and B are in order", "A and B are swapped"),
    "none": ("no pair", "next sentence label 1"),
    "previous": ("B follows A", "B is random", "B precedes A"),
}


def examples(
    records: "ReadableRecords", start: int, num_examples: int, width: int
) -> Iterator[list[str]]:
    """Yields some records as lines of text, packed rows sequence by sequence."""
    if not num_examples:
        return
    end = start + num_examples
    number = 0
    pairs = records.pairs
    for block in records.blocks():
        number = block.first + block.num_records
        if number > start:
            broken = broken_rules(block.columns, records.vocabulary, pairs)
            columns, rows, sequences = _sequences(block.columns)
            for index, row in enumerate(rows.tolist()):
                offset = block.rows[row]
                if not start <= block.first + offset < end:
                    continue
                sequence = f", sequence {s}" if (s := int(sequences[index])) else ""
                title = (
                    f"record {block.first + offset}{sequence} (record"
                    f" {block.first_in_file + offset} of {block.path})"
                )
                record = {name: column[index] for name, column in columns.items()}
                violations = [
                    f"  ! {RULES[name].text}"
                    for name, is_broken in broken.items()
                    if is_broken[row]
                ]
                yield [
                    *example_lines(title, record, records.vocabulary, pairs, width),
                    *violations,
                ]
            if number >= end:
                return
    if start >= number:
        logging.warning("`start=%d`, but there are %d records.", start, number)


def example_lines(
    title: str,
    record: Columns,
    vocabulary: Vocabulary | None,
    pairs: str = "nsp",
    width: int = 80,
) -> list[str]:
    """Returns a record as text, even if broken, wrapped to a terminal's columns."""
    ids = record["input_ids"]
    used = np.flatnonzero(record["input_mask"] | ids)
    length = int(used[-1]) + 1 if len(used) else 0
    second = np.flatnonzero(record["segment_ids"][:length])
    border = int(second[0]) if len(second) else length
    is_used = record.get("masked_lm_weights", np.zeros(0)) > 0
    wanted = {
        position: token_id
        for position, token_id, is_prediction in zip(
            record.get("masked_lm_positions", is_used).tolist(),
            record.get("masked_lm_ids", is_used).tolist(),
            is_used,
            strict=True,
        )
        if is_prediction and 0 <= position < len(ids)
    }
    segments = f" (A {border}, B {length - border})" if border < length else ""
    count = f"{len(wanted)} predictions; " if wanted else ""
    lines = [
        f"{title}: {length} of {len(ids)} tokens{segments};"
        f" {count}{_label(record, pairs)}"
    ]
    for name, start, end in (("A", 0, border), ("B", border, length)):
        if start < end:
            lines += textwrap.wrap(
                " ".join(_words(ids[:end].tolist(), start, wanted, vocabulary)),
                width,
                initial_indent=f"  {name} ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return lines


def _label(record: Columns, pairs: str) -> str:
    if "label_ids" in record:
        labels = record["label_ids"].tolist()
        return f"label{'s' * (len(labels) > 1)} " + ", ".join(f"{x:g}" for x in labels)
    number = int(record["next_sentence_labels"][0])
    meanings = _LABELS.get(pairs, _LABELS["nsp"])
    if 0 <= number < len(meanings):
        return meanings[number]
    return f"next sentence label {number}"


def _words(
    ids: list[int], start: int, wanted: Mapping[int, int], vocabulary: Vocabulary | None
) -> list[str]:
    """Returns the words and marks from a position on."""

    def token(token_id: int) -> str:
        if vocabulary is None:
            return str(token_id)
        is_inside = 0 <= token_id < len(vocabulary)
        return vocabulary.tokens[token_id] if is_inside else f"<id {token_id}?>"

    words: list[str] = []
    joins = False  # whether the next piece may continue the last word
    for position, token_id in enumerate(ids[start:], start):
        seen = token(token_id)
        if position in wanted:
            target = token(wanted[position])
            seen = seen.strip("[]") if seen == MASK else seen
            words.append(f"[{seen}=]" if seen == target else f"[{seen}→{target}]")
            joins = False
        elif joins and seen.startswith(CONTINUATION):
            words[-1] += seen.removeprefix(CONTINUATION)
        else:
            words.append(seen)
            is_special = seen.startswith("[") and seen.endswith("]")
            joins = not (seen.startswith(CONTINUATION) or is_special)
    return words


def manifest_lines(manifest: Manifest) -> list[str]:
    """Returns a description of a set's origin and content, for people."""
    state = "complete" if manifest.complete else "NOT COMPLETE"
    num_bytes = sum(source.num_bytes for source in manifest.source_files)
    sources = [source.path for source in manifest.source_files]
    settings = {
        name: value
        for name, value in settings_of(manifest).items()
        if value not in (None, "") and name not in ("vocab_file", "output_file")
    }
    return [
        manifest.path,
        f"  {state}: {manifest.num_records:,} records in {len(manifest.shards):,}"
        f" file(s); {manifest.vocab_size:,} entries in the vocabulary",
        f"  {', '.join(f'{name}={value}' for name, value in settings.items())}",
        f"  source files: {len(sources):,} of {num_bytes:,} bytes in all:"
        f" {', '.join(sources[:3])}{', ...' if sources[3:] else ''}",
    ]


def run(options: InspectionOptions) -> None:
    """Prints what the flags ask for."""
    if not options.positional:
        raise InputError("Give record files: inspect_records records/text.tfrecord")
    cli.import_tensorflow(options)
    from tqdm import tqdm

    records = opened(options.positional, options.vocab_file)
    width = shutil.get_terminal_size().columns
    for manifest in records.manifests:
        print("\n".join([*manifest_lines(manifest), ""]))
    for lines in examples(records, options.start, options.num_examples, width):
        print("\n".join([*lines, ""]))
    if options.statistics:
        total = sum(files.size(path) for path in records.paths)
        with tqdm(
            total=total, desc="Reading", unit="B", unit_scale=True, disable=None
        ) as bar:
            lines = [*survey(records, bar.update)]
        print("\n".join(lines))
