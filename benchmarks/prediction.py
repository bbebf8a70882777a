r"""Predicting tables: rows per second next to run_classifier, and memory by length.

    python benchmarks/prediction.py [--only=speed|memory] [--rounds=2]

speed: `python -m bert_tf.predict` and `python -m bert_tf.run_classifier --do_predict`
with the same classifier on the same table, in turns. Two sizes of random models: 1
layer of 8, where all but the model counts, and 2 layers of 128. The rows have 3 to 40
words. Rows per second are of processor time, less that of a table of 1,000 rows, which
is the start; the least of the rounds counts.

memory: `predict` on tables of 100,000 and 1,000,000 rows of 3 to 8 words, the model of
1 layer of 8, and the peak resident memory of each.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

START = 1000
SIZES = {"1 layer of 8": (1, 8, 200_000), "2 layers of 128": (2, 128, 20_000)}
LENGTHS = (100_000, 1_000_000)
MAX_SEQ_LENGTH = 64
LABELS = ("no", "yes")
WORDS = [f"w{number}" for number in range(1000)]


class Used(NamedTuple):
    """What a process took."""

    seconds: float  # of processor time
    megabytes: float  # its peak of resident memory


def make_checkpoint(folder: str, num_layers: int, hidden_size: int) -> None:
    """A run of classification with random weights."""
    from bert_tf.base.config import BertConfig
    from bert_tf.conversion.tokenizer_files import write_labels
    from bert_tf.modeling.heads import BertClassifier
    from bert_tf.training.checkpoints import RunCheckpoints

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        intermediate_size=4 * hidden_size,
    )
    os.makedirs(folder)
    with RunCheckpoints(folder, BertClassifier(config, len(LABELS))) as checkpoints:
        checkpoints.save(1, 1)
    write_labels(folder, LABELS, None)
    flags = {"max_seq_length": MAX_SEQ_LENGTH, "text_a_column": "text"}
    for name, content in (
        ("bert_config.json", config.to_json_string()),
        ("vocab.txt", "".join(f"{token}\n" for token in tokens)),
        ("flags.json", json.dumps(flags)),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)


def write_table(path: str, num_rows: int, longest: int) -> None:
    """Rows of 3 words and more."""
    draw = random.Random(num_rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write("text\n")
        for _ in range(num_rows):
            words = draw.choices(WORDS, k=draw.randint(3, longest))
            file.write(f"{' '.join(words)}\n")


def run(module: str, *arguments: str) -> Used:
    """Runs a command of bert_tf to its end."""
    command = [sys.executable, "-m", f"bert_tf.{module}", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def predict(folder: str, table: str) -> Used:
    """The command for new texts."""
    return run(
        "predict",
        *(f"--checkpoint={folder}/run", f"--input_file={table}"),
        f"--output_file={folder}/scored.tsv",
    )


def run_classifier(folder: str, table: str) -> Used:
    """The prediction of the command that trains."""
    return run(
        "run_classifier",
        *("--do_predict", f"--test_file={table}", "--text_a_column=text"),
        *(f"--labels={','.join(LABELS)}", f"--init_checkpoint={folder}/run"),
        *(f"--max_seq_length={MAX_SEQ_LENGTH}", f"--output_dir={folder}/predicted"),
    )


def speed(folder: str, rounds: int) -> None:
    print(f"{'rows per second':18}{'predict':>10}{'run_classifier':>16}{'ratio':>8}")
    for name, (num_layers, hidden_size, num_rows) in SIZES.items():
        place = os.path.join(folder, str(hidden_size))
        make_checkpoint(f"{place}/run", num_layers, hidden_size)
        tables = {count: f"{place}/{count}.tsv" for count in (START, num_rows)}
        for count, path in tables.items():
            write_table(path, count, longest=40)
        least: dict[tuple[str, int], float] = {}
        for _ in range(rounds):
            for count, path in tables.items():
                for command in (predict, run_classifier):
                    key = (command.__name__, count)
                    seconds = command(place, path).seconds
                    least[key] = min(least.get(key, seconds), seconds)
        rates = [
            (num_rows - START) / (least[command, num_rows] - least[command, START])
            for command in ("predict", "run_classifier")
        ]
        ours, theirs = rates
        print(f"{name:18}{ours:10,.0f}{theirs:16,.0f}{ours / theirs:8.2f}", flush=True)


def memory(folder: str) -> None:
    make_checkpoint(f"{folder}/run", *SIZES["1 layer of 8"][:2])
    print(f"{'rows':>10}{'peak, MB':>10}{'processor, s':>14}")
    for num_rows in LENGTHS:
        path = f"{folder}/{num_rows}.tsv"
        write_table(path, num_rows, longest=8)
        used = predict(folder, path)
        with open(f"{folder}/scored.tsv", encoding="utf-8") as file:
            assert sum(1 for _ in file) == num_rows + 1
        print(f"{num_rows:10,}{used.megabytes:10,.0f}{used.seconds:14,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("speed", "memory"))
    parser.add_argument("--rounds", type=int, default=2)
    options, _ = parser.parse_known_args()  # `make benchmark` gives all their data
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "memory":
            speed(folder, options.rounds)
        if options.only != "speed":
            memory(os.path.join(folder, "memory"))


if __name__ == "__main__":
    main()
