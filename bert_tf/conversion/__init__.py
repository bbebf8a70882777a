"""Checkpoints of other formats in and out, by the original's variable names.

What answers which question:

    names                    the table of every weight's names
    weights                  arrays that are read when they are asked for
    source                   a checkpoint of any format, opened
    tensorflow_checkpoint    our runs, and the TF1 releases
    huggingface, _config     folders of transformers; pickles, safetensors_files
    kerashub, _weights       presets; kerashub_handles
    tokenizer_files          the vocabulary and casing beside the weights
    checkpoint               models and tokenizers from a source
    model_files              what flags and a checkpoint say together
    export                   a source written in another format
    saved_model, serving     models that take raw text; serving_spans, serving_inputs
    graph_tokenizer          the tokenizer in TensorFlow operations, with graph_words,
                             graph_characters and unicode_tables

The rows that name several modules name the first one's helpers last.
"""

from bert_tf import keras_backend

# Before a module of this package imports Keras.
keras_backend.require_tensorflow()
