"""The steps of `bert_tf.training.step` on devices, for the back end that Keras has."""

import importlib
from typing import Any

import keras

_steps: Any = importlib.import_module(
    f"bert_tf.training.{keras.backend.backend()}_step"
)

training_steps = _steps.training_steps
evaluation_step = _steps.evaluation_step
prediction_step = _steps.prediction_step
