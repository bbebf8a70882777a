"""The text of benchmarks/speedrun.py: five packages of nltk_data, by their names.

Brown's documents lose their tags. A paragraph is a line; a blank line ends a document.
Every 20th document is held out.
"""

import hashlib
import pathlib
from collections.abc import Iterator

PACKAGES = ("abc", "brown", "inaugural", "movie_reviews", "state_union")
TEXT, HELD_OUT = "text.txt", "held_out.txt"
DIGESTS = {
    TEXT: "f7a00e17c0d2601e1b872b7d675851cbb32eb145ea33d8de7a9da8a509670a68",
    HELD_OUT: "f5803c3bef483e96c29891a1b5c76222ebcf4f5f670d0f43368d8447ccd057d7",
}
_EVERY = 20


def write_text(folder: pathlib.Path, corpora: pathlib.Path) -> None:
    """Writes both files, and compares their digests.

    Args:
        folder: where they are written; files that are there stay.
        corpora: has a folder of each package, as `nltk.download` leaves them under
            `corpora/`, unpacked.
    """
    if not all((folder / name).exists() for name in DIGESTS):
        folder.mkdir(parents=True, exist_ok=True)
        parts: dict[str, list[str]] = {name: [] for name in DIGESTS}
        for number, document in enumerate(_documents(corpora)):
            parts[TEXT if number % _EVERY else HELD_OUT].append(document)
        for name, documents in parts.items():
            (folder / name).write_text("\n\n".join(documents) + "\n", "utf-8")
    for name, wanted in DIGESTS.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != wanted:
            raise SystemExit(f"{folder / name}: sha256 is {found}, must be {wanted}.")


def _documents(corpora: pathlib.Path) -> Iterator[str]:
    for package in PACKAGES:
        if not (corpora / package).is_dir():
            raise SystemExit(f"{corpora / package}: no such folder: give --corpora.")
        paths = sorted(
            path
            for path in (corpora / package).rglob("*")
            if path.is_file() and (path.suffix == ".txt" or package == "brown")
        )
        for path in paths:
            if path.name in {"CONTENTS", "README", "cats.txt"}:
                continue
            lines = [" ".join(line.split()) for line in _text(path).splitlines()]
            if package == "brown":
                words = (line.split() for line in lines)
                lines = [" ".join(w.rpartition("/")[0] for w in ws) for ws in words]
            # A file of abc has an article in each part between blank lines.
            articles = "\n".join(lines).split("\n\n") if package == "abc" else [""]
            if package != "abc":
                articles = ["\n".join(filter(None, lines))]
            yield from filter(None, (article.strip() for article in articles))


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return path.read_text("cp1252", errors="replace")
