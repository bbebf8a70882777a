"""One library's training step, timed when asked to, in a process of its own.

`benchmarks/pretraining_step.py` runs it with each library's own Python:

    python pretraining_steps.py NAME SETTINGS

SETTINGS is JSON: layers, hidden, heads, precision, batch, length, predictions, folder
(of bert_tf). It prints "ready" after two steps, then for each line "N" that it reads
the seconds and the processor seconds that N more steps took. Every step is forward and
backward with dropout 0.1, clipping by the global norm and an AdamW update, written as
the library's documentation has it. For the name "ceiling" a step is one matrix product
of `CEILING_FLOPS`.
"""

import json
import os
import sys
import time

VOCAB_SIZE = 30522
CEILING_FLOPS = 2 * 2048**3


def main() -> None:
    """Builds, warms up, and answers."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    builders = {
        "ours": bert_tf_steps,
        "ours JAX": bert_tf_steps,
        "KerasHub JAX": keras_hub_steps,
        "KerasHub": keras_hub_steps,
        "tf-models": tf_models_steps,
        "Hugging Face": hugging_face_steps,
        "ceiling": matrix_products,
    }
    steps = builders[name](settings)
    steps(2)
    print("ready", flush=True)
    for line in sys.stdin:
        began, processor_began = time.perf_counter(), processor_seconds()
        steps(int(line))
        seconds = time.perf_counter() - began
        print(seconds, processor_seconds() - processor_began, flush=True)


def processor_seconds() -> float:
    """Of all threads of this process."""
    times = os.times()
    return times.user + times.system


def records(settings):
    """A batch of full sequences under the records' names."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows = (settings["batch"], settings["length"])
    slots = (settings["batch"], settings["predictions"])
    return {
        "input_ids": rng.integers(1000, VOCAB_SIZE, rows, "int32"),
        "input_mask": np.ones(rows, "int32"),
        "segment_ids": np.sort(rng.integers(0, 2, rows, "int32"), axis=1),
        "masked_lm_positions": np.stack(
            [
                np.sort(rng.choice(rows[1], slots[1], replace=False))
                for _ in range(rows[0])
            ]
        ).astype("int32"),
        "masked_lm_ids": rng.integers(1000, VOCAB_SIZE, slots, "int32"),
        "masked_lm_weights": np.ones(slots, "float32"),
        "next_sentence_labels": rng.integers(0, 2, (rows[0], 1), "int32"),
    }


def bert_tf_steps(settings):
    """The steps of this package's engine."""
    sys.path.insert(0, settings["folder"])
    import tensorflow as tf

    from bert_tf.base.config import BertConfig
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.tasks.pretraining import pretraining_task
    from bert_tf.training.step import computing_in, on_devices
    from bert_tf.training.strategy import create_strategy

    strategy = create_strategy()
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=settings["hidden"],
        num_hidden_layers=settings["layers"],
        num_attention_heads=settings["heads"],
        intermediate_size=4 * settings["hidden"],
    )
    task = pretraining_task(config)
    with computing_in(settings["precision"]):
        model = task.build_model()
    optimizer = create_optimizer(1e-4, 10**6, 10**4, global_clipnorm=None)
    optimizer.build(model.trainable_variables)
    function = on_devices().training_steps(task, model, optimizer, strategy)
    dataset = tf.data.Dataset.from_tensors(records(settings)).cache().repeat()
    batches = iter(on_devices().global_batches(strategy, lambda _: dataset))

    def steps(count):
        float(function(batches, count).losses[-1])

    return steps


def keras_hub_model(settings):
    """KerasHub's backbone and masked LM head, and arguments of Keras' step."""
    import keras
    import keras_hub
    import numpy as np

    if settings["precision"] == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=VOCAB_SIZE,
        num_layers=settings["layers"],
        num_heads=settings["heads"],
        hidden_dim=settings["hidden"],
        intermediate_dim=4 * settings["hidden"],
        dropout=0.1,
    )
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    encoded = backbone(backbone.input)
    logits = keras_hub.layers.MaskedLMHead(
        token_embedding=backbone.token_embedding,
        intermediate_activation="gelu",
        name="mlm",
    )(encoded["sequence_output"], mask_positions=positions)
    next_sentence = keras.layers.Dense(2, dtype="float32", name="nsp")(
        encoded["pooled_output"]
    )
    model = keras.Model(
        {**backbone.input, "mask_positions": positions},
        {"mlm": logits, "nsp": next_sentence},
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0),
        loss={"mlm": loss, "nsp": loss},
        # XLA's random numbers make TensorFlow's step on a CPU several times as long.
        jit_compile=keras.backend.backend() == "jax",
    )
    batch = records(settings)
    inputs = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
        "mask_positions": batch["masked_lm_positions"],
    }
    labels = {"mlm": batch["masked_lm_ids"], "nsp": batch["next_sentence_labels"]}
    weights = {
        "mlm": batch["masked_lm_weights"],
        "nsp": np.ones(settings["batch"], "float32"),
    }
    return model, (inputs, labels, weights)


def keras_hub_steps(settings):
    """KerasHub's model, fitted by Keras."""
    model, data = keras_hub_model(settings)

    def steps(count):
        for _ in range(count):
            model.train_on_batch(*data)

    return steps


def tf_models_steps(settings):
    """The Model Garden's BERT with its losses and optimizer, on Keras 2."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import tf_keras
    from official.nlp import optimization
    from official.nlp.modeling import layers, models, networks

    if settings["precision"] == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    hidden = settings["hidden"]
    encoder = networks.BertEncoderV2(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        num_layers=settings["layers"],
        num_attention_heads=settings["heads"],
        inner_dim=4 * hidden,
    )
    head = layers.ClassificationHead(hidden, 2, dropout_rate=0.1, name="next_sentence")
    model = models.BertPretrainerV2(
        encoder,
        mlm_activation=lambda x: tf_keras.activations.gelu(x, approximate=True),
        classification_heads=[head],
    )
    optimizer = optimization.AdamWeightDecay(
        1e-4, weight_decay_rate=0.01, gradient_clip_norm=1.0
    )
    batch = {name: tf.constant(value) for name, value in records(settings).items()}
    inputs = {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["segment_ids"],
        "masked_lm_positions": batch["masked_lm_positions"],
    }
    cross_entropy = tf_keras.losses.sparse_categorical_crossentropy

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            losses = cross_entropy(
                batch["masked_lm_ids"],
                tf.cast(outputs["mlm_logits"], tf.float32),
                from_logits=True,
            )
            weights = batch["masked_lm_weights"]
            loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
            loss += tf.reduce_mean(
                cross_entropy(
                    batch["next_sentence_labels"],
                    tf.cast(outputs["next_sentence"], tf.float32),
                    from_logits=True,
                )
            )
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def steps(count):
        for _ in range(count):
            float(step())

    return steps


def hugging_face_steps(settings):
    """BertForPreTraining, which scores every position, in PyTorch."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    model = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=settings["hidden"],
            num_hidden_layers=settings["layers"],
            num_attention_heads=settings["heads"],
            intermediate_size=4 * settings["hidden"],
        )
    )
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, fused=True
    )
    batch = {
        name: torch.from_numpy(value).long()
        for name, value in records(settings).items()
    }
    labels = torch.full_like(batch["input_ids"], -100)
    labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])
    half = settings["precision"] == "bfloat16"

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = model(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["input_mask"],
                    token_type_ids=batch["segment_ids"],
                    labels=labels,
                    next_sentence_label=batch["next_sentence_labels"][:, 0],
                ).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return steps


def matrix_products(settings):
    """Large products, TensorFlow's and one after the other: the machine's ceiling."""
    import tensorflow as tf

    x = tf.cast(tf.random.normal((2048, 2048)), settings["precision"])
    product = tf.function(tf.matmul)

    def steps(count):
        for _ in range(count):
            product(x, x)

    return steps


if __name__ == "__main__":
    main()
