"""What there is to know of record files: some records as text, figures of all."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf.records.checking import MISFIT, RULES, RecordChecks
from bert_tf.records.examples import Example, read_example
from bert_tf.records.inspection import InspectedRecords, RecordBlock
from bert_tf.records.packing import unpacked_columns
from bert_tf.records.spec import CLASSIFICATION
from bert_tf.records.statistics import RecordStatistics, row_figures
from bert_tf.text.vocabulary import MASK


class ShownRecord(NamedTuple):
    """A record to show.

    Attributes:
        number: over all files, from 0.
        path: its file.
        number_in_file: from 0.
        example: the record in readable form.
        remarks: the rules that it breaks.
        sequence: which of a packed row's sequences, from 1; 0 where a record is one.
    """

    number: int
    path: str
    number_in_file: int
    example: Example
    remarks: list[str]
    sequence: int = 0


def show_records(
    records: InspectedRecords, start: int, num_examples: int
) -> Iterator[ShownRecord]:
    """Some records in readable form; those that cannot be parsed are passed over.

    Args:
        records: where they are.
        start: the first one's number, over all files.
        num_examples: how many numbers to look at.
    """
    if not num_examples:
        return
    checks = RecordChecks(records.vocabulary)
    end = start + num_examples
    number = 0
    for block in records.blocks():
        number = block.first + block.num_records
        if number > start:
            broken = checks.find(block.columns)
            columns, rows, sequences = _readable(block.columns)
            for index, row in enumerate(rows.tolist()):
                row_in_block = block.rows[row]
                if start <= block.first + row_in_block < end:
                    yield ShownRecord(
                        block.first + row_in_block,
                        block.path,
                        block.first_in_file + row_in_block,
                        read_example(columns, index, records.vocabulary, records.pairs),
                        [
                            RULES[rule]
                            for rule in RULES
                            if rule in broken and broken[rule][row]
                        ],
                        int(sequences[index]),
                    )
            if number >= end:
                return
    if start >= number:
        records.warn(f"--start={start}, but there are {number} records.")


def _readable(
    columns: Mapping[str, np.ndarray],
) -> tuple[Mapping[str, np.ndarray], np.ndarray, np.ndarray]:
    """A block's sequences; each one's row, and its number in a packed row, from 1."""
    if "sequence_ids" in columns:
        unpacked, rows, numbers = unpacked_columns(columns)
        return unpacked, rows, numbers + 1
    rows = np.arange(len(columns["input_ids"]))
    return columns, rows, np.zeros_like(rows)


class Survey:
    """Statistics and checks of all records, added up block by block.

    Args:
        records: where the blocks come from.

    Attributes:
        statistics: of the records that are of the layout.
        checks: of all of them.
        num_padding_examples: records of a classifier that only fill a batch up.
        labels: a classifier's classes and their records.
    """

    def __init__(self, records: InspectedRecords) -> None:
        vocabulary = records.vocabulary
        self.statistics = RecordStatistics(
            max_seq_length=records.layout.max_seq_length,
            mask_id=None if vocabulary is None else vocabulary.ids.get(MASK),
        )
        self.checks = RecordChecks(vocabulary)
        self.num_padding_examples = 0
        self._num_rows = 0
        self.labels: dict[int, int] = {}
        self._max_sequences_per_row = records.layout.max_sequences_per_row
        self._counts_labels = (
            records.layout.kind == CLASSIFICATION and not records.layout.regression
        )

    def add(self, block: RecordBlock) -> None:
        """Takes in a block."""
        columns, rows = block.columns, np.array(block.rows, np.int64)
        if "is_real_example" in columns:
            is_real = columns["is_real_example"][:, 0] != 0
            self.num_padding_examples += int(np.count_nonzero(~is_real))
            columns = {name: values[is_real] for name, values in columns.items()}
            rows = rows[is_real]
        self._num_rows += len(rows)
        self.statistics.add(_readable(columns)[0])
        self.checks.add(columns, block.path, (block.first_in_file + rows).tolist())
        misfits = sorted(set(range(block.num_records)) - set(block.rows))
        if misfits:
            first = f"record {block.first_in_file + misfits[0]} of {block.path}"
            self.checks.count(MISFIT, len(misfits), first)
        if self._counts_labels:
            values, counts = np.unique(columns["label_ids"], return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                self.labels[value] = self.labels.get(value, 0) + count

    def lines(self) -> list[str]:
        """What was found, for people."""
        lines = self.statistics.lines()
        if self._max_sequences_per_row:
            figures = self._row_figures()
            lines = [
                f"rows               {figures['rows']:,} of"
                f" {self.statistics.max_seq_length} tokens,"
                f" {figures['sequences_per_row']:.2f} sequences in each;"
                f" {figures['padding_share']:.2%} of all places are padding",
                "the sequences, as if unpacked into as many records:",
                *lines,
            ]
        if self.labels:
            labels = sorted(self.labels.items())
            lines.append(
                "labels             "
                + ", ".join(f"{label}: {count:,}" for label, count in labels)
            )
        if self.num_padding_examples:
            lines.append(
                f"padding            {self.num_padding_examples:,} records more only"
                " fill the last batch up"
            )
        return lines + self.checks.lines()

    def to_values(self) -> dict[str, Any]:
        """What was found, for programs."""
        return {
            "statistics": self.statistics.figures(),
            **({"rows": self._row_figures()} if self._max_sequences_per_row else {}),
            "labels": {str(label): self.labels[label] for label in sorted(self.labels)},
            "padding_examples": self.num_padding_examples,
            "violations": self.checks.to_values(),
        }

    def _row_figures(self) -> dict[str, Any]:
        return row_figures(
            self.statistics,
            self._num_rows,
            max_seq_length=self.statistics.max_seq_length,
        )
