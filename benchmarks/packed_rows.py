"""A pre-training step on packed rows: with full attention, with local attention, apart.

    python benchmarks/packed_rows.py --lengths=512,1024,2048

Rows are full of sequences of --sequence_length tokens; `apart` has a sequence a row.
Each way takes --tokens tokens a step (forward, backward, clipping and AdamW, dropout
0.1, float32). The ways take turns; of the rounds the least counts. Seconds are
processor time of all cores. A run chooses local attention by itself where rows are at
least eight times as long as the longest sequence.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import app, flags
from parts.results import REPOSITORY, machine

_SIZE = flags.DEFINE_string("size", "L-4_H-256", "A released size.")
_LENGTHS = flags.DEFINE_list("lengths", ["512", "1024", "2048"], "Of the rows.")
_SEQUENCE = flags.DEFINE_integer("sequence_length", 128, "Of the sequences.")
_TOKENS = flags.DEFINE_integer("tokens", 4096, "Of a step.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each way.")
# `make benchmark` gives these to every script.
flags.DEFINE_string("data_dir", None, "Not needed: the batches are generated.")
flags.DEFINE_string("original_dir", None, "Not needed.")
flags.DEFINE_string("env_dir", None, "Not needed.")


def packed(length: int, vocab_size: int) -> Mapping[str, np.ndarray]:
    """A batch of rows that are full of sequences."""
    rng = np.random.default_rng(0)
    size = _SEQUENCE.value
    num_rows, num_sequences = _TOKENS.value // length, length // size
    rows, slots = (num_rows, length), (num_rows, 20 * num_sequences)
    sequences, tiled = (num_rows, num_sequences), (num_rows, 1)
    places = rng.permuted(np.tile(np.arange(length), tiled), axis=1)
    return {
        "input_ids": rng.integers(1000, vocab_size, rows, "int32"),
        "input_mask": np.ones(rows, "int32"),
        "segment_ids": np.zeros(rows, "int32"),
        "sequence_ids": np.tile(np.arange(length, dtype="int32") // size + 1, tiled),
        "cls_positions": np.tile(np.arange(0, length, size, dtype="int32"), tiled),
        "masked_lm_positions": np.sort(places[:, : slots[1]]).astype("int32"),
        "masked_lm_ids": rng.integers(1000, vocab_size, slots, "int32"),
        "masked_lm_weights": np.ones(slots, "float32"),
        "next_sentence_labels": rng.integers(0, 2, sequences, "int32"),
        "next_sentence_weights": np.ones(sequences, "float32"),
    }


def steps_of(length: int, **options: Any) -> Callable[[int], object]:
    """Makes so many steps of a way."""
    import tensorflow as tf

    from bert_tf.base.config import BertConfig
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training.step import on_devices
    from bert_tf.training.strategy import create_strategy

    config = BertConfig.from_size(_SIZE.value)
    task = pretraining_task(config, packed=True, **options)
    strategy, model = create_strategy(), task.build_model()
    optimizer = create_optimizer(1e-4, 10**6, 10**4, global_clipnorm=None)
    optimizer.build(model.trainable_variables)
    function = on_devices().training_steps(task, model, optimizer, strategy)
    batch = packed(length, config.vocab_size)
    data = tf.data.Dataset.from_tensors(batch).cache().repeat()
    batches = iter(on_devices().global_batches(strategy, lambda _: data))
    return lambda count: function(batches, count)


def main(_: list[str]) -> None:
    """Measures in turns, and prints a row for each length."""
    sys.path.insert(0, str(REPOSITORY))
    size = _SEQUENCE.value
    ways = {(size, "apart"): steps_of(size)}
    for length in map(int, _LENGTHS.value):
        ways[length, "full"] = steps_of(length)
        ways[length, "local"] = steps_of(length, longest_sequence=size)
    least = dict.fromkeys(ways, float("inf"))
    for number in range(_ROUNDS.value + 1):
        for way, steps in ways.items():
            began = time.process_time()
            steps(1)
            if number:  # the first one compiles
                least[way] = min(least[way], time.process_time() - began)
    print(f"{_SIZE.value}, {_TOKENS.value} tokens a step in sequences of {size};")
    print(f"{machine()}; apart: {least[size, 'apart']:.2f} core seconds\n")
    print("| row | full | local | as fast |\n|--:|--:|--:|--:|")
    for length in map(int, _LENGTHS.value):
        full, local = least[length, "full"], least[length, "local"]
        print(f"| {length:,} | {full:.2f} | {local:.2f} | {full / local:.2f} |")


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    app.run(main)
