"""Lower case and accents within a TensorFlow graph, for all texts of a batch at once.

What `str.lower`, canonical decomposition and the removal of accents do together, from
the tables of `unicode_tables`. Most characters are looked up one by one; the rules that
look round them (final sigma, canonical order) run where the text calls for them.

Shape suffixes: K characters, M after expansion.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert_tf.conversion import unicode_tables as tables
from bert_tf.conversion.unicode_tables import UnicodeTables


def have(entries: tf.Tensor, flags: int) -> tf.Tensor:
    """Which entries have one of the flags."""
    return tf.not_equal(entries & flags, 0)


def lack(entries: tf.Tensor, flags: int) -> tf.Tensor:
    """Which entries have none of the flags."""
    return tf.equal(entries & flags, 0)


def where(mask: tf.Tensor) -> tf.Tensor:
    """The positions at which a mask is true."""
    return tf.cast(tf.where(mask)[:, 0], tf.int32)


def previous(mask: tf.Tensor, first: bool) -> tf.Tensor:
    """At each position what the mask is at the one before."""
    return tf.concat([[first], mask[:-1]], 0)


def repeat_range(lengths: tf.Tensor) -> tf.Tensor:
    """0 so many times, then 1, and so on; each at least once.

    `tf.repeat` would take memory for all at the greatest length.
    """
    ends = tf.cumsum(lengths)[:-1, None]
    steps = tf.scatter_nd(ends, tf.ones_like(ends[:, 0]), [tf.reduce_sum(lengths)])
    return tf.cumsum(steps)


class Characters(NamedTuple):
    """Characters on their way from the text to its words.

    Attributes:
        values: [K], code points.
        entries: [K], what `unicode_tables` has on them.
        starts: [K], where what each was made of begins in the text.
        ends: [K], and where it ends.
    """

    values: tf.Tensor
    entries: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor

    def take(self, positions: tf.Tensor) -> "Characters":
        """The characters at some positions."""
        return Characters(*(tf.gather(part, positions) for part in self))

    def without(self, flags: int) -> "Characters":
        """The characters that have none of the flags."""
        stay = lack(self.entries, flags)
        return _if(~tf.reduce_all(stay), lambda: self.take(where(stay)), self)


def lower_without_accents(text: Characters, unicode: UnicodeTables) -> Characters:
    """Lowers, decomposes and removes accents: [K] -> [M]."""
    text = _reorder(_expand(_lower_final_sigmas(text, unicode), unicode))
    return _give_accents(text).without(tables.ACCENT)


def _lower_final_sigmas(text: Characters, unicode: UnicodeTables) -> Characters:
    """Lowers each sigma that is final: behind a cased letter, and before none."""

    def lowered() -> Characters:
        seen = where(lack(text.entries, tables.CASE_IGNORABLE))
        is_cased = have(tf.gather(text.entries, seen), tables.CASED)
        is_sigma = tf.equal(tf.gather(text.values, seen), tables.CAPITAL_SIGMA)
        final = is_sigma & previous(is_cased, False)
        final &= ~tf.concat([is_cased[1:], [False]], 0)
        places = tf.boolean_mask(seen, final)[:, None]
        shape = tf.shape(places)[:1]
        entry = unicode.entry(tables.FINAL_SIGMA)
        return text._replace(
            values=tf.tensor_scatter_nd_update(
                text.values, places, tf.fill(shape, tables.FINAL_SIGMA)
            ),
            entries=tf.tensor_scatter_nd_update(
                text.entries, places, tf.fill(shape, entry)
            ),
        )

    any_sigma = tf.reduce_any(tf.equal(text.values, tables.CAPITAL_SIGMA))
    return _if(any_sigma, lowered, text)


def _expand(text: Characters, unicode: UnicodeTables) -> Characters:
    """Lowers and decomposes each character: [K] -> [M]."""
    numbers = tf.bitwise.right_shift(text.entries, tables.EXPANSION_SHIFT)

    def expanded(old: Characters, numbers: tf.Tensor, places: tf.Tensor) -> Characters:
        itself = tf.equal(numbers, 0)
        return old._replace(
            values=tf.where(itself, old.values, tf.gather(unicode.expanded, places)),
            entries=tf.where(
                itself, old.entries, tf.gather(unicode.expanded_entries, places)
            ),
        )

    def to_several() -> Characters:
        lengths = tf.gather(unicode.lengths, numbers)
        parents = repeat_range(lengths)
        begins = tf.gather(unicode.starts, numbers) - tf.cumsum(lengths, exclusive=True)
        places = tf.gather(begins, parents) + tf.range(tf.size(parents))
        return expanded(text.take(parents), tf.gather(numbers, parents), places)

    return Characters(
        *tf.cond(
            tf.reduce_any(numbers >= unicode.num_single),
            to_several,
            lambda: expanded(text, numbers, numbers),
        )
    )


def _reorder(text: Characters) -> Characters:
    """Sorts each run of combining characters by class (Unicode Standard, 3.11)."""
    classes = tf.bitwise.right_shift(text.entries, tables.COMBINING_SHIFT)
    classes &= tables.COMBINING_MASK
    combines = classes > 0

    def reordered() -> Characters:
        # The number of starters up to a combining character tells the runs apart.
        runs = tf.cumsum(tf.cast(~combines, tf.int64))
        places = where(combines)
        count = tf.size(places, out_type=tf.int64)
        keys = tf.gather(runs * (1 << 8) + tf.cast(classes, tf.int64), places)
        order = tf.sort(keys * count + tf.range(count)) % count
        moved = tf.tensor_scatter_nd_update(
            tf.range(tf.size(classes)), places[:, None], tf.gather(places, order)
        )
        return text.take(moved)

    # Accents alone need no order: they are all removed.
    stays = combines & lack(text.entries, tables.ACCENT)
    return _if(tf.reduce_any(stays), reordered, text)


def _give_accents(text: Characters) -> Characters:
    """Lets each character reach to the end of the accents behind it."""
    is_accent = have(text.entries, tables.ACCENT)

    def extended() -> Characters:
        accents, bases = where(is_accent), where(~is_accent)
        # How many bases are before an accent; before the first there is none.
        rank = tf.searchsorted(bases, accents)
        base_of = tf.gather(bases, tf.maximum(rank - 1, 0))
        takes = lack(tf.gather(text.entries, base_of), tables.TAKES_NO_ACCENT)
        takes &= rank > 0
        ends = tf.tensor_scatter_nd_max(
            text.ends,
            tf.boolean_mask(base_of, takes)[:, None],
            tf.gather(text.ends, tf.boolean_mask(accents, takes)),
        )
        return text._replace(ends=ends)

    return _if(tf.reduce_any(is_accent), extended, text)


def _if(
    condition: tf.Tensor, then: Callable[[], Characters], otherwise: Characters
) -> Characters:
    return Characters(*tf.cond(condition, then, lambda: otherwise))
