"""Small configs, random weights and random records for the tests of the models."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.config import BertConfig
from bert_tf.modeling.weight_names import weights_by_name


def small_config(**overrides):
    return BertConfig(
        **{
            "vocab_size": 53,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 40,
            "max_position_embeddings": 20,
            "type_vocab_size": 3,
            **overrides,
        }
    )


def randomize(model, seed=7):
    """Gives every weight, biases and LayerNorms too, values far from trivial."""
    rng = np.random.default_rng(seed)
    weights = weights_by_name(model)
    for name, variable in weights.items():
        values = rng.normal(0.0, 0.3, variable.shape)
        if name.endswith("/kernel"):
            values = rng.normal(0.0, 1.0, variable.shape) / np.sqrt(variable.shape[0])
        if name.endswith("/scores"):
            values *= 0.01  # else a mixture is one of the mixed
        variable.assign(values + 1.0 if name.endswith("/gamma") else values)
    return {name: variable.numpy() for name, variable in weights.items()}


def random_records(config, *, batch=4, length=14, predictions=5, seed=3):
    """A batch of whole records: inputs and labels of every task, padded at the end."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, length + 1, (batch, 1))
    lengths[0] = length
    mask = (np.arange(length) < lengths).astype(np.int32)

    def ids(limit, *shape):
        return rng.integers(0, limit, shape).astype(np.int32)

    return {
        "input_ids": ids(config.vocab_size, batch, length) * mask,
        "input_mask": mask,
        "segment_ids": ids(config.type_vocab_size, batch, length) * mask,
        "masked_lm_positions": np.sort(ids(length, batch, predictions), axis=1),
        "masked_lm_ids": ids(config.vocab_size, batch, predictions),
        "masked_lm_weights": (
            np.arange(predictions) < rng.integers(1, predictions + 1, (batch, 1))
        ).astype(np.float32),
        "next_sentence_labels": ids(2, batch, 1),
        "label_ids": ids(2, batch, 1),
        "is_real_example": np.ones((batch, 1), np.int32),
        "start_positions": ids(length, batch, 1),
        "end_positions": ids(length, batch, 1),
    }


def random_choices(config, *, batch=4, choices=3, length=14, seed=3):
    """A batch of whole records of multiple choice."""
    records = random_records(config, batch=batch * choices, length=length, seed=seed)
    labels = np.random.default_rng(seed).integers(0, choices, (batch, 1))
    return {
        **{
            name: records[name].reshape(batch, choices, length)
            for name in ("input_ids", "input_mask", "segment_ids")
        },
        "label_ids": labels.astype(np.int32),
        "is_real_example": np.ones((batch, 1), np.int32),
    }


def random_label_sets(config, *, num_labels=3, batch=4, length=14, seed=3):
    """A batch of whole records of which each has any of several labels."""
    records = random_records(config, batch=batch, length=length, seed=seed)
    labels = np.random.default_rng(seed).integers(0, 2, (batch, num_labels))
    return {**records, "label_ids": labels.astype(np.float32)}


def random_tags(config, *, num_labels=3, batch=4, length=14, seed=3):
    """A batch of whole records of tagging; about half of the tokens begin a word."""
    records = random_records(config, batch=batch, length=length, seed=seed)
    rng = np.random.default_rng(seed)
    begins = rng.integers(0, 2, (batch, length)) * records["input_mask"]
    return {
        **{name: records[name] for name in ("input_ids", "input_mask", "segment_ids")},
        "label_ids": rng.integers(0, num_labels, (batch, length)).astype(np.int32),
        "label_weights": begins.astype(np.float32),
    }


def outputs_of(model, records):
    """The outputs in inference, as arrays; without the seconds that a trace takes."""
    outputs = model(records, training=False)
    return tf.nest.map_structure(keras.ops.convert_to_numpy, outputs)


def sum_of_squares(outputs):
    return tf.add_n(
        [tf.reduce_sum(tf.square(x - 0.1)) for x in tf.nest.flatten(outputs)]
    )


def gradients_of(model, records, training=True):
    """`sum_of_squares` of the outputs, and its gradients of what is trained."""
    with tf.GradientTape() as tape:
        loss = sum_of_squares(model(records, training=training))
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


def log_softmax(x):
    """Over the last dimension, in float64."""
    x = x.astype(np.float64)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def one_of(records, row):
    """One record of a batch."""
    return {name: values[row] for name, values in records.items()}


def relative_error(actual, expected):
    """The largest error, relative to the largest number."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected)
    if actual.shape != expected.shape:
        raise AssertionError(f"shapes {actual.shape} and {expected.shape}")
    return np.abs(actual - expected).max() / np.abs(expected).max()
