"""Text to documents of sentences; formats but plain text are imported when needed."""

import codecs
import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.unpacking import compression, pieces_of, read_pieces

# Files in blocks of whole lines, uncompressed, cut only between documents.
#
# A chunk of a file is given by two arbitrary positions. It reaches from the first
# border at or after one position to the first border at or after the other, so that the
# chunks of a file hold each of its lines once. The file's format determines the
# borders.
#
# Lines end at \n. Files ending in .gz, .bz2, .xz or .zst are unpacked as they are read,
# from their beginning. A file in another encoding is converted to UTF-8 as it is read,
# also from its beginning: offsets are positions in the UTF-8.

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_8 = "utf-8"

RETURNS = "carriage returns between words, which become one"

_LINE_FEED = "\n"
_BORDER_BLOCK_BYTES = 1 << 16


class Block(NamedTuple):
    """Some whole lines of a file."""

    offset: int  # of the first line, in bytes of the unpacked file
    data: bytes  # the lines; only the file's last one may lack its line feed


# A line -> where in it a chunk of a format may begin: at 0, at its end, or nowhere.
Border = Callable[[bytes], int | None]


def read_blocks(
    path: str,
    start: int = 0,
    stop: int | None = None,
    border: Border | None = None,
    encoding: str = UTF_8,
) -> Iterator[Block]:
    """Yields the lines of a file, or of a chunk of one that `can_be_cut`."""
    if not can_be_cut(path, encoding):
        yield from _whole_lines(_recoded(read_pieces(path), path, encoding), 0)
        return
    with files.open_binary(path) as file:
        begin: int | None = 0
        end = stop
        if border is not None and start:
            begin = _find_border(file, border, start, stop)
        if border is not None and stop is not None:
            end = _find_border(file, border, stop, None)
        if begin is not None:
            file.seek(begin)
            yield from _whole_lines(pieces_of(file, begin, end), begin)


def can_be_cut(path: str, encoding: str) -> bool:
    """Whether a file can be read from any position."""
    return not compression(path) and encoding == UTF_8


def line_number(path: str, offset: int, encoding: str = UTF_8) -> int:
    """Returns the number, from 1, of the line with a byte of the unpacked file."""
    newlines = 0
    for block in read_blocks(path, encoding=encoding):
        if block.offset > offset:
            break
        # Past the end of the block, `count` stops at the end.
        newlines += block.data.count(b"\n", 0, offset - block.offset)
    return newlines + 1


def lines_of(
    block: Block,
    path: str,
    keep_mark: bool = True,
    dropped: Counter[str] | None = None,
    remedy: str = "",
) -> list[str]:
    """Returns a block's lines without line feeds and carriage returns.

    Carriage returns between words are counted in `dropped`, or logged. `remedy` is part
    of the error for bytes that are not UTF-8.
    """
    try:
        text = block.data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = line_number(path, block.offset + error.start)
        message = files.not_utf8(block.data, error.start, path, number, remedy)
        raise InputError(message) from error
    if joined := files.num_joined_by_returns(text, path):
        if dropped is None:
            logging.warning("%s: left out %d %s.", path, joined, RETURNS)
        else:
            dropped[RETURNS] += joined
    text = text.replace("\r", "")
    if block.offset == 0 and not keep_mark:
        text = text.removeprefix("\ufeff")
    found = text.split("\n")
    if not found[-1]:
        found.pop()  # nothing follows the last line feed
    return found


def _find_border(
    file: IO[bytes], border: Border, at_least: int, limit: int | None
) -> int | None:
    """Returns the first border at a line that begins at `at_least` or later."""
    # A line begins at `at_least` if the byte before is a line feed; else it is skipped.
    file.seek(at_least - 1)
    skipping = True
    pieces = pieces_of(file, at_least - 1, None, _BORDER_BLOCK_BYTES)
    for offset, data in _whole_lines(pieces, at_least - 1):
        begin = 0
        while begin < len(data):
            end = data.find(b"\n", begin) + 1 or len(data)
            if limit is not None and offset + begin >= limit:
                return None
            place = None if skipping else border(data[begin:end])
            if place is not None:
                return offset + begin + place
            skipping = False
            begin = end
    return None


def _recoded(pieces: Iterator[bytes], path: str, encoding: str) -> Iterator[bytes]:
    if encoding == UTF_8:
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    num_lines = 0
    piece = b""
    try:
        for piece in pieces:
            text = decoder.decode(piece)
            yield text.encode(UTF_8)
            num_lines += text.count(_LINE_FEED)
        piece = b""
        yield decoder.decode(piece, final=True).encode(UTF_8)
    except UnicodeError as error:
        place = path
        with contextlib.suppress(UnicodeError):  # a missing mark, say
            decoder.errors = "replace"
            good = decoder.decode(piece, final=True).partition("\ufffd")[0]
            place = f"{path}:{num_lines + good.count(_LINE_FEED) + 1}"
        raise InputError(
            f"{place}: not text in `encoding={encoding}`:"
            f" {getattr(error, 'reason', error)}. Give the right one, or repair the"
            " file."
        ) from error


def _whole_lines(pieces: Iterator[bytes], offset: int) -> Iterator[Block]:
    """Yields blocks made of pieces of a file, so that no line is cut."""
    rest: list[bytes] = []
    for data in pieces:
        end = data.rfind(b"\n") + 1
        if not end:
            rest.append(data)
            continue
        block = b"".join([*rest, data[:end]])
        yield Block(offset, block)
        offset += len(block)
        rest = [data[end:]]
    if any(rest):
        yield Block(offset, b"".join(rest))


# What is left out of a text: a count under each reason ("title lines"). The amount of
# text has a count of its own, "characters of title lines", or "tokens of ...".

_UNITS = ("tokens", "characters")


def drop(
    dropped: Counter[str],
    reason: str,
    count: int = 1,
    *,
    tokens: int = 0,
    characters: int = 0,
) -> None:
    """Counts what was left out."""
    dropped[reason] += count
    for unit, amount in zip(_UNITS, (tokens, characters), strict=True):
        if amount:
            dropped[f"{unit} of {reason}"] += amount


def tokens_dropped(dropped: Mapping[str, int]) -> int:
    """Returns the tokens of all that was left out after it was tokenized."""
    return sum(n for name, n in dropped.items() if name.startswith("tokens of "))


def dropped_lines(dropped: Mapping[str, int]) -> list[str]:
    """Returns what was left out and how much text it was, one line per reason."""
    amounts = {f"{unit} of {reason}" for unit in _UNITS for reason in dropped}
    lines = []
    for reason in sorted(dropped.keys() - amounts):
        if not dropped[reason]:
            continue
        of_reason = [
            f"{dropped[name]:,} {unit}"
            for unit in _UNITS
            if (name := f"{unit} of {reason}") in dropped
        ]
        amount = f" ({', '.join(of_reason)})" if of_reason else ""
        lines.append(f"Dropped {dropped[reason]:,}{amount}: {reason}")
    return lines


# Sources of text, and their documents of paragraphs.

TITLE_LINES = "title lines"

# How a document's text becomes paragraphs. "pdf" makes a plain file one document.
NO_CLEANING = "none"
PDF = "pdf"
CLEANING = (NO_CLEANING, PDF)

# Repetitions to drop: exact ones, or documents that are nearly the same.
NO_DEDUPLICATION = "none"
DOCUMENTS = "documents"
PARAGRAPHS = "paragraphs"
NEAR = "near"
DEDUPLICATION = (NO_DEDUPLICATION, DOCUMENTS, PARAGRAPHS, NEAR)

JSONL = "jsonl"
PARQUET = "parquet"
OBJECTS = (JSONL, PARQUET)  # each row has named values
MEDIAWIKI = "mediawiki"
PARAGRAPH_FORMATS = ("wikiextractor", MEDIAWIKI)
FORMATS = ("text", *PARAGRAPH_FORMATS, *OBJECTS)


def paragraphs_of(text: str, clean: str, dropped: Counter[str]) -> list[str]:
    """Returns a text's lines, stripped, without blank ones; or as `clean` says."""
    if clean == PDF:
        return addon("pdf").paragraphs_of_pdf(text, dropped)
    stripped = [line.strip() for line in text.split("\n")]
    return [line for line in stripped if line]


def whole_characters(text: str) -> str:
    """Returns the text with only characters that UTF-8 can encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where texts come from: a file, or part of a TensorFlow dataset."""

    path: str  # its identity
    input_format: str  # one of `FORMATS`, or "tfds"
    text_field: str = "text"  # where its documents have their text
    encoding: str = UTF_8
    clean: str = NO_CLEANING
    begin: int = 0  # the start of its first chunk

    def documents(
        self, start: int, stop: int | None, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        """Yields the paragraphs of each document of a chunk."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    """A text file."""

    def read(self, start: int, stop: int | None, border: Border) -> Iterator[Block]:
        """Yields the lines of a chunk."""
        return read_blocks(self.path, start, stop, border, self.encoding)

    def lines(
        self, block: Block, dropped: Counter[str], keep_mark: bool = False
    ) -> list[str]:
        """Returns the lines of a block; see `lines_of`."""
        remedy = "`encoding=auto` finds what it is. "
        return lines_of(block, self.path, keep_mark, dropped, remedy)

    def place(self, offset: int, index: int) -> str:
        """Returns the file and number of a line, counted from the one at `offset`."""
        number = line_number(self.path, offset, self.encoding)
        return f"{self.path}:{number + index}"

    def documents(
        self, start: int, stop: int | None, dropped: Counter[str]
    ) -> Iterator[list[str]]:
        """Yields the paragraphs of each document; plain text must be cleaned."""
        if self.input_format == "wikiextractor":
            return addon("wikiextractor").read_wikiextractor(self, start, stop, dropped)
        if self.input_format == MEDIAWIKI:
            return addon("mediawiki").read_mediawiki(self, start, stop, dropped)
        if self.input_format in OBJECTS:
            return addon("objects").read_rows(self, start, stop, dropped)
        assert self.input_format == "text" and self.clean != NO_CLEANING
        return self._whole_file(dropped)

    def _whole_file(self, dropped: Counter[str]) -> Iterator[list[str]]:
        lines: list[str] = []
        for block in self.read(0, None, lambda line: 0):
            lines += self.lines(block, dropped)
        yield paragraphs_of("\n".join(lines), self.clean, dropped)

    @property
    def has_sentences(self) -> bool:
        """Whether its lines are sentences by default."""
        return self.input_format == "text" and self.clean == NO_CLEANING


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a source, the work of one core; see `read_chunk`."""

    source: Source
    # In bytes of a file, groups of rows, or examples of a split: the documents that
    # begin from `start` on and before `stop`; None for the source's last chunk.
    start: int
    stop: int | None
    num_bytes: int  # its size, for progress
    # The language whose rules split paragraphs into sentences; "" where each line is a
    # sentence.
    language: str = ""


# Paragraphs to sentences, by the rules of their language.
#
# Paragraphs are split by `sentencex` (Wikimedia's): rules for abbreviations, numbers,
# quotations and lists. It takes any code, and uses English rules for unknown ones; so
# these are the codes in its table of languages and fallbacks, which is not public. The
# first code of each line has rules of its own, which the others share.
RULES = {
    codes.split()[0]: tuple(codes.split())
    for codes in (
        "am",
        "ar acm aeb apc arq ary arz",
        "bg",
        "bn bpy",
        "ca oc",
        "da jut kl",
        "de als bar dsb frr gsw hrx hsb ksh lb nds pdc pdt pfl rm sli stq vmf",
        "el pnt",
        "en abs ace aln ami az azb ban bbc bcc bdr be bew bgn bh bho bjn bo bqi bs btm"
        " bug cdo ckb cpx crh dtp dty dz eo et fa gag gan glk gom gor hak he hif hr hsn"
        " hu iba id ii io iu jv ka kge khw kiu km knc ko kr ks ku lg liv ljp lki lo lrc"
        " lt ltg luz lv lzh lzz mad min mk mnc mo ms mui mzn nan nb ne nia nn no nrf"
        " nyn nyo pwn rmy ro rsk rup ruq sdh sgs sh sq sr su sv sw szy tay tg th tr trv"
        " ttj ug ur vep vro wuu xmf yi yue za zh",
        "es an arn ast ay ext gn guc lad nah qu qug",
        "fi fit krl olo smn vot",
        "fr atj avk bci bm dua fon frc frp gcf gcr hke ht kab kbp ln lua mg pcd ses sg"
        " shy ty wa wls wo",
        "gu",
        "hi anp awa mag mai sa",
        "hy hyw",
        "it aae co egl eml fur lij lld lmo nap pms rgn scn sdc sro vec",
        "ja",
        "kk kaa",
        "kn tcy",
        "ml",
        "mr",
        "my blk kjp ksw mnw",
        "nl li srn vls",
        "pa",
        "pl csb szl",
        "pt gl kea mwl tet vmw",
        "ru ab alt av ba bxr ce cv gld inh kjh koi krc kum kv lbe lez mdf mhr mrj myv"
        " os rut sah sjd sty tt tyv udm xal",
        "sk cs",
        "ta",
        "te",
        "uk rue",
    )
}
LANGUAGES = tuple(sorted(code for codes in RULES.values() for code in codes))
LANGUAGE_HELP = (
    f" With rules of their own: {', '.join(RULES)}. With those of a related language:"
    f" {', '.join(code for code in LANGUAGES if code not in {*RULES, *RULES['en']})}."
    f" With the English ones: {', '.join(RULES['en'][1:])}. Case and region do not"
    " matter: de-AT is de."
)

# Ends of sentences that sentencex does not know: those of Tibetan and Khmer.
_ENDS = r"\u0f0d-\u0f11\u17d4\u17d5"
_TO_OTHER_END = re.compile(rf"[^{_ENDS}]*[{_ENDS}][\s{_ENDS}]*|[^{_ENDS}]+")
# At "B\u00a0.", sentencex (1.0.32) cuts the space's bytes in two and panics.
_WIDE_SPACE_BEFORE_PERIOD = re.compile(r"[^\S\x00-\x7f](?=\.)")

# At each mark, sentencex goes back to the last space: quadratic time where there are
# none. Such a text is split through a window: sentences that end in its first half are
# taken, and the window grows if none does. Only a quotation, or a list, longer than the
# other half would be split differently in the whole text.
_WINDOW = 1 << 13
_LONG_WORD = 1 << 10


def language_code(language: str) -> str:
    """Returns a language's code without case and region: de for DE, de-AT or de_AT."""
    code = re.split("[-_]", language.strip().lower())[0]
    if code not in LANGUAGES:
        near = [code[:2]] if code[:2] in LANGUAGES else RULES
        raise InputError(
            f"`language={language}` must be a language's code, such as"
            f" {', '.join(near)}; --help lists all. The rules of en do for many others."
        )
    return code


def sentence_splitter(language: str) -> Callable[[str], Sequence[str]]:
    """Returns a function from a paragraph to its sentences."""
    if not language:
        return _as_one
    import sentencex

    language = language_code(language)
    segment = sentencex.segment

    def split(paragraph: str) -> Sequence[str]:
        if not paragraph.isascii():
            paragraph = _WIDE_SPACE_BEFORE_PERIOD.sub(" ", paragraph)
        start, size = 0, len(paragraph)
        if size > _WINDOW and max(map(len, paragraph.split())) > _LONG_WORD:
            size = _WINDOW
        found: list[str] = []
        while len(paragraph) - start > size:
            taken = 0
            for sentence in segment(language, paragraph[start : start + size]):
                if taken + len(sentence) > size // 2:
                    break
                found.append(sentence)
                taken += len(sentence)
            start += taken
            size = _WINDOW if taken else 2 * size
        found += segment(language, paragraph[start:])
        if not paragraph.isascii():
            found = [
                part for sentence in found for part in _TO_OTHER_END.findall(sentence)
            ]
        stripped = [sentence.strip() for sentence in found]
        return [sentence for sentence in stripped if sentence]

    return split


def _as_one(paragraph: str) -> Sequence[str]:
    return (paragraph,) if paragraph else ()


# A chunk of a source becomes lines and ends of documents:
#
# text
#     One sentence per line, or one paragraph if it is to be split; a blank line ends a
#     document. The end of a file does not end a document: several files are one text,
#     as in the original. With `clean`, each file is a document of paragraphs instead.
# wikiextractor, mediawiki, jsonl, parquet, tfds
#     Each <doc>, article, JSON object, row or example is a document.
#
# Lines of files end at \n, and carriage returns are dropped
# everywhere, as TensorFlow's reader does for the original.

EMPTY_DOCUMENTS = "documents without text"

Splitter = Callable[[str], Sequence[str]]


class TextLine(NamedTuple):
    """A line of text, or the end of a document."""

    # The line's sentences, stripped; empty at a document's end.
    sentences: Sequence[str]
    text: str  # the line before it was split, stripped; "" where a document ends


def read_chunk(chunk: Chunk, dropped: Counter[str]) -> Iterator[TextLine]:
    """Yields the lines of a chunk's documents."""
    split = sentence_splitter(chunk.language) if chunk.language else _as_one
    if isinstance(chunk.source, FileSource) and chunk.source.has_sentences:
        return _text_lines(chunk.source, chunk, split, dropped)
    return _document_lines(chunk, split, dropped)


def _text_border(line: bytes) -> int | None:
    # Invalid UTF-8 is text here, and an error in the chunk that it belongs to.
    return None if line.decode("utf-8", "replace").strip() else len(line)


def _text_lines(
    source: FileSource, chunk: Chunk, split: Splitter, dropped: Counter[str]
) -> Iterator[TextLine]:
    for block in source.read(chunk.start, chunk.stop, _text_border):
        for line in source.lines(block, dropped, keep_mark=True):
            text = line.strip()
            yield TextLine(split(text), text)


def _document_lines(
    chunk: Chunk, split: Splitter, dropped: Counter[str]
) -> Iterator[TextLine]:
    if chunk.start == chunk.source.begin:
        yield TextLine((), "")  # ends plain text that came before
    for paragraphs in chunk.source.documents(chunk.start, chunk.stop, dropped):
        if not paragraphs:
            dropped[EMPTY_DOCUMENTS] += 1
            continue
        for paragraph in paragraphs:
            yield TextLine(split(paragraph), paragraph)
        yield TextLine((), "")
