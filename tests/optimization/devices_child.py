"""A process with two logical CPUs: `python devices_child.py` prints weights as JSON.

The same steps on every strategy, in compiled kernels and operation by operation.
"""

import json

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.fused import xla_compiles_for_the_cpu
from bert_tf.optimization import optimizers
from bert_tf.optimization.optimizers import create_optimizer

NUM_STEPS = 3


def weights_after_steps(strategy, compiled, jit_compile):
    """The weights, in one list, after a few steps within one tf.function."""
    optimizers.SMALLEST_COMPILED_SIZE = 0 if compiled else 1 << 40
    with strategy.scope():
        values = {
            "kernel": np.linspace(-1, 2, 12).reshape(3, 4),
            # Of the same shape: they share a kernel.
            "other_kernel": np.linspace(3, 1, 12).reshape(3, 4),
            "bias": np.ones(5),
        }
        variables = [
            keras.Variable(value.astype("float32"), name=key)
            for key, value in values.items()
        ]
        optimizer = create_optimizer(
            0.1,
            10,
            1,
            optimizer="lamb",
            global_clipnorm=None,
            skip_nonfinite=True,
            weight_decay_rate=0.1,
        )
        optimizer.build(variables)
    num_replicas = strategy.num_replicas_in_sync

    def replica_step(factor):
        gradients = [
            factor * tf.reshape(tf.range(12, dtype=tf.float32), [3, 4]),
            -2.0 * factor * tf.reshape(tf.range(12, dtype=tf.float32), [3, 4]),
            factor * tf.range(5, dtype=tf.float32),
        ]
        optimizer.apply(gradients, variables, scale=0.5 / num_replicas * tf.ones([]))

    @tf.function(jit_compile=(jit_compile and xla_compiles_for_the_cpu()) or None)
    def steps():
        for step in tf.range(NUM_STEPS):
            strategy.run(replica_step, args=(tf.cast(step - 1, tf.float32),))

    steps()
    return [float(x) for variable in variables for x in np.ravel(variable)]


def main():
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    one = tf.distribute.get_strategy()
    second = tf.distribute.OneDeviceStrategy("CPU:1")
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    runs = {
        "plain": (one, False, False),
        "compiled": (one, True, False),
        "within XLA": (one, True, True),
        "second device": (second, True, False),
        "mirrored": (two, False, False),
        "mirrored, compiled": (two, True, False),
    }
    print(json.dumps({run: weights_after_steps(*how) for run, how in runs.items()}))


if __name__ == "__main__":
    main()
