"""Scores SQuAD's predictions as the official scripts do."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import Options, Path, option
from bert_tf.tasks.squad.reading import read_json
from bert_tf.tasks.squad.scoring import Gold, evaluate_v1, evaluate_v2


class GoldFile(NamedTuple):
    """The right answers of a SQuAD file."""

    questions: list[tuple[str, Gold]]  # in the file's order; an id may come twice
    # "2.0" if the file gives it, or has a question without an answer; else "1.1".
    version: str

    @property
    def golds(self) -> dict[str, Gold]:
        """The answers by id; for a repeated id the last ones."""
        return dict(self.questions)


class EvaluateSquadOptions(Options, decides="nothing"):
    """How to score; the official scripts' spellings with dashes work too."""

    na_prob_file: str | None = option(
        None,
        'For 2.0: a JSON file with the model\'s score of "no answer" for each'
        " question, such as run_squad's null_odds.json. Adds the best scores and"
        " their thresholds.",
        path=Path.FILE,
        is_dashed=True,
    )
    na_prob_thresh: float = option(
        1.0,
        'For 2.0: a prediction counts as "" if its score in --na_prob_file is above'
        " this. The official default is meant for probabilities. run_squad has already"
        " applied its own threshold to its predictions: give the same threshold here,"
        " or leave out --na_prob_file.",
        is_dashed=True,
        decides="numbers",
    )
    out_file: str | None = option(
        None,
        "Write the scores here instead of printing them.",
        path=Path.OUTPUT,
        is_dashed=True,
    )
    out_image_dir: str | None = option(
        None,
        "For 2.0 with --na_prob_file: draw precision-recall curves and histograms"
        ' of the "no answer" scores into this folder; adds average precisions.',
        path=Path.OUTPUT,
        is_dashed=True,
    )
    version: str = option(
        "auto",
        "The version whose rules apply. Default: the file's own.",
        choices=("auto", "1.1", "2.0"),
        decides="numbers",
    )

    def problems(self) -> Iterator[str]:
        """Yields options that need SQuAD 2.0."""
        yield from super().problems()
        yield from self.need_with("out_image_dir", "na_prob_file")
        if self.na_prob_file and self.version == "1.1":
            yield "`na_prob_file` is for SQuAD 2.0: leave `version=1.1` out."


def read_golds(path: str) -> GoldFile:
    """Reads the right answers of a file in SQuAD's format, compressed or not."""
    data, _ = read_json(path)
    questions = []
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    texts = tuple(answer["text"] for answer in question["answers"])
                    "".join(texts)  # raises unless they are texts
                    # Numbers are text, like the predictions' keys.
                    questions.append((str(question["id"]), texts))
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not in SQuAD's format at question {len(questions) + 1}:"
            f" {type(error).__name__}: {error}."
        ) from error
    if not questions:
        raise InputError(f"{path}: there are no questions in it.")
    named = str(data.get("version", "")).removeprefix("v").startswith("2")
    unanswerable = not all(gold for _, gold in questions)
    return GoldFile(questions, "2.0" if named or unanswerable else "1.1")


def read_by_question(path: str, what: str, kind: type | tuple[type, ...]) -> dict:
    """Reads JSON of the form {question's id: value}."""
    content = files.read_json(path, what)
    if not isinstance(content, dict):
        raise InputError(f"{path}: a {what} must be {{question's id: value, ...}}.")
    for question_id, value in content.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(
                f"{path}: not a {what}: question {question_id} has {str(value)[:60]!r}."
            )
    return content


def report_unmatched(
    golds: Mapping[str, Gold], predictions: Mapping[str, str], path: str
) -> None:
    """Warns of questions without a prediction, and of predictions without question."""
    missing = [key for key in golds if key not in predictions]
    unknown = [key for key in predictions if key not in golds]
    for keys, what in (
        (missing, "questions have no prediction"),
        (unknown, "predictions are for no question of the data, and do not count"),
    ):
        if keys:
            logging.warning("%s: %s %s; such as %s.", path, len(keys), what, keys[0])


def run(options: EvaluateSquadOptions) -> None:
    """Prints the scores, or writes them to --out_file."""
    if len(options.positional) != 2:
        raise InputError(
            "Give the data and the predictions: evaluate_squad dev-v1.1.json"
            " predictions.json"
        )
    na_prob_file, image_dir = options.na_prob_file, options.out_image_dir
    data_path, predictions_path = options.positional
    inputs = data_path, predictions_path, na_prob_file or data_path
    out_file = options.out_file
    if out_file and files.identity(out_file) in map(files.identity, inputs):
        raise InputError(f"--out_file: {out_file} is also an input file.")
    data = read_golds(data_path)
    golds = data.golds
    predictions = read_by_question(predictions_path, "predictions file", str)
    null_odds = None
    if na_prob_file:
        null_odds = read_by_question(na_prob_file, "file of null odds", (int, float))
    report_unmatched(golds, predictions, predictions_path)
    version = options.version
    if version == "auto":
        version = "2.0" if na_prob_file else data.version
    report: dict[str, Any]
    if version == "1.1":
        report = evaluate_v1(data.questions, predictions)
        printed = json.dumps(report)
    else:
        report = evaluate_v2(golds, predictions, null_odds, options.na_prob_thresh)
        if image_dir and null_odds:
            draw = addon("report_pictures").draw_evaluation
            report |= draw(image_dir, golds, predictions, null_odds)
        printed = json.dumps(report, indent=2)
    if out_file:
        files.write_atomically(out_file, json.dumps(report))
        logging.info("Wrote the scores to %s.", options.out_file)
    else:
        print(printed)
