"""TensorFlow's random numbers on JAX: a run has the same first weights there."""

import contextlib
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.random.seed_generator import draw_seed


@contextlib.contextmanager
def of_tensorflow():
    """Within it Keras' initializers draw TensorFlow's numbers."""

    def drawn(function):
        def draw(shape, *arguments, dtype=None, seed=None, **options):
            seed = np.asarray(draw_seed(seed)).astype(np.uint32).astype(np.int32)
            numbers = function(shape, seed, *arguments, dtype=dtype, **options)
            return keras.ops.convert_to_tensor(numbers.numpy())

        return draw

    random = tf.random
    with mock.patch.multiple(
        backend.random,
        truncated_normal=drawn(random.stateless_truncated_normal),
        normal=drawn(random.stateless_normal),
        uniform=drawn(random.stateless_uniform),
    ):
        yield
