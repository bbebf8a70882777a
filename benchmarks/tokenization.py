r"""Tokenization: megabytes a second, and lines that differ from the original.

Ours, Rust `tokenizers` and tensorflow-text, in one run, on one core, on the same lines;
and the original itself, given a checkout of google-research/bert:

    python benchmarks/tokenization.py --data_dir=DATA --original_dir=BERT

DATA holds wikipedia_en/*.xz (wikiextractor's output), udhr/*.txt (one language a file)
and the released vocabularies as vocab/NAME/vocab.txt.

Without one, tests/text/plain_tokenizer.py stands for it. Speed is that of `encode`,
from strings to ids, in megabytes of UTF-8 a second of processor time (the machine may
be shared): the best of `--repetitions`, in turn. "Cold" is ours with a new tokenizer
each time, "warm" with one that has seen the text; tensorflow-text gets 1,024 lines at a
time and its result is left a tensor.
"""

import argparse
import functools
import gc
import glob
import importlib.util
import lzma
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
# One core each. Set before the libraries are loaded.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from bert_tf.text.vocabulary import Vocabulary  # noqa: E402
from bert_tf.text.wordpiece import WordPieceTokenizer  # noqa: E402
from tests.text.plain_tokenizer import plain_tokens  # noqa: E402

VOCABULARIES = {  # the four released ones, and whether they are uncased
    "bert-base-uncased": True,
    "bert-base-cased": False,
    "bert-base-multilingual-cased": False,
    "bert-base-chinese": True,
}
TENSORFLOW_TEXT_BATCH = 1024

Encode = Callable[[list[str]], list[list[int]]]


class Contender(NamedTuple):
    """A way of turning lines into ids."""

    name: str
    prepare: Callable[[], Encode]  # called before each repetition, not timed
    ids: Encode | None = None  # like the encoder, but surely gives lists
    repeated: bool = True


class Skipped(Exception):  # noqa: N818
    """A contender that cannot take part, and why."""


def read_lines(path: str) -> list[str]:
    opened = lzma.open if path.endswith(".xz") else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line for line in file.read().split("\n") if line]


def megabytes(lines: list[str]) -> float:
    return sum(len(line.encode("utf-8")) for line in lines) / 1e6


def wikipedia_lines(folder: str, size: float) -> list[str]:
    lines: list[str] = []
    read = 0.0
    for path in sorted(glob.glob(os.path.join(folder, "wikipedia_en", "*.xz"))):
        for line in read_lines(path):
            if read >= size:
                return lines
            lines.append(line)
            read += len(line.encode("utf-8")) / 1e6
    return lines


def fuzz_lines(count: int, seed: int) -> list[str]:
    """Random strings: every code point once but surrogates, and mixtures of scripts."""
    rng = random.Random(seed)
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    rng.shuffle(everything)
    lines = ["".join(everything[i : i + 64]) for i in range(0, len(everything), 64)]
    stops = (0x80, 0x250, 0x600, 0x3000, 0x10000, 0x20000)
    for _ in range(count):
        line = ""
        while rng.random() < 0.9:
            char = chr(rng.randrange(rng.choice(stops)))
            line += char if not "\ud800" <= char < "\ue000" else " "
            line += rng.choice(("", "", " ", "a", "É", "the", "Σ", "中", "\u0301"))
        lines.append(line.replace("\n", " "))
    return [line.replace("\n", " ") for line in lines]


def ours(vocabulary: Vocabulary, lower: bool, lines: list[str]) -> list[Contender]:
    def cold() -> Encode:
        tokenizer = WordPieceTokenizer(vocabulary, do_lower_case=lower)
        return lambda some: [tokenizer.encode(line) for line in some]

    @functools.cache
    def warm() -> Encode:
        encode = cold()
        encode(lines)
        return encode

    return [Contender("bert_tf, cold", cold), Contender("bert_tf, warm", warm)]


def rust(path: str, lower: bool) -> Contender:
    try:
        from tokenizers import BertWordPieceTokenizer
    except ImportError as error:
        raise Skipped("missing: pip install tokenizers") from error
    encode = BertWordPieceTokenizer(
        path, lowercase=lower, strip_accents=lower, handle_chinese_chars=True
    ).encode

    def lines_to_ids(lines: list[str]) -> list[list[int]]:
        return [encode(line, add_special_tokens=False).ids for line in lines]

    return Contender("tokenizers (Rust)", lambda: lines_to_ids)


def tensorflow_text(vocabulary: Vocabulary, lower: bool) -> Contender:
    try:
        import tensorflow as tf
        import tensorflow_text
    except ImportError as error:
        raise Skipped("missing: pip install tensorflow-text") from error
    if not tf.config.threading.get_intra_op_parallelism_threads():
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    try:
        tokenizer = tensorflow_text.FastBertTokenizer(
            list(vocabulary.tokens),
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=lower,
        )
    except (RuntimeError, ValueError) as error:
        raise Skipped(f"refuses the vocabulary: {error}") from error

    def tensors(lines: list[str]) -> list:
        return [
            tokenizer.tokenize(lines[i : i + TENSORFLOW_TEXT_BATCH])
            for i in range(0, len(lines), TENSORFLOW_TEXT_BATCH)
        ]

    def lines_to_ids(lines: list[str]) -> list[list[int]]:
        return [ids for batch in tensors(lines) for ids in batch.to_list()]

    return Contender("tensorflow-text (Fast)", lambda: tensors, lines_to_ids)


def original(folder: str, path: str, lower: bool) -> Contender:
    """The original's FullTokenizer, with the one TensorFlow 1 class that it needs."""
    stub = types.ModuleType("tensorflow")
    open_text = functools.partial(open, encoding="utf-8", newline="\n")
    stub.gfile = types.SimpleNamespace(GFile=open_text)  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location(
        "original_tokenization", os.path.join(folder, "tokenization.py")
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    present = sys.modules.get("tensorflow")
    sys.modules["tensorflow"] = stub
    try:
        spec.loader.exec_module(module)
    finally:
        if present is None:
            del sys.modules["tensorflow"]
        else:
            sys.modules["tensorflow"] = present
    tokenizer = module.FullTokenizer(path, do_lower_case=lower)

    def lines_to_ids(lines: list[str]) -> list[list[int]]:
        return [
            tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) for line in lines
        ]

    return Contender("google-research/bert", lambda: lines_to_ids, repeated=False)


def plain(vocabulary: Vocabulary, lower: bool) -> Contender:
    known = set(vocabulary.tokens)

    def lines_to_ids(lines: list[str]) -> list[list[int]]:
        return [
            [vocabulary.ids[token] for token in plain_tokens(line, known, lower)]
            for line in lines
        ]

    return Contender("plain Python", lambda: lines_to_ids, repeated=False)


def seconds(contender: Contender, lines: list[str]) -> float:
    encode = contender.prepare()
    start = time.process_time()
    encode(lines)
    return time.process_time() - start


def compare(
    contenders: list[Contender],
    reference: list[list[int]],
    lines: list[str],
    repetitions: int,
) -> None:
    """Prints one line for each contender."""
    best = dict.fromkeys(contenders, float("inf"))
    gc.freeze()  # collections shall not walk through this script's own lists
    # In turn, so that a disturbance of the machine meets all of them.
    for repetition in range(repetitions):
        for contender in contenders:
            if contender.repeated or not repetition:
                best[contender] = min(best[contender], seconds(contender, lines))
    for contender in contenders:
        found = (contender.ids or contender.prepare())(lines)
        different = sum(a != b for a, b in zip(found, reference, strict=True))
        speed = megabytes(lines) / best[contender]
        print(f"    {contender.name:24}{speed:8.2f} MB/s{different:10,} lines differ")


class Case(NamedTuple):
    """A vocabulary's file, whether it is uncased, and lines to tokenize."""

    path: str
    uncased: bool
    lines: list[str]


def options_of(docstring: str, size: float, repetitions: int) -> argparse.Namespace:
    """The flags of the scripts about tokenizers, with these defaults."""
    parser = argparse.ArgumentParser(description=docstring.split("\n", 1)[0])
    parser.add_argument(
        "--data_dir",
        help="folder with wikipedia_en/*.xz, udhr/*.txt and vocab/*/vocab.txt",
    )
    parser.add_argument("--original_dir", help="a checkout of google-research/bert")
    parser.add_argument("--megabytes", type=float, default=size, help="of Wikipedia")
    parser.add_argument("--fuzz_lines", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--repetitions", type=int, default=repetitions)
    return parser.parse_args()


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Each vocabulary with each text; prints which, and what is missing."""
    if not options.data_dir or not os.path.isdir(options.data_dir):
        print(f"skipped, no data: --data_dir={options.data_dir}")
        return
    folder = os.path.normpath(options.data_dir)
    texts = {
        "wikipedia_en": wikipedia_lines(folder, options.megabytes),
        "udhr": [
            line
            for path in sorted(glob.glob(os.path.join(folder, "udhr", "*.txt")))
            for line in read_lines(path)
        ],
        "fuzz": fuzz_lines(options.fuzz_lines, options.seed),
    }
    for name, uncased in VOCABULARIES.items():
        path = os.path.join(folder, "vocab", name, "vocab.txt")
        if not os.path.exists(path):
            print(f"{name}: no {path} (see --data_dir)")
            continue
        for text, lines in texts.items():
            if not lines:
                print(f"{name}, {text}: no such files in {folder} (see --data_dir)")
                continue
            print(f"{name}, {text}: {len(lines):,} lines, {megabytes(lines):.2f} MB")
            yield Case(path, uncased, lines)


def main() -> None:
    options = options_of(__doc__, size=2.3, repetitions=5)
    for path, uncased, lines in cases(options):
        vocabulary = Vocabulary.from_file(path)
        truth = plain(vocabulary, uncased)
        if options.original_dir:
            truth = original(options.original_dir, path, uncased)
        contenders = [*ours(vocabulary, uncased, lines), truth]
        for peer, make in (
            ("tokenizers (Rust)", functools.partial(rust, path)),
            (
                "tensorflow-text (Fast)",
                functools.partial(tensorflow_text, vocabulary),
            ),
        ):
            try:
                contenders.append(make(uncased))
            except Skipped as reason:
                print(f"    {peer:24}{reason}")
        reference = truth.prepare()(lines)
        compare(contenders, reference, lines, options.repetitions)


if __name__ == "__main__":
    main()
