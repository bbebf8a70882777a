"""KerasHub's side of benchmarks/speedrun.py: no line of bert_tf.

    python kerashub_training.py JOB

JOB is JSON: text, vocab (files), config (bert_config.json), steps, batch_size,
learning_rate, mask_rate, dropout, length, seed, jit_compile, output (a
preset's folder), result (a file). A job that was killed goes on from its last epoch,
on the text from its beginning in another order.

What keras.io's page on pre-training has: pieces of equal length, masked anew in each
epoch by MaskedLMMaskGenerator, Adam, and Keras' fit.
Writes to `result` the seconds of fit and the curve: [steps, mean loss of an epoch]. An
epoch is a 20th of the steps.
"""

import json
import os
import pathlib
import shutil
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import keras_hub
import numpy as np
import tensorflow as tf

EPOCHS = 20  # at most


def pieces(job: dict, tokenizer: keras_hub.models.BertTokenizer) -> np.ndarray:
    """All tokens of the text in pieces between [CLS] and [SEP]: [pieces, length]."""
    inside = job["length"] - 2
    lines = pathlib.Path(job["text"]).read_text().splitlines()
    tokens = np.concatenate([np.asarray(line, "int32") for line in tokenizer(lines)])
    tokens = tokens[: len(tokens) // inside * inside].reshape(-1, inside)
    edges = [
        np.full((len(tokens), 1), number)
        for number in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    ]
    return np.concatenate([edges[0], tokens, edges[1]], axis=1).astype("int32")


def main() -> None:
    """Trains and saves."""
    job = json.loads(sys.argv[1])
    keras.utils.set_random_seed(job["seed"])
    config = json.loads(pathlib.Path(job["config"]).read_text())
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=job["vocab"], lowercase=True)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        tokenizer, sequence_length=job["length"]
    )
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        dropout=job["dropout"],
        max_sequence_length=config["max_position_embeddings"],
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    masker = keras_hub.layers.MaskedLMMaskGenerator(
        vocabulary_size=config["vocab_size"],
        mask_selection_rate=job["mask_rate"],
        mask_selection_length=int(job["length"] * job["mask_rate"]),
        mask_token_id=tokenizer.mask_token_id,
        unselectable_token_ids=[tokenizer.cls_token_id, tokenizer.sep_token_id],
    )

    def masked(rows: tf.Tensor) -> tuple:
        found = masker(rows)
        inputs = {
            "token_ids": found["token_ids"],
            "mask_positions": found["mask_positions"],
            "padding_mask": tf.ones_like(rows),
            "segment_ids": tf.zeros_like(rows),
        }
        return inputs, found["mask_ids"], found["mask_weights"]

    rows = pieces(job, tokenizer)
    dataset = (
        tf.data.Dataset.from_tensor_slices(rows)
        .shuffle(len(rows))
        .repeat()
        .batch(job["batch_size"], drop_remainder=True)
        .map(masked, tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    model.compile(
        optimizer=keras.optimizers.Adam(job["learning_rate"]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=job["jit_compile"],
    )
    began = time.perf_counter()
    curve = []
    epochs = min(EPOCHS, job["steps"])
    per_epoch, rest = divmod(job["steps"], epochs)
    backup = f"{job['output']}-backup"
    kept = keras.callbacks.BackupAndRestore(backup, delete_checkpoint=False)
    told = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: curve.append(
            [(epoch + 1) * per_epoch, round(logs["loss"], 4)]
        )
    )
    model.fit(
        dataset,
        steps_per_epoch=per_epoch,
        epochs=epochs,
        callbacks=[kept, told],
        verbose=0,
    )
    if rest:
        model._initial_epoch = None  # else a resumed fit makes no step more
        model.fit(dataset, steps_per_epoch=rest, verbose=0)
    seconds = time.perf_counter() - began
    model.preprocessor = preprocessor
    model.save_to_preset(job["output"])
    pathlib.Path(job["result"]).write_text(
        json.dumps({"seconds": seconds, "curve": curve})
    )
    shutil.rmtree(backup)


if __name__ == "__main__":
    main()
