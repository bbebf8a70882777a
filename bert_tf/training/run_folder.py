"""What lies in a run's output_dir, beside its checkpoints.

    bert_config.json       the architecture
    vocab.txt              the vocabulary, one token a line
    tokenizer_config.json  {"do_lower_case": true}
    flags.json             the resolved flags of the last start
    metrics.jsonl          one JSON object a log step (`bert_tf.training.reporting`)
    eval_results.txt       `key = value`, sorted, as the original writes it

A folder belongs to one model and one vocabulary; another one is refused.
"""

import json
import os
from collections.abc import Mapping

import numpy as np
from absl import flags

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.conversion.checkpoint import (
    CONFIG_NAME,
    TOKENIZER_CONFIG_NAME,
    VOCAB_NAME,
)
from bert_tf.errors import InputError
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.reporting import Reporter

FLAGS_NAME = "flags.json"
EVAL_RESULTS_NAME = "eval_results.txt"


def prepare(
    folder: str,
    config: BertConfig,
    vocabulary: Vocabulary | None,
    do_lower_case: bool,
    flag_values: flags.FlagValues,
) -> None:
    """Creates the folder, or checks that it belongs to this model and vocabulary.

    Args:
        folder: the run's output_dir.
        config: the model's architecture.
        vocabulary: the vocabulary; None where it is not known (records without a
            manifest).
        do_lower_case: its casing.
        flag_values: the resolved flags, for flags.json.

    Raises:
        InputError: the folder holds another model's or vocabulary's run.
    """
    files.make_folder(folder)
    config_path = os.path.join(folder, CONFIG_NAME)
    if files.exists(config_path):
        refuse_other_config(BertConfig.from_json_file(config_path), config, folder)
    vocab_path = os.path.join(folder, VOCAB_NAME)
    casing_path = os.path.join(folder, TOKENIZER_CONFIG_NAME)
    if vocabulary is not None and files.exists(vocab_path):
        there = Vocabulary.from_file(vocab_path)
        if there.sha256 != vocabulary.sha256:
            raise InputError(
                f"--output_dir={folder} holds a run with another vocabulary"
                f" ({len(there)} tokens there, {len(vocabulary)} here, or other ones)."
                " Give another folder."
            )
    if vocabulary is not None and files.exists(casing_path):
        saved = json.loads(files.read_text(casing_path))
        if saved.get("do_lower_case", do_lower_case) != do_lower_case:
            raise InputError(
                f"--output_dir={folder} holds a run with"
                f" do_lower_case={saved['do_lower_case']}; this one has"
                f" {do_lower_case}. Give another folder."
            )
    files.write_atomically(config_path, config.to_json_string())
    if vocabulary is not None:
        vocabulary.save(vocab_path)
        files.write_atomically(
            casing_path, json.dumps({"do_lower_case": do_lower_case}) + "\n"
        )
    values = {name: flag_values[name].value for name in flag_values}
    files.write_atomically(
        os.path.join(folder, FLAGS_NAME),
        json.dumps(values, indent=2, sort_keys=True) + "\n",
    )


def refuse_other_config(there: BertConfig, here: BertConfig, folder: str) -> None:
    """Raises InputError if a folder's model has other weights than this one.

    What changes no weight's shape or meaning (dropout rates, the initializer) may
    differ.
    """
    free = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
    old, new = there.to_dict(), here.to_dict()
    for key in old:
        if key not in free and old[key] != new[key]:
            raise InputError(
                f"--output_dir={folder} holds a run of another model:"
                f" {key} is {old[key]} there, {new[key]} here. Give another folder."
            )


def report_evaluation(folder: str, step: int, results: Mapping[str, float]) -> None:
    """Records an evaluation: eval_results.txt, metrics.jsonl, TensorBoard, the log.

    Args:
        folder: the run's output_dir.
        step: the number of training steps done: `global_step` in eval_results.txt.
        results: losses and metrics by name.
    """
    reporter = Reporter(folder, step, prefix="eval/")
    reporter.report(step, results)
    reporter.close()
    # Values as the original prints them: the shortest digits that mean this float32.
    shown = {name: str(np.float32(value)) for name, value in results.items()}
    shown["global_step"] = str(step)
    lines = [f"{name} = {shown[name]}\n" for name in sorted(shown)]
    files.write_atomically(os.path.join(folder, EVAL_RESULTS_NAME), "".join(lines))
