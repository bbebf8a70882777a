"""Detects the encoding of text files.

A file that is not UTF-8 is given to charset-normalizer, from its first characters that
are not ASCII on. If most of these are UTF-8, the file is damaged UTF-8, not text in
another encoding: in other encodings hardly any two bytes look like UTF-8.
Encodings of seven bits (such as ISO-2022-JP) look like ASCII, and must be named.
"""

import codecs
from collections import Counter
from collections.abc import Sequence

from absl import logging

from bert_tf.base import files, unpacking
from bert_tf.base.errors import InputError
from bert_tf.base.parallel import ordered_map
from bert_tf.text.documents import UTF_8, line_number, read_blocks

_SAMPLE_BYTES = 1 << 17
# In most Western European files each of these fits as well as `_WESTERN`, by far the
# most frequent; so they are accepted only with a language that is written in them.
_WESTERN = "cp1252"
_LANGUAGES = {
    "cp1250": (
        "Croatian",
        "Czech",
        "Hungarian",
        "Polish",
        "Romanian",
        "Slovak",
        "Slovene",
    ),
    "cp1257": ("Latvian", "Lithuanian"),
    "cp1258": ("Vietnamese",),
}
# Below this size, reading is quicker than starting workers.
_BYTES_OF_ONE_WORKER = 1 << 30
_MOST_NAMES = 3


def find_encodings(paths: Sequence[str], num_workers: int = 1) -> list[str]:
    """Returns the encoding of each file; reads all of them, and logs what was found."""
    if sum(map(files.size, paths)) <= _BYTES_OF_ONE_WORKER:
        num_workers = 1
    found = list(ordered_map(find_encoding, paths, num_workers=num_workers))
    for name, count in sorted(Counter(found).items()):
        those = [path for path, each in zip(paths, found, strict=True) if each == name]
        more = ", ..." if count > _MOST_NAMES else ""
        logging.info(
            "`encoding=auto`: %d of %d files are %s: %s%s",
            *(count, len(paths), name, ", ".join(those[:_MOST_NAMES]), more),
        )
    return found


def find_encoding(path: str) -> str:
    """Returns the encoding of a file; reads it to its end."""
    num_valid = num_invalid = 0  # characters that are not ASCII
    sample = bytearray()
    first_error = ""
    for block in read_blocks(path):
        data = block.data
        if block.offset == 0 and data.startswith(b"PAR1"):
            return UTF_8  # the encoding of Parquet's own text
        if block.offset == 0 and b"\0" in data:  # ASCII as UTF-16 is valid UTF-8, too
            # Not a line: a UTF-16 line ends in the middle of a character.
            return _guess(next(unpacking.read_pieces(path))[:_SAMPLE_BYTES], path)
        if data.isascii():
            continue
        try:
            text = data.decode(UTF_8)
        except UnicodeDecodeError as error:
            text = data.decode(UTF_8, "replace")
            num_invalid += text.count("\ufffd")
            if not first_error:
                number = line_number(path, block.offset + error.start)
                remedy = "Most of the file is: remove what is not. "
                first_error = files.not_utf8(data, error.start, path, number, remedy)
        num_valid += len(text) - len(text.encode("ascii", "ignore"))
        if not sample:
            # From shortly before the first such character.
            first = next(i for i, byte in enumerate(data) if byte > 0x7F)
            sample += data[data.rfind(b"\n", 0, max(first - 1000, 0)) + 1 :]
        elif len(sample) < _SAMPLE_BYTES:
            sample += data
    if not num_invalid:
        return UTF_8
    if num_valid > 2 * num_invalid:  # the invalid ones were counted as U+FFFD, too
        raise InputError(first_error)
    return _guess(bytes(sample[:_SAMPLE_BYTES]), path)


def _guess(sample: bytes, path: str) -> str:
    from charset_normalizer import from_bytes

    matches = from_bytes(sample)
    found = matches.best()
    if found is None:
        raise InputError(
            f"{path}: no encoding fits it; give its name by `encoding`, or leave the"
            " file out if it is no text."
        )
    name, languages = found.encoding, _LANGUAGES.get(found.encoding)
    if languages and found.language not in languages:
        name = next((m.encoding for m in matches if m.encoding == _WESTERN), name)
    return codecs.lookup(name).name
