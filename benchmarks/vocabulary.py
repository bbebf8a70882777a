r"""Learning a vocabulary: time, memory, and how well it fits text that it has not seen.

Ours and the trainers of Rust `tokenizers`, in one run, on the same text at the same
size, beside the released vocabulary:

    python benchmarks/vocabulary.py --data_dir=DATA

DATA holds wikipedia_en/*.xz (wikiextractor's output; the last file is held out) and the
released vocabulary as vocab/bert-base-uncased/vocab.txt.

Each vocabulary is learned by processes of their own, from their start to their end:
seconds are the clock's (the machine may be shared) and the processors', memory that of
the largest process. "Again" is whether a second run wrote the same bytes. Tokens a word
and the share of words with an [UNK] are those of our tokenizer on the held-out text;
special and unused tokens help none.
"""

import glob
import lzma
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from absl import app, flags

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from bert_tf.text.learning import WordCounts  # noqa: E402
from bert_tf.text.vocabulary import Vocabulary  # noqa: E402
from bert_tf.text.wordpiece import WordPieceTokenizer  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# As many as the released vocabularies have.
PEERS_ALPHABET = 1000


class Cost(NamedTuple):
    """What a run took: seconds by the clock, of the processors, and megabytes."""

    wall: float
    processor: float
    memory: float


def read_articles(path: str) -> Iterator[str]:
    """Lines of plain text, with a blank one between articles."""
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            if line.startswith("</doc>"):
                yield "\n"
            elif line.strip() and not line.startswith("<doc "):
                yield line


def run(command: Sequence[str]) -> Cost:
    """Runs a command to its end."""
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    said = process.stderr.read()
    # Of the process and of those that it waited for.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {said}")
    return Cost(
        time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3
    )


def learn_peers(name: str, vocab_size: int, output: str, paths: list[str]) -> None:
    """Learns and writes a vocabulary with a trainer of `tokenizers`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    settings = {
        "vocab_size": vocab_size,
        "min_frequency": 2,
        "limit_alphabet": PEERS_ALPHABET,
        "special_tokens": SPECIAL,
        "continuing_subword_prefix": "##",
        "show_progress": False,
    }
    if name == "WordPieceTrainer":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(**settings)
    else:
        tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
        trainer = trainers.BpeTrainer(**settings)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train(paths, trainer)
    ids = tokenizer.get_vocab()
    with open(output, "w", encoding="utf-8") as file:
        file.writelines(f"{token}\n" for token in sorted(ids, key=ids.__getitem__))


def fit(path: str, held_out: WordCounts) -> str:
    """How a vocabulary fits a text."""
    vocabulary = Vocabulary.from_file(path)
    tokenizer = WordPieceTokenizer(vocabulary)
    num_tokens = num_unknown = 0
    for word, count in held_out.words.items():
        ids = tokenizer.encode(word)
        num_tokens += count * len(ids)
        num_unknown += count * (vocabulary.unk_id in ids)
    num_words = held_out.num_occurrences
    return (
        f"{num_tokens / num_words:8.4f} tokens a word"
        f"{num_unknown / num_words:10.4%} unknown{len(vocabulary):8,} entries"
    )


def compare(text: list[str], held_out: WordCounts, released: str, folder: str) -> None:
    """Prints a line for each vocabulary."""
    size = len(Vocabulary.from_file(released))
    output = os.path.join(folder, "vocab.txt")
    num_unused = sum(t.startswith("[unused") for t in Vocabulary.from_file(released))
    script = ["-m", "tfrecords.learn_vocabulary", f"--input_file={','.join(text)}"]
    script += [f"--output_file={output}", "--overwrite"]
    script += [f"--vocab_size={size}"]
    peer = [__file__, f"--output={output}", f"--vocab_size={size}", *text]
    contenders = {
        "bert_tf, 1 worker": [*script, "--num_workers=1"],
        "bert_tf, 2 workers": [*script, "--num_workers=2"],
        "  with room for as many unused": [*script, f"--num_unused={num_unused}"],
        "  as many characters": [*script, "--character_coverage=0.99999"],
        "tokenizers WordPieceTrainer": [*peer, "--peer=WordPieceTrainer"],
        "tokenizers BpeTrainer": [*peer, "--peer=BpeTrainer"],
    }
    print(f"    {'released':32}{fit(released, held_out):>90}")
    ours = set()
    for name, command in contenders.items():
        found = []
        for _ in range(2):
            if os.path.exists(output):
                os.remove(output)
            try:
                cost = run(command)
            except RuntimeError as error:
                print(f"    {name:32}{str(error).strip().splitlines()[-1]}")
                break
            found.append(Vocabulary.from_file(output).sha256)
        else:
            again = "same" if found[0] == found[1] else "OTHER"
            print(
                f"    {name:32}{cost.wall:6.1f} s{cost.processor:6.1f} s of processors"
                f"{cost.memory:6.0f} MB, again: {again:5}{fit(output, held_out)}"
            )
            if "worker" in name:
                ours.update(found)
    print(f"    bert_tf, 1 and 2 workers, twice each: {len(ours)} different result(s)")


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if options.peer:
        learn_peers(options.peer, options.vocab_size, options.output, argv[1:])
        return
    data = options.data_dir or ""
    packed = sorted(glob.glob(os.path.join(data, "wikipedia_en", "*.xz")))
    released = os.path.join(data, "vocab", "bert-base-uncased", "vocab.txt")
    if len(packed) < 2 or not os.path.exists(released):
        print(f"vocabulary: skipped, no data: --data_dir={options.data_dir}")
        return
    *seen, unseen = packed
    held_out = WordCounts()
    held_out.add_lines(read_articles(unseen), do_lower_case=True)
    with tempfile.TemporaryDirectory() as folder:
        text = []
        for path in seen:
            text.append(os.path.join(folder, os.path.basename(path) + ".txt"))
            with open(text[-1], "w", encoding="utf-8", newline="\n") as file:
                file.writelines(read_articles(path))
        megabytes = sum(map(os.path.getsize, text)) / 1e6
        print(
            f"vocabulary: learned from {megabytes:.1f} MB of Wikipedia, uncased;"
            f" {held_out.num_occurrences:,} words held out"
        )
        compare(text, held_out, released, folder)


if __name__ == "__main__":
    flags.DEFINE_string("data_dir", None, "Folder with wikipedia_en/*.xz and vocab.")
    flags.DEFINE_string("original_dir", None, "Of the other benchmarks; not used.")
    # What this script gives itself.
    flags.DEFINE_string("peer", None, "A trainer to learn with, from files.")
    flags.DEFINE_string("output", None, "Where its vocabulary goes.")
    flags.DEFINE_integer("vocab_size", None, "Number of its tokens.")
    app.run(main)
