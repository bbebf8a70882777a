"""Pre-training records: our seconds and the original's, and the records that differ.

    python benchmarks/pretraining_data.py --data_dir=DATA --original_dir=BERT

DATA holds wikipedia_en/*.xz and vocab/bert-base-uncased/vocab.txt; BERT is a checkout
of github.com/google-research/bert at eedf571. Without --original_dir only ours is
measured. Both run in processes of their own on the same file, cut into one sentence a
line; the time of a run on two sentences (imports, vocabulary) is called start-up and
taken off both. MB are millions of bytes of input text.
"""

import dataclasses
import lzma
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

from absl import app, flags

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of the corpora.")
_ORIGINAL_DIR = flags.DEFINE_string("original_dir", None, "Checkout of the original.")
_MEGABYTES = flags.DEFINE_float("megabytes", 2.26, "Text to make records of.")
_FUZZ = flags.DEFINE_integer(
    "fuzz", 0, "Further comparisons, on small random corpora and random settings."
)
_SEED = flags.DEFINE_integer("fuzz_seed", 0, "Seed of the random settings.")

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent

# The original runs on TensorFlow 1; compat.v1 of today's has all the names it uses.
RUN_ORIGINAL = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import tensorflow.compat.v1 as tensorflow
sys.modules["tensorflow"] = tensorflow
import create_pretraining_data
for name in ("input_file", "output_file", "vocab_file"):
    tensorflow.flags.mark_flag_as_required(name)
tensorflow.app.run(create_pretraining_data.main)
"""


@dataclasses.dataclass
class Run:
    """One finished command."""

    seconds: float
    records: list[list[bytes]]  # by output file


def command(original: bool) -> list[str]:
    if original:
        return [sys.executable, "-c", RUN_ORIGINAL, _ORIGINAL_DIR.value]
    return [sys.executable, "-m", "tfrecords.create_pretraining_data"]


def run(original: bool, settings: dict, num_outputs: int = 1) -> Run:
    """Runs one of the two scripts and reads what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"{folder}/records-{index}" for index in range(num_outputs)]
        settings = {**settings, "output_file": ",".join(outputs)}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        started = time.perf_counter()
        done = subprocess.run(
            command(original) + arguments,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        seconds = time.perf_counter() - started
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        return Run(seconds, [read(path) for path in outputs])


def read(path: str) -> list[bytes]:
    """The records of a file, each in one canonical form."""
    import tensorflow as tf

    return [
        tf.train.Example.FromString(record.numpy()).SerializeToString(
            deterministic=True
        )
        for record in tf.data.TFRecordDataset(path)
    ]


def num_differing(ours: Run, original: Run) -> int:
    """Records that are not the same in the same place, missing ones included."""
    count = 0
    for mine, theirs in zip(ours.records, original.records, strict=True):
        count += abs(len(mine) - len(theirs))
        count += sum(a != b for a, b in zip(mine, theirs, strict=False))
    return count


def write_corpus(path: pathlib.Path, num_bytes: int) -> None:
    """Wikipedia text, one sentence a line, a blank line between articles."""
    written = 0
    archives = sorted(pathlib.Path(_DATA_DIR.value, "wikipedia_en").glob("*.xz"))
    with path.open("w", encoding="utf-8") as corpus:
        for archive in archives:
            with lzma.open(archive, "rt", encoding="utf-8") as text:
                for line in text:
                    if line.startswith("</doc"):
                        line = "\n"
                    elif line.startswith("<doc") or not line.strip():
                        continue
                    else:
                        line = re.sub(r"(?<=[.!?]) +(?=[A-Z\"'(])", "\n", line)
                    written += corpus.write(line)
                    if written >= num_bytes:
                        return


def write_fuzz_corpus(path: pathlib.Path, rng: random.Random, words: list[str]) -> None:
    """A few documents, some of one sentence, some sentences of a hundred words."""
    lines = []
    for _ in range(rng.choice([1, 2, 3, 10])):
        for _ in range(rng.choice([1, 2, 5, 30])):
            length = rng.choice([1, 3, 10, 100])
            lines.append(" ".join(rng.choice(words) for _ in range(length)))
        lines += [""] * rng.choice([1, 1, 3])
    text = "\n".join(lines) + rng.choice(["", "\n", "\r\n"])
    path.write_text(text, encoding="utf-8", newline="")


def compare(name: str, settings: dict, num_outputs: int = 1, startup=None) -> int:
    ours = run(False, settings, num_outputs)
    num_bytes = sum(os.path.getsize(p) for p in settings["input_file"].split(","))
    megabytes = num_bytes / 1e6
    print(f"{name}: {sum(map(len, ours.records))} records, {megabytes:.3f} MB")
    runs = [("ours", ours, False)]
    differing = 0
    if _ORIGINAL_DIR.value:
        original = run(True, settings, num_outputs)
        runs.append(("original", original, True))
        differing = num_differing(ours, original)
    for label, done, is_original in runs:
        line = f"  {label:10s} {done.seconds:7.1f} s"
        if startup:
            net = done.seconds - startup[is_original]
            line += f"  without start-up {net:7.1f} s  {megabytes / net:6.2f} MB/s"
        print(line)
    if _ORIGINAL_DIR.value:
        print(f"  differing records: {differing}")
    return differing


def main(_: list[str]) -> None:
    if not _DATA_DIR.value or not os.path.isdir(_DATA_DIR.value):
        print(f"pretraining_data: skipped, no data: --data_dir={_DATA_DIR.value}")
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    vocabulary = f"{_DATA_DIR.value}/vocab/bert-base-uncased/vocab.txt"
    differing = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        one_line = folder / "one_line.txt"
        one_line.write_text("One sentence.\nAnother one.\n", encoding="utf-8")
        common = {"vocab_file": vocabulary}
        tiny = {**common, "input_file": one_line, "dupe_factor": 1}
        startup = {False: run(False, tiny).seconds}
        print(f"start-up of ours: {startup[False]:.1f} s")
        if _ORIGINAL_DIR.value:
            startup[True] = run(True, tiny).seconds
            print(f"start-up of the original: {startup[True]:.1f} s")
        if _ORIGINAL_DIR.value:
            differing += compare(
                "sample_text.txt, the README's command",
                {
                    **common,
                    "input_file": f"{_ORIGINAL_DIR.value}/sample_text.txt",
                    "do_lower_case": True,
                    "max_seq_length": 128,
                    "max_predictions_per_seq": 20,
                    "masked_lm_prob": 0.15,
                    "random_seed": 12345,
                    "dupe_factor": 5,
                },
            )
        corpus = folder / "wikipedia.txt"
        write_corpus(corpus, int(_MEGABYTES.value * 1e6))
        for whole_word in (False, True):
            differing += compare(
                f"Wikipedia, dupe_factor 10, do_whole_word_mask={whole_word}",
                {
                    **common,
                    "input_file": str(corpus),
                    "do_whole_word_mask": whole_word,
                },
                startup=startup,
            )
        rng = random.Random(_SEED.value)
        words = corpus.read_text(encoding="utf-8").split()
        for number in range(_FUZZ.value):
            inputs = [
                folder / f"fuzz-{index}.txt" for index in range(rng.choice([1, 3]))
            ]
            for path in inputs:
                write_fuzz_corpus(path, rng, words)
            settings = {
                **common,
                "input_file": ",".join(map(str, inputs)),
                "do_whole_word_mask": rng.random() < 0.5,
                "do_lower_case": rng.random() < 0.5,
                "max_seq_length": rng.choice([5, 6, 16, 64, 128, 512]),
                "max_predictions_per_seq": rng.choice([1, 5, 20, 77]),
                "masked_lm_prob": rng.choice([0.01, 0.15, 0.5, 1.0]),
                "short_seq_prob": rng.choice([0.0, 0.1, 1.0]),
                "dupe_factor": rng.choice([1, 2, 5]),
                "random_seed": rng.randrange(1 << 32),
            }
            differing += compare(f"fuzz {number}", settings, rng.choice([1, 2, 5]))
    print(f"differing records in all: {differing}")
    if differing:
        raise SystemExit(1)


if __name__ == "__main__":
    app.run(main)
