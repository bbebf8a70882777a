"""The original's tokenization written out plainly, one character after the other.

It knows nothing of bert_tf and is slow; tests and benchmarks/tokenization.py hold the
fast tokenizer against it.
"""

import unicodedata

IDEOGRAPHS = [
    range(0x3400, 0x4DC0),
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2CEB0),
    range(0x2F800, 0x2FA20),
]
ASCII_PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def plain_words(text: str, do_lower_case: bool) -> list[str]:
    """Normalised words, with punctuation and ideographs standing alone."""
    words: list[str] = []
    for part in _separate(text).split():
        if do_lower_case:
            decomposed = unicodedata.normalize("NFD", part.lower())
            part = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        word = ""
        for char in part:
            if char in ASCII_PUNCTUATION or unicodedata.category(char)[0] == "P":
                words += [word, char]
                word = ""
            else:
                word += char
        words.append(word)
    return [word for word in words if word]


def _separate(text: str) -> str:
    separated = ""
    for char in text:
        category = unicodedata.category(char)
        if char in " \t\n\r" or category == "Zs":
            separated += " "
        elif category in ("Cc", "Cf") or char in "\x00\ufffd":
            pass
        elif any(ord(char) in block for block in IDEOGRAPHS):
            separated += f" {char} "
        else:
            separated += char
    return separated


def plain_tokens(text: str, vocabulary: set[str], do_lower_case: bool) -> list[str]:
    """The text's WordPiece tokens, [UNK] for words that have none."""
    return plain_pieces(plain_words(text, do_lower_case), vocabulary)


def plain_pieces(words: list[str], vocabulary: set[str]) -> list[str]:
    """The WordPiece tokens of normalised words."""
    tokens: list[str] = []
    for word in words:
        tokens += _pieces(word, vocabulary) if len(word) <= 200 else ["[UNK]"]
    return tokens


def _pieces(word: str, vocabulary: set[str]) -> list[str]:
    pieces: list[str] = []
    rest = word
    while rest:
        mark = "##" if pieces else ""
        fitting = [n for n in range(1, len(rest) + 1) if mark + rest[:n] in vocabulary]
        if not fitting:
            return ["[UNK]"]
        pieces.append(mark + rest[: max(fitting)])
        rest = rest[max(fitting) :]
    return pieces
