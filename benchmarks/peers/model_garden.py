"""Model Garden's models of random weights: checkpoints, and what they compute.

    python model_garden.py FOLDER INPUTS

FOLDER/KIND.ckpt and FOLDER/KIND.npz are written for pre-trainers and models with a head
on the encoders BertEncoder and BertEncoderV2; FOLDER has the bert_config.json. INPUTS
is an .npz of input_ids, input_mask, segment_ids and masked_lm_positions. An output is
called HEAD.NAME by its name here. The last line printed is the kinds.
"""

import json
import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
from official.nlp.modeling import layers, models, networks


def gelu(x):
    return tf.keras.activations.gelu(x, approximate=True)


def named(kind, outputs):
    """The outputs by the names of a checkpoint's head and of the model with it."""
    if kind.endswith("tagger"):
        return {"tagger.logits": outputs["logits"]}
    if kind.endswith("spans"):
        start, end = outputs
        return {
            "span_predictor.start_logits": start,
            "span_predictor.end_logits": end,
        }
    if kind == "BertPretrainer":
        return {
            "pretrainer.masked_lm_logits": outputs["masked_lm"],
            "pretrainer.next_sentence_logits": outputs["classification"],
        }
    if isinstance(outputs, dict):
        return {
            "encoder.sequence_output": outputs["sequence_output"],
            "pretrainer.masked_lm_logits": outputs["mlm_logits"],
            "pretrainer.next_sentence_logits": outputs["next_sentence"],
        }
    return {"classifier.logits": outputs}


def main(folder: str, inputs_file: str) -> None:
    with open(os.path.join(folder, "bert_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    sizes = {
        "vocab_size": config["vocab_size"],
        "hidden_size": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "max_sequence_length": config["max_position_embeddings"],
        "type_vocab_size": config["type_vocab_size"],
    }
    inner = config["intermediate_size"]
    encoders = {
        "BertEncoder": networks.BertEncoder(
            **sizes, intermediate_size=inner, activation=gelu, dict_outputs=True
        ),
        "BertEncoderV2": networks.BertEncoderV2(
            **sizes, inner_dim=inner, inner_activation=gelu
        ),
    }
    given = np.load(inputs_file)
    inputs = {
        "input_word_ids": given["input_ids"],
        "input_mask": given["input_mask"],
        "input_type_ids": given["segment_ids"],
        "masked_lm_positions": given["masked_lm_positions"],
    }
    made = {}
    for kind, encoder in encoders.items():
        head = layers.ClassificationHead(
            inner_dim=sizes["hidden_size"], num_classes=2, name="next_sentence"
        )
        made[kind] = models.BertPretrainerV2(
            encoder_network=encoder, classification_heads=[head], mlm_activation=gelu
        )
        made[f"{kind}, classifier"] = models.BertClassifier(encoder, 3)
        made[f"{kind}, pooler of its own"] = models.BertClassifier(
            encoder, 3, use_encoder_pooler=False
        )
        made[f"{kind}, tagger"] = models.BertTokenClassifier(encoder, 3)
        made[f"{kind}, spans"] = models.BertSpanLabeler(encoder)
    first = networks.BertEncoder(**sizes, intermediate_size=inner, activation=gelu)
    made["BertPretrainer"] = models.BertPretrainer(
        first,
        num_classes=2,
        num_token_predictions=given["masked_lm_positions"].shape[1],
        embedding_table=first.get_embedding_table(),
        activation=gelu,
    )
    random = np.random.RandomState(0)
    for kind, model in made.items():
        model(inputs)
        for weight in model.weights:
            weight.assign(random.normal(0.0, 0.2, weight.shape).astype(np.float32))
        np.savez(os.path.join(folder, f"{kind}.npz"), **named(kind, model(inputs)))
        # The pre-trainer is saved as its trainer does, the others as a whole.
        items = model.checkpoint_items if kind in encoders else {}
        checkpoint = tf.train.Checkpoint(model=model, **items)
        checkpoint.write(os.path.join(folder, f"{kind}.ckpt"))
    print(json.dumps(list(made)))


if __name__ == "__main__":
    main(*sys.argv[1:])
