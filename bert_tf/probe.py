r"""Probes what each layer of a model tells of words' labels.

    python -m bert_tf.probe --init_checkpoint=/tmp/pretraining_output \
        --train_file=$CONLL_DIR/eng.train --test_file=$CONLL_DIR/eng.testa \
        --label_column=1 --output_dir=/tmp/probing

trains a linear probe on each layer's vectors of words, and one on a control task of
random labels (Hewitt and Liang 2019), and prints their accuracies, which are in
probing.md, probing.json and, drawn, probing.png too. Vectors are computed once, and a
run that was stopped goes on.
"""

import dataclasses
import json
import os
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from bert_tf import (
    cli,
    feature_flags,
    files,
    finetuning_flags,
    path_flags,
    tagging_flags,
)
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.path_flags import Path

if TYPE_CHECKING:
    from bert_tf.study import ProbedWords, ProbeScore
    from bert_tf.tasks.tagging.frozen_features import FeatureSession
    from bert_tf.tasks.tagging.sentences import Sentence
    from bert_tf.text.wordpiece import WordPieceTokenizer

OF_TYPES = "word types"
RESULTS_NAME = "probing.json"
# Without --test_file one sentence in so many is for testing.
_HELD_OUT = 5


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""

    def string(name: str, default: str | None, help_text: str) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    def path(name: str, default: str | None, help_text: str, kind: Path) -> None:
        path_flags.define(name, default, help_text, kind, flag_values=flag_values)

    path(
        "init_checkpoint", None, "The model: a checkpoint of any kind.", Path.CHECKPOINT
    )
    path(
        "train_file",
        None,
        "Tagged words; with commas or * for several files.",
        Path.FILES,
    )
    path(
        "test_file",
        None,
        "What the probes are scored on. Default: a fifth of --train_file's sentences.",
        Path.FILES,
    )
    path(
        "output_dir",
        None,
        "Folder for the table, the picture and the vectors.",
        Path.OUTPUT,
    )
    tagging_flags.define_format(flag_values)
    flags.DEFINE_list(
        "labels",
        None,
        "For jsonl. What labels that are numbers stand for, from 0: O,B-PER,...",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "max_words",
        20000,
        "The most words to train on, and to score: whole sentences, drawn at random.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "l2",
        1.0,
        "The weight of half the probe's squared weights beside the sum of the words'"
        " losses. More of it makes a probe that learns less by heart.",
        lower_bound=1e-9,
        flag_values=flag_values,
    )
    shared_flags.define(flag_values, "random_seed", "bert_config_file", "vocab_file")
    shared_flags.define(flag_values, "do_lower_case")
    feature_flags.define_running(flag_values)
    finetuning_flags.define_padding(flag_values)
    for name in ("init_checkpoint", "train_file", "output_dir"):
        flags.mark_flag_as_required(name, flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Computes the vectors, trains the probes, and shows what came out."""
    cli.import_tensorflow()
    from bert_tf.conversion.loading import model_files
    from bert_tf.conversion.source import folder_of
    from bert_tf.features.layers import LayerSelection
    from bert_tf.study import baseline
    from bert_tf.tasks.tagging.frozen_features import FeatureSession
    from bert_tf.tasks.tagging.sentences import digest
    from bert_tf.text.wordpiece import WordPieceTokenizer
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    strategy = strategy_from_flags(flag_values)
    check_batch_size(strategy, flag_values.batch_size, flag="batch_size")
    sentences = _splits(flag_values)
    found = model_files(
        flag_values.init_checkpoint,
        bert_config_file=flag_values.bert_config_file,
        vocab_file=flag_values.vocab_file,
        do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
        output_dir=folder_of(flag_values.init_checkpoint),
    )
    assert found.source is not None
    selection = LayerSelection.parse("embeddings,all", found.config.num_hidden_layers)
    session = FeatureSession(
        dataclasses.replace(found.source, config=found.config),
        selection,
        strategy,
        batch_size=flag_values.batch_size,
        max_seq_length=flag_values.max_seq_length,
        max_lengths=None if flag_values.pad == "max" else flag_values.length_buckets,
        precision=flag_values.precision,
        jit_compile=flag_values.jit_compile,
    )
    tokenizer = WordPieceTokenizer(found.vocabulary, do_lower_case=found.do_lower_case)
    train, test = (
        _probed(flag_values, session, tokenizer, split, some)
        for split, some in sentences.items()
    )
    if not session.is_chief:
        return
    made_from = {
        "sentences": {split: digest(some) for split, some in sentences.items()},
        "vocabulary": found.vocabulary.sha256,
        "do_lower_case": found.do_lower_case,
        "features": session.settings,
        "l2": flag_values.l2,
        "random_seed": flag_values.random_seed,
    }
    layers = [str(layer) for layer in selection.layers]
    scores = _scores(flag_values, made_from, layers, train, test)
    _report(
        flag_values.output_dir,
        layers,
        scores,
        baseline(train, test, seed=flag_values.random_seed),
        f"{len(set(train.labels))} labels; {len(train.words)} words to train on,"
        f" {len(test.words)} to score",
    )


def _splits(flag_values: flags.FlagValues) -> "dict[str, list[Sentence]]":
    """The sentences to train on, and those to score."""
    from bert_tf.tasks.tagging.sentences import read_sentences

    names = flag_values.labels and tuple(flag_values.labels)
    layout = tagging_flags.layout(flag_values, names)

    def read(flag: str) -> "list[Sentence]":
        return read_sentences(
            files.expand_globs(str(flag_values[flag].value), flag), layout
        )

    shuffle = random.Random(flag_values.random_seed).shuffle
    train = read("train_file")
    shuffle(train)
    if flag_values.test_file:
        test = read("test_file")
        shuffle(test)
    else:
        if len(train) < 2:
            raise InputError(
                f"--train_file={flag_values.train_file} has one sentence, and there is"
                " none left to score: give --test_file."
            )
        count = max(1, len(train) // _HELD_OUT)
        train, test = train[count:], train[:count]
    splits = {
        split: first_words(some, flag_values.max_words)
        for split, some in (("train", train), ("test", test))
    }
    labels = {label for one in splits["train"] for label in one.labels or ()}
    if len(labels) < 2:
        raise InputError(
            f"--train_file={flag_values.train_file}: a probe needs words of two labels"
            f" at least. Found: {', '.join(labels)}"
        )
    return splits


def first_words(sentences: "Sequence[Sentence]", max_words: int) -> "list[Sentence]":
    """The first sentences, one at least, of so many words together at most."""
    count, words = 0, 0
    for sentence in sentences:
        words += len(sentence.words)
        if count and words > max_words:
            break
        count += 1
    return list(sentences[:count])


def _probed(
    flag_values: flags.FlagValues,
    session: "FeatureSession",
    tokenizer: "WordPieceTokenizer",
    split: str,
    sentences: "Sequence[Sentence]",
) -> "ProbedWords":
    """The words of a split with all layers' vectors."""
    from bert_tf.study import ProbedWords
    from bert_tf.tasks.tagging.frozen_features import (
        inputs_of_windows,
        words_of_vectors,
    )
    from bert_tf.tasks.tagging.words import Featurizer

    featurizer = Featurizer(tokenizer, max_seq_length=flag_values.max_seq_length)
    windows = list(featurizer(sentences))
    vectors = session.cached(
        inputs_of_windows(windows),
        os.path.join(flag_values.output_dir, f"{split}_vectors"),
    ).vectors
    words = [word for one in sentences for word in one.words]
    labels = [label for one in sentences for label in one.labels or ()]
    if tokenizer.do_lower_case:
        # The model cannot tell them apart, and the control task must not.
        words = [word.lower() for word in words]
    order = words_of_vectors(windows).tolist()
    return ProbedWords(
        words=[words[number] for number in order],
        labels=[labels[number] for number in order],
        vectors=vectors,
    )


def _scores(
    flag_values: flags.FlagValues,
    made_from: dict[str, Any],
    layers: Sequence[str],
    train: "ProbedWords",
    test: "ProbedWords",
) -> "list[ProbeScore]":
    """The score of each layer; those that an earlier run wrote down are taken."""
    from bert_tf import strict_json
    from bert_tf.study import ProbeScore, probe

    @dataclasses.dataclass(frozen=True)
    class Results:
        made_from: dict
        layers: dict[str, ProbeScore]

    path = os.path.join(flag_values.output_dir, RESULTS_NAME)
    # As it is read back.
    made_from = json.loads(json.dumps(made_from))
    known: dict[str, Any] = {}
    if files.exists(path):
        try:
            known = dataclasses.asdict(strict_json.read(Results, path))
        except InputError as error:
            logging.warning("%s The layers are probed again.", error)
    if known.get("made_from") != made_from:
        known = {"made_from": made_from, "layers": {}}
    scores = []
    for place, layer in enumerate(layers):
        if layer not in known["layers"]:
            logging.info("Layer %s: %d words to train on.", layer, len(train.words))
            found = probe(
                train, test, place, l2=flag_values.l2, seed=flag_values.random_seed
            )
            known["layers"][layer] = dataclasses.asdict(found)
            files.write_atomically(path, json.dumps(known, indent=1) + "\n")
        scores.append(ProbeScore(**known["layers"][layer]))
    return scores


def _report(
    folder: str,
    layers: Sequence[str],
    scores: "Sequence[ProbeScore]",
    of_types: "ProbeScore",
    title: str,
) -> None:
    """Writes the table and the picture, and prints the table."""
    from bert_tf.study import probing_picture
    from bert_tf.tasks.selection import figure, table

    def row(name: str, score: "ProbeScore") -> list[str]:
        values = (score.accuracy, score.control_accuracy, score.selectivity)
        return [name, *(figure(value, 100, 2) for value in values)]

    text = f"{title}\n\n" + table(
        ["layer", "accuracy", "control task", "selectivity"],
        [
            row(OF_TYPES, of_types),
            *(row(*one) for one in zip(layers, scores, strict=True)),
        ],
    )
    files.write_atomically(os.path.join(folder, "probing.md"), text)
    files.write_atomically(
        os.path.join(folder, "probing.png"),
        probing_picture(layers, scores, of_types, title),
    )
    print(text, end="")
    sys.stdout.flush()
    logging.info("Wrote probing.md, probing.json and probing.png to %s.", folder)


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
