"""Checkpoints of other formats, read and written by the original's variable names.

names            the table of every weight's names
weights          arrays that are read on demand
tensorflow       our runs, and the TF1 releases
huggingface      folders of transformers
kerashub         presets
tokenizer_files  the vocabulary, casing and labels next to the weights
source           a checkpoint of any format, opened
loading          models and tokenizers from a source
adapter_files    LoRA and adapters, without their base
export           a source written in another format
"""

from bert_tf.base import keras_backend

# Must run before a module of this package imports Keras.
keras_backend.require_supported()
