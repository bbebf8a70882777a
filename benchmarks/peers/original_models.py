"""google-research/bert's own code on a checkpoint, under TensorFlow 2's compat.v1.

    python original_models.py CHECKOUT FOLDER INPUTS OUTPUTS

FOLDER holds bert_config.json and bert_model.ckpt; INPUTS is an .npz of input_ids,
input_mask, segment_ids and masked_lm_positions; OUTPUTS gets what was computed. The
last line printed is JSON: how many variables the model has, and how many were found.
Needs Keras 2, for compat.v1's dense layers.
"""

import json
import os
import sys
import types

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow


def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
    """What tf.contrib.layers.layer_norm, which is gone, computed here."""
    assert begin_norm_axis == begin_params_axis == -1
    tf = tensorflow.compat.v1
    with tf.variable_scope(scope, "LayerNorm"):
        size = inputs.shape[-1]
        beta = tf.get_variable("beta", size, initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", size, initializer=tf.ones_initializer())
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)


def main(checkout: str, folder: str, inputs_path: str, outputs_path: str) -> None:
    tf = tensorflow.compat.v1
    tf.disable_v2_behavior()
    tf.contrib = types.SimpleNamespace(
        layers=types.SimpleNamespace(layer_norm=layer_norm)
    )
    sys.modules["tensorflow"] = tf
    sys.path.insert(0, checkout)
    import modeling
    import run_pretraining

    config = modeling.BertConfig.from_json_file(
        os.path.join(folder, "bert_config.json")
    )
    arrays = {name: tf.constant(x) for name, x in np.load(inputs_path).items()}
    model = modeling.BertModel(
        config=config,
        is_training=False,
        input_ids=arrays["input_ids"],
        input_mask=arrays["input_mask"],
        token_type_ids=arrays["segment_ids"],
        use_one_hot_embeddings=False,
    )
    positions = arrays["masked_lm_positions"]
    _, _, masked_lm = run_pretraining.get_masked_lm_output(
        config,
        model.get_sequence_output(),
        model.get_embedding_table(),
        positions,
        tf.zeros_like(positions),
        tf.ones_like(positions, tf.float32),
    )
    _, _, next_sentence = run_pretraining.get_next_sentence_output(
        config, model.get_pooled_output(), tf.zeros_like(positions[:, :1])
    )
    variables = tf.trainable_variables()
    mapping, found = modeling.get_assignment_map_from_checkpoint(
        variables, os.path.join(folder, "bert_model.ckpt")
    )
    tf.train.init_from_checkpoint(os.path.join(folder, "bert_model.ckpt"), mapping)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        outputs = session.run(
            {
                "sequence_output": model.get_sequence_output(),
                "pooled_output": model.get_pooled_output(),
                "masked_lm_log_probs": masked_lm,
                "next_sentence_log_probs": next_sentence,
            }
        )
    np.savez(outputs_path, **outputs)
    there = sum(f"{variable.name}" in found for variable in variables)
    print(json.dumps({"variables": len(variables), "found": there}))


if __name__ == "__main__":
    main(*sys.argv[1:])
