"""Text to WordPiece ids: the original's tokenizer, over whole arrays of texts."""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bert_tf.base.errors import InputError
from bert_tf.text.normalization import (
    SPLITTING_CONTROLS,
    Span,
    align_words,
    patterns_for,
    split_words,
)
from bert_tf.text.segmentation import NO_SEGMENTER, require_segmenter
from bert_tf.text.vocabulary import CLS, CONTINUATION, MASK, PAD, SEP, UNK, Vocabulary

# Shapes: R records, L tokens of a record.

Tokens = list[int]

# Separates the two texts of a pair that is typed as one line.
PAIR_SEPARATOR = " ||| "

# Placeholders that a vocabulary keeps for future tokens.
UNUSED = re.compile(r"\[unused\d+\]")


def pair_features(
    pairs: Iterable[tuple[Tokens, Tokens]], vocabulary: Vocabulary, max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns the features of every pair: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
    cls_id, sep_id = vocabulary.cls_id, vocabulary.sep_id
    # All records' tokens in sequence; the number of each record's tokens, and of the
    # tokens of its first part.
    tokens: list[int] = []
    lengths, lengths_a = [], []
    for tokens_a, tokens_b in pairs:
        before = len(tokens)
        tokens.append(cls_id)
        tokens += tokens_a
        tokens.append(sep_id)
        lengths_a.append(len(tokens) - before)
        if tokens_b:
            tokens += tokens_b
            tokens.append(sep_id)
        lengths.append(len(tokens) - before)
    position = np.arange(max_seq_length)
    is_token = position < np.array(lengths)[:, None]
    input_ids = np.zeros(is_token.shape, np.int64)
    input_ids[is_token] = tokens
    is_second = is_token & (position >= np.array(lengths_a)[:, None])
    return {
        "input_ids": input_ids,
        "input_mask": is_token.astype(np.int64),
        "segment_ids": is_second.astype(np.int64),
    }


def truncate_pair(
    tokens_a: Tokens, tokens_b: Tokens, max_length: int
) -> tuple[Tokens, Tokens]:
    """Cuts two sequences to `max_length` together, always at the longer one's end."""
    length_a, length_b = len(tokens_a), len(tokens_b)
    excess = length_a + length_b - max_length
    if excess > 0:
        # First the longer one is cut to the other's length, then both in turn,
        # the second one first.
        cut_b = min(excess, max(0, length_b - length_a))
        cut_a = min(excess, max(0, length_a - length_b))
        rest = excess - cut_a - cut_b
        length_a -= cut_a + rest // 2
        length_b -= cut_b + (rest + 1) // 2
    return tokens_a[:length_a], tokens_b[:length_b]


def list_of(texts: Any) -> list[Any]:
    """Returns texts as a list, also a single one. Raises InputError for no texts."""
    if isinstance(texts, str):
        return [texts]
    # The keys of a dict and the bytes of a text are no texts; a set has no order.
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping | Set):
        raise InputError(
            f"Texts must be a string, or a list of strings. Received: {texts!r}"
        )
    return list(texts)


def text_pairs(
    texts: str | Iterable[str], pairs: str | Iterable[str | None] | None
) -> list[tuple[str, str]]:
    """Returns texts with their second ones, "" for none."""
    firsts = list_of(texts)
    seconds = [""] * len(firsts)
    if pairs is not None:
        seconds = [each or "" for each in list_of(pairs)]
    if not firsts or len(firsts) != len(seconds):
        raise InputError(
            "There must be at least one text, and as many second texts if there are"
            f" any. Received: {len(firsts)} and {len(seconds)}"
        )
    for row, text in enumerate((*firsts, *seconds)):
        if not isinstance(text, str):
            raise InputError(
                f"Texts must be strings. Received: {text!r} in row"
                f" {row % len(firsts)} (from 0)"
            )
    return [
        (first, second or "") for first, second in zip(firsts, seconds, strict=True)
    ]


# Text into WordPiece ids: token for token the original's FullTokenizer. Words come from
# `normalization`; each is cut greedily into the longest pieces that the vocabulary has,
# or becomes [UNK] where that fails or it has over 200 characters.
#
# No rule of the tokenizer looks past white space, so the ids of a run without white
# space depend on that run alone. A text is split into runs (one C call), whose ids are
# looked up in a bounded cache. Only a run that is not in the cache is normalised, and
# only a word that is not in a second cache is cut.

# A longer word is [UNK].
MAX_CHARACTERS_PER_WORD = 200

# Each of three caches holds at most this many runs or words, of at most this many
# characters. Filled with English: 25 MB for runs and words, 50 MB more for offsets.
_CACHE_ENTRIES = 1 << 17
_CACHE_CHARACTERS = 64

# The fastest of 2 to 5 on the languages of the multilingual vocabulary.
_PREFIX = 4


class Encoding(NamedTuple):
    """A text's tokens, and their places in it."""

    ids: list[int]
    tokens: list[str]
    offsets: list[Span]  # half open: the token was made from text[start:end]

    def part(self, start: int, stop: int) -> "Encoding":
        """Returns some of the tokens."""
        some = slice(start, stop)
        return Encoding(self.ids[some], self.tokens[some], self.offsets[some])


Result = TypeVar("Result")


class Cache(dict[str, Result]):
    """Results by string: missing ones are computed, and kept if there is room."""

    def __init__(self, compute: Callable[[str], Result]):
        super().__init__()
        self._compute = compute

    def __missing__(self, text: str) -> Result:
        result = self._compute(text)
        if len(text) <= _CACHE_CHARACTERS:
            if len(self) >= _CACHE_ENTRIES:
                self.clear()
            self[text] = result
        return result


def _longest(pieces: Iterable[str]) -> dict[str, int]:
    """Returns, for each beginning of `_PREFIX` letters, its longest piece's length."""
    # Most attempts of a greedy search would be with lengths that no piece has.
    longest: dict[str, int] = {}
    for piece in pieces:
        if len(piece) >= _PREFIX:
            prefix = piece[:_PREFIX]
            longest[prefix] = max(len(piece), longest.get(prefix, 0))
    return longest


class WordPieceTokenizer:
    """Text to ids and back, for one vocabulary, casing and segmenter.

        inputs = tokenizer(["A text.", "Another one."])
        outputs = model.predict(inputs)

    It may be pickled and shared by threads; a copy begins with empty caches.

    Examples:
        >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        >>> vocabulary = bert_tf.Vocabulary([*special, "a", "film", "##s", "."])
        >>> tokenizer = bert_tf.WordPieceTokenizer(vocabulary)
        >>> tokenizer.tokenize("A film. Films.")
        ['a', 'film', '.', 'film', '##s', '.']
        >>> tokenizer.encode("A film.")
        [5, 6, 8]
    """

    def __init__(
        self,
        vocabulary: Vocabulary | str | os.PathLike[str],
        *,
        do_lower_case: bool = True,
        recognize_special_tokens: bool = False,
        segmenter: str = NO_SEGMENTER,
    ):
        """Prepares the tables.

        Args:
            vocabulary: the tokens, or the path of a vocab.txt; must have [UNK].
            do_lower_case: lower the case and remove accents, as for an uncased model.
            recognize_special_tokens: let "[MASK]" and the like, written in the text,
                stand for the special token. Otherwise, as in the original, they are
                ordinary text: "[", "mask", "]".
            segmenter: "icu" separates the words of scripts without spaces (Thai, Lao,
                Khmer, Burmese, kana) by ICU; "none".

        Raises:
            InputError: the segmenter is another one, or not installed; or no
                vocabulary is at the path.
            ValueError: the vocabulary lacks [UNK].
        """
        if not isinstance(vocabulary, Vocabulary):
            vocabulary = Vocabulary.from_file(os.fspath(vocabulary))
        self.vocabulary = vocabulary
        self.do_lower_case = do_lower_case
        self.recognize_special_tokens = recognize_special_tokens
        require_segmenter(segmenter)
        self.segmenter = segmenter
        self._unknown = (vocabulary.unk_id,)
        starts = dict(vocabulary.ids)
        continuations = {
            token[len(CONTINUATION) :]: token_id
            for token, token_id in starts.items()
            if token.startswith(CONTINUATION)
        }
        # The pieces that may start a word, and those that may continue it.
        self._starts = starts, _longest(starts)
        self._continuations = continuations, _longest(continuations)
        special = [t for t in (PAD, UNK, CLS, SEP, MASK) if t in vocabulary]
        self._special = re.compile(f"({'|'.join(map(re.escape, special))})")
        self._of_word: Cache[tuple[int, ...]] = Cache(self.cut_word)
        self._of_run: Cache[tuple[int, ...]] = Cache(self._encode_run)
        self._aligned: Cache[tuple[tuple[int, int, int], ...]] = Cache(self._align_run)
        self._run_ids = self._of_run.__getitem__
        self._word_ids = self._of_word.__getitem__

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a text's ids depend on, as JSON."""
        has_none = self.segmenter == NO_SEGMENTER
        return {
            "vocabulary": self.vocabulary.sha256,
            "do_lower_case": self.do_lower_case,
            **({} if has_none else {"segmenter": self.segmenter}),
        }

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text's tokens, without adding [CLS] or [SEP]."""
        ids: list[int] = []
        for part, _, special_id in self._parts(text):
            if special_id is not None:
                ids.append(special_id)
                continue
            # Only now: removing them must not create a special token.
            if SPLITTING_CONTROLS.search(part):
                part = SPLITTING_CONTROLS.sub("", part)
            ids.extend(chain.from_iterable(map(self._run_ids, part.split())))
        return ids

    def tokenize(self, text: str) -> list[str]:
        """Returns a text's tokens."""
        return self.convert_ids_to_tokens(self.encode(text))

    def __call__(
        self,
        texts: str | Iterable[str],
        pairs: str | Iterable[str | None] | None = None,
        *,
        max_length: int = 512,
        truncation: bool = False,
        padding: str = "longest",
        return_tensors: str = "np",
    ) -> dict[str, Any]:
        """Returns a model's inputs for texts, or for pairs: for `model.predict`.

        Args:
            texts: B texts; a str is one.
            pairs: as many second texts; None or "" for none.
            max_length: the most tokens of a sequence, [CLS] and [SEP] included.
            truncation: whether a longer one is cut, token by token from the end of the
                longer text, as in the original. Otherwise it is an error.
            padding: "longest", to the longest sequence, or "max_length".
            return_tensors: "np" for numpy arrays, "tf" for tensors.

        Returns:
            input_ids, input_mask (1 for a token, 0 for padding) and segment_ids (1 for
            the second text), each int32 [B, S].

        Raises:
            InputError: there is no text, one is no str, there are not as many pairs as
                texts, or a sequence is too long.
            ValueError: another argument is not one of these.
        """
        if padding not in ("longest", "max_length"):
            raise ValueError(f"`padding`: longest or max_length. Received: {padding!r}")
        if return_tensors not in ("np", "tf"):
            raise ValueError(
                f"`return_tensors`: np or tf. Received: {return_tensors!r}"
            )
        # [CLS], [SEP], [SEP], and a token of each text.
        if max_length < 5:
            raise ValueError(f"`max_length` must be at least 5. Received: {max_length}")
        sequences = []
        for number, (text, second) in enumerate(text_pairs(texts, pairs)):
            ids_a, ids_b = self.encode(text), self.encode(second)
            room = max_length - (3 if ids_b else 2)
            if len(ids_a) + len(ids_b) > room and not truncation:
                raise InputError(
                    f"Text {number} (from 0) has"
                    f" {len(ids_a) + len(ids_b) + max_length - room} tokens with [CLS]"
                    f" and [SEP], more than `max_length`, {max_length}. truncation=True"
                    " cuts it."
                )
            sequences.append(truncate_pair(ids_a, ids_b, room))
        longest = max(len(a) + len(b) + (3 if b else 2) for a, b in sequences)
        features = pair_features(
            sequences, self.vocabulary, longest if padding == "longest" else max_length
        )
        arrays = {name: value.astype(np.int32) for name, value in features.items()}
        if return_tensors == "np":
            return arrays
        import tensorflow as tf

        return {name: tf.constant(value) for name, value in arrays.items()}

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text that a sequence's ids stand for.

        Args:
            ids: of one sequence.

        Returns:
            The words, a space between them; [PAD], [CLS] and [SEP] are left out.
            Lower-casing and spacing are not undone.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        tokens = self.convert_ids_to_tokens(map(int, ids))
        return joined(token for token in tokens if token not in (PAD, CLS, SEP))

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids and tokens of a text, and each token's characters.

        A token covers the source of its characters: text lowered or decomposed into
        them, the accents removed after them, and anything removed between them. [UNK]
        covers its whole word. Two tokens share a character that gave both (the parts of
        a Hangul syllable).
        """
        ids: list[int] = []
        offsets: list[Span] = []
        for part, begin, special_id in self._parts(text):
            if special_id is not None:
                ids.append(special_id)
                offsets.append((begin, begin + len(part)))
                continue
            for run in patterns_for(part).chunks.finditer(part):
                shift = begin + run.start()
                for token_id, start, end in self._aligned[run.group()]:
                    ids.append(token_id)
                    offsets.append((shift + start, shift + end))
        return Encoding(ids, self.convert_ids_to_tokens(ids), offsets)

    def clear_caches(self) -> None:
        """Forgets the words seen so far, and frees their memory."""
        for cache in (self._of_word, self._of_run, self._aligned):
            cache.clear()

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the tokens' ids."""
        ids = self.vocabulary.ids
        try:
            return [ids[token] for token in tokens]
        except KeyError as error:
            raise ValueError(
                f"A token must be in the vocabulary. Received: {error.args[0]!r}"
            ) from error

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the ids' tokens."""
        tokens = self.vocabulary.tokens
        ids = list(ids)
        if ids and (min(ids) < 0 or max(ids) >= len(tokens)):
            raise ValueError(
                f"An id must be in [0, {len(tokens)}). "
                f"Received: {min(ids) if min(ids) < 0 else max(ids)}"
            )
        return [tokens[token_id] for token_id in ids]

    def _parts(self, text: str) -> Iterable[tuple[str, int, int | None]]:
        """Yields (part, where it begins, its id if it is a special token)."""
        if not self.recognize_special_tokens:
            yield text, 0, None
            return
        begin = 0
        # The pattern's group makes split() return text and special tokens in turn.
        for index, part in enumerate(self._special.split(text)):
            yield part, begin, self.vocabulary.ids[part] if index % 2 else None
            begin += len(part)

    def _encode_run(self, run: str) -> tuple[int, ...]:
        words = split_words(run, self.do_lower_case, self.segmenter)
        if len(words) == 1:
            return self._of_word[words[0]]
        return tuple(chain.from_iterable(map(self._word_ids, words)))

    def _align_run(self, run: str) -> tuple[tuple[int, int, int], ...]:
        """Returns (id, start, end) for each token of a run without white space."""
        tokens = self.vocabulary.tokens
        aligned = []
        for word, spans in align_words(run, self.do_lower_case, self.segmenter):
            ids = self._of_word[word]
            if ids == self._unknown:
                start = min(start for start, _ in spans)
                aligned.append((ids[0], start, max(end for _, end in spans)))
                continue
            begin = 0
            for token_id in ids:
                length = len(tokens[token_id]) - (len(CONTINUATION) if begin else 0)
                covered = spans[begin : begin + length]
                start = min(start for start, _ in covered)
                aligned.append((token_id, start, max(end for _, end in covered)))
                begin += length
        return tuple(aligned)

    def cut_word(self, word: str, *, continues: bool = False) -> tuple[int, ...]:
        """Returns the pieces of a word, or of a word's rest: greedy longest match.

        Returns one [UNK] if pieces do not cover the word.
        """
        length = len(word)
        if length > MAX_CHARACTERS_PER_WORD:
            return self._unknown
        ids = []
        start = 0
        known, longest = self._continuations if continues else self._starts
        while start < length:
            end = start + longest.get(word[start : start + _PREFIX], _PREFIX - 1)
            if end > length:
                end = length
            while end > start:
                token_id = known.get(word[start:end])
                if token_id is not None:
                    break
                end -= 1
            else:
                return self._unknown
            ids.append(token_id)
            start = end
            known, longest = self._continuations
        return tuple(ids)

    def __reduce__(self) -> tuple:
        make = functools.partial(
            WordPieceTokenizer,
            do_lower_case=self.do_lower_case,
            recognize_special_tokens=self.recognize_special_tokens,
            segmenter=self.segmenter,
        )
        return make, (self.vocabulary,)


def joined(tokens: Iterable[str]) -> str:
    """Returns the tokens as text: pieces of a word together, else spaces between."""
    text = " ".join(tokens).replace(" " + CONTINUATION, "").replace(CONTINUATION, "")
    return " ".join(text.split())


class PackedTokenizer:
    """Encodes like `WordPieceTokenizer`, into packed ids."""

    def __init__(self, tokenizer: WordPieceTokenizer, dtype: type[np.integer]) -> None:
        self._of_run: Cache[bytes] = Cache(
            lambda run: np.array(tokenizer.encode(run), dtype).tobytes()
        )
        self._run_ids = self._of_run.__getitem__

    def encode(self, text: str) -> bytes:
        """Returns the bytes of a text's ids."""
        if SPLITTING_CONTROLS.search(text):
            text = SPLITTING_CONTROLS.sub("", text)
        return b"".join(map(self._run_ids, text.split()))


def added_tokens(old: Vocabulary, new: Vocabulary) -> dict[int, tuple[int, ...]]:
    """Returns the ids of tokens that a vocabulary adds, each with its older pieces.

    Raises:
        ValueError: `new` does not extend `old`: a token has another id, or none.
    """
    if len(new) < len(old):
        raise ValueError(f"it has {len(new)} tokens instead of {len(old)}")
    tokenizer = WordPieceTokenizer(old, do_lower_case=False)
    added: dict[int, tuple[int, ...]] = {}
    for place, token in enumerate(new.tokens):
        there = old.tokens[place] if place < len(old) else None
        if token == there:
            continue
        if there is not None and not UNUSED.fullmatch(there):
            raise ValueError(f"line {place + 1} is {token!r} instead of {there!r}")
        if token in old or new.ids[token] != place:
            raise ValueError(f"line {place + 1} has {token!r} a second time")
        rest = token.removeprefix(CONTINUATION)
        if rest and rest != token:
            added[place] = tokenizer.cut_word(rest, continues=True)
        else:
            added[place] = tuple(tokenizer.encode(token)) or (old.unk_id,)
    return added
