"""The measurements of a plan: the text, and each size's speed on this machine.

Each is made once, and kept in OUTPUT_DIR/measured.json.
"""

import dataclasses
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.addons.planning.plan_commands import OF_TEXT, Command, Commands
from bert_tf.base import files, finished
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.options import declarations
from bert_tf.base.parallel import available_cores
from bert_tf.conversion import names, source
from bert_tf.records.manifest import SourceFile, written_files
from bert_tf.records.writing import MANIFEST_SUFFIX
from bert_tf.text.documents import Chunk, read_chunk, tokens_dropped
from bert_tf.text.segmentation import NO_SEGMENTER, has_letters, segments
from bert_tf.text.sources import file_chunks, text_chunks
from bert_tf.training.launch import Ended, run_child

TOKENS_PER_WEIGHT = 20
# AdamW's learning rates of the sizes that are tried. Narrower models take larger ones;
# Muon, which trains models from scratch, takes MUON times as much.
MUON = 3.0
LEARNING_RATES = {
    "tiny": 1e-3,
    "mini": 1e-3,
    "small": 5e-4,
    "medium": 3e-4,
    "base": 1e-4,
    "large": 1e-4,
}
_VERSION = 11  # of the measurements
_SAMPLE_BYTES = 4_000_000
_SMALLER = 8  # times, for a second sample
_COUNTED_BYTES = 64_000_000
_SECONDS_PER_SIZE = 20.0
_BEGUN, _READ = "begun", "learned"
_PHRASES = 0.1  # share of the lines, for a script without spaces
_EVAL_STEPS = 20  # for the scores of a checkpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """Counts of the text, measured or extrapolated from a sample."""

    num_bytes: float  # of text, without compression
    words: float
    tokens: float
    unknown_share: float  # share of [UNK] among the tokens
    unigram_bits_per_byte: float | None  # None with a checkpoint
    has_phrases: bool  # words that a segmenter separates
    vocabulary: str  # SHA-256 of the sample's vocabulary
    seconds: float  # for making the vocabulary and the records
    record_bytes: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """The training speed of a size on this machine."""

    size: str
    num_weights: int
    tokens_per_second: float
    memory_bytes: float
    learning_rate: float


def learning_rate(config: BertConfig) -> float:
    """Returns AdamW's of the first size this wide and deep, or the smallest rate."""
    for size, rate in LEARNING_RATES.items():
        one = BertConfig.from_size(size)
        is_as_wide = one.hidden_size >= config.hidden_size
        if is_as_wide and one.num_hidden_layers >= config.num_hidden_layers:
            return rate
    return min(LEARNING_RATES.values())


def num_weights(config: BertConfig) -> int:
    """Returns the number of weights of the encoder and the masked LM."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = 4 * width * (width + 1) + 2 * width * inner + inner + 5 * width
    tables = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    head = width * (width + 1) + 2 * width + config.vocab_size
    return config.num_hidden_layers * layer + tables * width + 2 * width + head


def _num_bytes(chunks: Sequence[Chunk]) -> int:
    """Returns the size of the chunks."""
    return sum(chunk.num_bytes for chunk in chunks)


def _digest(path: str) -> str:
    return SourceFile.describe(path).sha256


class _Counted(NamedTuple):
    """Counts of a sample, and the share of the text that it is."""

    lines: list[str]
    sample_words: int
    words: float
    num_bytes: float
    seconds: float  # for one core, to read it


class Measurements:
    """The measurements of a plan's text, machine and checkpoint."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.options = options = commands.options
        self._to_go_on = f", where `init_checkpoint={options.path('model')}` continues"
        self._to_go_on += " this plan's model once it is trained"
        if options.init_checkpoint is not None:
            source.open_source(options.init_checkpoint).require_config()
        if files.exists(options.path("plan.json")):
            self._keep_settings()
        self._measured: finished.FinishedResults[dict] = finished.FinishedResults(
            options.path("measured.json"), dict[str, Any]
        )
        self._chunks = text_chunks(
            options, written_files, passed_over=[options.output_dir]
        )
        self._file_bytes = _num_bytes(self._chunks)
        self._held_out: list[Chunk] = []
        if options.eval_file:
            self._held_out = file_chunks(
                options, options.eval_file, "eval_file", written_files
            )
            self._check_held_out()
        made = [name for name in OF_TEXT if files.exists(options.path(name))]
        read = self._measured.find(_READ, None) if made else None
        if read and read["text"] != self._text_read:
            raise InputError(
                f"`output_dir={options.output_dir}`: its {made[0]} is made of other"
                f" text, or with other flags. Give another folder{self._to_go_on}."
            )

    def _check_held_out(self) -> None:
        """Raises InputError if a held-out file, or a copy of it, is in the text."""
        read, held_out = (
            {chunk.source.path for chunk in chunks}
            for chunks in (self._chunks, self._held_out)
        )
        known = {files.identity(path) for path in read}
        by_size: dict[int, list[str]] = {}
        for path in read if self.options.input_file else ():
            by_size.setdefault(files.size(path), []).append(path)
        for path in sorted(held_out):
            # An empty file is no text.
            same_size = by_size.get(files.size(path) or -1, [])
            if files.identity(path) in known or (
                same_size and _digest(path) in map(_digest, same_size)
            ):
                raise InputError(
                    f"`eval_file`: {path} is in `input_file` too, so that the model"
                    " would be trained on it. Move it out of there."
                )

    @property
    def _text_read(self) -> str:
        """Returns a digest of the text's files and of the settings for reading them."""
        options = self.options
        paths = {chunk.source.path for chunk in self._chunks}
        of_files = [
            (path, files.size(path)) for path in sorted(paths) if options.input_file
        ]
        decisive = {
            name: getattr(options, name)
            for name, declared in declarations(type(options)).items()
            if declared.decides != "nothing"
        }
        words = filter(None, [options.num_new_tokens])
        return finished.digest([of_files, decisive, *words])

    def _keep_settings(self) -> None:
        options = self.options
        settings = {
            "input_file": options.input_file or options.tfds_name,
            "model": options.init_checkpoint,
            "do_lower_case": options.do_lower_case,
        }
        path = options.path("plan.json")
        finished.keep_settings(path, settings, "a plan", self._to_go_on)

    def _sample(self, name: str) -> str:
        """Returns a path in the folder of the sample; each vocabulary has its own."""
        parts = filter(
            None, ("sample", self.options.num_new_tokens, self._commands.segmenter)
        )
        return self.options.path("_".join(map(str, parts)), name)

    @property
    def _made_from(self) -> list[Any]:
        """The inputs that the measurements depend on."""
        options = self.options
        commands = self._commands
        return [
            *(_VERSION, self._file_bytes, _num_bytes(self._held_out), commands.reading),
            *(options.init_checkpoint, options.num_new_tokens, commands.segmenter),
            *(commands.do_lower_case, self._workers, options.deduplicate),
        ]

    @property
    def _workers(self) -> int:
        return self.options.num_workers or available_cores()

    def _share_of_a_core(self, chunks: Sequence[Chunk]) -> float:
        """Returns the time for all chunks, as a share of the time on one core."""
        sizes = [chunk.num_bytes for chunk in chunks]
        return max(1.0 / self._workers, max(sizes) / max(sum(sizes), 1))

    def text(self) -> Text:
        """Counts the text, and makes the vocabulary and records of a sample."""
        options, made_from = self.options, self._made_from
        if known := self._measured.find("text", made_from):
            return Text(**known)
        logging.info("Counting the text ...")
        counted = self._counted()
        held_out = self._held_out_lines()
        for flag, words in (("input_file", counted.words), ("eval_file", held_out)):
            if not words and getattr(options, flag):
                raise InputError(f"`{flag}={getattr(options, flag)}`: it has no text.")
        self._keep_settings()  # now that the text was read
        text_file, small_file = self._write_sample(counted.lines)
        vocab_file, making_vocabulary = self._commands.vocab_file, 0.0
        if self._commands.makes_vocabulary:
            vocab_file = self._sample("vocab.txt")
            command = self._commands.make_vocabulary(
                vocab_file, counted.num_bytes, num_workers=1, input_file=text_file
            )
            making_vocabulary = self._run(command).seconds
        records = self._sample("text.tfrecord")
        # Two samples: their difference has no start-up time.
        starting, making_records = (
            self._run(
                self._commands.create(
                    target, vocab_file, num_workers=1, input_file=path
                )
            ).seconds
            for path, target in (
                (small_file, self._sample("small.tfrecord")),
                (text_file, records),
            )
        )
        factor = counted.words / max(counted.sample_words, 1)

        def foreseen(seconds: float) -> float:
            """Returns one core's seconds for the whole text, by the sample's."""
            growing = max(seconds - starting, 0.0) * _SMALLER / (_SMALLER - 1)
            return counted.seconds + factor * growing

        share = self._share_of_a_core(self._chunks)
        seconds = starting + share * foreseen(making_records)
        if self._commands.makes_vocabulary:
            seconds += starting + share * foreseen(making_vocabulary)
        if self._held_out:
            share = self._share_of_a_core(self._held_out)
            share *= _num_bytes(self._held_out) / max(self._file_bytes, 1)
            seconds += starting + share * foreseen(making_records)
        manifest = files.read_json(records + MANIFEST_SUFFIX)
        report = manifest["report"]
        num_tokens = report["read"]["tokens"]
        size = sum(shard["num_bytes"] for shard in manifest["shards"])
        text = Text(
            num_bytes=float(counted.num_bytes),
            words=float(counted.words),
            tokens=float(factor * (num_tokens - tokens_dropped(report["dropped"]))),
            unknown_share=report["unknown_tokens"] / max(num_tokens, 1),
            unigram_bits_per_byte=None
            if options.init_checkpoint
            else self._unigram_bits_per_byte(counted.lines, held_out, vocab_file),
            has_phrases=sum(map(has_letters, counted.lines))
            > _PHRASES * len(counted.lines),
            vocabulary=manifest["vocab_sha256"],
            seconds=seconds,
            record_bytes=float(factor * size),
        )
        self._measured.keep("text", made_from, dataclasses.asdict(text))
        return text

    def _write_sample(self, lines: Sequence[str]) -> tuple[str, str]:
        """Writes the sample as a file, and its beginning as another one."""
        paths = self._sample("text.txt"), self._sample("small.txt")
        folder = os.path.dirname(paths[0])
        if files.exists(folder):  # from another text, or a plan that was killed
            files.remove(folder)
        files.make_folder(folder)
        beginning = lines[: max(1, len(lines) // _SMALLER)]
        for path, some in zip(paths, (lines, beginning), strict=True):
            files.write_atomically(path, "\n".join(some) + "\n")
        return paths

    def _unigram_bits_per_byte(
        self, lines: Sequence[str], held_out: Sequence[str], vocab_file: str
    ) -> float:
        """Returns bits per byte of held-out lines, or of every eighth line."""
        from bert_tf.addons.planning.bits_per_byte import unigram_bits_per_byte
        from bert_tf.text.vocabulary import Vocabulary
        from bert_tf.text.wordpiece import WordPieceTokenizer

        vocabulary = Vocabulary.from_file(vocab_file)
        tokenizer = WordPieceTokenizer(
            vocabulary,
            do_lower_case=self.options.do_lower_case,
            segmenter=self._commands.segmenter or NO_SEGMENTER,
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
        """Returns the first lines of --eval_file, at most as many as the sample has."""
        found: list[str] = []
        size = 0
        for chunk in self._held_out:
            for line in read_chunk(chunk, Counter()):
                found += line.sentences
                size += len(line.text.encode())
                if size >= _SAMPLE_BYTES:
                    return found
        return found

    def _counted(self) -> _Counted:
        began = time.monotonic()
        sample: list[str] = []
        file_bytes = kept = sample_words = words = num_bytes = 0
        dropped: Counter[str] = Counter()
        segmenter = self._commands.segmenter
        chunks = list(self._chunks)
        random.Random(0).shuffle(chunks)
        for chunk in chunks:
            for line in read_chunk(chunk, dropped):
                number, size = len(line.text.split()), len(line.text.encode())
                if segmenter is not None:
                    number = sum(
                        len(segments(one, segmenter)) for one in line.text.split()
                    )
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
        return _Counted(
            lines=sample,
            sample_words=sample_words,
            words=words * times,
            num_bytes=num_bytes * times,
            seconds=(time.monotonic() - began) * times,
        )

    def paces(self, text: Text) -> tuple[list[Pace], str]:
        """Trains each size for some seconds, until one is too slow or fails."""
        # Returns the paces and the error, if any. Once a training has begun, only its
        # size is tried.
        found: list[Pace] = []
        sizes = [*LEARNING_RATES]
        if self.options.init_checkpoint is not None:
            sizes = ["checkpoint"]
        elif begun := self._measured.find(_BEGUN, None):
            sizes = [begun["size"]]
        for size in sizes:
            try:
                pace = self._pace(size, text.vocabulary)
            except InputError as error:
                # There are many errors of too little memory.
                if not found:
                    raise
                return found, f"{size}: {error}"
            found.append(pace)
            seen = pace.tokens_per_second * 3600.0 * self.options.hours
            if seen < TOKENS_PER_WEIGHT * pace.num_weights:
                break
        return found, ""

    def keep_size(self, size: str) -> None:
        """Keeps the size of the training that begins."""
        self._measured.keep(_BEGUN, None, {"size": size})

    def keep_text(self) -> None:
        """Keeps the text that the first command reads."""
        self._measured.keep(_READ, None, {"text": self._text_read})

    def _pace(self, size: str, vocabulary: str) -> Pace:
        made_from = [_VERSION, self.options.init_checkpoint, vocabulary]
        if known := self._measured.find(size, made_from):
            return Pace(**known)
        folder = self._sample(size)
        if files.exists(folder):  # from one that was stopped
            files.remove(folder)
        logging.info("Measuring %s ...", size)
        training = self._commands.train(
            self._sample("text.tfrecord"),
            folder,
            size,
            max_train_hours=_SECONDS_PER_SIZE / 3600.0,
            log_steps=10**6,
        )
        ended = self._run(training)
        metrics = files.read_text(os.path.join(folder, "metrics.jsonl")).splitlines()
        rates = [json.loads(line).get("tokens_per_second") for line in metrics]
        config = BertConfig.from_json_file(os.path.join(folder, "bert_config.json"))
        rate = next((rate for rate in reversed(rates) if rate), 0.0)
        pace = Pace(
            size=size,
            num_weights=num_weights(config),
            tokens_per_second=rate,
            memory_bytes=float(ended.peak_bytes),
            learning_rate=learning_rate(config)
            * (MUON if self.options.init_checkpoint is None else 1.0),
        )
        self._measured.keep(size, made_from, dataclasses.asdict(pace))
        return pace

    def scores_of_checkpoint(self) -> Mapping[str, float] | None:
        """Returns its scores on a sample of --eval_file, or else of the text."""
        # None without a masked LM.
        checkpoint = source.open_source(self.options.init_checkpoint or "")
        if names.MASKED_LM not in names.heads_of(checkpoint.weights):
            return None
        made_from = self._made_from
        if (scores := self._measured.find("scores", made_from)) is None:
            folder, records = self._sample("scores"), self._sample("text.tfrecord")
            if lines := self._held_out_lines():
                held_out, records = map(
                    self._sample, ("held_out.txt", "held_out.tfrecord")
                )
                files.write_atomically(held_out, "\n".join(lines) + "\n")
                vocab_file = self._commands.vocab_file
                if self._commands.makes_vocabulary:
                    vocab_file = self._sample("vocab.txt")
                self._run(
                    self._commands.create(
                        records, vocab_file, num_workers=1, input_file=held_out
                    )
                )
            self._run(
                self._commands.evaluate(
                    folder,
                    input_file=records,
                    max_eval_steps=_EVAL_STEPS,
                )
            )
            scores = files.read_results(os.path.join(folder, "eval_results.txt"))
            self._measured.keep("scores", made_from, scores)
        return scores

    def _run(self, command: Command) -> Ended:
        """Runs a command; if it fails, shows its last line."""
        ended = run_child(command.in_python, shown=False)
        if ended.code:
            last = (ended.output.strip().splitlines() or ["no message"])[-1]
            if ended.code == -signal.SIGKILL:
                last = "it was killed, as where the memory is not enough"
            raise InputError(f"{command.module} ended with {ended.code}: {last}")
        return ended
