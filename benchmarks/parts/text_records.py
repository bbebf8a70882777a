"""Records of a text and of a held-out one, for benchmarks that pre-train."""

import pathlib
import tempfile
from typing import Any

from absl import flags

from parts.commands import command, finished

LENGTH, PREDICTIONS = 128, 20

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of the corpora.")
flags.DEFINE_string("original_dir", None, "Not needed.")
_WORK_DIR = flags.DEFINE_string(
    "work_dir", None, "Where records and runs are kept. Default: a new folder."
)


def work_folder() -> pathlib.Path:
    """That of --work_dir."""
    return pathlib.Path(_WORK_DIR.value or tempfile.mkdtemp(prefix="pretraining_"))


def wikipedia() -> tuple[str, str]:
    """The text of --data_dir to train on, and its last file, which is held out."""
    folder = pathlib.Path(_DATA_DIR.value or "", "wikipedia_en")
    *text, held_out = sorted(map(str, folder.glob("*.xz"))) or [""]
    if not text:
        raise SystemExit(f"{folder} has no .xz files: give --data_dir.")
    return ",".join(text), held_out


def learn_vocabulary(text: Any, vocab: pathlib.Path, vocab_size: int) -> None:
    """A lower-cased vocabulary of a text, if there is none."""
    if not vocab.exists():
        finished(
            command(
                "tfrecords.learn_vocabulary",
                input_file=text,
                output_file=vocab,
                vocab_size=vocab_size,
                do_lower_case=True,
            )
        )


def write_records(text: Any, target: pathlib.Path, vocab: pathlib.Path) -> None:
    """Records of a text, masked as they are read, if they are missing."""
    finished(
        command(
            "tfrecords.create_pretraining_data",
            input_file=text,
            output_file=target,
            vocab_file=vocab,
            do_lower_case=True,
            max_seq_length=LENGTH,
            max_predictions_per_seq=PREDICTIONS,
            masking="dynamic",
            dupe_factor=1,
        )
    )


def records(
    work_dir: pathlib.Path, text: str, held_out: str, vocab_size: int
) -> dict[str, str]:
    """The flags for records of both, masked as they are read; written if missing."""
    vocab = work_dir / "vocab.txt"
    work_dir.mkdir(parents=True, exist_ok=True)
    learn_vocabulary(text, vocab, vocab_size)
    made = {"input_file": (text, "text"), "eval_input_file": (held_out, "held_out")}
    for source, name in made.values():
        write_records(source, work_dir / f"{name}.tfrecord", vocab)
    return {
        flag: str(work_dir / f"{name}.tfrecord") for flag, (_, name) in made.items()
    }
