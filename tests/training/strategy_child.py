"""A process that trains the toy BERT under a strategy, for the tests of strategies.

    python -m tests.training.strategy_child '{"folder": ..., "records": ..., ...}'

Keys: folder, records (a TFRecord file), distribution, num_cpus (logical ones), steps,
config (fields of TrainingConfig), broken (normalise the loss by replica, which is
wrong), slow (seconds to sleep after each call), weights (an .npz for the weights).
"""

import json
import os
import sys
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.modeling.names import weights_by_name
from bert_tf.training import loop, step
from bert_tf.training.config import TrainingConfig
from bert_tf.training.strategy import create_strategy
from tests.training import toy


def per_replica_normalisation():
    """The mistake that the tests must see: each replica divides by its own weights."""
    replica_gradients = step.replica_gradients

    def broken(task, model, **options):
        gradients_of = replica_gradients(task, model, **options)

        def divided_by_its_own(batch, weights, scale):
            replicas = tf.distribute.get_replica_context().num_replicas_in_sync
            own = task.objective.weights(batch)
            return gradients_of(
                batch, {name: weight * replicas for name, weight in own.items()}, scale
            )

        return divided_by_its_own

    return mock.patch.object(step, "replica_gradients", broken)


def run(options, strategy):
    """One run; returns nothing, but writes `weights`."""
    config = {
        "num_train_steps": options["steps"],
        "num_warmup_steps": 0,
        "learning_rate": 1e-4,
        "train_batch_size": 8,
        "save_checkpoints_steps": 1000,
        "log_steps": 5,
        **options.get("config", {}),
    }
    call = loop._call

    def slow_call(*args):
        time.sleep(options["slow"])
        return call(*args)

    patches = [
        mock.patch.object(loop, "_call", slow_call) if options.get("slow") else None,
        per_replica_normalisation() if options.get("broken") else None,
    ]
    for patch in filter(None, patches):
        patch.start()
    try:
        model, _ = loop.train(
            toy.task(options.get("dropout", 0.0)),
            TrainingConfig(**config),
            folder=options["folder"],
            phases=[toy.phase(options["records"], options["steps"], 8)],
            strategy=strategy,
        )
    finally:
        for patch in filter(None, patches):
            patch.stop()
    if options.get("weights"):
        weights = weights_by_name(model)
        np.savez(
            options["weights"],
            **{name: np.array(weight) for name, weight in weights.items()},
        )


def main():
    every = json.loads(sys.argv[1])
    every = every if isinstance(every, list) else [every]
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpus[0],
        [tf.config.LogicalDeviceConfiguration()] * every[0].get("num_cpus", 1),
    )
    for options in every:
        run(options, create_strategy(options.get("distribution", "default")))
    print("done", os.getpid())


if __name__ == "__main__":
    main()
