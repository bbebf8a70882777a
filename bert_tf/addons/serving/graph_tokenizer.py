"""The exact tokenizer as TensorFlow operations, for SavedModels that take raw text.

It returns the same tokens as `WordPieceTokenizer`. tensorflow-text's BertTokenizer does
not: it has its own rules and Unicode data. Here tensorflow-text only does the greedy
longest match, on normalised words.

All texts of a batch are one row of code points, with a line feed after each text:
white space, which no rule looks past. Each step is a gather from tables, or a mask. The
tables are made with the functions and the Unicode data of `bert_tf.text`, and are
constants of the graph.

Shapes: B texts, N code points, K and M characters before and after expansion, W words,
T tokens.
"""

import functools
import itertools
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.text.normalization import CJK_RANGES, is_punctuation, is_removed
from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, PAD, SEP, UNK, Vocabulary
from bert_tf.text.wordpiece import MAX_CHARACTERS_PER_WORD

# Each Unicode character has an entry of 32 bits: the flags below, its canonical
# combining class, and the number of its expansion (0: the character itself).

# For the rule of the final sigma (Unicode Standard, section 3.13): a cased letter, or
# what the rule looks past. A character that is both counts as the latter.
CASED = 1 << 0
CASE_IGNORABLE = 1 << 1
REMOVED = 1 << 2
SPACE = 1 << 3
ACCENT = 1 << 4  # Mn, where accents are removed
STARTS_WORD = 1 << 5
ENDS_WORD = 1 << 6
# Accents after it do not extend it.
TAKES_NO_ACCENT = 1 << 7

COMBINING_SHIFT = 8
COMBINING_MASK = 0xFF
EXPANSION_SHIFT = 16

PAGE_SHIFT = 8
PAGE_MASK = (1 << PAGE_SHIFT) - 1

CAPITAL_SIGMA = ord("Σ")
FINAL_SIGMA = ord("ς")

_NUM_CODE_POINTS = 0x110000
# The other planes hold ideographs, private use or nothing, and are unchanged.
_SCANNED = (range(0x20000), range(0x2F800, 0x2FA20), range(0xE0000, 0xF0000))


class UnicodeTables(NamedTuple):
    """Entries in distinct pages of 256, and expansions; all int32."""

    pages: np.ndarray
    entries: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    expanded: np.ndarray
    expanded_entries: np.ndarray

    @property
    def num_single(self) -> int:
        """Number of expansions of one code point, counting number 0."""
        return int(np.count_nonzero(self.lengths == 1))

    def entry(self, code_point: int) -> int:
        """Returns the entry of a character."""
        page = self.pages[code_point >> PAGE_SHIFT]
        return int(self.entries[page + (code_point & PAGE_MASK)])


@functools.cache
def unicode_tables(do_lower_case: bool) -> UnicodeTables:
    """Returns the tables for cased text, or for lowered text without accents."""
    entries = np.zeros(_NUM_CODE_POINTS, np.int32)
    for first, last in CJK_RANGES:
        entries[first : last + 1] |= STARTS_WORD | ENDS_WORD | TAKES_NO_ACCENT
    expansions: dict[str, str] = {}
    for char in map(chr, itertools.chain(*_SCANNED)):
        entry = _flags(char)
        if do_lower_case:
            entry |= _case(char) | unicodedata.combining(char) << COMBINING_SHIFT
            if unicodedata.category(char) == "Mn":
                entry |= ACCENT
            expanded = _expanded(char)
            if expanded != char:
                expansions[char] = expanded
        entries[ord(char)] |= entry
    # Expansion 0 is never read, but needs a place.
    texts = [
        "\0",
        *sorted(set(expansions.values()), key=lambda text: (len(text), text)),
    ]
    number_of = {text: number for number, text in enumerate(texts)}
    for char, expanded in expansions.items():
        entries[ord(char)] |= number_of[expanded] << EXPANSION_SHIFT
    lengths = np.array([len(text) for text in texts], np.int32)
    code_points = np.array([ord(char) for char in "".join(texts)], np.int32)
    pages, page_of = np.unique(
        entries.reshape(-1, 1 << PAGE_SHIFT), axis=0, return_inverse=True
    )
    return UnicodeTables(
        pages=(page_of.reshape(-1) << PAGE_SHIFT).astype(np.int32),
        entries=pages.reshape(-1),
        starts=np.cumsum(lengths, dtype=np.int32) - lengths,
        lengths=lengths,
        expanded=code_points,
        expanded_entries=entries[code_points],
    )


def _expanded(char: str) -> str:
    """Lowers and decomposes a character, and removes most accents."""
    # Accents after another character of the same source are removed at once, except
    # starters, which would keep the marks on either side in their order.
    decomposed = unicodedata.normalize("NFD", char.lower())
    return decomposed[0] + "".join(
        other
        for other in decomposed[1:]
        if unicodedata.category(other) != "Mn" or not unicodedata.combining(other)
    )


def _flags(char: str) -> int:
    if is_removed(char):
        return REMOVED
    if char.isspace():
        return SPACE
    return STARTS_WORD | ENDS_WORD if is_punctuation(char) else 0


def _case(char: str) -> int:
    """Probes `str.lower`: Python exposes its case data nowhere else."""
    # A sigma is final after a cased letter, with ignored characters between them.
    if not f"A{char}Σ".lower().endswith("ς"):
        return 0
    return CASED if f"{char}Σ".lower().endswith("ς") else CASE_IGNORABLE


def _have(entries: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.not_equal(entries & flags, 0)


def _lack(entries: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.equal(entries & flags, 0)


def _where(mask: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.where(mask)[:, 0], tf.int32)


def _previous(mask: tf.Tensor, first: bool) -> tf.Tensor:
    return tf.concat([[first], mask[:-1]], 0)


def _repeat_range(lengths: tf.Tensor) -> tf.Tensor:
    """Returns 0 `lengths[0]` times, then 1 `lengths[1]` times, and so on."""
    # `tf.repeat` would need memory for all at the greatest length.
    ends = tf.cumsum(lengths)[:-1, None]
    steps = tf.scatter_nd(ends, tf.ones_like(ends[:, 0]), [tf.reduce_sum(lengths)])
    return tf.cumsum(steps)


class _Characters(NamedTuple):
    """Characters on the way from text to words: [K]."""

    values: tf.Tensor  # code points
    entries: tf.Tensor  # in `UnicodeTables`
    starts: tf.Tensor  # where the source of each begins in the text
    ends: tf.Tensor  # where the source of each ends

    def take(self, positions: tf.Tensor) -> "_Characters":
        return _Characters(*(tf.gather(part, positions) for part in self))

    def without(self, flags: int) -> "_Characters":
        stay = _lack(self.entries, flags)
        return _if(~tf.reduce_all(stay), lambda: self.take(_where(stay)), self)


def _lower_without_accents(text: _Characters, unicode: UnicodeTables) -> _Characters:
    """Lowers, decomposes and removes accents: [K] -> [M]."""
    text = _reorder(_expand(_lower_final_sigmas(text, unicode), unicode))
    return _give_accents(text).without(ACCENT)


def _lower_final_sigmas(text: _Characters, unicode: UnicodeTables) -> _Characters:
    """Lowers each final sigma: one after a cased letter, and not before one."""

    def lowered() -> _Characters:
        seen = _where(_lack(text.entries, CASE_IGNORABLE))
        is_cased = _have(tf.gather(text.entries, seen), CASED)
        is_sigma = tf.equal(tf.gather(text.values, seen), CAPITAL_SIGMA)
        final = is_sigma & _previous(is_cased, False)
        final &= ~tf.concat([is_cased[1:], [False]], 0)
        places = tf.boolean_mask(seen, final)[:, None]
        shape = tf.shape(places)[:1]
        entry = unicode.entry(FINAL_SIGMA)
        return text._replace(
            values=tf.tensor_scatter_nd_update(
                text.values, places, tf.fill(shape, FINAL_SIGMA)
            ),
            entries=tf.tensor_scatter_nd_update(
                text.entries, places, tf.fill(shape, entry)
            ),
        )

    any_sigma = tf.reduce_any(tf.equal(text.values, CAPITAL_SIGMA))
    return _if(any_sigma, lowered, text)


def _expand(text: _Characters, unicode: UnicodeTables) -> _Characters:
    """Lowers and decomposes each character: [K] -> [M]."""
    numbers = tf.bitwise.right_shift(text.entries, EXPANSION_SHIFT)

    def expanded(
        old: _Characters, numbers: tf.Tensor, places: tf.Tensor
    ) -> _Characters:
        itself = tf.equal(numbers, 0)
        return old._replace(
            values=tf.where(itself, old.values, tf.gather(unicode.expanded, places)),
            entries=tf.where(
                itself, old.entries, tf.gather(unicode.expanded_entries, places)
            ),
        )

    def to_several() -> _Characters:
        lengths = tf.gather(unicode.lengths, numbers)
        parents = _repeat_range(lengths)
        begins = tf.gather(unicode.starts, numbers) - tf.cumsum(lengths, exclusive=True)
        places = tf.gather(begins, parents) + tf.range(tf.size(parents))
        return expanded(text.take(parents), tf.gather(numbers, parents), places)

    return _Characters(
        *tf.cond(
            tf.reduce_any(numbers >= unicode.num_single),
            to_several,
            lambda: expanded(text, numbers, numbers),
        )
    )


def _reorder(text: _Characters) -> _Characters:
    """Sorts each run of combining characters by class (Unicode Standard, 3.11)."""
    classes = tf.bitwise.right_shift(text.entries, COMBINING_SHIFT)
    classes &= COMBINING_MASK
    combines = classes > 0

    def reordered() -> _Characters:
        # The number of starters up to a combining character identifies its run.
        runs = tf.cumsum(tf.cast(~combines, tf.int64))
        places = _where(combines)
        count = tf.size(places, out_type=tf.int64)
        keys = tf.gather(runs * (1 << 8) + tf.cast(classes, tf.int64), places)
        order = tf.sort(keys * count + tf.range(count)) % count
        moved = tf.tensor_scatter_nd_update(
            tf.range(tf.size(classes)), places[:, None], tf.gather(places, order)
        )
        return text.take(moved)

    # If all are accents, order is irrelevant: they are all removed.
    stays = combines & _lack(text.entries, ACCENT)
    return _if(tf.reduce_any(stays), reordered, text)


def _give_accents(text: _Characters) -> _Characters:
    """Extends each character to the end of the accents after it."""
    is_accent = _have(text.entries, ACCENT)

    def extended() -> _Characters:
        accents, bases = _where(is_accent), _where(~is_accent)
        # Number of bases before each accent; an accent before the first base has none.
        rank = tf.searchsorted(bases, accents)
        base_of = tf.gather(bases, tf.maximum(rank - 1, 0))
        takes = _lack(tf.gather(text.entries, base_of), TAKES_NO_ACCENT)
        takes &= rank > 0
        ends = tf.tensor_scatter_nd_max(
            text.ends,
            tf.boolean_mask(base_of, takes)[:, None],
            tf.gather(text.ends, tf.boolean_mask(accents, takes)),
        )
        return text._replace(ends=ends)

    return _if(tf.reduce_any(is_accent), extended, text)


def _if(
    condition: tf.Tensor, then: Callable[[], _Characters], otherwise: _Characters
) -> _Characters:
    return _Characters(*tf.cond(condition, then, lambda: otherwise))


class _CodePoints(NamedTuple):
    """A batch of decoded texts, each ended by a line feed."""

    values: tf.Tensor  # [N], code points
    entries: tf.Tensor  # [N], of `UnicodeTables`
    byte_starts: tf.Tensor  # [N], the first byte of each in its text
    row_splits: tf.Tensor  # [B + 1], where the texts begin in `values`


class _Words(NamedTuple):
    """The normalised words of a batch of texts."""

    characters: tf.RaggedTensor  # [W, (characters)], code points
    row_splits: tf.Tensor  # [B + 1], where the texts begin among the words
    starts: tf.Tensor  # [M], where each character's source begins in `_CodePoints`
    ends: tf.Tensor  # [M], where it ends, including accents removed after it


def _decode(texts: tf.Tensor, unicode: UnicodeTables) -> _CodePoints:
    """Decodes UTF-8; as in Python, invalid bytes become U+FFFD."""
    decoded, byte_starts = tf.strings.unicode_decode_with_offsets(
        tf.strings.join([texts, "\n"]), "UTF-8", errors="replace"
    )
    values = decoded.flat_values
    pages = tf.gather(unicode.pages, tf.bitwise.right_shift(values, PAGE_SHIFT))
    entries = tf.gather(unicode.entries, pages + (values & PAGE_MASK))
    return _CodePoints(
        values,
        entries,
        tf.cast(byte_starts.flat_values, tf.int32),
        tf.cast(decoded.row_splits, tf.int32),
    )


def _keep_whole(text: _CodePoints, tokens: Sequence[str]) -> _CodePoints:
    """Makes each special token in the text a word of its own, unchanged."""
    opening = _where(tf.equal(text.values, ord("[")))
    last = tf.size(text.values) - 1
    entries = text.entries
    for token in tokens:
        wanted = np.array([ord(char) for char in token], np.int32)
        # The text's last line feed, which never matches, replaces places beyond it.
        places = tf.minimum(opening[:, None] + np.arange(len(token)), last)
        found = tf.reduce_all(tf.equal(tf.gather(text.values, places), wanted), axis=1)
        places = tf.boolean_mask(places, found)
        flags = np.zeros(len(token), np.int32)
        flags[0] |= STARTS_WORD
        flags[-1] |= ENDS_WORD | TAKES_NO_ACCENT
        entries = tf.tensor_scatter_nd_update(
            entries, tf.reshape(places, [-1, 1]), tf.tile(flags, [tf.shape(places)[0]])
        )
    return text._replace(entries=entries)


def _split_words(
    text: _CodePoints, unicode: UnicodeTables, do_lower_case: bool
) -> _Words:
    """Splits and normalises texts like `normalization.split_words`."""
    sources = tf.range(tf.size(text.values))
    characters = _Characters(text.values, text.entries, sources, sources + 1)
    characters = characters.without(REMOVED)
    if do_lower_case:
        characters = _lower_without_accents(characters, unicode)
    # A word starts at a character with that flag, or after the end of another word.
    is_space = _have(characters.entries, SPACE)
    ends_word = _have(characters.entries, ENDS_WORD | SPACE)
    starts_word = (
        _have(characters.entries, STARTS_WORD) | _previous(ends_word, True)
    ) & ~is_space
    in_words = _where(~is_space)
    characters = characters.take(in_words)
    word_starts = _where(tf.gather(starts_word, in_words))
    word_splits = tf.concat([word_starts, [tf.size(in_words)]], 0)
    return _Words(
        characters=tf.RaggedTensor.from_row_splits(
            characters.values, word_splits, validate=False
        ),
        # Sorted: canonical ordering moves no character out of its word.
        row_splits=tf.searchsorted(
            tf.gather(characters.starts, word_starts), text.row_splits
        ),
        starts=characters.starts,
        ends=characters.ends,
    )


_MAX_BYTES_PER_CHARACTER = 4

# No piece has white space, so this word becomes [UNK].
_UNKNOWN_WORD = " "

_TEXTS = [tf.TensorSpec([None], tf.string, "texts")]


class GraphEncoding(NamedTuple):
    """Texts' tokens, and the places of their sources: int32, [B, (tokens)]."""

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor  # in characters (code points)
    ends: tf.RaggedTensor  # half open
    byte_starts: tf.RaggedTensor  # the same in bytes
    byte_ends: tf.RaggedTensor


class GraphTokenizer(tf.Module):
    """A tokenizer of TensorFlow and tensorflow-text operations alone."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        do_lower_case: bool = True,
        recognize_special_tokens: bool = False,
    ):
        super().__init__()
        self._do_lower_case = do_lower_case
        special = (PAD, UNK, CLS, SEP, MASK) if recognize_special_tokens else ()
        self._special_tokens = [token for token in special if token in vocabulary]
        self._unicode = unicode_tables(do_lower_case)
        self.unknown_id = vocabulary.unk_id
        # tensorflow-text rejects some tokens that cannot occur as words.
        tokens = {
            token: token_id
            for token, token_id in vocabulary.ids.items()
            if _is_possible(token)
        }
        self._ids = np.array(list(tokens.values()), np.int32)
        self._lengths = np.array([len(token) for token in vocabulary.tokens], np.int32)
        self._pieces = _longest_match(list(tokens))

    @tf.function(input_signature=_TEXTS, autograph=False)
    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the texts' tokens, without [CLS] or [SEP]."""
        with tf.device("CPU:0"):  # where strings are stored
            _, words = self._words(texts)
            ids, ids_of_text = self._match(words)
            return tf.RaggedTensor.from_row_splits(
                ids.flat_values, ids_of_text, validate=False
            )

    @tf.function(input_signature=_TEXTS, autograph=False)
    def encode_with_offsets(self, texts: tf.Tensor) -> GraphEncoding:
        """Returns ids and places as `WordPieceTokenizer.encode_with_offsets` does."""
        with tf.device("CPU:0"):
            text, words = self._words(texts)
            ids, ids_of_text = self._match(words)
            starts, ends = self._places(ids, words)
            # `tf.repeat` would need memory for all texts at the length of the longest.
            tokens = tf.range(tf.size(starts))
            text_of = tf.searchsorted(ids_of_text, tokens, side="right") - 1
            text_begins = tf.gather(text.row_splits, text_of)
            parts = (
                ids.flat_values,
                starts - text_begins,
                ends - text_begins,
                tf.gather(text.byte_starts, starts),
                # A line feed ends the text, so there is always a next character.
                tf.gather(text.byte_starts, ends),
            )
            split = tf.RaggedTensor.from_row_splits
            return GraphEncoding(
                *(split(part, ids_of_text, validate=False) for part in parts)
            )

    def _words(self, texts: tf.Tensor) -> tuple[_CodePoints, _Words]:
        text = _decode(texts, self._unicode)
        if self._special_tokens:
            text = _keep_whole(text, self._special_tokens)
        return text, _split_words(text, self._unicode, self._do_lower_case)

    def _match(self, words: _Words) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns words' ids [W, (tokens)], and where texts begin among all [B + 1]."""
        strings = tf.strings.unicode_encode(words.characters, "UTF-8")
        too_long = words.characters.row_lengths() > MAX_CHARACTERS_PER_WORD
        pieces = self._pieces.tokenize(tf.where(too_long, _UNKNOWN_WORD, strings))
        ids = pieces.with_flat_values(tf.gather(self._ids, pieces.flat_values))
        return ids, tf.cast(tf.gather(ids.row_splits, words.row_splits), tf.int32)

    def _places(
        self, ids: tf.RaggedTensor, words: _Words
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns where tokens begin and end among the batch's characters: [T], [T]."""
        # A word's tokens have all its characters, in order; so has a single [UNK].
        firsts = ids.row_starts()
        first_ids = tf.gather(ids.flat_values, firsts)
        first_lengths = tf.where(
            tf.equal(first_ids, self.unknown_id),
            tf.cast(words.characters.row_lengths(), tf.int32),
            tf.gather(self._lengths, first_ids),
        )
        lengths = tf.tensor_scatter_nd_update(
            tf.gather(self._lengths, ids.flat_values) - len(CONTINUATION),
            firsts[:, None],
            first_lengths,
        )
        token_of = _repeat_range(lengths)
        return (
            tf.math.segment_min(words.starts, token_of),
            tf.math.segment_max(words.ends, token_of),
        )


def _is_possible(token: str) -> bool:
    """Whether a token can be a word or part of one; U+0000 is removed from texts."""
    length = len(token.removeprefix(CONTINUATION))
    return 0 < length <= MAX_CHARACTERS_PER_WORD and "\0" not in token


def _longest_match(tokens: list[str]):
    try:
        import tensorflow_text
    except ImportError as error:
        raise InputError(
            "A model that takes raw text needs tensorflow-text: "
            "pip install tensorflow-text"
        ) from error
    try:
        return tensorflow_text.FastWordpieceTokenizer(
            tokens,
            suffix_indicator=CONTINUATION,
            max_bytes_per_word=MAX_CHARACTERS_PER_WORD * _MAX_BYTES_PER_CHARACTER,
            token_out_type=tf.int32,
            unknown_token=UNK,
            no_pretokenization=True,
        )
    except RuntimeError as error:
        raise InputError(
            "The vocabulary does not fit into a model that takes raw text; export one "
            f"that takes ids. tensorflow-text: {error}"
        ) from error
