"""The commands that a plan runs, and their samples for its measurements."""

import functools
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_tf.base import files, options
from bert_tf.base.options import REQUIRED, declarations, option, with_default
from bert_tf.base.shared_options import ModelOptions
from bert_tf.records.learn_vocabulary import VocabularyOptions
from bert_tf.records.writing import MANIFEST_SUFFIX
from bert_tf.tasks.pretraining_options import PretrainingOptions
from bert_tf.text.documents import DEDUPLICATION
from bert_tf.text.segmentation import NO_SEGMENTER
from bert_tf.text.sources import TextOptions

if TYPE_CHECKING:
    from bert_tf.text.wordpiece import WordPieceTokenizer

_LENGTH = 128  # at most the checkpoint's positions; all of them with a window
_PREDICTED = 0.15  # share of its tokens; training has slots for the recipe's share
# The least number of tokens in a vocabulary, by the bytes of the text.
_VOCABULARIES = ((100e6, 30_522), (20e6, 16_000), (0, 8_000))
_VOCABULARY, _RECORDS = "vocab.txt", os.path.join("records", "text.tfrecord")
# The outputs of the commands.
OF_TEXT = (_VOCABULARY, _RECORDS + MANIFEST_SUFFIX)
_CREATE = "bert_tf.tfrecords.create_pretraining_data"
_LEARN = "bert_tf.tfrecords.learn_vocabulary"
_EXTEND = "bert_tf.tfrecords.extend_vocabulary"
_TRAIN = "bert_tf.run_pretraining"


class PlanOptions(TextOptions, decides="nothing"):
    """The text, the time, and the model to start from."""

    hours: float = option(REQUIRED, "Hours for all of it.", above=0.0)
    output_dir: str = with_default(PretrainingOptions, "output_dir", REQUIRED)
    init_checkpoint: str | None = with_default(ModelOptions, "init_checkpoint", None)
    do_lower_case: bool = with_default(ModelOptions, "do_lower_case", True)
    num_new_tokens: int | None = option(
        None,
        "Number of words of the text to add to the vocabulary of --init_checkpoint.",
        least=1,
    )
    eval_file: str | None = option(
        None,
        "Held-out text in the format of --input_file, for the evaluation.",
        path=options.Path.FILES,
    )
    deduplicate: str = option(
        DEDUPLICATION[0],
        "Documents to drop, as in create_pretraining_data.",
        choices=DEDUPLICATION,
        decides="numbers",
    )
    go: bool = option(False, "Run the commands.")

    def problems(self) -> Iterator[str]:
        """Requires a vocabulary for new words."""
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
        """Returns a path in the output folder."""
        return os.path.join(self.output_dir, *names)


class Command(NamedTuple):
    """A command of the plan."""

    module: str
    flags: Mapping[str, Any]
    result: str  # the path of its output

    @property
    def arguments(self) -> list[str]:
        """Returns the arguments, without flags that are None."""
        given = {name: x for name, x in self.flags.items() if x is not None}
        return [f"--{name}={value}" for name, value in given.items()]

    @property
    def in_python(self) -> list[str]:
        """Returns the command for this interpreter."""
        return [sys.executable, "-m", self.module, *self.arguments]

    def __str__(self) -> str:
        lines = [f"python -m {self.module}", *map(shlex.quote, self.arguments)]
        return " \\\n  ".join(lines)


class Commands:
    """The commands of a plan, by its options."""

    def __init__(self, options: PlanOptions) -> None:
        self.options = options

    def planned(
        self, *, size: str, learning_rate: float, hours: float, num_bytes: float
    ) -> list[Command]:
        """Returns the commands that make a model of so many bytes of text, in order."""
        options = self.options
        found = []
        reading = self.reading
        if self.makes_vocabulary:
            found.append(self.make_vocabulary(self.vocab_file, num_bytes, **reading))
        records = options.path(_RECORDS)
        held_out = options.path("records", "held_out.tfrecord")
        found.append(self.create(records, self.vocab_file, **reading))
        if options.eval_file:
            reading = {name: x for name, x in reading.items() if name[:4] != "tfds"}
            reading["input_file"] = options.eval_file
            found.append(self.create(held_out, self.vocab_file, **reading))
        training = self.train(
            records,
            options.path("model"),
            size,
            eval_input_file=held_out if options.eval_file else None,
            learning_rate=learning_rate,
            do_eval=True,
            max_train_hours=f"{hours:.3f}",
        )
        return [*found, training]

    @property
    def makes_vocabulary(self) -> bool:
        """Whether the vocabulary is new, or has new words."""
        options = self.options
        return options.init_checkpoint is None or options.num_new_tokens is not None

    @property
    def reading(self) -> dict[str, Any]:
        """Returns the flags that name the text and say how it is read."""
        names = declarations(TextOptions).keys() - {"segmenter"}
        return {name: self.options.value_if_given(name) for name in sorted(names)}

    def make_vocabulary(self, target: str, num_bytes: float, **reading: Any) -> Command:
        """Returns the command that learns a vocabulary, or extends the checkpoint's."""
        known = declarations(VocabularyOptions)
        reading = {name: x for name, x in reading.items() if name in known}
        if self.options.init_checkpoint is not None:
            extension = {
                **reading,
                "output_file": target,
                "init_checkpoint": self.options.init_checkpoint,
                "num_new_tokens": self.options.num_new_tokens,
                "fewer_tokens": True,
                "do_lower_case": self.do_lower_case,
                "segmenter": self.segmenter,
            }
            return Command(_EXTEND, extension, target)
        sizes = (size for least, size in _VOCABULARIES if num_bytes >= least)
        flags = {
            **reading,
            "output_file": target,
            "vocab_size": next(sizes),
            "fewer_tokens": True,
            "do_lower_case": self.options.do_lower_case,
            "segmenter": self.segmenter,
        }
        return Command(_LEARN, flags, target)

    def create(self, target: str, vocab_file: str, **reading: Any) -> Command:
        """Returns the command that makes records of a text."""
        values = {
            **reading,
            "output_file": target,
            "vocab_file": vocab_file,
            "do_lower_case": self.do_lower_case,
            "segmenter": self.segmenter,
            "max_seq_length": self._length,
            "max_predictions_per_seq": math.ceil(_PREDICTED * self._length),
            "masking": "dynamic",  # new masks each time that a record is seen
            "dupe_factor": 1,
            "pairs": "none",  # as in the recipe's papers
            "deduplicate": self.options.value_if_given("deduplicate"),
        }
        return Command(_CREATE, values, target)

    @property
    def _length(self) -> int:
        if self.options.init_checkpoint is None:
            return _LENGTH
        from bert_tf.conversion.source import open_source

        config = open_source(self.options.init_checkpoint).require_config()
        most = config.max_position_embeddings
        return most if config.attention_window else min(_LENGTH, most)

    def train(
        self, input_file: str, output_dir: str, size: str, **flags: Any
    ) -> Command:
        """Returns the command that trains a model of this size, or the checkpoint."""
        checkpoint = self.options.init_checkpoint
        begun = {"init_checkpoint": checkpoint} if checkpoint else {"bert_size": size}
        values = {
            "input_file": input_file,
            **begun,
            "recipe": "budget",
            "output_dir": output_dir,
            "do_train": True,
            **flags,
        }
        return Command(_TRAIN, values, output_dir)

    def evaluate(self, output_dir: str, **flags: Any) -> Command:
        """Returns the command that evaluates the checkpoint."""
        values = {
            "init_checkpoint": self.options.init_checkpoint,
            **flags,
            "output_dir": output_dir,
            "do_eval": True,
        }
        return Command(_TRAIN, values, output_dir)

    @property
    def vocab_file(self) -> str:
        """Returns the path of the new vocabulary, or the checkpoint's or its copy."""
        from bert_tf.conversion.source import folder_of

        if self.makes_vocabulary:
            return self.options.path(_VOCABULARY)
        own = os.path.join(folder_of(self.options.init_checkpoint or ""), "vocab.txt")
        if files.exists(own):
            return own
        copy = self.options.path("checkpoint_vocab.txt")
        self.tokenizer.vocabulary.save(copy)
        return copy

    @functools.cached_property
    def tokenizer(self) -> "WordPieceTokenizer":
        """The checkpoint's tokenizer."""
        from bert_tf.conversion.source import load_tokenizer

        return load_tokenizer(self.options.init_checkpoint or "")

    @property
    def do_lower_case(self) -> bool:
        """Returns the given casing, or else the checkpoint's."""
        if self.options.init_checkpoint and not self.options.is_given("do_lower_case"):
            return self.tokenizer.do_lower_case
        return self.options.do_lower_case

    @property
    def segmenter(self) -> str | None:
        """Returns the given segmenter, or else the checkpoint's; None for none."""
        found = self.options.segmenter
        if self.options.init_checkpoint and not self.options.is_given("segmenter"):
            found = self.tokenizer.segmenter
        return None if found == NO_SEGMENTER else found
