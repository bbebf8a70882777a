r"""Makes one set of answers of several run_squad runs' n-best answers.

    python -m bert_tf.ensemble_squad --prediction_dirs=/tmp/run1,/tmp/run2,/tmp/run3 \
        --output_dir=/tmp/ensemble --predict_file=$SQUAD_DIR/dev-v1.1.json

Each text's probability is the mean over the runs, 0 where a run lacks the text; with
--version_2_with_negative the score difference of "no answer" is their mean too. Writes
predictions.json, nbest_predictions.json and null_odds.json as run_squad does.
"""

import dataclasses
import json
import os
from typing import TYPE_CHECKING

from absl import logging

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.evaluate_squad import GoldFile, read_golds, report_unmatched
from bert_tf.options import REQUIRED, Options, Path, option
from bert_tf.tasks.squad.scoring import evaluate_v1, evaluate_v2

if TYPE_CHECKING:
    from bert_tf.tasks.squad.scoring import PredictionFiles


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleOptions(Options):
    """Which runs' answers are put together."""

    prediction_dirs: tuple[str, ...] = option(
        REQUIRED,
        "The output_dirs of the runs, with commas between; each has predicted the same"
        " questions.",
        path=Path.FOLDER,
    )
    output_dir: str = option(REQUIRED, "Folder for the answers.", path=Path.OUTPUT)
    predict_file: str | None = option(
        None,
        "The questions' file, such as dev-v2.0.json: the answers are scored by it.",
        path=Path.FILE,
    )
    version_2_with_negative: bool = option(False, "The questions are SQuAD 2.0's.")
    null_score_diff_threshold: float | None = option(
        None,
        'SQuAD 2.0: above this mean score difference the answer is "". Default: what'
        " --find_null_threshold found before for this --output_dir, or else 0.",
    )
    find_null_threshold: bool = option(
        False,
        "SQuAD 2.0. Find the threshold of the best F1 on --predict_file, and keep it in"
        " --output_dir.",
    )
    n_best_size: int = option(20, "Answers to keep of each question.", least=1)
    plots: bool = option(
        True, "With --find_null_threshold, draw what it found, as PNG."
    )


def run(options: EnsembleOptions) -> None:
    """Writes the ensemble's answers; prints their scores where there is a file."""
    from bert_tf.tasks.squad.ensembles import Ensemble
    from bert_tf.tasks.squad.scoring import PredictionFiles

    output_dir, version_2 = options.output_dir, options.version_2_with_negative
    _check(options)
    gold_file = read_golds(options.predict_file) if options.predict_file else None
    if gold_file and gold_file.version == "2.0" and not version_2:
        raise InputError(
            f"{options.predict_file} is SQuAD 2.0's: add --version_2_with_negative."
        )
    ensemble = Ensemble(
        version_2_with_negative=version_2, n_best_size=options.n_best_size
    )
    for folder in options.prediction_dirs:
        ensemble.add(folder)
    files.make_folder(output_dir)
    with PredictionFiles(output_dir, version_2) as writer:
        for question_id, decoded in ensemble.decoded():
            writer.add(question_id, decoded)
        threshold = _threshold(options, gold_file, writer) if version_2 else 0.0
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
        len(options.prediction_dirs),
        len(predictions),
        output_dir,
    )
    if report:
        print(json.dumps(report, indent=2))


def _check(options: EnsembleOptions) -> None:
    folders = [os.path.normpath(folder) for folder in options.prediction_dirs]
    if len(folders) < 2:
        raise InputError("--prediction_dirs: an ensemble needs two runs at least.")
    twice = [folder for folder in folders if folders.count(folder) > 1]
    if twice:
        raise InputError(f"--prediction_dirs has {twice[0]} twice.")
    if os.path.normpath(options.output_dir) in folders:
        raise InputError(
            f"--output_dir={options.output_dir} is one of the runs' folders, whose"
            " predictions would be lost: give another one."
        )
    wants_threshold = (
        options.find_null_threshold or options.null_score_diff_threshold is not None
    )
    if wants_threshold and not options.version_2_with_negative:
        raise InputError(
            "A null threshold is SQuAD 2.0's: add --version_2_with_negative."
        )
    if options.find_null_threshold and not options.predict_file:
        raise InputError("--find_null_threshold needs --predict_file.")


def _threshold(
    options: EnsembleOptions, gold_file: GoldFile | None, writer: "PredictionFiles"
) -> float:
    """The mean score difference above which there is no answer: flag, file, or 0."""
    from bert_tf.tasks.squad import null_threshold

    if options.find_null_threshold:
        assert gold_file is not None
        null_threshold.find(
            options.output_dir,
            gold_file.golds,
            writer.best_texts,
            writer.null_odds,
            predict_file=options.predict_file or "",
            plots=options.plots,
        )
    return null_threshold.given_or_found(
        options.null_score_diff_threshold, [options.output_dir]
    )


def main() -> None:
    """The command line."""
    cli.main(run)


if __name__ == "__main__":
    main()
