"""Steps of the training engine: one device, accumulated, mirrored, packed, precisions.

    python benchmarks/training_engine.py --sizes=tiny

In one run, on generated records (full sequences, and short ones for the packed rows):

- the input pipeline alone, in records a second, beside what the steps eat;
- sequences, tokens and steps a second of `bert_tf.training.step`, and the share of the
  time that a step waits for its records, for each way to train;
- how far the weights after some steps, without dropout, are from those of the first
  way, relative to how far they moved.

The ways take turns; the best of the rounds is printed. Mirrored runs over two logical
CPUs that share the machine's cores: its figure is what dealing a batch out costs, not
what a second device gains.
"""

import os
import subprocess
import sys
import tempfile
import time

from absl import app, flags, logging

_SIZES = flags.DEFINE_list("sizes", "tiny", "Released sizes.")
_BATCH = flags.DEFINE_integer("batch_size", 64, "Sequences a step.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Length of a sequence.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "The best of so many is printed.")
_STEPS = flags.DEFINE_integer("steps", 5, "Steps a round.")
_RECORDS = flags.DEFINE_integer("records", 4096, "Generated records.")
_ROW = flags.DEFINE_integer("packed_length", 512, "Length of a packed row.")
# `make benchmark` gives these to every script.
flags.DEFINE_string("data_dir", None, "Not needed: the records are generated.")
flags.DEFINE_string("original_dir", None, "Not needed.")

VOCAB_SIZE = 30522
PREDICTIONS = 20


def write_records(folder: str) -> tuple[str, int]:
    """Pairs of 24 to all tokens, as text has them.

    Returns:
        The file and the number of its records.
    """
    import numpy as np
    import tensorflow as tf

    from bert_tf.records.spec import RecordSpec

    length = _LENGTH.value
    schema = RecordSpec.pretraining(length, PREDICTIONS)
    rng = np.random.default_rng(0)
    path = os.path.join(folder, f"records-{length}")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(_RECORDS.value):
            tokens = int(rng.integers(24, length + 1))
            masks = max(1, round(0.15 * tokens))
            masks = min(masks, PREDICTIONS)
            padding = [0] * (length - tokens)
            empty = [0] * (PREDICTIONS - masks)
            ids = rng.integers(1000, VOCAB_SIZE, tokens)
            ids[[0, tokens // 2, tokens - 1]] = [101, 102, 102]
            writer.write(
                schema.serialize(
                    {
                        "input_ids": [*ids, *padding],
                        "input_mask": [1] * tokens + padding,
                        "segment_ids": [0] * (tokens // 2 + 1)
                        + [1] * (tokens - tokens // 2 - 1)
                        + padding,
                        "masked_lm_positions": [
                            *np.sort(rng.permutation(tokens - 2)[:masks] + 1),
                            *empty,
                        ],
                        "masked_lm_ids": [
                            *rng.integers(1000, VOCAB_SIZE, masks),
                            *empty,
                        ],
                        "masked_lm_weights": [1.0] * masks + empty,
                        "next_sentence_labels": [number % 2],
                    }
                )
            )
    return path, _RECORDS.value


def pack(folder: str) -> tuple[str, int]:
    """Short records of random words, packed by the command; and the number of rows."""
    import numpy as np

    from bert_tf.records.pretraining_input import PretrainingRecords

    text, vocabulary, packed = (
        os.path.join(folder, name) for name in ("text.txt", "vocab.txt", "packed")
    )
    with open(vocabulary, "w", encoding="utf-8") as file:
        file.write("[PAD]\n")
        file.writelines(f"[unused{n}]\n" for n in range(1, 100))
        file.write("[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
        file.writelines(f"word{n}\n" for n in range(104, VOCAB_SIZE))
    rng = np.random.default_rng(0)
    with open(text, "w", encoding="utf-8") as file:
        for _ in range(_RECORDS.value):
            for length in rng.integers(5, _LENGTH.value // 2, 2):
                words = rng.integers(104, VOCAB_SIZE, length)
                file.write(" ".join(f"word{word}" for word in words) + "\n")
            file.write("\n")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tfrecords.create_pretraining_data",
            f"--input_file={text}",
            f"--output_file={packed}",
            f"--max_seq_length={_LENGTH.value}",
            f"--packed_length={_ROW.value}",
            f"--vocab_file={vocabulary}",
            "--dupe_factor=1",
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return packed, sum(PretrainingRecords(packed).counts)


class Way:
    """One way to train: a model of its own, and its steps.

    Args:
        size: the model's.
        records: the record file.
        batch_size: rows a step.
        options: `distribution`, `accumulation_steps`, `precision`, `jit_compile`.
    """

    def __init__(self, size: str, records: str, batch_size: int, **options):
        import dataclasses

        import keras
        import tensorflow as tf

        from bert_tf.config import BertConfig
        from bert_tf.optimization.optimizers import create_optimizer
        from bert_tf.records.pretraining_input import PretrainingRecords
        from bert_tf.tasks.pretraining import pretraining_task
        from bert_tf.training.device_steps import training_steps
        from bert_tf.training.step import LossScale, computing_in
        from bert_tf.training.strategy import create_strategy, distributed
        from bert_tf.training.training_options import DeviceOptions

        self.records = PretrainingRecords(records)
        config = BertConfig.from_size(size)
        if options.pop("no_dropout", False):
            config = dataclasses.replace(
                config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
            )
        distribution = options.pop("distribution", "default")
        strategy = create_strategy(DeviceOptions(distribution=distribution))
        precision = options.pop("precision", "float32")
        keras.utils.set_random_seed(1)
        task = pretraining_task(config, packed=self.records.is_packed)
        with strategy.scope():
            with computing_in(precision):
                self.model = task.build_model()
            optimizer = create_optimizer(
                1e-4,
                1_000_000,
                0,
                global_clipnorm=None,
                skip_nonfinite=precision == "float16",
            )
            optimizer.build(self.model.trainable_variables)
            loss_scale = LossScale() if precision == "float16" else None
        self.steps = training_steps(
            task, self.model, optimizer, strategy, loss_scale=loss_scale, **options
        )
        self.batch_size = batch_size
        self.iterator = iter(
            distributed(
                strategy,
                lambda shard: self.records.training_dataset(
                    batch_size, seed=1, shard=shard
                ),
            )
        )
        self.start = self.weights()
        self.run(tf.constant(1))  # compiles
        self.best = 0.0
        self.tokens = self.sequences = self.wait = 0.0

    def weights(self):
        """All weights, as numpy arrays."""
        return [variable.numpy() for variable in self.model.trainable_variables]

    def run(self, num_steps):
        """Makes steps; what they report, as numpy arrays."""
        return self.steps(self.iterator, num_steps)

    def round(self) -> None:
        """Times some steps; the best round is kept."""
        import tensorflow as tf

        began = time.perf_counter()
        results = self.run(tf.constant(_STEPS.value))
        seconds = time.perf_counter() - began
        if _STEPS.value / seconds > self.best:
            self.best = _STEPS.value / seconds
            self.tokens = float(results.sums["tokens"][0]) / seconds
            self.sequences = float(results.sums["sequences"][0]) / seconds
            self.wait = float(results.input_seconds) / seconds


def pipeline_alone(records: str, batch_size: int) -> float:
    """Records a second of the input pipeline on this machine, best of the rounds."""
    from bert_tf.records.pretraining_input import PretrainingRecords

    iterator = iter(PretrainingRecords(records).training_dataset(batch_size, seed=1))
    next(iterator)
    best = 0.0
    for _ in range(_ROUNDS.value):
        began = time.perf_counter()
        for _ in range(100):
            next(iterator)
        best = max(best, 100 * batch_size / (time.perf_counter() - began))
    return best


def ways(records: str, packed: str) -> dict[str, tuple[str, int, dict]]:
    """Name -> record file, rows a step, options."""
    batch = _BATCH.value
    # As many tokens a step.
    rows = max(1, batch * _LENGTH.value // _ROW.value)
    return {
        "one device": (records, batch, {}),
        "one device, bfloat16": (records, batch, {"precision": "bfloat16"}),
        "one device, float16": (records, batch, {"precision": "float16"}),
        "compiled by XLA as a whole": (records, batch, {"jit_compile": True}),
        "4 micro-batches": (records, batch, {"accumulation_steps": 4}),
        "mirrored over 2 logical CPUs": (records, batch, {"distribution": "mirrored"}),
        f"packed rows of {_ROW.value}": (packed, rows, {}),
    }


def distance(here, there) -> float:
    """The Euclidean distance of two sets of weights."""
    import numpy as np

    squares = [
        np.square(np.float64(a) - np.float64(b)).sum()
        for a, b in zip(here, there, strict=True)
    ]
    return float(np.sqrt(sum(squares)))


def print_differences(size: str, records: str, packed: str) -> None:
    """The weights after 10 steps without dropout, beside those of one device."""
    import tensorflow as tf

    print("\n10 steps without dropout: distance of the weights / how far they moved")
    first = None
    for name, (path, batch, options) in ways(records, packed).items():
        if path == packed or "float16" in name:
            continue  # other batches, other numbers
        way = Way(size, path, batch, no_dropout=True, **options)
        way.run(tf.constant(9))
        weights = way.weights()
        if first is None:
            first, moved = weights, distance(weights, way.start)
        print(f"{size:6s} {name:30s} {distance(weights, first) / moved:10.1e}")


def measure(records: str, packed: str) -> None:
    for size in _SIZES.value:
        running = {
            name: Way(size, path, batch, **options)
            for name, (path, batch, options) in ways(records, packed).items()
        }
        for _ in range(_ROUNDS.value):
            for way in running.values():
                way.round()
        print(
            "size   way                            steps/s  sequences/s  tokens/s  wait"
        )
        for name, way in running.items():
            print(
                f"{size:6s} {name:30s} {way.best:7.2f} {way.sequences:12.1f}"
                f" {way.tokens:9.0f} {way.wait:5.1%}",
                flush=True,
            )
        eaten = running["one device"].sequences
        read = pipeline_alone(records, _BATCH.value)
        print(
            f"{size:6s} input pipeline alone: {read:,.0f} records/s,"
            f" {read / eaten:.1f} times what the step eats"
        )
        del running
        print_differences(size, records, packed)


def main(_: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    logging.set_verbosity(logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    with tempfile.TemporaryDirectory() as folder:
        records, count = write_records(folder)
        packed, rows = pack(folder)
        print(f"{count} sequences of {_LENGTH.value}, packed: {rows} of {_ROW.value}\n")
        measure(records, packed)


if __name__ == "__main__":
    app.run(main)
