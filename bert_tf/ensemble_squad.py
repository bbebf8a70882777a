r"""Makes one set of answers of several run_squad runs' n-best answers.

    python -m bert_tf.ensemble_squad --prediction_dirs=/tmp/run1,/tmp/run2,/tmp/run3 \
        --output_dir=/tmp/ensemble --predict_file=$SQUAD_DIR/dev-v1.1.json

Each text's probability is the mean over the runs, 0 where a run lacks the text; with
--version_2_with_negative the score difference of "no answer" is their mean too. Writes
predictions.json, nbest_predictions.json and null_odds.json as run_squad does.
"""

import json
import os
from typing import TYPE_CHECKING

from absl import flags, logging

from bert_tf import cli, files, flag_rules, path_flags
from bert_tf.errors import InputError
from bert_tf.evaluate_squad import GoldFile, read_golds, report_unmatched
from bert_tf.path_flags import Path
from bert_tf.tasks.squad.scoring import evaluate_v1, evaluate_v2

if TYPE_CHECKING:
    from bert_tf.tasks.squad.scoring import PredictionFiles


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""

    def boolean(name: str, default: bool, help_text: str) -> None:
        flags.DEFINE_bool(name, default, help_text, flag_values=flag_values)

    path_flags.define_list(
        "prediction_dirs",
        "The output_dirs of the runs, with commas between; each has predicted the same"
        " questions.",
        Path.FOLDER,
        flag_values=flag_values,
    )
    path_flags.define(
        "output_dir",
        None,
        "Folder for the answers.",
        Path.OUTPUT,
        flag_values=flag_values,
    )
    path_flags.define(
        "predict_file",
        None,
        "The questions' file, such as dev-v2.0.json: the answers are scored by it.",
        Path.FILE,
        flag_values=flag_values,
    )
    boolean("version_2_with_negative", False, "The questions are SQuAD 2.0's.")
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        'SQuAD 2.0: above this mean score difference the answer is "". Default: what'
        " --find_null_threshold found before for this --output_dir, or else 0.",
        flag_values=flag_values,
    )
    boolean(
        "find_null_threshold",
        False,
        "SQuAD 2.0. Find the threshold of the best F1 on --predict_file, and keep it in"
        " --output_dir.",
    )
    flags.DEFINE_integer(
        "n_best_size", 20, "Answers to keep of each question.", flag_values=flag_values
    )
    boolean("plots", True, "With --find_null_threshold, draw what it found, as PNG.")
    for name in ("prediction_dirs", "output_dir"):
        flags.mark_flag_as_required(name, flag_values)
    flag_rules.require_at_least(flag_values, 1, "n_best_size")


def run(flag_values: flags.FlagValues) -> None:
    """Writes the ensemble's answers; prints their scores where there is a file."""
    from bert_tf.tasks.squad.ensembles import Ensemble
    from bert_tf.tasks.squad.scoring import PredictionFiles

    output_dir, version_2 = flag_values.output_dir, flag_values.version_2_with_negative
    _check(flag_values)
    gold_file = (
        read_golds(flag_values.predict_file) if flag_values.predict_file else None
    )
    if gold_file and gold_file.version == "2.0" and not version_2:
        raise InputError(
            f"{flag_values.predict_file} is SQuAD 2.0's: add --version_2_with_negative."
        )
    ensemble = Ensemble(
        version_2_with_negative=version_2, n_best_size=flag_values.n_best_size
    )
    for folder in flag_values.prediction_dirs:
        ensemble.add(folder)
    files.make_folder(output_dir)
    with PredictionFiles(output_dir, version_2) as writer:
        for question_id, decoded in ensemble.decoded():
            writer.add(question_id, decoded)
        threshold = _threshold(flag_values, gold_file, writer) if version_2 else 0.0
        predictions = writer.answers(threshold)
        report = None
        if gold_file:
            report_unmatched(gold_file.golds, predictions, output_dir)
            report = (
                evaluate_v2(gold_file.golds, predictions)
                if version_2
                else evaluate_v1(gold_file.questions, predictions)
            )
        writer.finish(threshold)
    logging.info(
        "Wrote the answers of %s runs to %s questions to %s.",
        len(flag_values.prediction_dirs),
        len(predictions),
        output_dir,
    )
    if report:
        print(json.dumps(report, indent=2))


def _check(flag_values: flags.FlagValues) -> None:
    folders = [os.path.normpath(folder) for folder in flag_values.prediction_dirs]
    if len(folders) < 2:
        raise InputError("--prediction_dirs: an ensemble needs two runs at least.")
    twice = [folder for folder in folders if folders.count(folder) > 1]
    if twice:
        raise InputError(f"--prediction_dirs has {twice[0]} twice.")
    if os.path.normpath(flag_values.output_dir) in folders:
        raise InputError(
            f"--output_dir={flag_values.output_dir} is one of the runs' folders, whose"
            " predictions would be lost: give another one."
        )
    wants_threshold = (
        flag_values.find_null_threshold
        or flag_values.null_score_diff_threshold is not None
    )
    if wants_threshold and not flag_values.version_2_with_negative:
        raise InputError(
            "A null threshold is SQuAD 2.0's: add --version_2_with_negative."
        )
    if flag_values.find_null_threshold and not flag_values.predict_file:
        raise InputError("--find_null_threshold needs --predict_file.")


def _threshold(
    flag_values: flags.FlagValues, gold_file: GoldFile | None, writer: "PredictionFiles"
) -> float:
    """The mean score difference above which there is no answer: flag, file, or 0."""
    from bert_tf.tasks.squad import null_threshold

    if flag_values.find_null_threshold:
        assert gold_file is not None
        null_threshold.find(
            flag_values.output_dir,
            gold_file.golds,
            writer.best_texts,
            writer.null_odds,
            predict_file=flag_values.predict_file,
            plots=flag_values.plots,
        )
    return null_threshold.given_or_found(
        flag_values.null_score_diff_threshold, [flag_values.output_dir]
    )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
