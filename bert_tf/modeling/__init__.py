"""The BERT encoder, its heads and their losses, in Keras 3."""

from bert_tf.base import keras_backend

# Before a module of this package imports Keras.
keras_backend.require_supported()
