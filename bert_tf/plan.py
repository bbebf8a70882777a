r"""Says how to pre-train on some text in so many hours, on this machine, and does it.

    python -m bert_tf.plan --input_file=text.txt --hours=8 --output_dir=domain

counts the text, writes records of a sample and trains each size of model on it for some
seconds, and prints what it would do, why, and the commands. With --go it runs them one
after the other. Killed and started again, it resumes where it was. --num_new_tokens
adds words of the text to the vocabulary of --init_checkpoint.

The size is the largest whose training sees at least 20 tokens per weight in the time
(Hoffmann et al. 2022), else the smallest. With --init_checkpoint the model is that one.
No text should be seen more than some 40 times, as often as by the original; a line says
how often it will be.
"""

import dataclasses
import functools
import json
import math
import os
import random
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.base import cli, files, finished, options
from bert_tf.base.child import Ended, run_child
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, declarations, option, with_default
from bert_tf.base.parallel import available_cores
from bert_tf.base.pictures import table
from bert_tf.records.text_input import TextOptions, file_chunks, text_chunks
from bert_tf.records.written_vocabulary import WrittenVocabularyOptions
from bert_tf.tasks.pretraining_options import PretrainingOptions
from bert_tf.text.documents import Chunk, read_chunk
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.training.training_options import ModelOptions

if TYPE_CHECKING:
    from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS_PER_WEIGHT = 20
MOST_PASSES = 40
# Of the sizes that are tried. Narrower models take larger rates.
LEARNING_RATES = {
    "tiny": 1e-3,
    "mini": 1e-3,
    "small": 5e-4,
    "medium": 3e-4,
    "base": 1e-4,
    "large": 1e-4,
}
_VERSION = 4  # of what is measured, and how
_SAMPLE_BYTES = 4_000_000
_SMALLER = 8  # times, a second sample
_COUNTED_BYTES = 64_000_000
_SECONDS_PER_SIZE = 20.0
_EVAL_STEPS = 20  # for the scores of a checkpoint
_LENGTH = 128  # or as long as a checkpoint's positions
_PREDICTED = 0.15  # of its tokens, at most
# Tokens of a vocabulary for a text of so many bytes, at least.
_VOCABULARIES = ((100e6, 30_522), (20e6, 16_000), (0, 8_000))
_CREATE = "bert_tf.tfrecords.create_pretraining_data"
_LEARN = "bert_tf.tfrecords.learn_vocabulary"
_EXTEND = "bert_tf.tfrecords.extend_vocabulary"
_TRAIN = "bert_tf.run_pretraining"
# General English has fewer tokens per word of a released vocabulary.
_MANY_TOKENS_PER_WORD = 1.5
_NO_SPACES_TOKENS_PER_WORD = 6.0  # of no language's words


class PlanOptions(TextOptions):
    """The text, the time, and the model to start from."""

    hours: float = option(
        REQUIRED, "Hours for all of it.", above=0.0, decides="nothing"
    )
    output_dir: str = with_default(PretrainingOptions, "output_dir", REQUIRED)
    init_checkpoint: str | None = with_default(ModelOptions, "init_checkpoint", None)
    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    num_new_tokens: int | None = option(
        None,
        "Number of words of the text to add to the vocabulary of --init_checkpoint.",
        least=1,
        decides="nothing",
    )
    eval_file: str | None = option(
        None,
        "Held-out text in the format of --input_file, for the evaluation.",
        path=options.Path.FILES,
        decides="nothing",
    )
    go: bool = option(False, "Run the commands.", decides="nothing")

    def problems(self) -> Iterator[str]:
        """New words are new to a vocabulary."""
        yield from super().problems()
        yield from self.need_with("num_new_tokens", "init_checkpoint")
        output_dir = files.absolute(self.output_dir)
        for path in (self.input_file or "").split(","):
            if path and output_dir.startswith(os.path.join(files.absolute(path), "")):
                yield (
                    f"`output_dir={self.output_dir}` is in a folder of `input_file`,"
                    " whose files are all read. Give one beside it."
                )

    def path(self, *names: str) -> str:
        """A path in the output folder."""
        return os.path.join(self.output_dir, *names)


class Command(NamedTuple):
    """A command of the plan."""

    module: str
    flags: Mapping[str, Any]
    result: str  # what it writes

    @property
    def arguments(self) -> list[str]:
        """Its arguments, without flags that are None."""
        given = {name: x for name, x in self.flags.items() if x is not None}
        return [f"--{name}={value}" for name, value in given.items()]

    @property
    def in_python(self) -> list[str]:
        """The command by this interpreter."""
        return [sys.executable, "-m", self.module, *self.arguments]

    def __str__(self) -> str:
        lines = [f"python -m {self.module}", *map(shlex.quote, self.arguments)]
        return " \\\n  ".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """What the text has: counted, or foreseen from a part of it."""

    num_bytes: float  # of text, without compression
    words: float
    tokens: float
    unigram_bits_per_byte: float | None  # None with a checkpoint
    seconds: float  # to make the vocabulary and the records
    record_bytes: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """A size's training on this machine."""

    size: str
    num_weights: int
    tokens_per_second: float
    memory_bytes: float
    learning_rate: float


def learning_rate(config: BertConfig) -> float:
    """That of the first size that is as wide and as deep, else the smallest."""
    for size, rate in LEARNING_RATES.items():
        one = BertConfig.from_size(size)
        is_as_wide = one.hidden_size >= config.hidden_size
        if is_as_wide and one.num_hidden_layers >= config.num_hidden_layers:
            return rate
    return min(LEARNING_RATES.values())


def choose(paces: Sequence[Pace], seconds: float) -> Pace:
    """The largest model that sees enough tokens in this time, else the smallest."""
    enough = [
        pace
        for pace in paces
        if pace.tokens_per_second * seconds >= TOKENS_PER_WEIGHT * pace.num_weights
    ]
    return max(enough or paces[:1], key=lambda pace: pace.num_weights)


def num_weights(config: BertConfig) -> int:
    """The encoder's weights and the masked LM's."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = 4 * width * (width + 1) + 2 * width * inner + inner + 5 * width
    tables = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    head = width * (width + 1) + 2 * width + config.vocab_size
    return config.num_hidden_layers * layer + tables * width + 2 * width + head


def _num_bytes(chunks: Sequence[Chunk]) -> int:
    """The size of their files."""
    return sum(chunk.num_bytes for chunk in chunks)


class Plan:
    """Measures, decides, and runs."""

    def __init__(self, options: PlanOptions) -> None:
        self.options = options
        if files.exists(options.path("plan.json")):
            self._keep_settings()
        self._measured: finished.FinishedResults[dict] = finished.FinishedResults(
            options.path("measured.json"), dict[str, Any]
        )
        self._chunks = text_chunks(options, passed_over=[options.output_dir])
        self._file_bytes = _num_bytes(self._chunks)
        self._held_out: list[Chunk] = []
        if options.eval_file:
            self._held_out = file_chunks(options, options.eval_file, "eval_file")
            paths = {chunk.source.path for chunk in self._chunks}
            for path in (chunk.source.path for chunk in self._held_out):
                if path in paths:
                    raise InputError(
                        f"`eval_file`: {path} is in `input_file` too, so that the model"
                        " would be trained on it."
                    )

    def _keep_settings(self) -> None:
        options = self.options
        settings = {
            "input_file": options.input_file or options.tfds_name,
            "model": options.init_checkpoint,
            "do_lower_case": options.do_lower_case,
        }
        finished.keep_settings(options.path("plan.json"), settings, "a plan")

    def lines(self) -> Iterator[str]:
        """What is planned, and why."""
        options, text = self.options, self._text()
        yield (
            f"Text: {text.num_bytes / 1e6:,.1f} MB, about {text.words:,.0f} words and"
            f" {text.tokens:,.0f} tokens ({text.tokens / max(text.words, 1.0):.2f} per"
            " word)."
        )
        paces = self._paces()
        before = text.seconds
        seconds = 3600.0 * options.hours - before
        if seconds <= 0.0:
            raise InputError(
                f"`hours={options.hours:g}`: writing the records alone takes"
                f" {before / 60.0:.1f} minutes."
            )
        self.pace = pace = choose(paces, seconds)
        self.training_hours = seconds / 3600.0
        total = text.tokens
        yield f"Machine: {available_cores()} cores."
        rows = [
            [
                one.size,
                f"{one.num_weights:,}",
                f"{one.tokens_per_second:,.0f}",
                f"{one.memory_bytes / 1e9:.1f}",
                f"{one.tokens_per_second * seconds / one.num_weights:,.1f}",
                f"{one.tokens_per_second * seconds / total:,.1f}",
                "<" if one is pace else "",
            ]
            for one in paces
        ]
        header = ["model", "weights", "tokens/s", "GB", "tokens per weight", "passes"]
        yield table([*header, ""], rows).rstrip()
        if self._too_large:
            yield f"The memory is not enough for the size {self._too_large}."
        yield from self._warnings(pace, seconds, text)
        if (unigrams := text.unigram_bits_per_byte) is not None:
            seen = pace.tokens_per_second * seconds
            yield from self._expected(pace, seen, unigrams)
        else:
            yield from self._expected_of_checkpoint()
        yield (
            f"Time: {before / 60.0:,.1f} minutes for the records,"
            f" {self.training_hours:,.2f} hours of training. Disk:"
            f" {text.record_bytes / 1e9:,.2f} GB of records."
        )
        yield ""
        yield "\n\n".join(map(str, self.commands()))

    def _warnings(self, pace: Pace, seconds: float, text: Text) -> Iterator[str]:
        per_word, total = text.tokens / max(text.words, 1.0), text.tokens
        if not self._makes_vocabulary and per_word > _MANY_TOKENS_PER_WORD:
            remedy = "num_new_tokens=1000` adds words of the text to it."
            if per_word > _NO_SPACES_TOKENS_PER_WORD and self._segmenter is None:
                remedy = "segmenter=icu` separates words without spaces."
            yield f"The vocabulary cuts a word into {per_word:.2f} tokens. `{remedy}"
        seen = pace.tokens_per_second * seconds
        enough = TOKENS_PER_WEIGHT * pace.num_weights
        if self.options.init_checkpoint is None and seen < enough:
            yield (
                "The hours are too few for a model from scratch:"
                f" {enough / pace.tokens_per_second / 3600.0:,.1f} would show it"
                f" {TOKENS_PER_WEIGHT} tokens per weight. Start from a checkpoint"
                " (`init_checkpoint`), or give more hours."
            )
        if seen > MOST_PASSES * total:
            hours = MOST_PASSES * total / pace.tokens_per_second / 3600.0
            yield (
                f"The text is too short for the hours: it is seen {seen / total:,.0f}"
                f" times. {hours:,.2f} hours are {MOST_PASSES} passes."
            )

    def _expected(self, pace: Pace, tokens: float, unigrams: float) -> Iterator[str]:
        """What a reference run of the size would have reached after as many tokens."""
        from bert_tf.tasks.reference_curves import references

        if (reference := references().get(pace.size)) is None:
            return
        reference = reference.of_text({"unigram_bits_per_byte": unigrams})
        at = min(max(tokens, reference.tokens[0]), reference.tokens[-1])
        bits = reference.bits_at(at)
        more = "" if at == tokens else " or fewer" if at < tokens else " or more"
        yield (
            f"To expect: {bits:.2f}{more} bits per byte of held-out text, where the"
            f" unigrams have {unigrams:.2f}: the same share of these as a reference"
            f" run had after {at / 1e6:.1f} M tokens ({reference.made})."
        )

    def _expected_of_checkpoint(self) -> Iterator[str]:
        """What it scores by now, as no reference run began with it."""
        from bert_tf.conversion import names
        from bert_tf.conversion.source import open_source
        from bert_tf.tasks.bits_per_byte import BITS_PER_BYTE, UNIGRAM_BITS

        source = open_source(self.options.init_checkpoint or "")
        if names.MASKED_LM not in names.heads_of(source.weights):
            yield "The checkpoint has no masked LM: the training begins with a new one."
            return
        made_from = self._made_from
        if (scores := self._measured.find("scores", made_from)) is None:
            folder = self._sample("scores")
            evaluation = {
                "input_file": self._sample("text.tfrecord"),
                "init_checkpoint": self.options.init_checkpoint,
                "output_dir": folder,
                "do_eval": True,
                "max_eval_steps": _EVAL_STEPS,
            }
            self._run(Command(_TRAIN, evaluation, folder))
            scores = files.read_results(os.path.join(folder, "eval_results.txt"))
            self._measured.keep("scores", made_from, scores)
        if (bits := scores.get(BITS_PER_BYTE)) is not None:
            yield (
                f"To expect: fewer bits per byte of the text than the checkpoint has by"
                f" now, {bits:.2f}, and than the unigrams, {scores[UNIGRAM_BITS]:.2f}."
            )

    def commands(self) -> list[Command]:
        """What makes the model, in order."""
        options = self.options
        found = []
        vocab_file = self._vocab_file
        reading = self._reading
        if self._makes_vocabulary:
            num_bytes = self._text().num_bytes
            found.append(self._make_vocabulary(vocab_file, num_bytes, **reading))
        records = options.path("records", "text.tfrecord")
        held_out = options.path("records", "held_out.tfrecord")
        found.append(self._create(records, vocab_file, **reading))
        if options.eval_file:
            reading = {name: x for name, x in reading.items() if name[:4] != "tfds"}
            reading["input_file"] = options.eval_file
            found.append(self._create(held_out, vocab_file, **reading))
        found.append(
            Command(
                _TRAIN,
                {
                    "input_file": records,
                    "eval_input_file": held_out if options.eval_file else None,
                    **self._model(self.pace.size),
                    "learning_rate": self.pace.learning_rate,
                    "output_dir": options.path("model"),
                    "do_train": True,
                    "do_eval": True,
                    "max_train_hours": f"{self.training_hours:.3f}",
                },
                options.path("model"),
            )
        )
        return found

    @property
    def _makes_vocabulary(self) -> bool:
        options = self.options
        return options.init_checkpoint is None or options.num_new_tokens is not None

    @property
    def _reading(self) -> dict[str, Any]:
        """The flags that say which text is read, and how."""
        names = declarations(TextOptions).keys() - {"segmenter"}
        return {name: self.options.value_if_given(name) for name in sorted(names)}

    def _make_vocabulary(
        self, target: str, num_bytes: float, **reading: Any
    ) -> Command:
        """Learns a vocabulary of so much text, or extends the checkpoint's."""
        known = declarations(WrittenVocabularyOptions)
        reading = {name: x for name, x in reading.items() if name in known}
        if self.options.init_checkpoint is not None:
            extension = {
                **reading,
                "output_file": target,
                "init_checkpoint": self.options.init_checkpoint,
                "num_new_tokens": self.options.num_new_tokens,
                "fewer_tokens": True,
                "do_lower_case": self._do_lower_case,
                "segmenter": self._segmenter,
            }
            return Command(_EXTEND, extension, target)
        sizes = (size for least, size in _VOCABULARIES if num_bytes >= least)
        flags = {
            **reading,
            "output_file": target,
            "vocab_size": next(sizes),
            "fewer_tokens": True,
            "do_lower_case": self.options.do_lower_case,
            "segmenter": self._segmenter,
        }
        return Command(_LEARN, flags, target)

    def _create(self, target: str, vocab_file: str, **reading: Any) -> Command:
        values = {
            **reading,
            "output_file": target,
            "vocab_file": vocab_file,
            "do_lower_case": self._do_lower_case,
            "segmenter": self._segmenter,
            "max_seq_length": self._length,
            "max_predictions_per_seq": math.ceil(_PREDICTED * self._length),
            "masking": "dynamic",  # other masks each time that a record is seen
            "dupe_factor": 1,
            "pairs": "none",  # as in the recipe's papers
        }
        return Command(_CREATE, values, target)

    @property
    def _length(self) -> int:
        if self.options.init_checkpoint is None:
            return _LENGTH
        from bert_tf.conversion.source import open_source

        config = open_source(self.options.init_checkpoint).require_config()
        return min(_LENGTH, config.max_position_embeddings)

    def _model(self, size: str) -> dict[str, Any]:
        checkpoint = self.options.init_checkpoint
        begun = {"init_checkpoint": checkpoint} if checkpoint else {"bert_size": size}
        return {**begun, "recipe": "budget"}

    def _sample(self, name: str) -> str:
        """A path in the folder of the sample: one for each vocabulary."""
        parts = filter(None, ("sample", self.options.num_new_tokens, self._segmenter))
        return self.options.path("_".join(map(str, parts)), name)

    @property
    def _vocab_file(self) -> str:
        """A vocabulary to make, or the checkpoint's: its own file, or a copy."""
        from bert_tf.conversion.source import folder_of

        path = self.options.path("vocab.txt")
        if self._makes_vocabulary:
            return path
        own = os.path.join(folder_of(self.options.init_checkpoint or ""), "vocab.txt")
        if files.exists(own):
            return own
        self._tokenizer.vocabulary.save(path)
        return path

    @functools.cached_property
    def _tokenizer(self) -> "WordPieceTokenizer":
        """The checkpoint's."""
        from bert_tf.conversion.source import load_tokenizer

        return load_tokenizer(self.options.init_checkpoint or "")

    @property
    def _do_lower_case(self) -> bool:
        """The casing that is given, or else the checkpoint's."""
        if self.options.init_checkpoint and not self.options.is_given("do_lower_case"):
            return self._tokenizer.do_lower_case
        return self.options.do_lower_case

    @property
    def _segmenter(self) -> str | None:
        """The segmenter that is given, or else the checkpoint's; None for none."""
        found = self.options.segmenter
        if self.options.init_checkpoint and not self.options.is_given("segmenter"):
            found = self._tokenizer.segmenter
        return None if found == NO_SEGMENTER else found

    @property
    def _made_from(self) -> list[Any]:
        """What measurements depend on."""
        options = self.options
        return [
            *(_VERSION, self._file_bytes, _num_bytes(self._held_out), self._reading),
            *(options.init_checkpoint, options.num_new_tokens, self._segmenter),
            self._do_lower_case,
        ]

    def _text(self) -> Text:
        """Counts the text, and makes the vocabulary and records of a sample."""
        options = self.options
        checkpoint, made_from = options.init_checkpoint, self._made_from
        if known := self._measured.find("text", made_from):
            return Text(**known)
        from bert_tf.records.manifest import MANIFEST_SUFFIX

        logging.info("Counting the text ...")
        began = time.monotonic()
        sample, sample_words, words, num_bytes, times = self._counted()
        reading = times * (time.monotonic() - began)
        held_out = self._held_out_lines()
        self._keep_settings()  # as the text can be read
        path, small = (self._sample(f"{n}.txt") for n in ("text", "small"))
        folder = os.path.dirname(path)
        if files.exists(folder):  # of another text, or of a plan that was killed
            files.remove(folder)
        files.make_folder(folder)
        files.write_atomically(path, "\n".join(sample) + "\n")
        part = sample[: max(1, len(sample) // _SMALLER)]
        files.write_atomically(small, "\n".join(part) + "\n")
        vocab_file = self._vocab_file
        taken = []
        if self._makes_vocabulary:
            vocab_file = self._sample("vocab.txt")
            learn = self._make_vocabulary(
                vocab_file, num_bytes, num_workers=1, input_file=path
            )
            taken.append((self._run(learn).seconds, 1.0))
        target = self._sample("text.tfrecord")
        # Two samples: what grows with the text, without what starting takes.
        first = self._sample("small.tfrecord")
        starting = self._run(
            self._create(first, vocab_file, num_workers=1, input_file=small)
        ).seconds
        seconds = self._run(
            self._create(target, vocab_file, num_workers=1, input_file=path)
        ).seconds
        taken.append((seconds, 1.0))
        if self._held_out:
            taken.append((seconds, _num_bytes(self._held_out) / self._file_bytes))
        manifest = files.read_json(target + MANIFEST_SUFFIX)
        factor = words / max(sample_words, 1)
        growing = factor * _SMALLER / (_SMALLER - 1)
        # A sample is the work of one.
        workers = min(options.num_workers or available_cores(), len(self._chunks))
        size = sum(shard["num_bytes"] for shard in manifest["shards"])
        text = Text(
            num_bytes=float(num_bytes),
            words=float(words),
            tokens=float(factor * manifest["report"]["read"]["tokens"]),
            unigram_bits_per_byte=None
            if checkpoint
            else self._unigram_bits_per_byte(sample, held_out, vocab_file),
            seconds=sum(
                starting
                + share * (reading + growing * max(seconds - starting, 0.0)) / workers
                for seconds, share in taken
            ),
            record_bytes=float(factor * size),
        )
        self._measured.keep("text", made_from, dataclasses.asdict(text))
        return text

    def _unigram_bits_per_byte(
        self, lines: Sequence[str], held_out: Sequence[str], vocab_file: str
    ) -> float:
        """That of held-out lines, or else of every eighth line, from the others."""
        from bert_tf.tasks.bits_per_byte import unigram_bits_per_byte
        from bert_tf.text.vocabulary import Vocabulary
        from bert_tf.text.wordpiece import WordPieceTokenizer

        vocabulary = Vocabulary.from_file(vocab_file)
        tokenizer = WordPieceTokenizer(
            vocabulary,
            do_lower_case=self.options.do_lower_case,
            segmenter=self._segmenter or NO_SEGMENTER,
        )
        every = slice(None, None, _SMALLER)
        seen = [*lines]
        if not held_out:
            held_out = lines[every]
            del seen[every]
        ids, seen_ids = (
            np.array([i for line in part for i in tokenizer.encode(line)], np.int64)
            for part in (held_out, seen)
        )
        return unigram_bits_per_byte(ids, seen_ids, vocabulary)

    def _held_out_lines(self) -> list[str]:
        """The first of --eval_file, as many as the sample has at most."""
        found: list[str] = []
        size = 0
        for chunk in self._held_out:
            for line in read_chunk(chunk, Counter()):
                found += line.sentences
                size += len(line.text.encode())
                if size >= _SAMPLE_BYTES:
                    return found
        return found

    def _counted(self) -> tuple[list[str], int, float, float, float]:
        """Lines of a sample, its words; the whole text's words and bytes.

        Last how often the whole text has what was read of it.
        """
        sample: list[str] = []
        file_bytes = kept = sample_words = words = num_bytes = 0
        dropped: Counter[str] = Counter()
        chunks = list(self._chunks)
        random.Random(0).shuffle(chunks)
        for chunk in chunks:
            for line in read_chunk(chunk, dropped):
                number, size = len(line.text.split()), len(line.text.encode())
                words += number
                num_bytes += size
                if kept < _SAMPLE_BYTES:
                    sample += line.sentences or [""]
                    sample_words += number
                    kept += size
            file_bytes += chunk.num_bytes
            if file_bytes >= _COUNTED_BYTES:
                break
        times = self._file_bytes / max(file_bytes, 1)
        return sample, sample_words, words * times, num_bytes * times, times

    def _paces(self) -> list[Pace]:
        """Trains each size for some seconds, until one is too slow or too large."""
        found: list[Pace] = []
        self._too_large = ""
        sizes = [*LEARNING_RATES]
        for size in sizes if self.options.init_checkpoint is None else ["checkpoint"]:
            if (pace := self._pace(size)) is None:
                self._too_large = size
                break
            found.append(pace)
            seen = pace.tokens_per_second * 3600.0 * self.options.hours
            if seen < TOKENS_PER_WEIGHT * pace.num_weights:
                break
        if not found:
            raise InputError(f"The memory is not enough for the model {sizes[0]}.")
        return found

    def _pace(self, size: str) -> Pace | None:
        """None where the memory is not enough."""
        options = self.options
        made_from = [_VERSION, options.init_checkpoint]
        if (known := self._measured.find(size, made_from)) is not None:
            return Pace(**known) if known else None
        folder = self._sample(size)
        logging.info("Measuring %s ...", size)
        flags = {
            "input_file": self._sample("text.tfrecord"),
            **self._model(size),
            "output_dir": folder,
            "do_train": True,
            "max_train_hours": _SECONDS_PER_SIZE / 3600.0,
            "log_steps": 10**6,
        }
        ended = self._run(Command(_TRAIN, flags, folder), may_need_memory=True)
        if ended.code:
            self._measured.keep(size, made_from, {})
            return None
        metrics = files.read_text(os.path.join(folder, "metrics.jsonl")).splitlines()
        rates = [json.loads(line).get("tokens_per_second") for line in metrics]
        config = BertConfig.from_json_file(os.path.join(folder, "bert_config.json"))
        rate = next((rate for rate in reversed(rates) if rate), 0.0)
        pace = Pace(
            size=size,
            num_weights=num_weights(config),
            tokens_per_second=rate,
            memory_bytes=float(ended.peak_bytes),
            learning_rate=learning_rate(config),
        )
        self._measured.keep(size, made_from, dataclasses.asdict(pace))
        return pace

    def _run(self, command: Command, may_need_memory: bool = False) -> Ended:
        """Runs a command; if it fails its last line is shown."""
        ended = run_child(command.in_python, shown=False)
        last = (ended.output.strip().splitlines() or ["no message"])[-1]
        # The kernel kills a process that has taken all memory.
        is_exhausted = ended.code == -signal.SIGKILL or cli.MEMORY_IS_SHORT in last
        if ended.code and not (may_need_memory and is_exhausted):
            raise InputError(f"{command.module} ended with {ended.code}: {last}")
        return ended

    def go(self) -> None:
        """Runs the commands that are not done; InputError where one fails."""
        for command in self.commands():
            if command.module == _LEARN and files.exists(command.result):
                continue  # the others resume by themselves
            print(f"\n{command}\n", flush=True)
            if code := run_child(command.in_python, shown=True).code:
                raise InputError(
                    f"{command.module} ended with {code}. The same command resumes the"
                    " plan."
                )


def run(options: PlanOptions) -> None:
    """Prints the plan; runs it if asked to."""
    cli.show_log()
    plan = Plan(options)
    for line in plan.lines():
        print(line, flush=True)
    if options.go:
        plan.go()
    else:
        print("\nThe same command with --go runs them.")


main = cli.command(run)

if __name__ == "__main__":
    main()
