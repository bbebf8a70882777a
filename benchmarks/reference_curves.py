"""Held-out scores of the small sizes over the tokens that their trainings have seen.

    python benchmarks/reference_curves.py --data_dir=DATA --work_dir=RESULTS

DATA has wikipedia_en/*.xz: the last file is held out. The vocabulary has 8,000 tokens,
lower case; sequences of up to 128 tokens, 15 % of them masked anew in each epoch,
batches of 32, no dropout, a warmup of 200 steps and then a constant rate, so that every
point is one of a run that would continue. `tiny` begins with an initializer_range of
0.08. Evaluations are of 640 held-out records.

Prints a row per evaluation and, with --output_file, writes the package's
bert_tf/tasks/reference_curves.json. A run that is killed resumes; more --steps lengthen
a curve. One thread: about 30, 9 and 4 sequences a second on half a core.
"""

import dataclasses
import json
import pathlib

from absl import app, flags
from parts.commands import measured
from parts.text_records import command, records, wikipedia, work_folder

from bert_tf.base.config import BertConfig
from bert_tf.plan import LEARNING_RATES
from bert_tf.training.reporting import metrics_of, tokens_seen

VOCAB_SIZE = 8000
INITIALIZER_RANGES = {"tiny": 0.08}
TEXT = "English Wikipedia, vocabulary of 8,000, 15 % masked, batches of 32, rate {:g}"

_STEPS = flags.DEFINE_multi_string(
    "steps", ["tiny:4000", "mini:2000", "small:1000"], "SIZE:STEPS, each by a flag."
)
_EVAL_STEPS = flags.DEFINE_integer("eval_steps", 250, "Steps between evaluations.")
_OUTPUT_FILE = flags.DEFINE_string("output_file", None, "The JSON file to write.")


def train(work_dir: pathlib.Path, size: str, steps: int, read: dict[str, str]) -> None:
    """Makes a size's run, or resumes it."""
    config = BertConfig.from_size(size, vocab_size=VOCAB_SIZE)
    if size in INITIALIZER_RANGES:
        value = INITIALIZER_RANGES[size]
        config = dataclasses.replace(config, initializer_range=value)
    config_file = work_dir / f"{size}.json"
    config_file.write_text(config.to_json_string())
    arguments = command(
        "run_pretraining",
        **read,
        bert_config_file=config_file,
        output_dir=work_dir / size,
        do_train=True,
        train_batch_size=32,
        num_train_steps=steps,
        num_warmup_steps=200,
        learning_rate=LEARNING_RATES[size],
        learning_rate_schedule="constant",
        dropout=0.0,
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
    made = TEXT.format(LEARNING_RATES[size])
    if size in INITIALIZER_RANGES:
        made += f", initializer_range {INITIALIZER_RANGES[size]}"
    return {
        "made": made,
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
