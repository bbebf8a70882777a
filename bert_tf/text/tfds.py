"""TensorFlow Datasets: splits as documents to pre-train on.

`tensorflow_datasets`, and TensorFlow with it, is imported when a function is called.
"""

import dataclasses
import multiprocessing
from collections import Counter
from collections.abc import Iterator

from bert_tf.base import files
from bert_tf.base.tfds_rows import (
    BATCH_SIZE,
    TfdsRows,
    builder_of,
    dataset_of,
    not_utf8,
)
from bert_tf.text.documents import NO_CLEANING, Chunk, Source, paragraphs_of

EXAMPLES_PER_CHUNK = 8192


def make_tfds_chunks(
    name: str,
    *,
    split: str = "train",
    text_field: str = "text",
    data_dir: str | None = None,
    split_sentences: bool | None = None,
    language: str = "en",
    clean: str = NO_CLEANING,
    examples_per_chunk: int = EXAMPLES_PER_CHUNK,
) -> list[Chunk]:
    """Cuts a split into chunks, in order."""
    rows = TfdsRows(name, split, data_dir)
    rows.check(text_field, "text_field", is_text=True)
    chunks = []
    for source in sources_of(rows, text_field, clean):
        info = rows.splits[source.split]
        example_bytes = info.num_bytes / max(info.num_examples, 1)
        for start in range(source.begin, source.end, examples_per_chunk):
            stop = min(start + examples_per_chunk, source.end)
            chunk = Chunk(
                source=source,
                start=start,
                stop=stop,
                num_bytes=round((stop - start) * example_bytes),
                language="" if split_sentences is False else language,
            )
            chunks.append(chunk)
    return chunks


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSource(Source):
    """Consecutive examples of a TensorFlow dataset's split."""

    name: str  # with configuration and version: "wikipedia/20230601.en:1.0.0"
    split: str  # of which the chunks are slices: "train"
    end: int  # the number after the last example
    # The folder of prepared datasets; None for the library's default.
    data_dir: str | None = None

    @property
    def sha256(self) -> str:
        """A digest of its identity: a version's examples never change."""
        return files.sha256(f"{self.path}:{self.end - self.begin}".encode())

    def documents(
        self, start: int, stop: int | None, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        """Yields the paragraphs of each example."""
        import tensorflow as tf
        import tensorflow_datasets as tfds

        if multiprocessing.parent_process() is not None:
            # Otherwise each worker process would take a GPU's memory for reading text.
            tf.config.set_visible_devices([], "GPU")
        wanted = tfds.core.ReadInstruction(
            self.split, from_=start, to=self.end if stop is None else stop, unit="abs"
        )
        builder = builder_of(self.name, self.data_dir)
        dataset = dataset_of(builder, wanted, {self.text_field: True})
        texts = dataset.map(lambda example: example[self.text_field]).batch(BATCH_SIZE)
        position = start
        for batch in texts.as_numpy_iterator():
            for text in batch:
                try:
                    yield paragraphs_of(text.decode("utf-8"), self.clean, dropped)
                except UnicodeDecodeError as error:
                    raise not_utf8(f"{self.path}:{position}", error) from error
                position += 1


def sources_of(
    rows: TfdsRows, text_field: str, clean: str = NO_CLEANING
) -> list[DatasetSource]:
    """Returns the parts of a split; several may be joined by +."""
    import tensorflow_datasets as tfds

    with rows.split_errors():
        parts = tfds.core.ReadInstruction.from_spec(rows.split).to_absolute(rows.splits)
    name, _, version = rows.full_name.rpartition("/")
    sources = []
    for part in parts:
        total = rows.splits[part.splitname].num_examples
        begin, end = part.from_ or 0, total if part.to is None else part.to
        slice_ = "" if (begin, end) == (0, total) else f"[{begin}:{end}]"
        source = DatasetSource(
            path=f"tfds:{name}:{version}:{part.splitname}{slice_}",
            input_format="tfds",
            name=f"{name}:{version}",
            split=part.splitname,
            begin=begin,
            end=end,
            text_field=text_field,
            clean=clean,
            data_dir=rows.data_dir,
        )
        sources.append(source)
    return sources
