"""A small set of records without masks, with its manifest and vocabulary."""

import os
import pathlib

import numpy as np
import tensorflow as tf

from bert_tf.records.manifest import Manifest, Shard, manifest_path
from bert_tf.records.spec import RecordSpec
from bert_tf.text.vocabulary import Vocabulary

L, P, V = 12, 3, 30
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = Vocabulary(
    [*SPECIAL, *(f"w{number}" for number in range(20)), *(f"##p{n}" for n in range(5))]
)


def write_set(path, count=20, seed=0, vocabulary=VOCABULARY, **fields):
    """Writes `count` records into one file; `fields` are those of the manifest."""
    rng = np.random.default_rng(seed)
    spec = RecordSpec.pretraining(L)
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(count):
            length = int(rng.integers(8, L + 1))
            ids = rng.integers(5, V, length)
            ids[[0, 4, length - 1]] = [2, 3, 3]
            padding = [0] * (L - length)
            writer.write(
                spec.serialize(
                    {
                        "input_ids": [*ids, *padding],
                        "input_mask": [1] * length + padding,
                        "segment_ids": [0] * 5 + [1] * (length - 5) + padding,
                        "next_sentence_labels": [number % 2],
                    }
                )
            )
    write_manifest(path, count, vocabulary, **fields)
    return path


def write_manifest(path, count, vocabulary=VOCABULARY, **fields):
    """What stands beside a file of `count` records."""
    manifest = Manifest(
        **{
            "path": manifest_path([path]),
            "vocab_sha256": vocabulary.sha256,
            "vocab_size": len(vocabulary),
            "do_lower_case": True,
            "max_seq_length": L,
            "max_predictions_per_seq": P,
            "masking": "dynamic",
            "do_whole_word_mask": False,
            "masked_lm_prob": 0.2,
            "short_seq_prob": 0.1,
            "dupe_factor": 1,
            "random_seed": 12345,
            "source_files": (),
            "shards": (
                Shard(
                    name=os.path.basename(path),
                    num_records=count,
                    num_bytes=os.path.getsize(path),
                ),
            ),
            "complete": True,
            **fields,
        }
    )
    pathlib.Path(manifest.path).write_text(manifest.to_json_string())
    vocabulary.save(manifest.vocab_path)
