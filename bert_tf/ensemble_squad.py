r"""Makes one set of answers of several run_squad runs' n-best answers.

    python -m bert_tf.ensemble_squad --prediction_dirs=/tmp/run1,/tmp/run2,/tmp/run3 \
        --output_dir=/tmp/ensemble --predict_file=$SQUAD_DIR/dev-v1.1.json

Each text's probability is the mean over the runs, 0 where a run lacks the text; with
--version_2_with_negative the score difference of "no answer" is their mean too. Writes
predictions.json, nbest_predictions.json and null_odds.json as run_squad does.

Devlin et al. 2018 score ensembles of runs from several checkpoints and seeds (tables 2
and 3) without saying how they are averaged.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from absl import logging

from bert_tf import cli, files
from bert_tf.errors import InputError
from bert_tf.evaluate_squad import GoldFile, read_golds, report_unmatched
from bert_tf.options import REQUIRED, Options, Path, option
from bert_tf.tasks.squad.decoding import (
    NO_SPAN_SCORE_DIFF,
    NO_SPAN_TEXT,
    Decoded,
    NBestEntry,
)
from bert_tf.tasks.squad.scoring import (
    N_BEST,
    NULL_ODDS,
    PredictionFiles,
    evaluate_v1,
    evaluate_v2,
)

_NUMBERS = ("probability", "start_logit", "end_logit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleOptions(Options):
    """The runs whose answers are combined."""

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


class Ensemble:
    """Adds runs one at a time, keeping only sums of their n-best lists."""

    def __init__(self, *, version_2_with_negative: bool = False, n_best_size: int = 20):
        self._version_2_with_negative = version_2_with_negative
        self._n_best_size = n_best_size
        self._folders: list[str] = []
        # Question -> text -> sums of the three numbers, and how many runs have it.
        self._texts: dict[str, dict[str, list[float]]] = {}
        # Question -> score differences of the runs that found a span.
        self._score_diffs: dict[str, list[float]] = {}

    def add(self, folder: str) -> None:
        """Adds the run whose prediction files are in a folder."""
        path, odds_path = os.path.join(folder, N_BEST), os.path.join(folder, NULL_ODDS)
        n_best = _read(path)
        if not self._folders:
            self._texts = {question_id: {} for question_id in n_best}
            self._score_diffs = {question_id: [] for question_id in n_best}
        self._compare(n_best, path)
        if self._version_2_with_negative:
            null_odds = _read(odds_path)
            self._compare(null_odds, odds_path)
            for question_id in null_odds:
                score_diff = _number(null_odds, question_id, odds_path)
                # A run that found no span at all does not count.
                if score_diff < NO_SPAN_SCORE_DIFF:
                    self._score_diffs[question_id].append(score_diff)
        elif files.exists(odds_path):
            raise InputError(
                f"{odds_path} says that these are predictions for SQuAD 2.0: add"
                " --version_2_with_negative."
            )
        for question_id, entries in n_best.items():
            self._add_texts(question_id, entries, f"{path}: question {question_id}")
        self._folders.append(folder)

    def decoded(self) -> Iterator[tuple[str, Decoded]]:
        """Each question's id and answers, in the first run's order."""
        for question_id, texts in self._texts.items():
            # The sort is stable: equal texts stay in the order of the first run.
            ranked = sorted(
                (self._entry(text, *sums) for text, sums in texts.items()),
                key=lambda entry: -entry.probability,
            )
            n_best = ranked[: self._n_best_size]
            if not self._version_2_with_negative:
                n_best = n_best or [NBestEntry(NO_SPAN_TEXT, 1.0, 0.0, 0.0, None)]
                yield question_id, Decoded(n_best, n_best[0].text, None)
                continue
            # "No answer" is always among them.
            n_best += [entry for entry in ranked[self._n_best_size :] if not entry.text]
            best_text = next((entry.text for entry in ranked if entry.text), "")
            diffs = self._score_diffs[question_id]
            score_diff = sum(diffs) / len(diffs) if diffs else NO_SPAN_SCORE_DIFF
            yield question_id, Decoded(n_best, best_text, score_diff)

    def _entry(
        self, text: str, probability: float, start: float, end: float, count: float
    ) -> NBestEntry:
        mean = probability / len(self._folders)
        return NBestEntry(text, mean, start / count, end / count, None)

    def _add_texts(self, question_id: str, entries: Any, where: str) -> None:
        if not isinstance(entries, list):
            raise InputError(f"{where} must have a list of answers.")
        for entry in entries:
            numbers = [_number(entry, name, where) for name in _NUMBERS]
            text = entry.get("text")
            if not isinstance(text, str):
                raise InputError(f'{where}: an answer has no "text".')
            if text == NO_SPAN_TEXT and numbers[1:] == [0.0, 0.0]:
                continue  # not a text of the paragraph
            sums = self._texts[question_id].setdefault(text, [0.0, 0.0, 0.0, 0])
            for i, number in enumerate((*numbers, 1)):
                sums[i] += number

    def _compare(self, questions: dict[str, Any], path: str) -> None:
        """Raises InputError for other questions than the first run's."""
        differing = questions.keys() ^ self._texts.keys()
        if differing:
            example = min(differing)
            which = "only there" if example in questions else "not there"
            first = self._folders[0] if self._folders else os.path.dirname(path)
            raise InputError(
                f"{path} is of other questions than {os.path.join(first, N_BEST)}:"
                f" {len(differing)} differ, such as {example} ({which}). An ensemble"
                " needs predictions for the same file."
            )


def _read(path: str) -> dict[str, Any]:
    content = files.read_json(path, "prediction file")
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path}: must be {{question's id: ..., ...}}, of a question.")
    return content


def _number(values: Any, key: str, where: str) -> float:
    value = values.get(key) if isinstance(values, dict) else None
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not abs(value) <= sys.float_info.max
    ):
        raise InputError(f'{where}: "{key}" must be a number. Received: {value!r}')
    return value


def run(options: EnsembleOptions) -> None:
    """Writes the ensemble's answers; prints their scores if --predict_file is given."""
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
    options: EnsembleOptions, gold_file: GoldFile | None, writer: PredictionFiles
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
