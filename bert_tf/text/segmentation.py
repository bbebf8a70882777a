"""Words of scripts that are written without spaces, separated by a library.

For the original's tokenizer, a phrase of Thai is one word. A segmenter splits runs of
letters of these scripts into words. It only adds boundaries, at the ends of such a run
and within it: no character changes, and text without these letters has the same words
as without a segmenter.
"""

import functools
import importlib.util
import itertools
import re
import unicodedata

from bert_tf.base.errors import InputError

# "icu" is the word break iterator of ICU (https://icu.unicode.org), through icu4py.
NO_SEGMENTER = "none"
ICU = "icu"
SEGMENTERS = (NO_SEGMENTER, ICU)

# The blocks of scripts whose words ICU knows: Thai and Lao, Burmese, Khmer, kana.
_BLOCKS = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),
    *((0x1780, 0x17FF), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
)
# Ideographs become words of their own later; before kana they help to find its words.
_IDEOGRAPHS = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Between the letters of a run there may be zero-width spaces and joiners.
_SPACE = "\u200b"
_JOINERS = "\u200c\u200d\u2060"


def require_segmenter(segmenter: str) -> None:
    """Raises InputError if the segmenter is unknown or not installed."""
    if segmenter not in SEGMENTERS:
        raise InputError(
            f"`segmenter` must be one of {', '.join(SEGMENTERS)}. Received:"
            f" {segmenter!r}."
        )
    if segmenter == ICU and importlib.util.find_spec("icu4py") is None:
        raise InputError(
            "`segmenter=icu` needs icu4py: pip install 'bert-tf[segmenter]'"
        )


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns patterns of one letter of the scripts, and of a run of them."""
    # Without digits: at a digit, ICU ignores the letters next to it.
    chars = {"L": "", "M": ""}
    for char in (chr(n) for first, last in _BLOCKS for n in range(first, last + 1)):
        if (kind := unicodedata.category(char)[0]) in chars:
            chars[kind] += char
    first = chars["L"] + _IDEOGRAPHS
    rest = first + chars["M"] + _SPACE + _JOINERS
    return re.compile(f"[{chars['L']}]"), re.compile(f"[{first}][{rest}]*")


def has_letters(text: str) -> bool:
    """Whether a segmenter separates words of this text."""
    return _patterns()[0].search(text) is not None


def segments(text: str, segmenter: str) -> list[tuple[int, int]]:
    """Returns the parts of a text as (start, end); words end at their boundaries."""
    letter, run = _patterns()
    if segmenter == NO_SEGMENTER or not letter.search(text):
        return [(0, len(text))]
    from icu4py.breakers import WordBreaker

    places = {0, len(text)}
    for match in run.finditer(text):
        if letter.search(found := match.group()):
            places.add(match.start())
            for _, end in WordBreaker(found, "").segments():
                if not found.startswith(_SPACE, end):  # it belongs to the word before
                    places.add(match.start() + end)
    return list(itertools.pairwise(sorted(places)))
