"""What benchmarks/squad.py compares with the original: files, lengths, its code."""

import json
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

from parts.results import PEERS, environment

WORKER = PEERS / "original_squad.py"


class Paths(NamedTuple):
    """Where things are.

    Attributes:
        files: "train-v1.1" and the like -> the file.
        vocabularies: "uncased", "cased" -> the vocabulary.
        work_dir: where results are kept.
        original_dir: the original's checkout; None to leave it out.
    """

    files: dict[str, pathlib.Path]
    vocabularies: dict[str, pathlib.Path]
    work_dir: pathlib.Path
    original_dir: pathlib.Path | None


class Lengths(NamedTuple):
    """The lengths of windows."""

    max_seq_length: int
    doc_stride: int
    max_query_length: int


USUAL = Lengths(384, 128, 64)
# Nearly every paragraph has several windows, and some questions are cut.
SHORT = Lengths(96, 16, 12)


class Case(NamedTuple):
    """Features of a file.

    Attributes:
        name: "train-v1.1" and the like.
        is_training: whether answers are looked up.
        casing: "uncased" or "cased".
        lengths: of the windows.
    """

    name: str
    is_training: bool = False
    casing: str = "uncased"
    lengths: Lengths = USUAL

    @property
    def is_version_2(self) -> bool:
        """Whether there are questions without an answer."""
        return self.name.endswith("2.0")

    @property
    def label(self) -> str:
        """For a table."""
        purpose = "training" if self.is_training else "prediction"
        lengths = "/".join(map(str, self.lengths))
        return f"{self.name} | {purpose}, {self.casing}, {lengths}"

    def job(self, paths: Paths, folder: pathlib.Path) -> dict[str, Any]:
        """What the original is told."""
        return {
            "data_file": str(self.file(paths, folder)),
            "vocab_file": str(paths.vocabularies[self.casing]),
            "do_lower_case": self.casing == "uncased",
            "version_2_with_negative": self.is_version_2,
            "is_training": self.is_training,
            **self.lengths._asdict(),
        }

    def file(self, paths: Paths, folder: pathlib.Path) -> pathlib.Path:
        """The file; to train on a dev file, one with the first answers alone.

        The original trains on no question with several.
        """
        path = paths.files[self.name]
        if not self.is_training or self.name.startswith("train"):
            return path
        target = folder / f"{self.name}-first-answers.json"
        if not target.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            for article in content["data"]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        del question["answers"][1:]
            target.write_text(json.dumps(content), encoding="utf-8")
        return target

    def questions(self, paths: Paths, folder: pathlib.Path) -> Any:
        """Ours."""
        from bert_tf.tasks.squad.reading import read_file

        return read_file(
            str(self.file(paths, folder)),
            version_2_with_negative=self.is_version_2,
            for_training=self.is_training,
        )

    def featurizer(self, paths: Paths) -> Any:
        """Ours, with empty caches."""
        from bert_tf.tasks.squad.windows import QuestionFeaturizer
        from bert_tf.text.vocabulary import Vocabulary
        from bert_tf.text.wordpiece import WordPieceTokenizer

        return QuestionFeaturizer(
            WordPieceTokenizer(
                Vocabulary.from_file(str(paths.vocabularies[self.casing])),
                do_lower_case=self.casing == "uncased",
            ),
            for_training=self.is_training,
            **self.lengths._asdict(),
        )


def original(paths: Paths, job: dict[str, Any]) -> dict[str, Any]:
    """Runs the original's code."""
    done = subprocess.run(
        [sys.executable, str(WORKER), str(paths.original_dir), json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])
