"""Reading records: with masks in them, and masked as they are read.

    python benchmarks/dynamic_masking.py

Generated records of whole sequences go through `bert_tf.records.pipeline` as in
training: read, shuffled, parsed, masked or not. Records a second of processor time are
those that one core would read; of wall-clock time, those of this machine.
"""

import os
import resource
import tempfile
import time

from absl import app, flags

_BATCH_SIZES = flags.DEFINE_list("batch_sizes", "32,256", "Records a batch.")
_SHAPES = flags.DEFINE_list("shapes", "128x20,512x77", "Lengths x predictions.")
_RECORDS = flags.DEFINE_integer("records", 4000, "Records in the generated files.")
_BATCHES = flags.DEFINE_integer("batches", 60, "Batches of 256 to read, in records.")
_REPETITIONS = flags.DEFINE_integer("repetitions", 3, "The best of so many is printed.")

# `make benchmark` gives these to every script.
flags.DEFINE_string("data_dir", None, "Not needed: the records are generated.")
flags.DEFINE_string("original_dir", None, "Not needed.")

VOCAB_SIZE = 30522
NUM_FILES = 4
# As in bert-base-uncased's vocabulary and English text: about one piece in six.
CONTINUATIONS = range(20000, 25000)


def write_records(folder: str, length: int, num_predictions: int, dynamic: bool):
    """Full sequences of random tokens.

    Returns:
        The files, their counts and their schema.
    """
    import numpy as np
    import tensorflow as tf

    from bert_tf.records.spec import RecordSpec

    rng = np.random.default_rng(0)
    schema = (
        RecordSpec.pretraining(length)
        if dynamic
        else RecordSpec.pretraining(length, num_predictions)
    )
    counts = [_RECORDS.value // NUM_FILES] * NUM_FILES
    paths = []
    for number, count in enumerate(counts):
        paths.append(os.path.join(folder, f"{length}-{dynamic}-{number}"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                ids = rng.integers(1000, VOCAB_SIZE, length)
                ids[[0, length // 2, length - 1]] = [101, 102, 102]
                values = {
                    "input_ids": ids,
                    "input_mask": [1] * length,
                    "segment_ids": [0] * (length // 2) + [1] * (length - length // 2),
                    "next_sentence_labels": [0],
                }
                if not dynamic:
                    values |= {
                        "masked_lm_positions": range(1, num_predictions + 1),
                        "masked_lm_ids": ids[1 : num_predictions + 1],
                        "masked_lm_weights": [1.0] * num_predictions,
                    }
                writer.write(schema.serialize(values))
    return paths, counts, schema


def measure(paths, counts, schema, batch_size: int, transform) -> tuple[float, float]:
    """Records a second of processor time, and of wall-clock time."""
    from bert_tf.records.pipeline import training_dataset

    batches = training_dataset(
        paths,
        counts,
        schema,
        batch_size=batch_size,
        seed=1,
        vocab_size=VOCAB_SIZE,
        transform=transform,
    )
    iterator = iter(batches)
    num_batches = max(1, _BATCHES.value * 256 // batch_size)
    for _ in range(max(1, num_batches // 10)):
        next(iterator)
    best_processor = best_wall = 0.0
    for _ in range(_REPETITIONS.value):
        processor, wall = processor_seconds(), time.perf_counter()
        for _ in range(num_batches):
            next(iterator)
        records = num_batches * batch_size
        best_wall = max(best_wall, records / (time.perf_counter() - wall))
        best_processor = max(
            best_processor, records / (processor_seconds() - processor)
        )
    return best_processor, best_wall


def processor_seconds() -> float:
    """Of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(_: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from bert_tf.records.dynamic_masking import CHOOSERS, DynamicMasking
    from bert_tf.text.vocabulary import Vocabulary

    special = {101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
    vocabulary = Vocabulary(
        [
            special.get(n) or f"{'##' if n in CONTINUATIONS else ''}{n}"
            for n in range(VOCAB_SIZE)
        ]
    )
    print("length  batch  masks          records/s of one core   of this machine")
    with tempfile.TemporaryDirectory() as folder:
        for shape in _SHAPES.value:
            length, num_predictions = map(int, shape.split("x"))
            static = write_records(folder, length, num_predictions, dynamic=False)
            dynamic = write_records(folder, length, num_predictions, dynamic=True)
            for batch_size in map(int, _BATCH_SIZES.value):
                runs = [("static", static, None)]
                for unit in CHOOSERS:
                    masking = DynamicMasking(
                        vocabulary,
                        max_seq_length=length,
                        max_predictions_per_seq=num_predictions,
                        unit=unit,
                        seed=1,
                    )
                    runs.append((f"dynamic, {unit}", dynamic, masking))
                for name, files, transform in runs:
                    processor, wall = measure(*files, batch_size, transform)
                    print(
                        f"{length:6d} {batch_size:6d}  {name:14s}"
                        f" {processor:21,.0f} {wall:17,.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    app.run(main)
