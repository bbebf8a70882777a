"""Text into words within a TensorFlow graph: `bert_tf.text.normalization`, vectorised.

All the texts of a batch are one line of code points, each text with a line feed behind
it: white space, which no rule looks past. A step is a gather from the tables of
`unicode_tables`, or a mask.

Shape suffixes: B texts, N code points, M characters in words, W words.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.conversion import unicode_tables as tables
from bert_tf.conversion.graph_characters import (
    Characters,
    have,
    lower_without_accents,
    previous,
    where,
)
from bert_tf.conversion.unicode_tables import UnicodeTables


class CodePoints(NamedTuple):
    """A batch of texts, decoded; a line feed ends each of them.

    Attributes:
        values: [N], code points.
        entries: [N], what `unicode_tables` has on them.
        byte_starts: [N], where each begins in its text.
        row_splits: [B + 1], where the texts begin in `values`.
    """

    values: tf.Tensor
    entries: tf.Tensor
    byte_starts: tf.Tensor
    row_splits: tf.Tensor


class Words(NamedTuple):
    """The words of a batch of texts, normalised.

    Attributes:
        characters: [W, (characters)], ragged, code points.
        row_splits: [B + 1], where the texts begin among the words.
        starts: [M], where what each character was made of begins in `CodePoints`.
        ends: [M], and where it ends, with the accents that were removed behind it.
    """

    characters: tf.RaggedTensor
    row_splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


def decode(texts: tf.Tensor, unicode: UnicodeTables) -> CodePoints:
    """Code points of UTF-8; bytes that are not UTF-8 become U+FFFD as in Python."""
    decoded, byte_starts = tf.strings.unicode_decode_with_offsets(
        tf.strings.join([texts, "\n"]), "UTF-8", errors="replace"
    )
    values = decoded.flat_values
    pages = tf.gather(unicode.pages, tf.bitwise.right_shift(values, tables.PAGE_SHIFT))
    entries = tf.gather(unicode.entries, pages + (values & tables.PAGE_MASK))
    return CodePoints(
        values,
        entries,
        tf.cast(byte_starts.flat_values, tf.int32),
        tf.cast(decoded.row_splits, tf.int32),
    )


def keep_whole(text: CodePoints, tokens: Sequence[str]) -> CodePoints:
    """Makes one unchanged word of each special token that the text spells out."""
    opening = where(tf.equal(text.values, ord("[")))
    last = tf.size(text.values) - 1
    entries = text.entries
    for token in tokens:
        wanted = np.array([ord(char) for char in token], np.int32)
        # The text's last line feed stands for what would be behind it.
        places = tf.minimum(opening[:, None] + np.arange(len(token)), last)
        found = tf.reduce_all(tf.equal(tf.gather(text.values, places), wanted), axis=1)
        places = tf.boolean_mask(places, found)
        flags = np.zeros(len(token), np.int32)
        flags[0] |= tables.STARTS_WORD
        flags[-1] |= tables.ENDS_WORD | tables.TAKES_NO_ACCENT
        entries = tf.tensor_scatter_nd_update(
            entries,
            tf.reshape(places, [-1, 1]),
            tf.tile(flags, [tf.shape(places)[0]]),
        )
    return text._replace(entries=entries)


def split_words(text: CodePoints, unicode: UnicodeTables, do_lower_case: bool) -> Words:
    """The words of texts, normalised: what `normalization.split_words` gives."""
    sources = tf.range(tf.size(text.values))
    characters = Characters(text.values, text.entries, sources, sources + 1)
    characters = characters.without(tables.REMOVED)
    if do_lower_case:
        characters = lower_without_accents(characters, unicode)
    # A word starts where a character says so, or behind one that ends the word before.
    is_space = have(characters.entries, tables.SPACE)
    ends_word = have(characters.entries, tables.ENDS_WORD | tables.SPACE)
    starts_word = (
        have(characters.entries, tables.STARTS_WORD) | previous(ends_word, True)
    ) & ~is_space
    in_words = where(~is_space)
    characters = characters.take(in_words)
    word_starts = where(tf.gather(starts_word, in_words))
    word_splits = tf.concat([word_starts, [tf.size(in_words)]], 0)
    return Words(
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
