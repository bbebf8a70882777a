r"""Milliseconds a call: one text at a time, and the first texts after loading.

    python benchmarks/serving.py [--checkpoint=RUN_OF_CLASSIFICATION]

Without a checkpoint a random one of all-MiniLM-L6-v2's size (6 layers of 384) is made.
The ways, each in a process of its own, in turns: `bert_tf.load(...).predict` (text in,
labels out), and Keras' `model.predict(tokenizer(text))` (text in, logits out), which
compiles for each new length. Latency is the median over calls with one text of 20 and
of 128 tokens; "first" are 200 texts of 3 to 128 tokens right after loading.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WAYS = ("bert_tf.load", "keras predict")
FIRST = 200
LENGTHS = (20, 128)
NUM_WORDS = 1000


def make_checkpoint(folder: str) -> None:
    """A classifier with random weights, and its vocabulary."""
    import numpy as np

    from bert_tf.base.config import BertConfig
    from bert_tf.modeling.heads import BertClassifier
    from bert_tf.training.checkpoints import RunCheckpoints

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"w{number}" for number in range(NUM_WORDS)]
    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    model = BertClassifier(config, 2)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(random.normal(0, 0.05, weight.shape))
    os.makedirs(folder)
    with RunCheckpoints(folder, model) as checkpoints:
        checkpoints.save(1, 1)
    path = os.path.join(folder, "bert_config.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(config.to_json_string())
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"{token}\n" for token in special + words)


def measure(way: str, checkpoint: str) -> dict[str, float]:
    """One way's times: seconds until it is ready, then milliseconds."""
    import numpy as np

    began = time.perf_counter()
    import bert_tf

    if way == "bert_tf.load":
        predict = bert_tf.load(checkpoint, max_length=128).predict
    else:
        classifier = bert_tf.load_classifier(checkpoint)
        tokenizer = bert_tf.load_tokenizer(checkpoint)

        def predict(text: str) -> object:
            inputs = tokenizer([text], max_length=128)
            return classifier.predict(inputs, verbose=0)

    found = {"ready": time.perf_counter() - began}

    def text(length: int) -> str:
        return " ".join(f"w{word}" for word in random.integers(0, NUM_WORDS, length))

    def milliseconds(length: int) -> float:
        given = text(length - 2)
        began = time.perf_counter()
        predict(given)
        return 1000 * (time.perf_counter() - began)

    random = np.random.default_rng(1)
    first = [milliseconds(length) for length in random.integers(3, 129, FIRST)]
    found |= {"worst": max(first), "mean": statistics.mean(first)}
    for length in LENGTHS:
        milliseconds(length)
        found[str(length)] = statistics.median(milliseconds(length) for _ in range(50))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help="only this one, as JSON")
    options, _ = parser.parse_known_args()  # `make benchmark` gives all their data
    if options.way:
        print(json.dumps(measure(options.way, options.checkpoint)))
        return
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = options.checkpoint
        if not checkpoint:
            make_checkpoint(checkpoint := os.path.join(folder, "checkpoint"))
        rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for way in WAYS * options.rounds:
            command = [sys.executable, __file__, f"--way={way}"]
            result = subprocess.run(
                [*command, f"--checkpoint={checkpoint}"],
                check=True,
                stdout=subprocess.PIPE,
            )
            rounds[way].append(json.loads(result.stdout.splitlines()[-1]))
    print(f"way            20 tokens  128 tokens  worst of {FIRST}     mean  ready")
    for way, found in rounds.items():
        best = {name: min(one[name] for one in found) for name in found[0]}
        print(
            f"{way:14} {best['20']:6.1f} ms {best['128']:8.1f} ms"
            f" {best['worst']:9.0f} ms {best['mean']:6.1f} ms {best['ready']:4.1f} s"
        )


if __name__ == "__main__":
    main()
