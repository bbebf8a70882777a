"""A process that trains the toy BERT under a strategy, for the tests of strategies.

    python -m tests.training.strategy_child '{"folder": ..., "records": ..., ...}'

Keys: folder, records (a TFRecord file), distribution, num_cpus (logical ones), steps,
config (fields of TrainingConfig), dropout, model (fields of BertConfig), broken
(normalise the loss by replica, which is wrong), slow (seconds to sleep after each
call), weights (an .npz for the weights), across_rows (with a contrastive loss),
by_length (rather fine-tune, on examples in batches by length), compiled_updates (of
every variable, however small).
"""

import dataclasses
import functools
import json
import os
import sys
import time
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.base.shared_options import DeviceOptions
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.optimization import optimizers
from bert_tf.tasks.finetuning import training_plan
from bert_tf.tasks.tables import SINGLE_LABEL, Target
from bert_tf.training import loop, tensorflow_step
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import create_strategy
from bert_tf.training.training_options import TrainingConfig
from tests.training import toy, toy_examples


def per_replica_normalisation():
    """The mistake that the tests must see: each replica divides by its own weights."""
    replica_gradients = tensorflow_step.replica_gradients

    def broken(task, model, **options):
        gradients_of = replica_gradients(task, model, **options)

        def divided_by_its_own(batch, weights, *others):
            replicas = tf.distribute.get_replica_context().num_replicas_in_sync
            own = task.objective.weights(batch)
            weights = {name: weight * replicas for name, weight in own.items()}
            return gradients_of(batch, weights, *others)

        return divided_by_its_own

    return mock.patch.object(tensorflow_step, "replica_gradients", broken)


# Gradients that are not clipped, so that their size counts.
TARGET = Target(kind=SINGLE_LABEL, labels=("a", "b", "c"))


def classifier():
    """A task whose examples are of many lengths; without dropout."""
    config = dataclasses.replace(
        toy.CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return toy_examples.engine_task(config, TARGET, "toy", dropout=0.0)


def fine_tuned(folder, config, strategy):
    """A model after six epochs of two batches, of which the second one is not full."""
    for name in ("num_train_steps", "num_warmup_steps"):  # fine-tuning has its own
        del config[name]
    options = toy_examples.options(num_train_epochs=(6.0,), **config)
    with toy_examples.several_lengths():
        plan = training_plan(
            classifier(),
            toy_examples.prepare(TARGET),
            options,
            data=RunData("eleven examples", "0"),
            best_metric="loss",
            num_lengths=2,
        )
        model, _ = loop.train(**plan, folder=folder, strategy=strategy)
    return model


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

    def slow_call(steps, *arguments):
        time.sleep(options["slow"])
        return steps(*arguments)

    patches = [
        toy.around_calls(slow_call) if options.get("slow") else None,
        per_replica_normalisation() if options.get("broken") else None,
        mock.patch.object(optimizers, "SMALLEST_COMPILED_SIZE", 0)
        if options.get("compiled_updates")
        else None,
    ]
    for patch in filter(None, patches):
        patch.start()
    try:
        if options.get("by_length"):
            model = fine_tuned(options["folder"], config, strategy)
        else:
            task = (
                toy.contrastive_task()
                if options.get("across_rows")
                else toy.task(options.get("dropout", 0.0), **options.get("model", {}))
            )
            model, _ = loop.train(
                task,
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


# One for all runs: the collective operations of two would take each other's places.
@functools.cache
def strategy(distribution="default"):
    return create_strategy(DeviceOptions(distribution=distribution))


def main():
    every = json.loads(sys.argv[1])
    every = every if isinstance(every, list) else [every]
    cpus = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpus[0], [tf.config.LogicalDeviceConfiguration()] * every[0].get("num_cpus", 1)
    )
    for options in every:
        run(options, strategy(options.get("distribution", "default")))
    print("done", os.getpid())


if __name__ == "__main__":
    main()
