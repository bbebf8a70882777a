"""Selects the text to read, its formats and encodings, and the chunks."""

import codecs
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from absl import logging

from bert_tf.base import files, unpacking
from bert_tf.base import options as all_options
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, Path, option
from bert_tf.base.parallel import available_cores
from bert_tf.text.documents import (
    BYTE_ORDER_MARK,
    CLEANING,
    FORMATS,
    JSONL,
    LANGUAGE_HELP,
    MEDIAWIKI,
    NO_CLEANING,
    OBJECTS,
    PARAGRAPH_FORMATS,
    PARQUET,
    UTF_8,
    Chunk,
    FileSource,
    can_be_cut,
    language_code,
    read_blocks,
)
from bert_tf.text.segmentation import NO_SEGMENTER, SEGMENTERS

# Small enough that all cores have work for texts from a few dozen MB.
_CHUNK_BYTES = 4 << 20
AUTO = "auto"

_PARQUET_BEGINNING = re.compile(rb"PAR1[\0-\x08\x0e-\x1f]")
_DELIMITER = re.compile(rb"[,;|\t]")
_AS_TEXT = (
    "Save its text as a text file; or its table as Parquet or JSON lines, and name the"
    " column by `text_field`."
)


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
        """Yields problems with the source, the languages and the encodings."""
        yield from super().problems()
        if (self.input_file is None) == (self.tfds_name is None):
            yield "Give one of `input_file` and `tfds_name`."
        try:
            language_code(self.language)
            if self.encoding != AUTO:
                encoding_name(self.encoding)
        except InputError as error:
            yield str(error)


# Paths -> the paths that hold no text: records, and files that accompany them.
Written = Callable[[Sequence[str]], Iterable[str]]


def text_chunks(
    options: TextOptions, written: Written, *, passed_over: Sequence[str] = ()
) -> list[Chunk]:
    """Returns the options' text, in pieces of work."""
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
    return file_chunks(
        options, options.input_file, "input_file", written, passed_over=passed_over
    )


def file_chunks(
    options: TextOptions,
    patterns: str,
    flag: str,
    written: Written,
    *,
    passed_over: Sequence[str] = (),
) -> list[Chunk]:
    """Returns the files that a flag names, in pieces of work, as the options say."""
    found = find_sources(patterns, flag)
    others = {files.identity(path) for path in [*passed_over, *written(found)]}
    paths = [path for path in found if files.identity(path) not in others]
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


def find_sources(patterns: str, flag: str) -> list[str]:
    """Returns the input files that comma-separated patterns name, in their order."""
    found: list[str] = []
    for pattern in files.split_paths(patterns):
        matches = [
            path
            for name in files.expand_globs([pattern], flag)
            for path in (sorted(_walk(name)) if files.is_folder(name) else [name])
        ]
        if not matches:
            raise InputError(f"`{flag}`: there is no file in the folder {pattern!r}.")
        found.extend(matches)
    return found


def make_chunks(
    paths: Iterable[str],
    *,
    input_format: str = "auto",
    text_field: str = "text",
    split_sentences: bool | None = None,
    language: str = "en",
    encoding: str = UTF_8,
    clean: str = NO_CLEANING,
    chunk_bytes: int = _CHUNK_BYTES,
    num_workers: int = 1,
) -> list[Chunk]:
    """Cuts files into chunks, in order; the cuts depend only on the arguments."""
    paths = list(paths)
    for path in paths:
        files.require(path, "input file")
        if not files.can_be_read_again(path):
            raise InputError(
                f"The input file is a pipe or a device, which cannot be read twice:"
                f" {path}. Write it to a file first."
            )
    chunks: list[Chunk] = []
    extracted: list[str] = []
    if encoding == AUTO:
        encodings = addon("encodings").find_encodings(paths, num_workers)
    else:
        encodings = [encoding_name(encoding)] * len(paths)
    for path, name in zip(paths, encodings, strict=True):
        found = input_format
        if found == "auto":
            found, begin = find_format(path, name)
            is_as_it_is = found == "text" and clean == NO_CLEANING
            if (
                is_as_it_is
                and b"\0" not in begin
                and addon("pdf").looks_extracted(begin)
            ):
                extracted.append(path)
        if found in PARAGRAPH_FORMATS and clean != NO_CLEANING:
            raise InputError(
                f"{path}: `clean={clean}` is for text extracted from other files;"
                f" those of {found} have paragraphs. Leave it out."
            )
        if found == MEDIAWIKI:
            addon("mediawiki").require_parser()
        source = FileSource(
            path=path,
            input_format=found,
            text_field=text_field,
            encoding=name,
            clean=clean,
        )
        is_split = split_sentences
        if is_split is None:
            is_split = not source.has_sentences
        of_chunks = addon("objects").cut_parquet if found == PARQUET else _cut
        for start, stop, num_bytes in of_chunks(source, chunk_bytes):
            chunk = Chunk(
                source=source,
                start=start,
                stop=stop,
                num_bytes=num_bytes,
                language=language if is_split else "",
            )
            chunks.append(chunk)
    if extracted:
        logging.warning(
            "%s%s: form feeds, or many lines that end in hyphens, as in text of PDF"
            " files. If it is, `clean=pdf` joins lines and words, and leaves page"
            " numbers out.",
            *(
                extracted[0],
                f" and {more} more" if (more := len(extracted) - 1) else "",
            ),
        )
    return chunks


# The positions where a chunk starts and stops, and its bytes.
_Cuts = Iterator[tuple[int, int | None, int]]


def _cut(source: FileSource, chunk_bytes: int) -> _Cuts:
    num_bytes = files.size(source.path)
    is_one = source.input_format == "text" and source.clean != NO_CLEANING
    is_cut = not is_one and can_be_cut(source.path, source.encoding)
    if is_cut and source.input_format == JSONL:
        is_cut = not addon("objects").is_array(source)
    step = chunk_bytes if is_cut else num_bytes
    for start in range(0, num_bytes, step) if num_bytes else [0]:
        stop = start + step if start + step < num_bytes else None
        yield start, stop, min(step, num_bytes - start)


def find_format(path: str, encoding: str = UTF_8) -> tuple[str, bytes]:
    """Returns a file's format, by its name, then by its first line that is not blank.

    Also returns the beginning of the file, as far as it was read.
    """
    by_name = addon("objects").named_format(path)
    if by_name in OBJECTS:
        return by_name, b""
    first = next(read_blocks(path, encoding=encoding), None)
    begin = first.data.removeprefix(BYTE_ORDER_MARK).lstrip() if first else b""
    if _PARQUET_BEGINNING.match(begin) and not unpacking.compression(path):
        return PARQUET, begin
    if addon("mediawiki").is_dump(begin):
        return MEDIAWIKI, begin
    first_line = begin.partition(b"\n")[0]
    if addon("wikiextractor").is_header(first_line):
        return "wikiextractor", begin
    if _is_json_object(first_line):
        return "jsonl", begin
    message = files.no_text(begin, path, _AS_TEXT)
    if by_name and _DELIMITER.search(first_line):
        message = f"{path}: a table, whose lines are no text. {_AS_TEXT}"
    if message:
        raise InputError(f"{message} (`input_format=text` reads it as it is.)")
    return "text", begin


def _is_json_object(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    with contextlib.suppress(ValueError, RecursionError):
        return bool(values := json.loads(line)) and isinstance(values, dict)
    return False


def _walk(folder: str, within: tuple[str, ...] = ()) -> Iterator[str]:
    if files.is_remote(folder):
        import tensorflow as tf

        for parent, folders, names in tf.io.gfile.walk(folder):
            folders[:] = filter(_is_visible, folders)
            yield from (
                os.path.join(parent, name) for name in names if _is_visible(name)
            )
        return
    # Links to folders are followed, but not in cycles. Unlike os.walk, this fails if a
    # folder cannot be read.
    within = (*within, os.path.realpath(folder))
    for entry in os.scandir(folder):
        if not _is_visible(entry.name):
            continue
        if not entry.is_dir():
            yield entry.path
        elif os.path.realpath(entry.path) not in within:
            yield from _walk(entry.path, within)


def _is_visible(name: str) -> bool:
    return not name.startswith((".", "_"))


def encoding_name(encoding: str) -> str:
    """Returns an encoding's name in Python."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # refuses base64, for example
    except (LookupError, UnicodeError) as error:
        raise InputError(
            f"`encoding={encoding}` must be utf-8, auto or the name of an encoding that"
            " Python has, such as cp1252, utf-16 or gb18030."
        ) from error
    return name
