"""Several sequences per row: which ones share a row, and how rows are written."""

from collections.abc import Iterator

import numpy as np

from bert_tf.instances.compilation import compiled
from bert_tf.instances.creation import Instances
from bert_tf.instances.masking import random_stream, shuffle
from bert_tf.instances.settings import STATIC_MASKING, InstanceSettings

# Sequences are assigned to rows by best fit, the longest first (Johnson 1974, "best fit
# decreasing": at most 11/9 of the fewest rows possible). A row has room for tokens, for
# predictions and for a number of sequences.

# "The longest first" compares only this many classes of length: sequences of the same
# length are often from one document, and would fill rows of their own. Rows of
# Wikipedia (sequences of up to 128 tokens in rows of 512, at most 8 in each) are also
# fuller: 0.2 % of padding where 16 classes leave 0.8 %.
_LENGTH_CLASSES = 4

# How many rows with the same room to search for one that fits the predictions, too.
_MOST_LOOKS = 64

# Tokens that are dealt to rows at a time: enough that only few rows are left incomplete
# at the end.
_WINDOW_TOKENS = 1 << 23


def packed_blocks(
    instances: Instances, settings: InstanceSettings, block_size: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields rows of the instances, each instance in one row, as in `RecordSpec`."""
    is_masked = settings.masking == STATIC_MASKING
    stream = random_stream(settings.random_seed)
    lengths, num_predictions = instances.lengths(), instances.num_predictions()
    if not is_masked:
        # The numbers are as in `bert_tf.instances.masking.num_predictions`.
        shares = np.rint(lengths * settings.masked_lm_prob).astype(np.int64)
        num_predictions = shares.clip(1, settings.max_predictions_per_seq)
    ends = np.cumsum(lengths)
    for window in np.split(
        np.arange(len(ends)),
        np.searchsorted(ends, np.arange(_WINDOW_TOKENS, sum(lengths), _WINDOW_TOKENS)),
    ):
        order, starts = pack_rows(
            lengths[window],
            num_predictions[window],
            stream,
            max_tokens=settings.record_length,
            max_predictions=settings.max_predictions_per_record,
            max_sequences=settings.max_sequences_per_record,
        )
        numbers = instances.order[window[order]]
        for first in range(0, len(starts) - 1, block_size):
            block = starts[first : first + block_size + 1]
            yield instances.rows(numbers, block, settings)


def pack_rows(
    lengths: np.ndarray,
    num_predictions: np.ndarray,
    stream: np.ndarray,
    *,
    max_tokens: int,
    max_predictions: int,
    max_sequences: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Deals sequences to rows. Returns an order of them, and where in it rows start."""
    assert (lengths <= max_tokens).all() and (num_predictions <= max_predictions).all()
    classes = lengths * _LENGTH_CLASSES // max_tokens
    longest_first = np.argsort(-classes, kind="stable")
    room = max_tokens, max_predictions, max_sequences
    rows, num_rows = _best_fit(lengths, num_predictions, longest_first, *room)
    places = np.arange(num_rows)
    shuffle(stream, places)
    rows = places[rows]
    starts = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=starts[1:])
    return np.argsort(rows, kind="stable"), starts


@compiled
def _best_fit(
    lengths, num_predictions, order, max_tokens, max_predictions, max_sequences
):
    """Returns the sequences' rows, filled in that order, and the number of rows."""
    num_sequences = len(lengths)
    rows = np.empty(num_sequences, np.int64)
    predictions_left = np.empty(num_sequences, np.int64)
    sequences_left = np.empty(num_sequences, np.int64)
    # For each amount of room, a linked list of rows: the row added last, and for each
    # row the one added before it.
    newest = np.full(max_tokens + 1, -1)
    older = np.empty(num_sequences, np.int64)
    num_rows = 0
    for sequence in order:
        length, needed = lengths[sequence], num_predictions[sequence]
        found = -1
        room = length
        while found < 0 and room < max_tokens:
            newer, row = -1, newest[room]
            looks = 0
            while row >= 0 and predictions_left[row] < needed and looks < _MOST_LOOKS:
                newer, row = row, older[row]
                looks += 1
            if row >= 0 and predictions_left[row] >= needed:
                found = row
                if newer < 0:
                    newest[room] = older[row]
                else:
                    older[newer] = older[row]
            else:
                room += 1
        if found < 0:
            found, room = num_rows, max_tokens
            predictions_left[found] = max_predictions
            sequences_left[found] = max_sequences
            num_rows += 1
        rows[sequence] = found
        room -= length
        predictions_left[found] -= needed
        sequences_left[found] -= 1
        if room > 0 and sequences_left[found] > 0:
            older[found] = newest[room]
            newest[room] = found
    return rows, num_rows
