"""Inspects record files, whole or broken: examples, counts and broken rules.

What training refuses is a warning here: an incomplete set, a file whose size is not
that in its manifest, a truncated file, a file with other records than the first.

The rules are those of building a record: [CLS] A [SEP] B [SEP], where B may be
empty; in a packed row, several of these. Masking touches neither [CLS] nor [SEP].

An example is text, with a mark for each prediction: [MASK→river] where the model sees
[MASK] and must predict "river", [the→river] where it sees another token, [river=] where
it sees the token itself. Pieces are joined to words where nothing is predicted.
"""

import os
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.records.manifest import is_companion, is_temporary
from bert_tf.records.packing import unpacked_columns
from bert_tf.records.pretraining_input import PretrainingRecords
from bert_tf.records.statistics import RecordStatistics, row_figures
from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, SEP, Vocabulary

Columns = Mapping[str, np.ndarray]


def opened(
    patterns: Sequence[str], vocab_file: str | None = None
) -> PretrainingRecords:
    """The records of some patterns, as far as they can be read."""
    return PretrainingRecords(
        _find_files(patterns), flag="files", vocab_file=vocab_file, strict=False
    )


def _find_files(patterns: Sequence[str]) -> list[str]:
    """The record files of some patterns, without the files that accompany records."""
    found = list(dict.fromkeys(files.expand_globs(patterns, "files")))
    records = [path for path in found if not is_companion(path)]
    records = records or [path for path in found if is_temporary(path)]
    if not records:
        raise InputError(f"No record file, only {found[0]} and the like.")
    for path in records:
        if files.is_folder(path):
            raise InputError(f"{path} is a folder; name {os.path.join(path, '*')}.")
    return records


MISFIT = "layout"

# The order of the report.
RULES = {
    MISFIT: "cannot be read, or has other features than the first record",
    "input_mask": "input_mask is not ones, then zeros",
    "padding": "input_ids are not 0 in the padding",
    "segments": "segment_ids are not 0 for A, 1 for B, 0 in the padding",
    "vocabulary": "an id is outside the vocabulary",
    "cls": "the first token is not [CLS]",
    "sep": "a segment does not end with [SEP]",
    "rows": "sequence_ids are not 1, 2, ... then 0 in the padding, or cls_positions and"
    " next_sentence_weights do not fit them",
    "weights": "masked_lm_weights are not ones, then zeros with empty slots",
    "positions": "masked_lm_positions do not ascend, or lie outside the tokens",
    "special": "[CLS] or [SEP] is to be predicted",
    "mask": "[MASK] stands where nothing is predicted",
    "label": "next_sentence_labels has a label that such pairs do not have",
}


def broken_rules(
    columns: Columns, vocabulary: Vocabulary | None, pairs: str = "nsp"
) -> dict[str, np.ndarray]:
    """For each rule, which records of a block break it.

    Without a vocabulary only negative ids can be wrong, and [CLS], [SEP] and [MASK] are
    not checked.
    """
    size = np.iinfo(np.int64).max if vocabulary is None else len(vocabulary)
    cls, sep, mask_id = (
        -1 if vocabulary is None else vocabulary.ids.get(token, -1)
        for token in (CLS, SEP, MASK)
    )
    ids, mask = columns["input_ids"], columns["input_mask"]
    is_token = np.arange(ids.shape[1]) < mask.sum(axis=1)[:, None]
    broken = {
        "input_mask": mask != is_token,
        "padding": (ids != 0) & ~is_token,
        "segments": (columns["segment_ids"] != 0) & ~is_token,
        "vocabulary": (ids < 0) | (ids >= size),
        "mask": ids == mask_id,
    }
    # The rules of each of a packed row's sequences.
    sequences, rows, _ = _sequences(columns)
    offsets = np.arange(ids.shape[1])
    lengths = sequences["input_mask"].sum(axis=1)
    b_lengths = sequences["segment_ids"].sum(axis=1)
    a_lengths = lengths - b_lengths
    in_b = (offsets < lengths[:, None]) & (offsets >= a_lengths[:, None])
    in_sequences = {
        "segments": (sequences["segment_ids"] != in_b).any(axis=1) | (a_lengths < 0)
    }
    if vocabulary is not None:
        in_sequences["cls"] = sequences["input_ids"][:, 0] != cls
        in_sequences["sep"] = np.zeros(len(rows), bool)
        for ends in (lengths, np.where(b_lengths > 0, a_lengths, lengths)):
            last = (ends - 1).clip(0, ids.shape[1] - 1)[:, None]
            last_ids = np.take_along_axis(sequences["input_ids"], last, axis=1)[:, 0]
            in_sequences["sep"] |= last_ids != sep
    for rule, is_broken in in_sequences.items():
        of_rows = np.bincount(rows[is_broken], minlength=len(ids)) > 0
        broken[rule] = broken.get(rule, False) | of_rows[:, None]
    if "sequence_ids" in columns:
        broken["rows"] = _broken_rows(columns)
    if "masked_lm_positions" in columns:
        positions, wanted, weights = (
            columns[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")
        )
        is_used = weights > 0
        in_front = np.arange(weights.shape[1]) < is_used.sum(axis=1)[:, None]
        falls = np.diff(positions, axis=1, prepend=-1) <= 0
        outside = (positions < 0) | (positions >= mask.sum(axis=1, keepdims=True))
        broken["weights"] = (weights != in_front) | (
            ((positions != 0) | (wanted != 0)) & ~is_used
        )
        broken["positions"] = (falls | outside) & is_used
        broken["vocabulary"] = np.concatenate(
            [broken["vocabulary"], (wanted < 0) | (wanted >= size)], axis=1
        )
        if vocabulary is not None:
            broken["special"] = np.isin(wanted, (cls, sep)) & is_used
        places = positions.clip(0, ids.shape[1] - 1)
        broken["mask"][np.nonzero(is_used)[0], places[is_used]] = False
    if "next_sentence_labels" in columns:
        labels = columns["next_sentence_labels"]
        broken["label"] = (labels < 0) | (
            labels >= len(_LABELS.get(pairs, _LABELS["nsp"]))
        )
    if vocabulary is None or "next_sentence_labels" not in columns:
        del broken["mask"]
    return {rule: cells.any(axis=1) for rule, cells in broken.items()}


def _broken_rows(columns: Columns) -> np.ndarray:
    """Where a packed row's features do not describe the same sequences, [rows, any]."""
    ids = columns["sequence_ids"]
    steps = np.diff(ids, axis=1, prepend=0)
    slots = np.arange(1, columns["cls_positions"].shape[1] + 1)
    is_own = ids[:, :, None] == slots
    is_used = is_own.any(axis=1)
    return np.concatenate(
        [
            ((steps != 0) & (steps != 1) & (ids != 0)),
            (ids != 0) != (columns["input_mask"] != 0),
            columns["next_sentence_weights"] != is_used,
            # The first of no tokens is 0.
            columns["cls_positions"] != is_own.argmax(axis=1),
            (columns["next_sentence_labels"] != 0) & ~is_used,
        ],
        axis=1,
    )


def survey(
    records: PretrainingRecords, progress: Callable[[int], object]
) -> Iterator[str]:
    """The statistics of all records, and how many break which rule, in lines."""
    vocabulary, spec = records.vocabulary, records.spec
    statistics = RecordStatistics(
        max_seq_length=spec.max_seq_length,
        mask_id=None if vocabulary is None else vocabulary.ids.get(MASK),
    )
    # By rule: how many records break it, and the first of them.
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
    for rule, text in RULES.items():
        if rule in violations:
            count, first = violations[rule]
            found = f"{count:,} record{'s' * (count > 1)}"
            yield f"{found}: {text}; the first is {first}"
    if not violations:
        yield f"all {num_rows:,} records keep the rules"
    if vocabulary is None:
        yield "not checked without a vocabulary: ids, [CLS], [SEP], [MASK]"


def _sequences(columns: Columns) -> tuple[Columns, np.ndarray, np.ndarray]:
    """A block's sequences; each one's row, and its number in a packed row, from 1."""
    if "sequence_ids" in columns:
        unpacked, rows, numbers = unpacked_columns(columns)
        return unpacked, rows, numbers + 1
    rows = np.arange(len(columns["input_ids"]))
    return columns, rows, np.zeros_like(rows)


# By the manifest's `pairs`: what next_sentence_labels mean.
_LABELS = {
    "nsp": ("B follows A", "B is random"),
    "sop": ("A and B are in order", "A and B are swapped"),
    "none": ("no pair", "next sentence label 1"),
    "previous": ("B follows A", "B is random", "B precedes A"),
}


def examples(
    records: PretrainingRecords, start: int, num_examples: int, width: int
) -> Iterator[list[str]]:
    """Some records as lines of text; of packed rows each sequence."""
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
                    f"  ! {text}"
                    for rule, text in RULES.items()
                    if rule in broken and broken[rule][row]
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
    """A record as text, even if it is broken, wrapped to a terminal's columns."""
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
    """The words and marks from a position on."""

    def token(token_id: int) -> str:
        if vocabulary is None:
            return str(token_id)
        is_inside = 0 <= token_id < len(vocabulary)
        return vocabulary.tokens[token_id] if is_inside else f"<id {token_id}?>"

    words: list[str] = []
    joins = False  # whether the last word has all its pieces from the first on
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
