"""A race: which trainer makes the better BERT in the same minutes on this machine?

    python benchmarks/speedrun.py --corpora=NLTK_DATA/corpora --work_dir=RACE \
        --env_dir=ENVIRONMENTS --run_mlm=TRANSFORMERS/.../run_mlm.py
    python benchmarks/speedrun.py --table

The text is five packages of nltk_data (`python -m nltk.downloader abc brown inaugural
movie_reviews state_union`), every 20th document held out; parts/race_text.py has the
digests of both files. The vocabulary is learned from it, 8,000 tokens in lower case.
The model is BERT-tiny's: 2 layers of 128, 512 positions.

First the pace of each row is measured, in turns: the seconds of N and of 2 N steps by
the script's own clock, which counts training alone; their difference is the seconds of
N steps, and the least of the rounds counts. A row then makes the steps that --minutes
have room for, so that a run is the same whatever else the machine does, and ends with a
folder that transformers opens as BertForMaskedLM (KerasHub's with a preset: its masked
LM's head has another GELU than its layers, which transformers has no word for). One
judge reads it for all rows: run_pretraining --do_eval on all of the held-out records.

Results are kept in --results, a line per run, and are not made again. --table prints
them: bits per byte, mean and deviation over the seeds, and the curves of the runs.
"""

import json
import math
import pathlib
import shutil
import statistics
import subprocess
import tempfile
from typing import Any

import pretraining_step
from absl import app, flags
from parts import race_rows, race_text
from parts.commands import command, finished
from parts.race_rows import ROWS, TRANSFORMERS, Race, Row
from parts.results import REPOSITORY, machine, spread
from scipy import stats

from bert_tf.base.config import BertConfig

_CORPORA = flags.DEFINE_string("corpora", None, "nltk_data's corpora/, unpacked.")
_WORK_DIR = flags.DEFINE_string("work_dir", None, "Where text and runs are kept.")
_RUN_MLM = flags.DEFINE_string("run_mlm", None, "transformers' run_mlm.py.")
_MINUTES = flags.DEFINE_float("minutes", 10.0, "Minutes of training of each run.")
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "The seeds.")
_ROWS = flags.DEFINE_list(
    "rows", None, "Only these; one of ours may have `with FLAG=VALUE&FLAG=VALUE`."
)
flags.register_validator(
    _ROWS,
    lambda names: all(map(race_rows.row, names or [])),
    message=f"there are {', '.join(ROWS)}, and ours with FLAG=VALUE.",
)
_PACE_STEPS = flags.DEFINE_integer("pace_steps", 100, "N, of the paces.")
_PACE_ROUNDS = flags.DEFINE_integer("pace_rounds", 2, "Turns of the paces.")
_RESULTS = flags.DEFINE_string(
    "results", str(REPOSITORY / "benchmarks" / "speedrun.jsonl"), "A line per run."
)
_TABLE = flags.DEFINE_bool("table", False, "Only print the table of --results.")

VOCAB_SIZE = 8000


def prepare(folder: pathlib.Path) -> None:
    """Writes text, vocabulary, records and config, if they are missing."""
    race_text.write_text(folder, pathlib.Path(_CORPORA.value or ""))
    vocab, config = folder / "vocab.txt", folder / "bert_config.json"
    if not vocab.exists():
        finished(
            command(
                "tfrecords.learn_vocabulary",
                input_file=folder / race_text.TEXT,
                output_file=vocab,
                vocab_size=VOCAB_SIZE,
                do_lower_case=True,
            )
        )
    for name in (race_text.TEXT, race_text.HELD_OUT):
        finished(
            command(
                "tfrecords.create_pretraining_data",
                input_file=folder / name,
                output_file=(folder / name).with_suffix(".tfrecord"),
                vocab_file=vocab,
                do_lower_case=True,
                split_sentences=True,
                language="en",
                max_seq_length=race_rows.LENGTH,
                masking="dynamic",
                pairs="none",
                dupe_factor=1,
            )
        )
    fields = BertConfig.from_size("tiny", vocab_size=VOCAB_SIZE).to_dict()
    config.write_text(json.dumps(fields))


def paces(race: Race, rows: dict[str, Row]) -> dict[str, float]:
    """Row -> seconds of a step; measured in turns where they are not kept."""
    path = race.folder / "paces.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in rows if name not in kept]
    found: dict[str, list[float]] = {name: [] for name in missing}
    count = _PACE_STEPS.value
    for _ in range(_PACE_ROUNDS.value):
        for name in missing:
            with tempfile.TemporaryDirectory() as output:
                one, two = (
                    race.train(
                        rows[name], steps, 0, pathlib.Path(output, str(steps))
                    ).seconds
                    for steps in (count, 2 * count)
                )
            found[name].append((two - one) / count)
            print(f"{name}: {found[name][-1]:.4f} seconds a step", flush=True)
    kept |= {name: min(seconds) for name, seconds in found.items()}
    path.write_text(json.dumps(kept))
    return kept


def judged(race: Race, model: pathlib.Path) -> dict[str, float]:
    """Scores of a model on the held-out records."""
    with tempfile.TemporaryDirectory() as output:
        finished(
            command(
                "run_pretraining",
                input_file=race.folder / "held_out.tfrecord",
                init_checkpoint=model,
                output_dir=output,
                do_eval=True,
                eval_batch_size=32,
                max_eval_steps=0,
            )
        )
        lines = pathlib.Path(output, "eval_results.txt").read_text().splitlines()
    values = {name: float(x) for name, x in (line.split(" = ") for line in lines)}
    return {name: values[name] for name in ("bits_per_byte", "masked_lm_loss")}


def thinned(curve: list[list[float]]) -> list[list[float]]:
    """Returns every n-th point of a curve, the last among them: at most 20."""
    return curve[:: -math.ceil(len(curve) / 20)][::-1] if curve else []


def read_results() -> list[dict[str, Any]]:
    """All runs that are kept."""
    path = pathlib.Path(_RESULTS.value)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _settings(row: Row) -> dict[str, Any]:
    return {"side": row.side, "flags": row.flags, "dropout": row.dropout}


def _is_kept(about: dict[str, Any]) -> bool:
    return any(about.items() <= kept.items() for kept in read_results())


def run(race: Race, name: str, seed: int, pace: float) -> None:
    """Makes a run and keeps its result, if it is not there."""
    about = {"row": name, "minutes": _MINUTES.value, "seed": seed}
    about |= _settings(race_rows.row(name))
    if _is_kept(about):
        return
    own = about["flags"].get("num_train_steps")
    steps = int(own or round(60.0 * _MINUTES.value / pace))
    output = race.folder / f"{name} {_MINUTES.value:g} {seed}".replace(" ", "_")
    trained = race.train(race_rows.row(name), steps, seed, output)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    result = {"steps": steps, "pace": round(pace, 5)}
    result |= judged(race, trained.model) | {"commit": commit, "machine": machine()}
    result["curve"] = thinned(trained.curve)
    with open(_RESULTS.value, "a") as file:
        file.write(json.dumps(about | result) + "\n")
    shutil.rmtree(output / "run", ignore_errors=True)
    print(f"{name}, seed {seed}: {result['bits_per_byte']:.4f} bits per byte")


def table() -> None:
    """Prints a row for each way and length, the best of a length last.

    p is Welch's, beside the last row before it of several runs of this length.
    """
    runs: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for one in read_results():
        runs.setdefault((one["minutes"], one["row"]), []).append(one)
    names = "minutes,row,bits per byte,masked LM loss,steps,seeds,p,source"
    print(f"| {names.replace(',', ' | ')} |")
    print("|--:|---|--:|--:|--:|--:|--:|---|")
    before: dict[float, list[float]] = {}

    def score(key: tuple[float, str]) -> float:
        return statistics.mean(one["bits_per_byte"] for one in runs[key])

    for key in sorted(runs, key=lambda key: (key[0], -score(key))):
        minutes, name = key
        bits, losses = (
            spread([one[metric] for one in runs[key]], digits=3)
            for metric in ("bits_per_byte", "masked_lm_loss")
        )
        p, values = "", [one["bits_per_byte"] for one in runs[key]]
        if len(values) > 1:
            if minutes in before:
                welch = stats.ttest_ind(before[minutes], values, equal_var=False)
                p = f"{welch.pvalue:.2g}"
            before[minutes] = values
        cells = (
            *(f"{minutes:g}", name, bits, losses, f"{runs[key][0]['steps']:,}"),
            *(str(len(values)), p, race_rows.row(name).source),
        )
        print(f"| {' | '.join(cells)} |")
    with_curve = [one for one in read_results() if one.get("curve")]
    if with_curve:
        print("\nCurves: steps and losses, each by its own masks.")
    for one in with_curve:
        points = ", ".join(f"{step:,} {loss:.2f}" for step, loss in one["curve"])
        print(f"{one['row']}, {one['minutes']:g} minutes, seed {one['seed']}: {points}")


def main(_: list[str]) -> None:
    """Makes the runs, all rows of a seed before the next seed, and the table."""
    if not _TABLE.value:
        if not _WORK_DIR.value:
            raise app.UsageError("--work_dir must be given.")
        folder = pathlib.Path(_WORK_DIR.value).resolve()
        prepare(folder)
        rows = {name: race_rows.row(name) for name in _ROWS.value or ROWS}
        pythons = {}
        if any(row.side == TRANSFORMERS for row in rows.values()):
            environments = pathlib.Path(pretraining_step._ENV_DIR.value or folder)
            peer = pretraining_step.python_of(
                pretraining_step.SENTENCE_TRANSFORMERS, environments.resolve()
            )
            if peer and _RUN_MLM.value:
                pythons[TRANSFORMERS] = peer
            else:
                print("transformers: skipped, needs --run_mlm and its environment.")
                rows = {n: r for n, r in rows.items() if r.side != TRANSFORMERS}
        race = Race(folder, pythons, _RUN_MLM.value)
        found = paces(race, rows)
        for seed in _SEEDS.value:
            for name in rows:
                run(race, name, int(seed), found[name])
    table()


if __name__ == "__main__":
    app.run(main)
