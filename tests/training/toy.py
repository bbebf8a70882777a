"""A tiny BERT and its records, for tests of the engine."""

import dataclasses
import functools
import glob
import json
import os
import shutil
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.base.config import BertConfig
from bert_tf.modeling.encoder import DictInputModel
from bert_tf.modeling.heads import GatherPositions, HeadDropout
from bert_tf.modeling.objectives import Loss, Objective
from bert_tf.records import pipeline
from bert_tf.records.spec import RecordSpec
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training.checkpoints import RunCheckpoints
from bert_tf.training.step import on_devices
from bert_tf.training.task import Phase

L, P, V = 12, 2, 30
SPEC = RecordSpec.pretraining(L, P)
CONFIG = BertConfig(
    vocab_size=V,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    type_vocab_size=2,
)


def task(dropout=0.1, **fields):
    """Pre-training of that BERT, or of one with other fields of its config."""
    return pretraining_task(
        dataclasses.replace(
            CONFIG,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            **fields,
        )
    )


def contrastive_task():
    """The same without dropout, whose loss also compares the rows of a batch."""

    def scores(outputs):
        one, other = (
            outputs["masked_lm_logits"][:, 0],
            outputs["masked_lm_logits"][:, 1],
        )
        return ops.matmul(one, ops.transpose(other))

    def loss(records, outputs):
        """Each row's token is nearest to its own other one (in-batch negatives)."""
        own = ops.arange(ops.shape(scores(outputs))[0])
        return ops.sparse_categorical_crossentropy(
            own, scores(outputs), from_logits=True
        )

    def spread(records, outputs):
        """One number of the whole batch, the same for each row."""
        whole = ops.std(scores(outputs))
        return ops.broadcast_to(whole, ops.shape(records["input_ids"])[:1])

    def weights(records):
        return records["next_sentence_labels"][:, 0] + 1

    means = {
        name: Loss(values=values, weights=weights, across_rows=True)
        for name, values in {"in_batch_loss": loss, "spread": spread}.items()
    }
    one = task(0.0)
    return dataclasses.replace(one, objective=one.objective + Objective(means))


def without_layers():
    """Pre-training of what has no Transformer, whose steps are traced in no time."""
    return dataclasses.replace(task(), build_model=_model_without_layers)


def _model_without_layers():
    """Scores of tokens and of labels by the embedding of one token."""
    names = ("input_ids", "masked_lm_positions")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    with keras.name_scope("cls"):
        x = keras.layers.Embedding(V, 8, name="tokens")(inputs["input_ids"])
        x = HeadDropout(0.1)(x)
        masked = GatherPositions()(x, inputs["masked_lm_positions"])
        outputs = {
            "masked_lm_logits": keras.layers.Dense(V, name="masked_lm")(masked),
            "next_sentence_logits": keras.layers.Dense(2, name="pair")(x[:, 0]),
        }
    return DictInputModel(inputs, outputs)


def write_records(path, count=20, seed=0, vocab_size=V, max_seq_length=L):
    spec = RecordSpec.pretraining(max_seq_length, P)
    rng = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(count):
            length = rng.integers(6, max_seq_length + 1)
            padding = [0] * (max_seq_length - length)
            num_masks = 1 + number % P
            empty = [0] * (P - num_masks)
            writer.write(
                spec.serialize(
                    {
                        "input_ids": [*rng.integers(5, vocab_size, length), *padding],
                        "input_mask": [1] * length + padding,
                        "segment_ids": [0] * 3 + [1] * (length - 3) + padding,
                        "masked_lm_positions": [1, 2][:num_masks] + empty,
                        "masked_lm_ids": [
                            *rng.integers(5, vocab_size, num_masks),
                            *empty,
                        ],
                        "masked_lm_weights": [1.0] * num_masks + empty,
                        "next_sentence_labels": [number % 2],
                    }
                )
            )
    return path


def data(path, count=20, batch_size=4, seed=3, max_seq_length=L):
    """(position, a worker's rows) -> batches, as a phase wants it."""
    return lambda position, shard: pipeline.training_dataset(
        [path],
        [count],
        RecordSpec.pretraining(max_seq_length, P),
        batch_size=batch_size,
        seed=seed,
        start=position,
        shard=shard,
    )


def phase(path, end_step, batch_size=4, max_seq_length=L, **options):
    """A phase of these records."""
    return Phase(
        end_step=end_step,
        batch_size=batch_size,
        streams=[data(path, batch_size=batch_size, max_seq_length=max_seq_length)],
        **options,
    )


def save_checkpoint(folder, model, step=1, records=1):
    """A run's checkpoint of a model; its prefix."""
    os.makedirs(folder, exist_ok=True)
    with RunCheckpoints(folder, model) as checkpoints:
        checkpoints.save(step, records)
    return checkpoints.latest


def tensors(path):
    """All that a checkpoint, or a run's newest one, holds but the time that it took."""
    reader = tf.train.load_checkpoint(path)
    return {
        key: reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
        if not key.startswith(("_", "progress/seconds"))
    }


def begin_as(other, step, folder):
    """Makes a run's folder as another one's was after a step."""
    os.makedirs(folder)
    for path in glob.glob(os.path.join(other, f"model.ckpt-{step}.*")):
        shutil.copy(path, folder)


def metrics(folder):
    """What a run has reported."""
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file]


def around_calls(function):
    """Has `function(steps, iterator, count)` make the engine's calls of the device."""
    make = on_devices().training_steps

    def made(*arguments, **options):
        return functools.partial(function, make(*arguments, **options))

    return mock.patch.object(on_devices(), "training_steps", made)


def killed_after(count):
    """Has the run end at once after that many calls of the device."""
    calls = iter(range(count))

    def call_or_die(run_steps, iterator, number):
        if next(calls, None) is None:
            raise SystemExit("killed")
        return run_steps(iterator, number)

    return around_calls(call_or_die)


def write_config(folder, config=CONFIG):
    path = os.path.join(folder, "bert_config.json")
    with open(path, "w") as file:
        file.write(config.to_json_string())
    return path
