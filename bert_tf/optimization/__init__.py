"""The optimizer and the learning-rate schedule of Devlin et al. 2018."""

from bert_tf.base import keras_backend

# Before a module of this package imports Keras.
keras_backend.require_supported()
