"""A small set of packed rows, as earlier versions' own command wrote them."""

import os

import numpy as np
import tensorflow as tf

from bert_tf.records.manifest import Manifest, SourceFile, find_manifests
from bert_tf.records.spec import RecordSpec
from bert_tf.text.vocabulary import Vocabulary
from tests.records.unmasked import P, write_manifest


def write_set(path, source, *, length=40, max_sequences=4):
    """Packs the records of `source` into one file, in their order.

    Returns:
        The path.
    """
    (manifest,) = find_manifests([source])
    is_masked = manifest.masking == "static"
    slots = -(-P * length // manifest.max_seq_length)
    schema = (
        RecordSpec.pretraining(length, slots, max_sequences)
        if is_masked
        else RecordSpec.pretraining(length, max_sequences_per_row=max_sequences)
    )
    rows, num_sequences = [[]], 0
    for serialized in tf.data.TFRecordDataset(source).as_numpy_iterator():
        record = {
            name: list(feature.int64_list.value or feature.float_list.value)
            for name, feature in tf.train.Example.FromString(
                serialized
            ).features.feature.items()
        }
        num_tokens = sum(sum(each["input_mask"]) for each in [*rows[-1], record])
        if num_tokens > length or len(rows[-1]) == max_sequences:
            rows.append([])
        rows[-1].append(record)
        num_sequences += 1
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            values = {feature.name: [] for feature in schema.features}
            for number, record in enumerate(row):
                place, num_tokens = len(values["input_ids"]), sum(record["input_mask"])
                for name in ("input_ids", "input_mask", "segment_ids"):
                    values[name] += record[name][:num_tokens]
                values["sequence_ids"] += [number + 1] * num_tokens
                values["cls_positions"].append(place)
                values["next_sentence_labels"] += record["next_sentence_labels"]
                values["next_sentence_weights"].append(1.0)
                for name in values.keys() & record.keys():
                    if name.startswith("masked_lm"):
                        used = int(sum(record["masked_lm_weights"]))
                        start = place if name == "masked_lm_positions" else 0
                        values[name] += [start + value for value in record[name][:used]]
            writer.write(
                schema.serialize(
                    {
                        feature.name: np.pad(
                            values[feature.name],
                            (0, feature.length - len(values[feature.name])),
                        )
                        for feature in schema.features
                    }
                )
            )
    write_manifest(
        path,
        len(rows),
        Vocabulary.from_file(manifest.vocab_path),
        masking=manifest.masking,
        packed=True,
        max_seq_length=length,
        max_predictions_per_seq=slots,
        max_sequences_per_row=max_sequences,
        max_sequence_length=manifest.max_seq_length,
        max_predictions_per_sequence=P,
        packing_seed=12345,
        record_files=(SourceFile.describe(source),),
        report={"rows": {"rows": len(rows), "sequences": num_sequences}},
    )
    assert Manifest.from_json_file(f"{path}.manifest.json").packed
    assert os.path.getsize(path)
    return path
