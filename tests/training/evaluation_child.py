"""Evaluates and predicts on one device and on two; run by evaluation_test.py.

Arguments: the record file (9 records), and where to put the results. A process of its
own, since it splits the CPU in two before anything runs. With TF_CONFIG in the
environment it is one of several workers, and has the results of all of them.
"""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.modeling.fused import xla_compiles_for_the_cpu
from bert_tf.records import pipeline
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.training.evaluation import Evaluator, Predictor
from bert_tf.training.step import on_devices
from tests.training import toy

TASK = pretraining_task(toy.CONFIG)
ACROSS_ROWS = toy.contrastive_task()


def results_on(strategy, path, start):
    """What each way of evaluating gives under a strategy, and the initial weights."""
    with strategy.scope():
        model = TASK.build_model()
    if start:
        model.set_weights(start)
    evaluator = Evaluator(TASK, model, strategy)
    compiled = Evaluator(TASK, model, strategy, jit_compile=xla_compiles_for_the_cpu())
    # 9 records in batches of 4: the last one has a single row for two devices.
    short = pipeline.evaluation_dataset([path], toy.SPEC, batch_size=4)
    whole = pipeline.evaluation_dataset([path], toy.SPEC, batch_size=4, repeat=True)
    odd = pipeline.evaluation_dataset([path], toy.SPEC, batch_size=3, repeat=True)
    step = on_devices().prediction_step(model, strategy)
    pairs = list(Predictor(TASK.name, step, strategy).run(short, total_batches=3))
    batches, outputs = zip(*pairs, strict=True)
    try:
        evaluator.run(odd, num_batches=1)
        refusal = ""
    except InputError as error:
        refusal = str(error)
    results = {
        "short": evaluator.run(short),
        "again": evaluator.run(short),
        "whole": evaluator.run(whole, num_batches=5),
        "compiled": compiled.run(whole, num_batches=5),
        "across_rows": Evaluator(ACROSS_ROWS, model, strategy).run(short),
        "sizes": [len(batch["input_ids"]) for batch in batches],
        "logits": np.concatenate([o["masked_lm_logits"] for o in outputs]).tolist(),
        "refusal": refusal,
    }
    return results, model.get_weights()


def main(path, target):
    keras.utils.set_random_seed(1)
    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        results, _ = results_on(strategy, path, None)
    else:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * 2,
        )
        one, weights = results_on(tf.distribute.get_strategy(), path, None)
        mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        two, _ = results_on(mirrored, path, weights)
        results = {"one": one, "two": two}
    with open(target, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
