"""What benchmarks/features.py reads: real files, always cut and split the same way."""

import csv
import lzma
import pathlib
from typing import NamedTuple

SWAG_TRAIN, SWAG_DEV = 4000, 1000
# Every fifth document of the Brown corpus is kept to score on.
_DOCUMENTS_A_SPLIT = 5


class Bench(NamedTuple):
    """What all parts share.

    Attributes:
        data_dir: has brown/ and swag/.
        work_dir: where results are kept.
        checkpoint: what both sides start from: a Hugging Face folder.
        pythons: side -> the Python that runs it.
        sides: to run.
    """

    data_dir: pathlib.Path
    work_dir: pathlib.Path
    checkpoint: pathlib.Path
    pythons: dict[str, str]
    sides: list[str]


class Split(NamedTuple):
    """The files of a task: to train on, and to score."""

    train: pathlib.Path
    dev: pathlib.Path


def tagged_sentences(document: pathlib.Path) -> list[list[tuple[str, str]]]:
    """The sentences of a document of the Brown corpus: words, and their tags."""
    return [
        [(word, tag) for word, _, tag in (cell.rpartition("/") for cell in cells)]
        for line in document.read_text(encoding="utf-8").splitlines()
        if (cells := line.split())
    ]


def sentences_file(bench: Bench, count: int) -> pathlib.Path:
    """A file with so many of the corpus' sentences, evenly from all of it."""
    path = bench.work_dir / "data" / f"sentences-{count}.txt"
    if not path.exists():
        sentences = [
            " ".join(word for word, _ in sentence)
            for document in sorted((bench.data_dir / "brown").iterdir())
            for sentence in tagged_sentences(document)
        ]
        chosen = [sentences[n * len(sentences) // count] for n in range(count)]
        _write(path, "".join(f"{sentence}\n" for sentence in chosen))
    return path


def tagged_files(bench: Bench, num_documents: int | None) -> Split:
    """Tagged words: every fifth document is to score on; so many of all, or all."""
    documents = sorted((bench.data_dir / "brown").iterdir())
    if num_documents is not None:
        documents = [
            documents[n * len(documents) // num_documents] for n in range(num_documents)
        ]
    dev = documents[_DOCUMENTS_A_SPLIT - 1 :: _DOCUMENTS_A_SPLIT]
    parts = {"train": [one for one in documents if one not in dev], "dev": dev}
    paths = []
    for name, some in parts.items():
        path = bench.work_dir / "data" / f"brown-{len(documents)}-{name}.txt"
        sentences = [one for document in some for one in tagged_sentences(document)]
        lines = (" ".join(map("/".join, sentence)) for sentence in sentences)
        _write(path, "".join(f"{line}\n" for line in lines))
        # The same in columns, for our side.
        blocks = ("\n".join(map("\t".join, sentence)) for sentence in sentences)
        _write(path.with_suffix(".conll"), "\n\n".join(blocks) + "\n")
        paths.append(path)
    return Split(*paths)


def choice_files(bench: Bench, num_examples: int | None) -> Split:
    """Multiple choice: the first rows to train on, the last ones to score.

    Args:
        bench: what all parts share.
        num_examples: of each of both files; None for 4,000 and 1,000.
    """
    source = bench.data_dir / "swag" / "hellaswag_5000.swag-style.csv.xz"
    with lzma.open(source, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    train, dev = num_examples or SWAG_TRAIN, num_examples or SWAG_DEV
    parts = {"train": rows[1 : 1 + train], "dev": rows[-dev:]}
    paths = []
    for name, some in parts.items():
        path = bench.work_dir / "data" / f"swag-{len(some)}-{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([rows[0], *some])
        paths.append(path)
    return Split(*paths)


def _write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
