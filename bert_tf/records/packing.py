"""Which sequences share a row: best fit, the longest first.

Each sequence goes to the row with the least room that still takes it, or to a new one
(Johnson 1974, "best fit decreasing": at most 11/9 of the fewest rows possible, and far
closer with many short sequences). A row has room for tokens, for predictions and for a
number of sequences.
"""

import numpy as np

from bert_tf.instances.random_stream import compiled, shuffle

# Lengths are told apart only so far in "the longest first": those of one length are
# often of one document, and would fill rows of their own. From Wikipedia (sequences of
# up to 128 tokens in rows of 512, at most 8 in each) the rows are fuller so, too: 0.2 %
# of padding where 16 classes leave 0.8 %.
_LENGTH_CLASSES = 4

# Rows of one room that are looked at for one with room for the predictions, too.
_MOST_LOOKS = 64


def pack_rows(
    lengths: np.ndarray,
    num_predictions: np.ndarray,
    stream: np.ndarray,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    max_sequences_per_row: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Deals sequences to rows, each to one."""
    for name, values, limit in (
        ("lengths", lengths, max_seq_length),
        ("num_predictions", num_predictions, max_predictions_per_seq),
    ):
        if len(values) and values.max() > limit:
            raise ValueError(
                f"`{name}` must be at most {limit}. Received: {values.max()}"
            )
    if len(lengths) and lengths.min() < 1:
        raise ValueError("`lengths` must be positive.")
    turns = np.arange(len(lengths))
    shuffle(stream, turns)
    classes = lengths[turns] * _LENGTH_CLASSES // max_seq_length
    longest_first = turns[np.argsort(-classes, kind="stable")]
    rows, num_rows = _best_fit(
        lengths,
        num_predictions,
        longest_first,
        max_seq_length,
        max_predictions_per_seq,
        max_sequences_per_row,
    )
    places = np.arange(num_rows)
    shuffle(stream, places)
    rows = places[rows]
    order = turns[np.argsort(rows[turns], kind="stable")]
    starts = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=starts[1:])
    return order, starts


@compiled
def _best_fit(
    lengths,
    num_predictions,
    order,
    max_seq_length,
    max_predictions_per_seq,
    max_sequences_per_row,
):
    """The row of each sequence, taken in that order, and the number of rows."""
    num_sequences = len(lengths)
    rows = np.empty(num_sequences, np.int64)
    predictions_left = np.empty(num_sequences, np.int64)
    sequences_left = np.empty(num_sequences, np.int64)
    # The rows with so much room, as a linked list: the last one added, and for each row
    # the one before it.
    newest = np.full(max_seq_length + 1, -1)
    older = np.empty(num_sequences, np.int64)
    num_rows = 0
    for sequence in order:
        length, needed = lengths[sequence], num_predictions[sequence]
        found = -1
        room = length
        while found < 0 and room < max_seq_length:
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
            found, room = num_rows, max_seq_length
            predictions_left[found] = max_predictions_per_seq
            sequences_left[found] = max_sequences_per_row
            num_rows += 1
        rows[sequence] = found
        room -= length
        predictions_left[found] -= needed
        sequences_left[found] -= 1
        if room > 0 and sequences_left[found] > 0:
            older[found] = newest[room]
            newest[room] = found
    return rows, num_rows
