"""Ensembles: n-best answers of several runs, combined into one set."""

import itertools
import json
import math
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from absl import logging

from bert_tf.base import files
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Options, Path, option
from bert_tf.tasks.squad.decoding import (
    NO_SPAN_SCORE_DIFF,
    NO_SPAN_TEXT,
    Decoded,
    NBestEntry,
)
from bert_tf.tasks.squad.evaluate_squad import (
    read_by_question,
    read_golds,
    report_unmatched,
)
from bert_tf.tasks.squad.scoring import (
    N_BEST,
    NULL_ODDS,
    Answers,
    evaluate_v1,
    evaluate_v2,
)


class EnsembleOptions(Options, decides="nothing"):
    """The runs whose answers are combined."""

    prediction_dirs: tuple[str, ...] = option(
        REQUIRED,
        "The output_dirs of the runs, separated by commas; all must have predicted the"
        " same questions.",
        path=Path.FOLDER,
    )
    output_dir: str = option(REQUIRED, "Folder for the answers.", path=Path.OUTPUT)
    predict_file: str | None = option(
        None,
        "The questions with their answers, such as dev-v2.0.json, to score the result.",
        path=Path.FILE,
    )
    version_2_with_negative: bool = option(
        False, "Whether the questions are SQuAD 2.0's.", decides="numbers"
    )
    null_score_diff_threshold: float | None = option(
        None,
        'SQuAD 2.0: predict "" if the mean score difference is above this. Default: 0.',
        only_with="version_2_with_negative",
        decides="numbers",
    )
    n_best_size: int = option(
        20, "Answers to keep for each question.", least=1, decides="numbers"
    )

    def problems(self) -> Iterator[str]:
        """Yields errors: too few runs, and options without effect."""
        yield from super().problems()
        folders = [os.path.normpath(folder) for folder in self.prediction_dirs]
        if len(set(folders)) < max(2, len(folders)):
            yield "`prediction_dirs` must name two runs at least, each once."
        if os.path.normpath(self.output_dir) in folders:
            yield (
                f"`output_dir={self.output_dir}` is one of the runs' folders, whose"
                " predictions would be lost: give another one."
            )


def ensemble(
    folders: Sequence[str],
    *,
    version_2_with_negative: bool = False,
    n_best_size: int = 20,
) -> Iterator[tuple[str, Decoded]]:
    """Returns the combined answers by question id."""
    # Question -> text -> the probability, start_logit and end_logit of each run.
    texts: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    score_diffs: dict[str, list[float]] = {}
    for folder in folders:
        path, odds_path = os.path.join(folder, N_BEST), os.path.join(folder, NULL_ODDS)
        n_best = _read(path, list, texts)
        if not texts:
            texts = {question_id: {} for question_id in n_best}
            score_diffs = {question_id: [] for question_id in n_best}
        if version_2_with_negative:
            null_odds = _read(odds_path, (int, float), texts)
            for question_id, score_diff in null_odds.items():
                # A run without any span does not count.
                if score_diff < NO_SPAN_SCORE_DIFF:
                    score_diffs[question_id].append(score_diff)
        elif files.exists(odds_path):
            raise InputError(
                f"{odds_path} says that these are predictions for SQuAD 2.0: add"
                " --version_2_with_negative."
            )
        for question_id, entries in n_best.items():
            for entry in entries:
                text, numbers = _entry(entry, f"{path}: question {question_id}")
                if text != NO_SPAN_TEXT or any(numbers[1:]):
                    texts[question_id].setdefault(text, []).append(numbers)
    for question_id, of_runs in texts.items():
        entries = []
        for text, rows in of_runs.items():
            probability, start, end = map(sum, zip(*rows, strict=True))
            # The probability is 0 in a run that lacks the text.
            mean = probability / len(folders)
            entry = NBestEntry(text, mean, start / len(rows), end / len(rows), None)
            entries.append(entry)
        # The sort is stable: equal texts stay in the order of the first run.
        ranked = sorted(entries, key=lambda entry: -entry.probability)
        kept = ranked[:n_best_size]
        if not version_2_with_negative:
            kept = kept or [NBestEntry(NO_SPAN_TEXT, 1.0, 0.0, 0.0, None)]
            yield question_id, Decoded(kept, kept[0].text, None)
            continue
        # "No answer" is always among them.
        kept += [entry for entry in ranked[n_best_size:] if not entry.text]
        best_text = next((entry.text for entry in ranked if entry.text), "")
        diffs = score_diffs[question_id]
        score_diff = sum(diffs) / len(diffs) if diffs else NO_SPAN_SCORE_DIFF
        yield question_id, Decoded(kept, best_text, score_diff)


def _read(
    path: str, kind: type | tuple[type, ...], first: Collection[str]
) -> dict[str, Any]:
    """Reads a file's values by question; the questions must be the first run's."""
    content = read_by_question(path, "prediction file", kind)
    differing = content.keys() ^ set(first or content)
    if differing or not content:
        raise InputError(
            f"{path}: an ensemble needs predictions for the same questions, and this"
            f" file has {len(content)}; {len(differing)} differ from the first run's"
            f"{f', such as {min(differing)}' if differing else ''}."
        )
    return content


def _entry(entry: Any, where: str) -> tuple[str, tuple[float, ...]]:
    """Returns an answer's text, and its numbers."""
    try:
        names = ("probability", "start_logit", "end_logit")
        text, numbers = entry["text"], tuple(float(entry[name]) for name in names)
        if isinstance(text, str) and all(map(math.isfinite, numbers)):
            return text, numbers
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"{where}: an answer must have a text, and three numbers: probability,"
        f" start_logit and end_logit. Received: {str(entry)[:80]}"
    )


def run(options: EnsembleOptions) -> None:
    """Writes the ensemble's answers; prints their scores if --predict_file is given."""
    output_dir, version_2 = options.output_dir, options.version_2_with_negative
    gold_file = read_golds(options.predict_file) if options.predict_file else None
    if gold_file and gold_file.version == "2.0" and not version_2:
        raise InputError(
            f"{options.predict_file} is SQuAD 2.0's: add --version_2_with_negative."
        )
    answers = ensemble(
        options.prediction_dirs,
        version_2_with_negative=version_2,
        n_best_size=options.n_best_size,
    )
    # Every file is read and checked before the folder is made.
    first = next(answers)
    files.make_folder(output_dir)
    joined = Answers(
        version_2_with_negative=version_2,
        threshold=options.null_score_diff_threshold or 0.0,
    )
    for question_id, decoded in itertools.chain([first], answers):
        joined.add(question_id, decoded)
    predictions = joined.texts()
    report = None
    if gold_file:
        report_unmatched(gold_file.golds, predictions, output_dir)
        report = (
            evaluate_v2(gold_file.golds, predictions)
            if version_2
            else evaluate_v1(gold_file.questions, predictions)
        )
    joined.write(output_dir)
    logging.info(
        "Wrote the answers of %s runs to %s questions to %s.",
        *(len(options.prediction_dirs), len(predictions), output_dir),
    )
    if report:
        print(json.dumps(report, indent=2))
