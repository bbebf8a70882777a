"""Features as a Parquet table: a row a line.

    line_index        int64
    tokens (words)    list<string>         what has a vector
    layer:-1          list<float[W]>       of each of them, a column for each layer, or
    layer:sum(-1,-2)                       one for what the layers are combined to
    pooled            float[H]             where it is asked for
    cls:-1, mean:-1   float[W]             where they are asked for, likewise

Each group of lines is a row group. The file's metadata has, under `bert_tf`, as JSON,
what the features were made with.
"""

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.features import parts
from bert_tf.features.arrays import require_lines
from bert_tf.features.choices import POOLED
from bert_tf.features.extraction import Features
from bert_tf.features.layers import LayerIndex


class Table:
    """A Parquet file.

    Raises:
        InputError: there is no pyarrow.
    """

    def __init__(
        self, labels: Sequence[LayerIndex], settings: Mapping[str, Any]
    ) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise InputError(
                "--format=parquet needs pyarrow: pip install pyarrow"
            ) from error
        self._arrow = pyarrow
        self._parquet = pyarrow.parquet
        self._labels = tuple(labels)
        self._metadata = {b"bert_tf": json.dumps(settings, sort_keys=True).encode()}

    def check_output(self, output: str) -> None:
        """See `formats.Format`."""
        parts.refuse_folder(output)

    def write_part(
        self, file: IO[bytes], first: int, group: Sequence[Features]
    ) -> None:
        """Writes a group as a table; see `formats.Format`."""
        arrow = self._arrow
        columns: dict[str, Any] = {
            "line_index": arrow.array(np.arange(first, first + len(group)))
        }
        if group[0].vectors is not None:
            vectors = [f.vectors for f in group if f.vectors is not None]
            counts = [len(values) for values in vectors]
            offsets = arrow.array(np.cumsum([0, *counts]), arrow.int32())
            name = "tokens" if group[0].input.spans is None else "words"
            columns[name] = arrow.array(
                [list(features.input.names) for features in group],
                arrow.list_(arrow.string()),
            )
            flat = np.concatenate(vectors)  # [T, L, W]
            for place, label in enumerate(self._labels):
                columns[f"layer:{label}"] = arrow.ListArray.from_arrays(
                    offsets, self._rows(flat[:, place])
                )
        for name in group[0].sentence:
            stacked = np.stack([features.sentence[name] for features in group])
            if name == POOLED:
                columns[name] = self._rows(stacked)
                continue
            for place, label in enumerate(self._labels):
                columns[f"{name}:{label}"] = self._rows(stacked[:, place])
        table = arrow.table(columns).replace_schema_metadata(self._metadata)
        with arrow.BufferOutputStream() as stream:
            self._parquet.write_table(table, stream, compression="none")
            file.write(stream.getvalue())

    def _rows(self, values: np.ndarray) -> Any:
        """[n, W] as n lists of W numbers."""
        flat = self._arrow.array(np.ascontiguousarray(values).reshape(-1))
        return self._arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])

    def assemble(self, paths: Sequence[str], output: str) -> None:
        """Puts parts together; see `formats.Format`."""
        require_lines(paths)
        with parts.replacing(output) as file:
            writer = None
            for path in paths:
                with files.open_binary(path) as part:
                    table = self._parquet.read_table(
                        self._arrow.BufferReader(part.read())
                    )
                if writer is None:
                    # Vectors have nothing to gain from dictionaries, and little from
                    # being packed.
                    writer = self._parquet.ParquetWriter(
                        file, table.schema, compression="zstd", use_dictionary=False
                    )
                writer.write_table(table)
            if writer is not None:
                writer.close()
