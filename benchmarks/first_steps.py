"""The losses of the first steps of pre-training, beside Hugging Face's model.

    python benchmarks/first_steps.py --input_file=records/* --env_dir=ENVIRONMENTS

The same initial weights, the same batches, no dropout: this package's engine, and
`BertForPreTraining` of transformers on PyTorch, in an environment of its own, with the
original's optimizer written down beside it in a few lines. What differs is printed.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile

import pretraining_step
from absl import app, flags
from parts.results import PEERS

_INPUT = flags.DEFINE_string("input_file", None, "Pre-training records, globs.")
_SIZE = flags.DEFINE_string("size", "tiny", "A released size.")
_STEPS = flags.DEFINE_integer("steps", 50, "Steps.")
_BATCH = flags.DEFINE_integer("batch_size", 64, "Sequences a step.")
_RATE = flags.DEFINE_float("learning_rate", 1e-3, "Peak learning rate.")
_WARMUP = flags.DEFINE_integer("num_warmup_steps", 10, "Steps of warmup.")


def our_losses(folder: str) -> list[float]:
    """Trains, and writes weights, batches and settings for the peer to the folder."""
    import keras
    import numpy as np
    import tensorflow as tf

    from bert_tf.base.config import BertConfig
    from bert_tf.modeling.weight_names import weights_by_name
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.records.pretraining_input import PretrainingRecords
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training.step import on_devices

    records = PretrainingRecords(_INPUT.value)
    config = dataclasses.replace(
        BertConfig.from_size(_SIZE.value),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    records.check_model(config)
    keras.utils.set_random_seed(1)
    task = pretraining_task(config)
    model = task.build_model()
    optimizer = create_optimizer(
        _RATE.value, 10 * _STEPS.value, _WARMUP.value, global_clipnorm=None
    )
    optimizer.build(model.trainable_variables)
    weights = {name: w.numpy() for name, w in weights_by_name(model).items()}
    dataset = records.training_dataset(_BATCH.value, seed=1).take(_STEPS.value)
    batches = list(dataset.as_numpy_iterator())
    np.savez(os.path.join(folder, "weights.npz"), **weights)
    np.savez(
        os.path.join(folder, "batches.npz"),
        **{name: np.stack([batch[name] for batch in batches]) for name in batches[0]},
    )
    settings = {
        "config": config.to_dict(),
        "rates": [float(optimizer._learning_rate(n)) for n in range(_STEPS.value)],
    }
    with open(os.path.join(folder, "settings.json"), "w") as file:
        json.dump(settings, file)
    steps = on_devices().training_steps(
        task, model, optimizer, tf.distribute.get_strategy()
    )
    return steps(iter(dataset), tf.constant(_STEPS.value)).losses.tolist()


def main(_: list[str]) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if not _INPUT.value:
        print("Skipped: give --input_file.")
        return
    with tempfile.TemporaryDirectory() as folder:
        environments = pathlib.Path(pretraining_step._ENV_DIR.value or folder)
        python = pretraining_step.python_of(pretraining_step.HUGGING_FACE, environments)
        if python is None:
            return
        ours = our_losses(folder)
        output = subprocess.run(
            [python, PEERS / "first_losses.py", folder],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        theirs = json.loads(output.splitlines()[-1])
    print("step      ours   Hugging Face   difference")
    for number, (here, there) in enumerate(zip(ours, theirs, strict=True)):
        if number < 5 or (number + 1) % 10 == 0:
            print(f"{number + 1:4d} {here:9.5f} {there:14.5f} {here - there:12.1e}")
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    print(f"largest relative difference in {len(ours)} steps: {worst:.1e}")


if __name__ == "__main__":
    app.run(main)
