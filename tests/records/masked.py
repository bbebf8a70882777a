"""A small set of masked records, with its manifest and vocabulary."""

import numpy as np
import tensorflow as tf

from bert_tf.records.spec import RecordSpec
from tests.records.unmasked import VOCABULARY, P, V, write_manifest

L = 12


def write_set(path, count=20, seed=0, *, length=L, with_manifest=True, **fields):
    """Writes `count` records into one file; `fields` are those of the manifest.

    Returns:
        The records' features, lists without padding, under the schema's names.
    """
    rng = np.random.default_rng(seed)
    schema = RecordSpec.pretraining(length, P)
    sequences = []
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(count):
            num_tokens = int(rng.integers(6, length + 1))
            ids = rng.integers(5, V, num_tokens)
            ids[[0, 3, num_tokens - 1]] = [2, 3, 3]
            num_masks = int(rng.integers(1, P))
            positions = np.sort(rng.choice([1, 2, 4], num_masks, replace=False))
            labels = ids[positions].tolist()
            ids[positions] = 4
            sequence = {
                "input_ids": ids.tolist(),
                "input_mask": [1] * num_tokens,
                "segment_ids": [0] * 4 + [1] * (num_tokens - 4),
                "masked_lm_positions": positions.tolist(),
                "masked_lm_ids": labels,
                "masked_lm_weights": [1.0] * num_masks,
                "next_sentence_labels": [number % 2],
            }
            sequences.append(sequence)
            widths = {feature.name: feature.length for feature in schema.features}
            writer.write(
                schema.serialize(
                    {
                        name: values + [0] * (widths[name] - len(values))
                        for name, values in sequence.items()
                    }
                )
            )
    if with_manifest:
        fields = {"masking": "static", "max_seq_length": length} | fields
        write_manifest(path, count, VOCABULARY, **fields)
    return sequences
