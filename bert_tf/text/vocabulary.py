r"""The vocabulary: one token per line; the line's number is the token's id.

The file is the original's `vocab.txt`: UTF-8, lines end at \n only, white space around
a token is not part of it. A token written twice keeps its last id, as in the original,
but each line counts for the size of the embedding table, except blank ones at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError

PAD = "[PAD]"
UNK = "[UNK]"
CLS = "[CLS]"
SEP = "[SEP]"
MASK = "[MASK]"
# The prefix of a piece that continues a word.
CONTINUATION = "##"
# In English Wikipedia 0.01 % of tokens are [UNK] with BERT's English vocabularies and
# 0.2 % with the multilingual one; 13 % with the uncased one if the text keeps its case.
MANY_UNKNOWN = 0.01


class Vocabulary:
    """An immutable list of tokens and the ids that they stand for.

    `len(vocabulary)` is the number of lines: what a model's `vocab_size` must cover.

    Attributes:
        tokens: the tokens by line.
        ids: each token's id, in the order in which the tokens first occur.
        sha256: the SHA-256, in hexadecimal, of the file that `save` writes.

    Examples:
        >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        >>> vocabulary = bert_tf.Vocabulary([*special, "a", "film", "##s", "."])
        >>> len(vocabulary), vocabulary.ids["film"]
        (9, 6)
    """

    def __init__(self, tokens: Sequence[str]):
        r"""Numbers the tokens.

        Args:
            tokens: the tokens by line, [PAD] first if there is one.

        Raises:
            ValueError: a token has white space around it or a line end in it, and would
                not survive saving and loading.
        """
        self.tokens: Final = tuple(tokens)
        ids: dict[str, int] = {}
        for line, token in enumerate(self.tokens):
            if token != token.strip() or "\n" in token:
                raise ValueError(
                    "A token must be one line without white space round it. "
                    f"Received: {token!r} at position {line}"
                )
            ids[token] = line
        self.ids: Final[Mapping[str, int]] = MappingProxyType(ids)
        self.sha256: Final = files.sha256(self._text().encode("utf-8"))

    @classmethod
    def from_file(cls, path: str) -> "Vocabulary":
        """Reads a `vocab.txt`.

        Args:
            path: the file, local or remote.

        Raises:
            InputError: no such file, nothing in it, or not UTF-8 (names the line).
        """
        content = files.read_text(path, "vocabulary file")
        tokens = [line.strip() for line in files.lines(content)]
        while tokens and not tokens[-1]:
            tokens.pop()
        if not tokens:
            raise InputError(
                f"{path}: the vocabulary file must have one token per line."
            )
        return cls(tokens)

    def save(self, path: str) -> None:
        """Writes the vocabulary, one token per line."""
        files.write_atomically(path, self._text())

    def require_special_tokens(self, source: str) -> None:
        """Checks that the vocabulary has the tokens of BERT's inputs.

        Warns of tokens that occur in it twice.

        Args:
            source: where the vocabulary comes from, for the message: a path or a flag.

        Raises:
            InputError: [UNK], [CLS], [SEP] or [MASK] is missing.
        """
        missing = [token for token in (UNK, CLS, SEP, MASK) if token not in self.ids]
        if missing:
            raise InputError(
                f"{source}: the vocabulary must have [UNK], [CLS], [SEP] and [MASK], "
                f"each on a line of its own. Missing: {', '.join(missing)}"
            )
        tokens, ids = self.tokens, self.ids
        twice = [line for line, token in enumerate(tokens) if ids[token] != line]
        if twice:
            logging.warning(
                "%s: %d duplicate tokens (the last line wins), for example"
                " %r in lines %d and %d.",
                source,
                len(twice),
                tokens[twice[0]],
                twice[0] + 1,
                ids[tokens[twice[0]]] + 1,
            )

    @property
    def word_ids(self) -> tuple[int, ...]:
        """One id for each different token, in the order of `ids`."""
        return tuple(self.ids.values())

    @property
    def continuation_ids(self) -> list[int]:
        """The ids of the pieces that continue a word ("##ing")."""
        return [n for token, n in self.ids.items() if token.startswith(CONTINUATION)]

    @property
    def unk_id(self) -> int:
        """The id of [UNK]."""
        return self._special_id(UNK)

    @property
    def cls_id(self) -> int:
        """The id of [CLS]."""
        return self._special_id(CLS)

    @property
    def sep_id(self) -> int:
        """The id of [SEP]."""
        return self._special_id(SEP)

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self._special_id(MASK)

    @property
    def has_upper_case(self) -> bool:
        """Whether the vocabulary is of text that keeps its case.

        It is if over 1 % of the tokens are words or pieces with an upper-case letter,
        which lower-cased text never has: 29 % and 16 % in the released cased
        vocabularies, none in the uncased and the Chinese ones. [CLS] and the like do
        not count, nor do the few that users may have put in unused lines.
        """
        words = (token.removeprefix(CONTINUATION) for token in self.tokens)
        upper = sum(word.isalpha() and word != word.lower() for word in words)
        return upper > len(self.tokens) / 100

    def _special_id(self, token: str) -> int:
        if token not in self.ids:
            raise ValueError(
                f"The vocabulary must have {token}. Received: {len(self)} tokens"
            )
        return self.ids[token]

    def _text(self) -> str:
        return "".join(token + "\n" for token in self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self.ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __reduce__(self) -> tuple:
        return (Vocabulary, (self.tokens,))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens, sha256 {self.sha256[:12]})"
