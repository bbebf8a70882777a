"""SQuAD's decoding beside the original's: a part of benchmarks/squad.py."""

import itertools
import json
import pathlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from parts.squad_cases import SHORT, USUAL, Case, Paths, original

NAMES = ("predictions.json", "nbest_predictions.json", "null_odds.json")

# Of padding, where a trained model was not asked.
_LOW = -10_000.0


class Logits(NamedTuple):
    """Scores of all windows of a file.

    Attributes:
        label: what they are.
        case: the features that they are of.
        path: where the arrays lie.
        settings: of the decoding.
    """

    label: str
    case: Case
    path: pathlib.Path
    settings: dict[str, Any]


def run_decoding(
    paths: Paths, trained: dict[str, pathlib.Path | None], num_questions: int
) -> None:
    """Prints which prediction files are the original's, and how alignment fares.

    Args:
        paths: where things are.
        trained: version -> the folder of a model that was trained on it, if any.
        num_questions: of each case of random logits.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        of_models = {
            version: trained_logits(paths, folder, version, checkpoint)
            for version, checkpoint in trained.items()
            if checkpoint is not None
        }
        for version in set(trained) - set(of_models):
            print(f"SQuAD {version}: no trained model yet: run --only=scores first")
        if paths.original_dir is not None:
            print("\nThe files of a prediction from the same logits, all bytes;")
            print("questions a second of processor time:\n")
            print("| logits | questions | the same | questions/s | original | times |")
            print("|---|---|---|---|---|---|")
            for version in trained:
                for logits in random_logits(paths, folder, version, num_questions):
                    compare(logits, paths, folder)
                if version in of_models:
                    for settings in SETTINGS[version]:
                        compare(
                            of_models[version]._replace(settings=settings),
                            paths,
                            folder,
                        )
        if of_models:
            print_ways(of_models, paths, folder)


_USUAL = {"n_best_size": 20, "max_answer_length": 30}
SETTINGS = {
    "1.1": ({**_USUAL}, {"n_best_size": 8, "max_answer_length": 15}),
    "2.0": (
        {**_USUAL, "null_score_diff_threshold": 0.0},
        {"n_best_size": 8, "max_answer_length": 15, "null_score_diff_threshold": -1.5},
    ),
}


def random_logits(
    paths: Paths, folder: pathlib.Path, version: str, num_questions: int
) -> Iterator[Logits]:
    """Cases of logits that no model gives."""
    whole = Case(f"dev-v{version}")
    few = folder / f"few-{version}.json"
    few.write_text(first_questions(whole.file(paths, folder), num_questions), "utf-8")
    for number, (lengths, settings) in enumerate(
        itertools.product((USUAL, SHORT), SETTINGS[version])
    ):
        case = whole._replace(lengths=lengths)
        there = paths._replace(files={**paths.files, whole.name: few})
        features = case.featurizer(there)(case.questions(there, folder))
        count = sum(len(one.windows) for one in features)
        rng = np.random.default_rng(number)
        shape = (2, count, lengths.max_seq_length)
        values = (3 * rng.standard_normal(shape)).astype(np.float32)
        for label, scores in (("random", values), ("random, ties", np.round(values))):
            path = folder / "logits.npz"
            np.savez(path, start_logits=scores[0], end_logits=scores[1])
            yield Logits(label, case, path, settings)


def first_questions(path: pathlib.Path, count: int) -> str:
    """A file's articles up to its `count`-th question."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = paragraph["qas"][: max(0, count)]
            count -= len(paragraph["qas"])
    return json.dumps(content)


def trained_logits(
    paths: Paths, folder: pathlib.Path, version: str, checkpoint: pathlib.Path
) -> Logits:
    """The logits of a trained model on a dev file; kept."""
    case = Case(f"dev-v{version}")
    name = f"{checkpoint.name}-{paths.files[case.name].stem}.npz"
    path = paths.work_dir / "logits" / name
    result = Logits("trained", case, path, SETTINGS[version][0])
    if path.exists():
        return result
    from bert_tf.conversion.loading import load_span_predictor
    from bert_tf.records.batching import Batching
    from bert_tf.tasks.squad.window_logits import question_logits
    from bert_tf.training.evaluation import Predictor

    model = load_span_predictor(str(checkpoint))
    features = list(case.featurizer(paths)(case.questions(paths, folder)))
    length = case.lengths.max_seq_length
    arrays = [
        np.full([sum(len(one.windows) for one in features), length], _LOW, np.float32)
        for _ in range(2)
    ]
    predictor = Predictor("squad", model)
    row = 0
    for _, starts, ends in question_logits(
        features,
        predictor.run,
        Batching(batch_size=16, max_seq_length=length),
        num_questions=len(features),
    ):
        for start, end in zip(starts, ends, strict=True):
            arrays[0][row, : len(start)], arrays[1][row, : len(end)] = start, end
            row += 1
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.npz")
    np.savez(temporary, start_logits=arrays[0], end_logits=arrays[1])
    temporary.replace(path)
    return result


class Answered(NamedTuple):
    """What our decoding made of logits.

    Attributes:
        best_texts: question id -> the best answer.
        without_span: the questions for which there is none.
        seconds: of processor time that it took.
    """

    best_texts: dict[str, str]
    without_span: list[str]
    seconds: float


def decode(
    features: Sequence[Any],
    logits: Logits,
    tokenizer: Any,
    folder: pathlib.Path,
    skipped: Sequence[str] = (),
    **options: Any,
) -> Answered:
    """Writes prediction files into a folder, which is made."""
    from bert_tf.tasks.squad.decoding import Decoder
    from bert_tf.tasks.squad.scoring import Answers

    folder.mkdir(exist_ok=True)
    settings = dict(logits.settings)
    threshold = settings.pop("null_score_diff_threshold", 0.0)
    is_version_2 = logits.case.is_version_2
    decoder = Decoder(
        tokenizer, version_2_with_negative=is_version_2, **settings, **options
    )
    arrays = dict(np.load(logits.path))
    left_out = set(skipped)
    without_span = []
    row = 0
    began = time.process_time()
    answers = Answers(version_2_with_negative=is_version_2, threshold=threshold)
    for one in features:
        rows = slice(row, row + len(one.windows))
        row = rows.stop
        if one.question.question_id in left_out:
            continue
        starts, ends = (arrays[f"{end}_logits"][rows] for end in ("start", "end"))
        decoded = decoder(one, list(starts), list(ends))
        if not decoded.best_text:
            without_span.append(one.question.question_id)
        answers.add(one.question.question_id, decoded)
    answers.write(str(folder))
    return Answered(answers.best_texts, without_span, time.process_time() - began)


def compare(logits: Logits, paths: Paths, folder: pathlib.Path) -> None:
    """A row of the table of prediction files."""
    case = logits.case
    if logits.label != "trained":
        few = folder / f"few-{case.name.removeprefix('dev-v')}.json"
        paths = paths._replace(files={**paths.files, case.name: few})
    featurizer = case.featurizer(paths)
    features = list(featurizer(case.questions(paths, folder)))
    ours, theirs = folder / "our-files", folder / "their-files"
    done = decode(features, logits, featurizer.tokenizer, ours)
    skipped: list[str] = []
    if case.is_version_2 and done.without_span:
        # Where there is no span the original ends with an AttributeError.
        skipped = done.without_span
        decode(features, logits, featurizer.tokenizer, ours, skipped)
    theirs.mkdir(exist_ok=True)
    job = {
        **case.job(paths, folder),
        **logits.settings,
        "logits": str(logits.path),
        "output_dir": str(theirs),
        "skipped": skipped,
    }
    seconds = original(paths, job)["seconds"]
    names = NAMES if case.is_version_2 else NAMES[:2]
    wrong = [n for n in names if (ours / n).read_bytes() != (theirs / n).read_bytes()]
    count = len(features) - len(skipped)
    said = ", ".join(f"{name}={value}" for name, value in logits.settings.items())
    print(
        f"| {logits.label}, {case.name}, {'/'.join(map(str, case.lengths))}, {said} |"
        f" {count:,}{f' ({len(skipped)} crash the original)' if skipped else ''} |"
        f" {', '.join(wrong) + ' differ' if wrong else f'all {len(names)} files'} |"
        f" {len(features) / done.seconds:,.0f} | {count / seconds:,.0f} |"
        f" {seconds / count * len(features) / done.seconds:.1f} |",
        flush=True,
    )


def print_ways(
    of_models: dict[str, Logits], paths: Paths, folder: pathlib.Path
) -> None:
    """The table of how trained models' answers fare by --answer_text."""
    print("\nA trained model's best answers by --answer_text, to questions that have")
    print("one. Right: the exact match with any gold answer.\n")
    columns = ("differ", "in white space alone", "right: both")
    columns += ("alignment", "offsets", "neither")
    print(f"| SQuAD | questions | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|")
    differing = [
        line
        for version, logits in of_models.items()
        for line in print_way_row(version, logits, paths, folder)
    ]
    print("\nSome that differ in more: alignment, offsets, the first gold answer.\n")
    print("\n".join(differing))


def print_way_row(
    version: str, logits: Logits, paths: Paths, folder: pathlib.Path
) -> list[str]:
    """A row of the table of alignment and offsets; returns where they differ."""
    from bert_tf.tasks.squad.scoring import normalize_answer

    featurizer = logits.case.featurizer(paths)
    features = list(featurizer(logits.case.questions(paths, folder)))
    alignment, offsets = (
        decode(
            features, logits, featurizer.tokenizer, folder / way, answer_text=way
        ).best_texts
        for way in ("alignment", "offsets")
    )
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    total, in_blanks, shown = 0, 0, []
    for one in features:
        question = one.question
        total += bool(question.answers)
        texts = [way[question.question_id] for way in (alignment, offsets)]
        if not question.answers or texts[0] == texts[1]:
            continue
        right = [
            normalize_answer(text)
            in [normalize_answer(gold.text) for gold in question.answers]
            for text in texts
        ]
        counts[right[0], right[1]] += 1
        if texts[0].split() == texts[1].split():
            in_blanks += 1
            continue
        shown.append(f"- {texts[0]!r}, {texts[1]!r}, {question.answers[0].text!r}")
    differ = sum(counts.values())
    cells = " | ".join(map(str, counts.values()))
    print(f"| {version} | {total:,} | {differ} | {in_blanks} | {cells} |")
    return shown[:10]
