"""One library's training step on long rows, timed when asked to, in its own process.

`benchmarks/long_step.py` runs it with each library's own Python:

    python long_steps.py NAME SETTINGS

SETTINGS is JSON: layers, hidden, heads, batch, length, window (to each side), recompute
and folder (of a Longformer with a classifier; "Hugging Face" makes it, ours reads it).
It prints the loss of the weights without dropout; then for each line "N" that it reads
the seconds and the processor seconds that N steps took, and the most bytes that the
process has held. A step is forward and backward with dropout 0.1, clipping by the
global norm and an AdamW update, in float32.
"""

import json
import os
import pathlib
import resource
import sys
import time

from pretraining_steps import VOCAB_SIZE, processor_seconds


def main() -> None:
    """Builds, and answers."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    is_theirs = name == "Hugging Face"
    loss, steps = (hugging_face if is_theirs else bert_tf)(settings)
    print(loss, flush=True)
    for line in sys.stdin:
        began, processor_began = time.perf_counter(), processor_seconds()
        steps(int(line))
        times = time.perf_counter() - began, processor_seconds() - processor_began
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(*times, peak, flush=True)


def records(settings):
    """A batch of full single texts."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows = (settings["batch"], settings["length"])
    return {
        "input_ids": rng.integers(1000, VOCAB_SIZE, rows, "int32"),
        "input_mask": np.ones(rows, "int32"),
        "segment_ids": np.zeros(rows, "int32"),
        "label_ids": rng.integers(0, 2, rows[:1], "int32"),
    }


def bert_tf(settings):
    """The classifier and the steps of this package's engine."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
    import functools

    import tensorflow as tf

    from bert_tf.conversion.loading import load_weights
    from bert_tf.conversion.source import open_source
    from bert_tf.modeling.heads import BertClassifier
    from bert_tf.modeling.objectives import CLASSIFICATION
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.training.step import on_devices
    from bert_tf.training.strategy import create_strategy
    from bert_tf.training.task import Task

    strategy = create_strategy()
    config = open_source(settings["folder"]).config
    recompute = settings["recompute"]
    build = functools.partial(BertClassifier, config, 2, recompute=recompute)
    task = Task(name="", build_model=build, objective=CLASSIFICATION)
    model = task.build_model()
    load_weights(model, settings["folder"])
    batch = records(settings)
    outputs = model({name: batch[name] for name in model.input})
    mean = CLASSIFICATION.losses["cross_entropy"](batch, outputs)
    optimizer = create_optimizer(1e-4, 10**6, 10**4, global_clipnorm=None)
    optimizer.build(model.trainable_variables)
    function = on_devices().training_steps(task, model, optimizer, strategy)
    dataset = tf.data.Dataset.from_tensors(batch).cache().repeat()
    batches = iter(on_devices().global_batches(strategy, lambda _: dataset))
    return float(mean.value()), lambda count: function(batches, count)


def hugging_face(settings):
    """LongformerForSequenceClassification, in PyTorch; [CLS] is global."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    kind = transformers.LongformerForSequenceClassification
    if not pathlib.Path(settings["folder"]).exists():
        config = transformers.LongformerConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=settings["hidden"],
            num_hidden_layers=settings["layers"],
            num_attention_heads=settings["heads"],
            intermediate_size=4 * settings["hidden"],
            max_position_embeddings=settings["length"] + 1,
            attention_window=2 * settings["window"],
            type_vocab_size=2,
            pad_token_id=0,
        )
        kind(config).save_pretrained(settings["folder"])
    model = kind.from_pretrained(settings["folder"])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, fused=True
    )
    batch = {
        name: torch.from_numpy(value).long()
        for name, value in records(settings).items()
    }

    def loss():
        return model(
            input_ids=batch["input_ids"],
            attention_mask=batch["input_mask"],
            token_type_ids=batch["segment_ids"],
            labels=batch["label_ids"],
        ).loss

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            loss().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    with torch.no_grad():
        first = float(model.eval() and loss())
    model.train()
    return first, steps


if __name__ == "__main__":
    main()
