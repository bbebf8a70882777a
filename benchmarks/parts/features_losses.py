"""The first losses of multiple choice and tagging: a part of benchmarks/features.py.

The same weights, batches and hyperparameters, no dropout, float32: this package's
engine beside transformers' models with PyTorch's optimizer and transformers' schedule.

Shapes: n steps, B examples of a step, L tokens, W words.
"""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from parts.features_data import Bench, Split
from parts.results import PEERS, Result, environment

if TYPE_CHECKING:
    import keras

    from bert_tf.records.batching import ExampleTable
    from bert_tf.training.task import Task

WORKER = PEERS / "huggingface_losses.py"
SWAG, NER = KINDS = ("swag", "ner")
BATCH_SIZES = {SWAG: 8, NER: 32}
MAX_SEQ_LENGTHS = {SWAG: 80, NER: 48}
SEED = 1


def run_losses(bench: Bench, splits: dict[str, Split], num_steps: int) -> None:
    """Prints both sides' losses, and how far they lie apart."""
    found = {}
    for kind, split in splits.items():
        settings = {
            "checkpoint": bench.checkpoint.name,
            "train": split.train.name,
            "batch_size": BATCH_SIZES[kind],
            "max_seq_length": MAX_SEQ_LENGTHS[kind],
            "num_steps": num_steps,
        }
        result = Result(bench.work_dir / "losses" / f"{kind}.json", settings)
        values = result.read()
        if values is None:
            values = both(bench, kind, split.train, num_steps)
            result.write(values)
        found[kind] = values
    print(f"\nLosses of the first {num_steps} steps, no dropout, the same batches:\n")
    print("| step |" + "".join(f" {kind}, ours | Hugging Face |" for kind in found))
    print("|---|" + "---|---|" * len(found))
    for number in range(num_steps):
        if number < 3 or (number + 1) % 10 == 0:
            cells = (
                f" {values['ours'][number]:.5f} | {values['theirs'][number]:.5f} |"
                for values in found.values()
            )
            print(f"| {number + 1} |" + "".join(cells))
    for kind, values in found.items():
        apart = [
            abs(ours - theirs) / theirs
            for ours, theirs in zip(values["ours"], values["theirs"], strict=True)
        ]
        print(
            f"\n{kind}: largest relative difference {max(apart):.1e}; of the first ten"
            f" steps {max(apart[:10]):.1e}."
        )


def both(
    bench: Bench, kind: str, train: pathlib.Path, num_steps: int
) -> dict[str, list[float]]:
    """The losses of both sides."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        job = {
            "kind": kind,
            "checkpoint": str(bench.checkpoint),
            "num_labels": len(tags_of(train)) if kind == NER else 1,
            "start": str(folder / "start"),
            "batches": str(folder / "batches.npz"),
            "batch_size": BATCH_SIZES[kind],
            "num_steps": num_steps,
            "learning_rate": 5e-5,
            "epochs": 1,
            "warmup_proportion": 0.1,
            "precision": "float32",
            "seed": SEED,
            "threads": os.cpu_count(),
        }
        worker(bench, job)
        ours = our_losses(job, train, folder)
        return {"ours": ours, "theirs": json.loads(worker(bench, job))}


def worker(bench: Bench, job: dict[str, Any]) -> str:
    """What the other side says last: first it makes the start, then its losses."""
    done = subprocess.run(
        [bench.pythons["hugging_face"], str(WORKER), json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if done.returncode:
        raise SystemExit(f"losses, {job['kind']}:\n{done.stderr[-4000:]}")
    return done.stdout


def our_losses(
    job: dict[str, Any], train: pathlib.Path, folder: pathlib.Path
) -> list[float]:
    """Our losses; the batches are left for the other side."""
    import tensorflow as tf

    from bert_tf.conversion.loading import load_weights
    from bert_tf.optimization.optimizers import create_optimizer
    from bert_tf.training.step import on_devices

    made = {SWAG: choices, NER: words}[job["kind"]]
    table, task = made(job, train, folder)
    model: keras.Model = task.build_model()
    missing = load_weights(model, job["start"])
    assert not missing, missing
    num_steps, batch_size = job["num_steps"], job["batch_size"]
    order = np.random.default_rng(SEED).permutation(len(table))
    rows = np.resize(order, [num_steps, batch_size])
    length = MAX_SEQ_LENGTHS[job["kind"]]
    padded = [table.padded(numbers, length) for numbers in rows]
    batches = {name: np.stack([one[name] for one in padded]) for name in padded[0]}
    np.savez(job["batches"], **batches)
    data = tf.data.Dataset.from_tensor_slices(batches)
    optimizer = create_optimizer(
        job["learning_rate"],
        num_steps,
        int(num_steps * job["warmup_proportion"]),
        decay_from="warmup",
        bias_correction=True,
        global_clipnorm=None,  # The step clips.
    )
    optimizer.build(model.trainable_variables)
    steps = on_devices().training_steps(
        task, model, optimizer, tf.distribute.get_strategy()
    )
    return steps(iter(data), tf.constant(num_steps)).losses.tolist()


def choices(
    job: dict[str, Any], train: pathlib.Path, folder: pathlib.Path
) -> "tuple[ExampleTable, Task]":
    """Records of multiple choice, and the task."""
    from bert_tf.conversion.source import load_tokenizer, open_source
    from bert_tf.modeling.heads import BertMultipleChoice
    from bert_tf.modeling.objectives import CLASSIFICATION
    from bert_tf.records.batching import ExampleTable
    from bert_tf.records.spec import RecordSpec
    from bert_tf.tasks.swag.choices import (
        ChoiceFeaturizer,
        ChoiceLayout,
        read_choices,
    )
    from bert_tf.training.task import Task

    length = MAX_SEQ_LENGTHS[SWAG]
    examples, target = read_choices(str(train), ChoiceLayout(), has_labels=True)
    featurizer = ChoiceFeaturizer(
        load_tokenizer(job["checkpoint"]), max_seq_length=length, target=target
    )
    records = ExampleTable(
        featurizer.blocks(examples), RecordSpec.choices(length, target.num_outputs)
    )
    config = open_source(job["start"]).require_config()
    return records, Task(
        name="swag",
        build_model=lambda: BertMultipleChoice(config, dropout=0.0),
        objective=CLASSIFICATION,
    )


def words(
    job: dict[str, Any], train: pathlib.Path, folder: pathlib.Path
) -> "tuple[ExampleTable, Task]":
    """Records of tagged words, and the task."""
    from bert_tf.conversion.source import load_tokenizer, open_source
    from bert_tf.modeling.heads import BertTagger
    from bert_tf.modeling.objectives import TAGGING
    from bert_tf.records.batching import ExampleTable
    from bert_tf.tasks.tagging import words as words_module
    from bert_tf.tasks.tagging.sentence_windows import SentenceFeaturizer
    from bert_tf.tasks.tagging.sentences import Layout, read_sentences
    from bert_tf.training.task import Task

    length = MAX_SEQ_LENGTHS[NER]
    names = tags_of(train)
    sentences = read_sentences([str(train.with_suffix(".conll"))], Layout())
    featurizer = SentenceFeaturizer(
        load_tokenizer(job["checkpoint"]), max_seq_length=length
    )
    labels = np.array([names.index(tag) for one in sentences for tag in one.labels])
    records = ExampleTable(
        words_module.blocks(featurizer(sentences), labels, length),
        words_module.schema(length),
    )
    return records, Task(
        name=NER,
        build_model=lambda: BertTagger(
            open_source(job["start"]).require_config(), len(names), dropout=0.0
        ),
        objective=TAGGING,
    )


def tags_of(train: pathlib.Path) -> list[str]:
    """The tags of a file, ascending."""
    cells = train.read_text(encoding="utf-8").split()
    return sorted({cell.rpartition("/")[2] for cell in cells})
