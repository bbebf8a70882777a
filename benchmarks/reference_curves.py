"""Held-out scores of a small size over the tokens that their trainings have seen.

    python benchmarks/reference_curves.py --data_dir=DATA --work_dir=RESULTS

DATA has wikipedia_en/*.xz: the last file is held out. The vocabulary has 8,000 tokens,
lower case; sequences of up to 128 tokens, 15 % of them masked anew in each epoch; what
`bert_tf.plan` trains with, but after a warmup of 200 steps a constant rate, so that
every point is one of a run that would continue. Each evaluation has 640 records.

Prints a row per evaluation and, with --output_file, writes the package's
bert_tf/addons/planning/reference_curves.json, where the curves of other sizes stay. A
run that is killed resumes; more --steps lengthen a curve. One thread; `tiny` takes 20
minutes.
"""

import json
import pathlib

from absl import app, flags
from parts.commands import command, measured
from parts.text_records import records, wikipedia, work_folder

from bert_tf.addons.planning.plan_measurements import LEARNING_RATES, MUON
from bert_tf.training.reporting import metrics_of, tokens_seen

VOCAB_SIZE = 8000
TEXT = (
    "English Wikipedia, vocabulary of 8,000, recipe budget with a constant rate {:g},"
    " 15 % masked"
)

_STEPS = flags.DEFINE_multi_string(
    "steps", ["tiny:5000"], "SIZE:STEPS, each by a flag."
)
_EVAL_STEPS = flags.DEFINE_integer("eval_steps", 500, "Steps between evaluations.")
_OUTPUT_FILE = flags.DEFINE_string("output_file", None, "The JSON file to write.")


def train(work_dir: pathlib.Path, size: str, steps: int, read: dict[str, str]) -> None:
    """Makes a size's run, or resumes it."""
    arguments = command(
        "run_pretraining",
        **read,
        bert_size=size,
        recipe="budget",
        masked_lm_prob=0.15,
        output_dir=work_dir / size,
        do_train=True,
        num_train_steps=steps,
        num_warmup_steps=200,
        learning_rate=MUON * LEARNING_RATES[size],
        learning_rate_schedule="constant",
        eval_batch_size=32,
        max_eval_steps=20,
        eval_steps=_EVAL_STEPS.value,
        log_steps=50,
    )
    measured(arguments, TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")


def curve(work_dir: pathlib.Path, size: str) -> dict:
    """A run's curve, as the package keeps it."""
    entries = metrics_of(str(work_dir / size))
    steps, tokens = tokens_seen(entries)
    seen = dict(zip(steps, tokens, strict=True))
    found = [one for one in entries if "eval/bits_per_byte" in one]
    found = [one for one in found if one["step"] in seen]
    return {
        "made": TEXT.format(MUON * LEARNING_RATES[size]),
        "tokens": [round(seen[one["step"]]) for one in found],
        **{
            name: [round(one[f"eval/{name}"], 4) for one in found]
            for name in ("bits_per_byte", "masked_lm_loss")
        },
        **{
            name: round(found[-1][f"eval/{name}"], 4)
            for name in ("unigram_bits_per_byte", "masked_lm_unigram_loss")
        },
    }


def main(argv: list[str]) -> None:
    """Trains each size, and prints its curve."""
    del argv
    work_dir = work_folder()
    read = records(work_dir, *wikipedia(), VOCAB_SIZE)
    curves = {}
    if _OUTPUT_FILE.value and pathlib.Path(_OUTPUT_FILE.value).exists():
        curves = json.loads(pathlib.Path(_OUTPUT_FILE.value).read_text())
    for size, steps in (one.split(":") for one in _STEPS.value):
        train(work_dir, size, int(steps), read)
        curves[size] = curve(work_dir, size)
        print("| size | tokens seen | bits per byte | masked LM loss |")
        print("|---|---:|---:|---:|")
        rows = (curves[size][n] for n in ("tokens", "bits_per_byte", "masked_lm_loss"))
        for tokens, bits, loss in zip(*rows, strict=True):
            print(f"| {size} | {tokens:,} | {bits:.3f} | {loss:.3f} |", flush=True)
        if _OUTPUT_FILE.value:
            content = json.dumps(curves, indent=1) + "\n"
            pathlib.Path(_OUTPUT_FILE.value).write_text(content)


if __name__ == "__main__":
    app.run(main)
