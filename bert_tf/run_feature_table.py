r"""Compares the ways to use BERT for tagging, as the paper's Table 7.

    python -m bert_tf.run_feature_table --do_lower_case=False \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt \
        --train_file=$CONLL_DIR/eng.train --dev_file=$CONLL_DIR/eng.testa \
        --output_dir=/tmp/feature_table

fine-tunes the model, and trains a BiLSTM on each choice of its layers, by run_ner with
its flags; prints the scores on the development set beside the paper's, and writes them
to feature_table.md and, drawn, feature_table.png. Each way has a folder of its own, and
the same command again goes on.
"""

import copy
import json
import os
import sys
from typing import Any

from absl import flags, logging

from bert_tf import cli, files, run_ner, strict_json
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.tasks.tagging.feature_choices import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
    FINE_TUNED,
    PAPER_DEV_F1,
)

_WAYS = tuple(PAPER_DEV_F1)
_METRICS = ("f1", "accuracy")
# In each way's folder.
RESULTS_NAME = "eval_results.txt"
# The table as data: way -> its metric, its score, and the flags of `_DATA`.
TABLE_NAME = "feature_table.json"
# What two runs must have in common for their scores to stand in one table.
_DATA = (
    *("train_file", "dev_file", "tfds_name", "tfds_splits", "tfds_data_dir"),
    *("format", "word_column", "label_column", "tag_scheme", "labels"),
    "init_checkpoint",
)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags: run_ner's, and its own."""
    run_ner.define_flags(flag_values, in_all_ways=True, do_train=True, do_eval=True)
    flags.DEFINE_list(
        "ways",
        list(_WAYS),
        "What to compare.",
        flag_values=flag_values,
    )
    flags.register_validator(
        "ways",
        lambda ways: ways and set(ways) <= set(_WAYS),
        message=f"must be of {', '.join(_WAYS)}",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "bilstm_learning_rate",
        BILSTM_LEARNING_RATE,
        "Of the BiLSTM; --learning_rate is of fine-tuning.",
        lower_bound=0.0,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "bilstm_epochs",
        BILSTM_EPOCHS,
        "Of the BiLSTM; --num_train_epochs is of fine-tuning.",
        lower_bound=0.0,
        flag_values=flag_values,
    )
    flags.register_validator(
        "distribution",
        lambda distribution: distribution != "multi_worker",
        message="the ways run one after the other on one machine; on several, give each"
        " to run_ner --features",
        flag_values=flag_values,
    )
    flags.register_validator(
        "features",
        lambda way: way is None,
        message="--ways says which are compared: leave this one out",
        flag_values=flag_values,
    )
    flags.register_validator(
        "do_eval",
        lambda is_given: is_given,
        message="the table is of the development set: leave this one out",
        flag_values=flag_values,
    )


def flags_of(flag_values: flags.FlagValues, way: str) -> flags.FlagValues:
    """run_ner's flags for one of the ways."""
    own = copy.deepcopy(flag_values)
    changes: dict[str, Any] = {"output_dir": os.path.join(flag_values.output_dir, way)}
    if way != FINE_TUNED:
        changes |= {
            "features": way,
            # Of fine-tuning alone.
            "frozen_layers": own["frozen_layers"].default,
            "feature_dir": flag_values.feature_dir
            or os.path.join(flag_values.output_dir, "features"),
            "learning_rate": flag_values.bilstm_learning_rate,
            "num_train_epochs": flag_values.bilstm_epochs,
        }
    for name, value in changes.items():
        own[name].value = value
        own[name].present = 1
    return own


def run(flag_values: flags.FlagValues) -> None:
    """Goes through the ways, and shows what came out."""
    cli.import_tensorflow()
    from bert_tf.tasks.tagging.frozen_features import feature_picture, feature_table

    _refuse_other_ways(flag_values)
    scores: dict[str, float] = {}
    for way in dict.fromkeys(flag_values.ways):
        own = flags_of(flag_values, way)
        logging.info("***** %s *****", way)
        run_ner.run(own)
        metric, scores[way] = _result(own.output_dir)
        # After each: what there is of it can be read while the next one trains.
        shown = _with_earlier(scores, metric, flag_values)
        text = feature_table(shown, metric)
        for name, content in (
            ("feature_table.md", text),
            ("feature_table.png", feature_picture(shown, metric)),
        ):
            files.write_atomically(os.path.join(flag_values.output_dir, name), content)
    print(text, end="")
    sys.stdout.flush()


def _result(folder: str) -> tuple[str, float]:
    """The metric of a way's run, and what it came to."""
    lines = files.read_text(os.path.join(folder, RESULTS_NAME)).splitlines()
    results = dict(line.split(" = ") for line in lines)
    metric = next(name for name in _METRICS if name in results)
    return metric, float(results[metric])


def _with_earlier(
    scores: dict[str, float], metric: str, flag_values: flags.FlagValues
) -> dict[str, float]:
    """The scores, and those of ways that an earlier command compared on the same data.

    They are recorded for later ones.
    """
    path = os.path.join(flag_values.output_dir, TABLE_NAME)
    table: dict[str, dict[str, Any]] = {}
    if files.exists(path):
        try:
            found = files.read_json(path)
            table = strict_json.checked(dict[str, dict], found, path, "table")
        except InputError as error:
            logging.warning("%s Earlier scores are left out.", error)
    shared = {"metric": metric, **{name: flag_values[name].value for name in _DATA}}
    table |= {way: {"score": score, **shared} for way, score in scores.items()}
    files.write_atomically(path, json.dumps(table, indent=1) + "\n")
    return {
        way: table[way]["score"]
        for way in _WAYS
        if table.get(way, {}).items() >= shared.items()
    }


def _refuse_other_ways(flag_values: flags.FlagValues) -> None:
    """Raises InputError now for what the last of the ways would find out."""
    from bert_tf.conversion.loading import model_files

    ways = [way for way in flag_values.ways if way != FINE_TUNED]
    if not ways:
        return
    if not flag_values.init_checkpoint:
        raise InputError(
            f"--ways={','.join(ways)} need --init_checkpoint: the model whose features"
            " are taken."
        )
    config = model_files(
        flag_values.init_checkpoint,
        bert_config_file=flag_values.bert_config_file,
        vocab_file=flag_values.vocab_file,
        do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
        output_dir=flag_values.output_dir,
    ).config
    num_layers = config.num_hidden_layers
    too_deep = [w for w in ways if FEATURE_CHOICES[w].num_layers > num_layers]
    if too_deep:
        left = [way for way in flag_values.ways if way not in too_deep]
        raise InputError(
            f"--ways: {', '.join(too_deep)} need more layers than the {num_layers} of"
            f" this model: --ways={','.join(left)} leaves them out."
        )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
