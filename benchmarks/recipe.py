"""What each part of run_pretraining's --recipe=budget is worth in equal minutes.

    python benchmarks/recipe.py --input_file=TEXT --eval_file=HELD_OUT \
        --work_dir=RESULTS --minutes=30 --seeds=0,1,2

Without --input_file the text is --data_dir's wikipedia_en/*.xz. Trains each variant for
so many minutes, its last checkpoint included, on the same records: `paper`; `budget`;
`budget - PART`, which has the paper's value of a part; and `paper + PART`. --parts
chooses the parts, or several at once, as in dropout&bias_correction (optimizer and
learning_rate, and next_sentence and initial_positions, belong together); with
FLAG=VALUE it is `budget with FLAG=VALUE`, such as '"phases=128:1200:16,128:600:32"',
whose steps are --steps. --variants chooses those whose names begin so.

The learning rate falls to 0 at the end of the minutes in all of them. The vocabulary
has 8,000 tokens, lower case; sequences of up to 128 tokens.

Prints the held-out masked LM loss and bits per byte at the end, mean and deviation over
the seeds, the difference of the loss from `paper` or `budget`, and the median seconds
of a step. Every variant has the same masks in the evaluation. A finished run is not
made again, a killed one resumes. Run it on a machine that does nothing else: minutes
are minutes. Or give --steps in place of --minutes: a run of 300 steps is the same
whatever else the machine does. Most parts do not change what a step costs; for the
others, dropout and the batch size, give the number of steps that takes the same time.
"""

import json
import math
import pathlib
import statistics
from typing import Any

from absl import app, flags
from parts.commands import command, finished
from parts.results import machine, spread
from parts.text_records import records, wikipedia, work_folder

from bert_tf.base.options import declarations
from bert_tf.tasks.pretraining_options import RECIPES, PretrainingOptions
from bert_tf.training.training_options import with_recipe

PAPER, BUDGET = "paper", "budget"
NUM_STEPS = 1_000_000  # of which the warmup is a share
PARTS = [*RECIPES[BUDGET]]
FLAGS = declarations(PretrainingOptions).keys() - {"bert_size", "output_dir"}


def _is_part(text: str) -> bool:
    name, _, value = text.partition("=")
    return text in {*PARTS, ""} or (bool(value) and name in FLAGS)


_INPUT_FILE = flags.DEFINE_string("input_file", None, "Text to train on.")
_EVAL_FILE = flags.DEFINE_string("eval_file", None, "Held-out text.")
_MINUTES = flags.DEFINE_float("minutes", 5.0, "Minutes of each run.")
_STEPS = flags.DEFINE_integer("steps", None, "Steps of each run, not minutes.")
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "The seeds.")
_PARTS = flags.DEFINE_list(
    "parts", PARTS, "Parts of the recipe, or FLAG=VALUE, one by one or joined by &."
)
flags.register_validator(
    _PARTS,
    lambda parts: all(map(_is_part, "&".join(parts).split("&"))),
    message=f"there are {', '.join(PARTS)}, and FLAG=VALUE.",
)
_VARIANTS = flags.DEFINE_list("variants", None, "Only these: paper,budget -, ...")
_SIZE = flags.DEFINE_string("bert_size", "tiny", "The model's size.")
_MAX_EVAL_STEPS = flags.DEFINE_integer("max_eval_steps", 50, "Batches of 32 to score.")


def settings_of(recipe: str) -> dict[str, Any]:
    """The values of all parts by a recipe, or as they are without one."""
    options = with_recipe(
        PretrainingOptions(
            recipe=recipe,
            num_train_steps=NUM_STEPS,
            input_file="-",
            output_dir="-",
            do_train=True,
            bert_size=_SIZE.value,
        ),
        RECIPES,
    )
    return {name: getattr(options, name) for name in PARTS}


def values_of(part: str, recipe: dict[str, Any]) -> dict[str, Any]:
    """A part's values: those that are given, or the recipe's."""
    found = {}
    for one in part.split("&"):
        name, _, value = one.partition("=")
        found[name] = value or recipe[name]
    return found


def variants() -> dict[str, dict[str, Any]]:
    """The flags of each variant by its name."""
    paper, budget = settings_of(PAPER), settings_of(BUDGET)
    found = {PAPER: paper, BUDGET: budget}
    for part in _PARTS.value:
        word = "with" if "=" in part else "-"
        found[f"{BUDGET} {word} {part}"] = budget | values_of(part, paper)
    for part in _PARTS.value:
        found[f"{PAPER} + {part}"] = paper | values_of(part, budget)
    wanted = tuple(_VARIANTS.value or [""])
    return {name: flags for name, flags in found.items() if name.startswith(wanted)}


def run(
    folder: pathlib.Path, seed: str, read: dict[str, str], settings: dict[str, Any]
) -> dict[str, float]:
    """The evaluation at the end of a run, which is made if it is not there."""
    result, made_with = folder / "result.json", folder / "made_with.json"
    if made_with.exists() and json.loads(made_with.read_text()) != settings:
        raise SystemExit(f"{folder} has other settings: give another --work_dir.")
    folder.mkdir(parents=True, exist_ok=True)
    made_with.write_text(json.dumps(settings))
    if not result.exists():
        lasts: dict[str, float] = {"max_train_hours": _MINUTES.value / 60.0}
        if _STEPS.value is not None:
            warmup = float(settings["num_warmup_steps"]) * _STEPS.value / NUM_STEPS
            settings = settings | {"num_warmup_steps": round(warmup)}
            lasts = {"num_train_steps": _STEPS.value}
        given = {"num_train_steps": NUM_STEPS, **settings, **lasts}
        if "phases" in given:  # in place of these
            del given["num_train_steps"], given["train_batch_size"]
        finished(
            command(
                "run_pretraining",
                **read,
                **given,
                bert_size=_SIZE.value,
                output_dir=folder,
                do_train=True,
                do_eval=True,
                random_seed=seed,
                eval_batch_size=32,
                max_eval_steps=_MAX_EVAL_STEPS.value,
            )
        )
        lines = (folder / "eval_results.txt").read_text().splitlines()
        values = {name: float(x) for name, x in (line.split(" = ") for line in lines)}
        result.write_text(json.dumps(values))
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line).get("steps_per_second") for line in lines]
    pace = statistics.median([*filter(None, rates)] or [math.nan])
    return {**json.loads(result.read_text()), "seconds_per_step": 1.0 / pace}


def main(argv: list[str]) -> None:
    """Makes the runs, all variants of a seed before the next seed, and the table."""
    del argv
    work_dir = work_folder()
    texts = _INPUT_FILE.value, _EVAL_FILE.value
    if (texts[0] is None) != (texts[1] is None):
        raise SystemExit("Give --input_file and --eval_file, or neither.")
    read = records(work_dir, *(texts if texts[0] else wikipedia()), 8000)
    length = f"{_MINUTES.value:g} min"
    if _STEPS.value is not None:
        length = f"{_STEPS.value} steps"
    made: dict[str, list[dict[str, float]]] = {name: [] for name in variants()}
    for seed in _SEEDS.value:
        for name, settings in variants().items():
            folder = f"{name}_{length}_seed{seed}".replace(" ", "")
            made[name].append(run(work_dir / folder, seed, read, settings))
            loss, step = (made[name][-1][x] for x in ("masked_lm_loss", "global_step"))
            print(f"{name}, seed {seed}: {loss:.3f} at step {step:.0f}", flush=True)
    print(f"\n{_SIZE.value}, {length}; {machine()}\n")
    print("| variant | masked LM loss | difference | bits per byte | steps | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    means = {
        name: statistics.mean(one["masked_lm_loss"] for one in results)
        for name, results in made.items()
    }
    for name, results in made.items():
        base = name.split(" ")[0]
        difference = f"{means[name] - means[base]:+.3f}" if base in means else ""
        loss, bits = (
            spread([one[metric] for one in results], digits=3)
            for metric in ("masked_lm_loss", "bits_per_byte")
        )
        steps, seconds = (
            statistics.mean(one[metric] for one in results)
            for metric in ("global_step", "seconds_per_step")
        )
        cells = name, loss, difference, bits, f"{steps:,.0f}", f"{seconds:.3f}"
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    app.run(main)
