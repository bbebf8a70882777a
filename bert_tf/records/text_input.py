"""Choice of the text to read, and of the number of processes."""

from collections.abc import Iterator, Sequence

from absl import logging

from bert_tf.base import files
from bert_tf.base import options as all_options
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, Path, option
from bert_tf.base.parallel import available_cores
from bert_tf.records.manifest import listed_records
from bert_tf.records.writing import is_companion
from bert_tf.text.blocks import UTF_8
from bert_tf.text.documents import (
    CLEANING,
    FORMATS,
    LANGUAGE_HELP,
    NO_CLEANING,
    Chunk,
    language_code,
)
from bert_tf.text.segmentation import NO_SEGMENTER, SEGMENTERS
from bert_tf.text.sources import AUTO, encoding_name, find_sources, make_chunks

# Small enough that all cores have work for texts from a few dozen MB.
_CHUNK_BYTES = 4 << 20


class TextOptions(Options, title=all_options.DATA, decides="reading"):
    """The text to read."""

    input_file: str | None = option(
        None,
        "Text files: names, globs or folders, separated by commas. They may be"
        " compressed (.gz, .bz2, .xz, .zst).",
        path=Path.FILES,
        decides="nothing",
    )
    input_format: str = option(
        "auto",
        "The files' format: plain text (one sentence per line, a blank line between"
        " documents), wikiextractor's output, MediaWiki's XML dumps, JSON (an object"
        " per line, or an array of objects), or Parquet; auto detects it by the name,"
        " then by the first line.",
        choices=("auto", *FORMATS),
        only_with="input_file",
    )
    encoding: str = option(
        UTF_8,
        "Encoding of the files, by its Python name, such as cp1252 or utf-16; auto"
        " detects the encoding of each file that is not UTF-8. A file that is not UTF-8"
        " is read by a single process.",
        only_with="input_file",
    )
    text_field: str = option(
        "text",
        "The JSON field, Parquet column or dataset feature that holds the text;"
        " body.text names a field within another one of a file. Plain text among the"
        " files has no fields, and all of it is read.",
    )
    clean: str = option(
        NO_CLEANING,
        "Make paragraphs from text that other programs have written. pdf: text of PDF"
        " files as pdftotext writes it, where each text file is a document. Lines and"
        " hyphenated words are joined. If pages end at form feeds, page numbers and"
        " running headers and footers are left out.",
        choices=CLEANING,
    )
    tfds_name: str | None = option(
        None,
        "A TensorFlow dataset to read instead of files, such as wikipedia/20230601.en.",
        decides="numbers",
    )
    tfds_split: str = option(
        "train",
        "Split of the dataset, or a slice such as train[:10%].",
        only_with="tfds_name",
        decides="numbers",
    )
    tfds_data_dir: str | None = option(
        None,
        "Folder of prepared datasets. Default: the library's own.",
        path=Path.OUTPUT,
        only_with="tfds_name",
        decides="nothing",
    )
    num_workers: int | None = option(
        None,
        "Number of processes. Default: one per core. The result is the same.",
        least=1,
        decides="nothing",
    )
    split_sentences: bool | None = option(
        None,
        "Split lines into sentences. Default: false for plain text, whose lines are"
        " sentences; true for other formats, and with --clean=pdf.",
    )
    language: str = option(
        "en",
        "The language whose rules split lines into sentences, by its code."
        + LANGUAGE_HELP,
    )
    segmenter: str = option(
        NO_SEGMENTER,
        "What separates the words of scripts without spaces (Thai, Lao, Khmer, Burmese,"
        " kana) before they are cut into WordPieces. icu: ICU's word break iterator;"
        " other text is not changed. none: as the original, a phrase is one word.",
        choices=SEGMENTERS,
        decides="numbers",
    )

    def problems(self) -> Iterator[str]:
        """One of `input_file` and `tfds_name`; known languages and encodings."""
        yield from super().problems()
        if (self.input_file is None) == (self.tfds_name is None):
            yield "Give one of `input_file` and `tfds_name`."
        try:
            language_code(self.language)
            if self.encoding != AUTO:
                encoding_name(self.encoding)
        except InputError as error:
            yield str(error)


def text_chunks(
    options: TextOptions, *, passed_over: Sequence[str] = ()
) -> list[Chunk]:
    """The options' text, in pieces of work."""
    if options.tfds_name:
        return addon("tfds").make_tfds_chunks(
            options.tfds_name,
            split=options.tfds_split,
            text_field=options.text_field,
            data_dir=options.tfds_data_dir,
            split_sentences=options.split_sentences,
            language=language_code(options.language),
            clean=options.clean,
        )
    assert options.input_file is not None
    return file_chunks(options, options.input_file, "input_file", passed_over)


def file_chunks(
    options: TextOptions, patterns: str, flag: str, passed_over: Sequence[str] = ()
) -> list[Chunk]:
    """Files that a flag names, in pieces of work, to be read as the options say."""
    found = find_sources(patterns, flag)
    others = {files.identity(path) for path in [*passed_over, *listed_records(found)]}
    paths = [
        path
        for path in found
        if files.identity(path) not in others and not is_companion(path)
    ]
    if len(paths) < len(found):
        logging.info(
            "`%s`: %d of %d files are skipped: bert_tf has written them, or they are"
            " the vocabulary",
            flag,
            len(found) - len(paths),
            len(found),
        )
    if twice := len(paths) - len({files.identity(path) for path in paths}):
        logging.warning(
            "`%s` names %d files that it has named before: they are read again.",
            *(flag, twice),
        )
    if not paths:
        raise InputError(
            f"`{flag}`: {patterns!r} has only files that bert_tf has written: records,"
            " manifests, vocabularies."
        )
    return make_chunks(
        paths,
        input_format=options.input_format,
        text_field=options.text_field,
        split_sentences=options.split_sentences,
        language=language_code(options.language),
        encoding=options.encoding,
        clean=options.clean,
        chunk_bytes=_CHUNK_BYTES,
        num_workers=options.num_workers or available_cores(),
    )
