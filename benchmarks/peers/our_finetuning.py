"""Our turns in benchmarks/finetuning.py: steps of training, passes of prediction.

    python our_finetuning.py JOB

JOB and the answers are those of huggingface_finetuning.py without an output; padding is
"length" or "max", as run_classifier's --pad. It makes what run_classifier makes, and
leaves its checkpoints and reports out, as the other side does.
"""

import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

WARM_UP_STEPS = 3


def builders(job: dict[str, Any], folder: str) -> dict[str, Callable[[], int]]:
    """By kind, a function that does some examples of it, and says how many."""
    import keras
    import numpy as np
    import tensorflow as tf

    from bert_tf.conversion.checkpoint import load_weights
    from bert_tf.conversion.model_files import model_files
    from bert_tf.optimization.recipe import create_optimizer
    from bert_tf.records import pipeline
    from bert_tf.records.schema import classifier_schema
    from bert_tf.tasks import classification
    from bert_tf.tasks.examples import TableSplit
    from bert_tf.text.wordpiece import WordPieceTokenizer
    from bert_tf.training import evaluation
    from bert_tf.training.finetuning import RecordSet
    from bert_tf.training.precision import computing_in
    from bert_tf.training.step import SEQUENCES, training_steps

    keras.utils.set_random_seed(job["seed"])
    strategy = tf.distribute.get_strategy()
    found = model_files(
        job["checkpoint"],
        bert_config_file=None,
        vocab_file=None,
        do_lower_case=None,
        output_dir=folder,
    )
    tokenizer = WordPieceTokenizer(found.vocabulary, do_lower_case=found.do_lower_case)
    split = TableSplit(**job["columns"], has_header=job["has_header"])
    examples = {name: split.read(job[name]) for name in ("train", "dev")}
    labels = None
    if not job["regression"]:
        labels = sorted({str(example.label) for example in examples["train"]})
    length, batch_size = job["max_seq_length"], job["batch_size"]
    records = {
        name: RecordSet.write(
            f"{folder}/{name}",
            classifier_schema(length, regression=labels is None),
            classification.features(
                examples[name], tokenizer, max_seq_length=length, labels=labels
            ),
            classification.padding_features(length),
        )
        for name in examples
    }
    task = classification.task(found.config, labels, job["task"])
    with computing_in(job["precision"]):
        model = task.build_model()
    load_weights(model, job["checkpoint"])
    num_train_steps = int(records["train"].num_examples / batch_size * job["epochs"])
    optimizer = create_optimizer(
        job["learning_rate"],
        num_train_steps,
        int(num_train_steps * job["warmup_proportion"]),
        bias_correction=True,
        global_clipnorm=None,  # The step clips.
    )
    optimizer.build(model.trainable_variables)
    steps = training_steps(task, model, optimizer, strategy)
    batches = iter(
        pipeline.training_dataset(
            [records["train"].path],
            [records["train"].num_examples],
            records["train"].schema,
            batch_size=batch_size,
            seed=job["seed"],
            shuffle_buffer=records["train"].num_examples,
        )
    )
    forward = evaluation._prediction_step(model, strategy, False)

    def train() -> int:
        return int(steps(batches, tf.constant(1)).sums[SEQUENCES][0])

    def predict() -> int:
        logits = []
        for batch in records["dev"].batches(batch_size):
            rows = forward(batch)["logits"].numpy()
            logits.append(rows[batch["is_real_example"].numpy()[:, 0] == 1])
        return len(np.concatenate(logits))

    return {"train": train, "predict": predict}


def main() -> None:
    job = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        kinds = builders(job, folder)
        for _ in range(WARM_UP_STEPS):
            kinds["train"]()
        kinds["predict"]()
        print("ready", flush=True)
        for line in sys.stdin:
            kind, least = line.split()
            examples, began, seconds = 0, time.perf_counter(), 0.0
            while seconds < float(least):
                examples += kinds[kind]()
                seconds = time.perf_counter() - began
            print(examples, seconds, flush=True)


if __name__ == "__main__":
    main()
