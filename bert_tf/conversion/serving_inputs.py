"""A model's input from the ids of texts, in a TensorFlow graph.

What `bert_tf.tasks` does record by record, for a batch: [CLS] A [SEP], or [CLS] A [SEP]
B [SEP], cut as the original cuts. A batch is padded to its own longest sequence.

Ragged tensors have int32 row splits. Shapes: B batch, S the longest sequence; (n)
ragged.
"""

import tensorflow as tf

Inputs = dict[str, tf.Tensor]


def cut_pair(
    tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor, max_length: tf.Tensor
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Cuts pairs to `max_length` tokens together, always the longer one by its end.

    At equal lengths the second one gives way, as in the original: first the longer one
    comes down to the other's length, then both in turn.
    """
    length_a, length_b = lengths(tokens_a), lengths(tokens_b)
    excess = tf.maximum(0, length_a + length_b - max_length)
    cut_b = tf.minimum(excess, tf.maximum(0, length_b - length_a))
    cut_a = tf.minimum(excess, tf.maximum(0, length_a - length_b))
    rest = excess - cut_a - cut_b
    return (
        first(tokens_a, length_a - cut_a - rest // 2),
        first(tokens_b, length_b - cut_b - (rest + 1) // 2),
    )


def sequences(
    tokens_a: tf.RaggedTensor,
    tokens_b: tf.RaggedTensor | None,
    *,
    cls_id: int,
    sep_id: int,
    max_seq_length: int,
) -> Inputs:
    """The encoder's inputs of texts or pairs."""
    if tokens_b is None:
        ids_a = first(tokens_a, tf.minimum(lengths(tokens_a), max_seq_length - 2))
        ids = around(ids_a, cls_id, sep_id)
        segments = tf.zeros_like(ids)
    else:
        has_b = tf.cast(lengths(tokens_b) > 0, tf.int32)
        ids_a, ids_b = cut_pair(tokens_a, tokens_b, max_seq_length - 2 - has_b)
        # As in the original, a second text that is cut to nothing has no [SEP] either.
        has_b = tf.cast(lengths(ids_b) > 0, tf.int32)
        ends = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(has_b)], sep_id), has_b
        )
        part_a = around(ids_a, cls_id, sep_id)
        part_b = tf.concat([ids_b, ends], axis=1)
        ids = tf.concat([part_a, part_b], axis=1)
        segments = tf.concat([tf.zeros_like(part_a), tf.ones_like(part_b)], axis=1)
    return padded(ids, segments)


def padded(ids: tf.RaggedTensor, segments: tf.RaggedTensor) -> Inputs:
    """The encoder's inputs from whole sequences: int32 [B, S]."""
    return {
        "input_ids": ids.to_tensor(),
        "input_mask": tf.ones_like(ids).to_tensor(),
        "segment_ids": segments.to_tensor(),
    }


def around(tokens: tf.RaggedTensor, cls_id: int, sep_id: int) -> tf.RaggedTensor:
    """[CLS] tokens [SEP], by row."""
    rows = tokens.nrows(tf.int32)
    return tf.concat(
        [tf.fill([rows, 1], cls_id), tokens, tf.fill([rows, 1], sep_id)], axis=1
    )


def first(tokens: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """The first so many of each row."""
    places = tf.ragged.range(lengths(tokens), row_splits_dtype=tf.int32)
    keep = places.with_flat_values(
        places.flat_values < tf.gather(tf.maximum(counts, 0), places.value_rowids())
    )
    return tf.ragged.boolean_mask(tokens, keep)


def lengths(tokens: tf.RaggedTensor) -> tf.Tensor:
    """The rows' lengths, int32 [B]."""
    return tf.cast(tokens.row_lengths(), tf.int32)


def with_int32(tokens: tf.RaggedTensor) -> tf.RaggedTensor:
    """The same with int32 row splits: ragged tensors of both kinds do not mix."""
    return tokens.with_row_splits_dtype(tf.int32)
