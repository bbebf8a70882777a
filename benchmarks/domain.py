"""A checkpoint on a domain new to it: with its vocabulary, or with an extended one.

    python benchmarks/domain.py --data_dir=DATA --work_dir=RESULTS --minutes=3

The domain is chemistry and medicine: DATA's articles (wikipedia_en/*.xz) of 200 words
or more of which at least 6 in 1,000 are among WORDS. Every tenth of them is held out.
The other articles are general text: the checkpoint is pre-trained on them for
--general_minutes, with a vocabulary of 8,000 tokens. With --hf_dir it is instead the
encoder of a Hugging Face folder, with a new masked LM.

Each seed trains on the domain for so many minutes: on from the checkpoint; on from it
with --num_new_tokens words of the domain added to its vocabulary; and from scratch with
a vocabulary of the domain. All have --recipe=budget and the flags below.

Prints the held-out bits per byte, which compare vocabularies, and tokens per word, mean
and deviation over the seeds, and the checkpoint's, if it is our own. A finished run is
not made again. Run it on a machine that does nothing else: minutes are minutes.
"""

import json
import lzma
import pathlib
import re
import statistics
from collections.abc import Iterator
from typing import Any

from absl import app, flags
from parts.commands import command, finished
from parts.results import machine, spread
from parts.text_records import (
    learn_vocabulary,
    work_folder,
    write_records,
)

WORDS = (
    "acid acids atoms bacteria blood cell cells chemical clinical compound compounds"
    " disease diseases drug drugs enzyme gene genes hydrogen medical molecule molecules"
    " oxygen patient patients protein proteins symptoms"
)
_LEAST_WORDS, _LEAST_SHARE = 200, 0.006
_ARTICLE = re.compile(r"<doc [^>]*>\n(.*?)</doc>", re.DOTALL)
NUM_STEPS = 1_000_000  # of which the warmup is a share

_MINUTES = flags.DEFINE_float("minutes", 3.0, "Minutes of each run on the domain.")
_GENERAL_MINUTES = flags.DEFINE_float("general_minutes", 15.0, "Those before it.")
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "The seeds.")
_SIZE = flags.DEFINE_string("bert_size", "tiny", "The model's size.")
_HF_DIR = flags.DEFINE_string("hf_dir", None, "A checkpoint to start from instead.")
_NEW_TOKENS = flags.DEFINE_integer("num_new_tokens", 1000, "Words to add.")
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 8000, "Of the vocabularies.")
_BATCH_SIZE = flags.DEFINE_integer("train_batch_size", 32, "Sequences per step.")
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 1e-3, "The highest rate.")


def articles(folder: pathlib.Path) -> Iterator[tuple[str, bool]]:
    """The articles' text, and whether they are of the domain."""
    known = frozenset(WORDS.split())
    for path in sorted(folder.glob("*.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for text in _ARTICLE.findall(file.read()):
                words = re.findall("[a-z]+", text.lower())
                share = sum(word in known for word in words) / max(len(words), 1)
                yield text, len(words) >= _LEAST_WORDS and share >= _LEAST_SHARE


def write_texts(folder: pathlib.Path) -> None:
    """general.txt, domain.txt and held_out.txt: a paragraph per line."""
    if (folder / "held_out.txt").exists():
        return
    source = pathlib.Path(flags.FLAGS.data_dir or "", "wikipedia_en")
    made: dict[str, list[str]] = {"general": [], "domain": [], "held_out": []}
    number = 0
    for text, is_domain in articles(source):
        number += is_domain
        name = "held_out" if number % 10 == 0 else "domain"
        lines = [line for line in text.splitlines() if line.strip()]
        made[name if is_domain else "general"].append("\n".join(lines) + "\n")
    if not number:
        raise SystemExit(f"{source} has no articles of the domain: give --data_dir.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in made.items():
        (folder / f"{name}.txt").write_text("\n".join(texts), encoding="utf-8")
        print(f"{name}: {len(texts):,} articles, {sum(map(len, texts)) / 1e6:.1f} MB")


def learned(folder: pathlib.Path, name: str) -> pathlib.Path:
    """A vocabulary of one of the texts."""
    path = folder / f"{name}_vocab.txt"
    learn_vocabulary(folder / f"{name}.txt", path, _VOCAB_SIZE.value)
    return path


def records(folder: pathlib.Path, text: str, vocab: pathlib.Path) -> pathlib.Path:
    """The records of a text by a vocabulary."""
    path = folder / f"{text}_by_{vocab.stem}.tfrecord"
    write_records(folder / f"{text}.txt", path, vocab)
    return path


def scores(folder: pathlib.Path, name: str, **settings: Any) -> dict[str, float]:
    """The evaluation of a run in a folder, which is made if it is not there."""
    result = folder / name / "result.json"
    if not result.exists():
        run = {"output_dir": folder / name, **settings}
        if "do_train" in run:
            # By itself: its minutes have no evaluation.
            finished(command("run_pretraining", **run))
            run = {flag: value for flag, value in run.items() if flag not in trained(0)}
        finished(
            command(
                "run_pretraining",
                do_eval=True,
                eval_batch_size=32,
                max_eval_steps=50,
                **run,
            )
        )
        lines = (folder / name / "eval_results.txt").read_text().splitlines()
        values = {name: float(x) for name, x in (line.split(" = ") for line in lines)}
        result.write_text(json.dumps(values))
    return json.loads(result.read_text())


def trained(minutes: float) -> dict[str, Any]:
    """The flags of a training of so many minutes."""
    return {
        "do_train": True,
        "recipe": "budget",
        "optimizer": "adamw",
        "num_train_steps": NUM_STEPS,
        "train_batch_size": _BATCH_SIZE.value,
        "learning_rate": _LEARNING_RATE.value,
        "max_train_hours": minutes / 60.0,
    }


def main(argv: list[str]) -> None:
    """Makes the checkpoint, the runs of each seed, and the table."""
    del argv
    folder = work_folder()
    write_texts(folder)
    given = pathlib.Path(_HF_DIR.value) if _HF_DIR.value else None
    start = given or folder / "general"
    vocab = given / "vocab.txt" if given else learned(folder, "general")
    extended = folder / f"{start.name}_and_{_NEW_TOKENS.value}.txt"
    shape: dict[str, Any] = {"bert_size": _SIZE.value}
    if given:
        shape = {"bert_config_file": given / "config.json"}
    held_out = {
        kind: records(folder, "held_out", path)
        for kind, path in (("own", vocab), ("domain", learned(folder, "domain")))
    }
    if not given:
        scores(
            folder,
            "general",
            input_file=records(folder, "general", vocab),
            eval_input_file=held_out["own"],
            **shape,
            **trained(_GENERAL_MINUTES.value),
        )
    if not extended.exists():
        finished(
            command(
                "tfrecords.extend_vocabulary",
                input_file=folder / "domain.txt",
                output_file=extended,
                init_checkpoint=start,
                num_new_tokens=_NEW_TOKENS.value,
                do_lower_case=True,
            )
        )
    held_out["extended"] = records(folder, "held_out", extended)
    text = (folder / "held_out.txt").read_text(encoding="utf-8")
    read = {}
    for kind, path in held_out.items():
        manifest = pathlib.Path(f"{path}.manifest.json").read_text()
        read[kind] = json.loads(manifest)["report"]["read"]["tokens"]
    begun: dict[str, Any] = {"init_checkpoint": start}
    variants = {
        "on from the checkpoint": ("own", vocab, begun),
        "the same, vocabulary extended": ("extended", extended, begun),
        "from scratch": ("domain", learned(folder, "domain"), shape),
    }
    made: dict[str, list[float]] = {}
    if not given:
        before = scores(folder, "general_0", input_file=held_out["own"], **begun)
        made["the checkpoint"] = [before["bits_per_byte"]]
    for seed in _SEEDS.value:
        for variant, (kind, path, settings) in variants.items():
            name = f"{start.name}_{kind}_{_MINUTES.value:g}min_seed{seed}"
            one = scores(
                folder,
                name,
                input_file=records(folder, "domain", path),
                eval_input_file=held_out[kind],
                random_seed=seed,
                **settings,
                **trained(_MINUTES.value),
            )
            made.setdefault(variant, []).append(one["bits_per_byte"])
            shown = f"{one['bits_per_byte']:.3f} bits per byte at step"
            print(f"{variant}, {seed}: {shown} {one['global_step']:.0f}", flush=True)
    print(f"\n{start.name}, {_MINUTES.value:g} minutes; {machine()}\n")
    print("| variant | bits per byte | difference | tokens per word |")
    print("|---|---:|---:|---:|")
    kinds = {"the checkpoint": "own"} | {name: x[0] for name, x in variants.items()}
    base = statistics.mean(made["on from the checkpoint"])
    for variant, values in made.items():
        row = f"{spread(values, digits=3)} | {statistics.mean(values) - base:+.3f}"
        print(f"| {variant} | {row} | {read[kinds[variant]] / len(text.split()):.3f} |")


if __name__ == "__main__":
    app.run(main)
