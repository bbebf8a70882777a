"""The options of fine-tuning commands, in groups, and a run's result."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf.base import options
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Options, Path, option
from bert_tf.base.rows import MAX_UNUSABLE
from bert_tf.base.shared_options import (
    DeviceOptions,
    LengthOptions,
    LongTextOptions,
    ModelOptions,
)
from bert_tf.base.tfds_rows import TfdsRows
from bert_tf.training.training_options import LossOptions, TrainingConfig


class RunResult(NamedTuple):
    """The result of a task command's `run`.

    Attributes:
        scores: scores by name, such as `scores["accuracy"]`; names of a second
            development set or a test set have a prefix, as in "test_accuracy".
            Empty if nothing was evaluated.
        output_dir: the run's folder, which `bert_tf.load` opens.
    """

    scores: Mapping[str, float]
    output_dir: str


class SelectionOptions(Options, title=options.SEVERAL_RUNS, decides="setting"):
    """Several runs, of which the best one is kept."""

    learning_rates: tuple[float, ...] | None = option(
        None,
        "Learning rates to try; the best on the development set is kept (Devlin et"
        " al. 2018, section 4.1: 5e-5,4e-5,3e-5,2e-5).",
        least=0.0,
    )
    train_batch_sizes: tuple[int, ...] | None = option(
        None, "Batch sizes to try, each with each learning rate.", least=1
    )
    num_train_epochs: tuple[float, ...] = option(
        (3.0,),
        "Passes over the training examples. Several numbers, separated by commas, are"
        " all tried.",
        least=0.0,
        in_summary=True,
    )
    num_restarts: int = option(
        1,
        "Runs of each setting, with the seeds --random_seed, --random_seed+1, ..."
        " (Devlin et al. 2018, section 4.1: random restarts).",
        least=1,
    )
    stop_early: bool = option(
        False,
        "Stop all runs after a share of their steps, and continue only the best (Dodge"
        " et al. 2020: start many, stop early, continue some).",
    )
    stop_early_at: float = option(
        0.3,
        "For --stop_early: the share of the steps after which runs stop.",
        above=0.0,
        below=1.0,
        only_with="stop_early",
    )
    stop_early_keep: int | None = option(
        None,
        "For --stop_early: how many runs continue. Default: a third of them,"
        " rounded up.",
        least=1,
        only_with="stop_early",
    )
    keep_all_runs: bool = option(
        False,
        "Keep the checkpoints of all runs, not only of the best one.",
        decides="nothing",
    )

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other."""
        yield from super().problems()
        yield from self.refuse_together("learning_rates", "learning_rate")
        yield from self.refuse_together("train_batch_sizes", "train_batch_size")


# Option -> its default in a recipe, where it differs from the original's.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "devlin": {},
    "mosbach": {
        "num_train_epochs": 20.0,
        "warmup_proportion": 0.1,
        "bias_correction": True,
        "learning_rate": 2e-5,
        "train_batch_size": 16,
    },
}


class RunSetting(NamedTuple):
    """The settings in which runs on one task may differ."""

    learning_rate: float
    train_batch_size: int
    num_train_epochs: float
    random_seed: int

    @property
    def name(self) -> str:
        """The settings as a folder's name: lr5e-05_bs16_ep3_seed12345."""
        return (
            f"lr{_short(self.learning_rate)}_bs{self.train_batch_size}"
            f"_ep{_short(self.num_train_epochs)}_seed{self.random_seed}"
        )

    def of(self, options: "FineTuningOptions") -> "FineTuningOptions":
        """Returns the options of this run alone."""
        values = {**self._asdict(), "num_train_epochs": (self.num_train_epochs,)}
        return options.with_defaults(**values)

    @classmethod
    def of_name(cls, name: str) -> "RunSetting":
        """Returns the settings with this name."""
        match = re.fullmatch(r"lr(.+)_bs(\d+)_ep(.+)_seed(\d+)", name)
        if match is None:
            raise InputError(f"{name!r} is no name of a run's settings.")
        rate, batch_size, epochs, seed = match.groups()
        return cls(float(rate), int(batch_size), float(epochs), int(seed))


def _short(number: float) -> str:
    """Returns the shortest digits of a number: 3 for 3.0."""
    return repr(float(number)).removesuffix(".0")


def problems_of_limit(max_unusable_rows: float) -> Iterator[str]:
    """Yields a problem unless the limit is a share or a whole number."""
    if max_unusable_rows >= 1 and not max_unusable_rows.is_integer():
        yield (
            f"`max_unusable_rows={max_unusable_rows}` must be below 1, or a whole"
            " number."
        )


class FineTuningOptions(
    ModelOptions,
    LongTextOptions,
    TrainingConfig,
    DeviceOptions,
    LengthOptions,
    SelectionOptions,
    LossOptions,
    title=options.TRAINING,
    decides="nothing",
    hides=(
        "num_train_steps",
        "num_warmup_steps",
        "num_schedule_steps",
        "max_train_hours",
        "stop_if",
        "stack_layers",
    ),
):
    """The options of fine-tuning; commands hide those without effect."""

    output_dir: str = option(
        REQUIRED,
        "Folder for checkpoints, logs and results. A run that is started again with the"
        " same folder resumes from its last checkpoint.",
        path=Path.OUTPUT,
        title=options.WHAT_TO_DO,
    )
    do_train: bool = option(False, "Train.", title=options.WHAT_TO_DO)
    do_eval: bool = option(
        False, "Evaluate on the development data.", title=options.WHAT_TO_DO
    )
    do_predict: bool = option(
        False, "Predict on the test data.", title=options.WHAT_TO_DO
    )
    lora_rank: int = option(
        0,
        "Freeze the pre-trained weights, and train low-rank updates of this rank"
        " for the query and value kernels (LoRA, Hu et al. 2021); 0 for none. Use a"
        " higher learning rate, such as 5e-4.",
        least=0,
        decides="model",
        title=options.METHODS,
    )
    adapter_size: int = option(
        0,
        "Freeze the pre-trained weights, and train two adapters per layer with this"
        " many hidden units, and the LayerNorms (Houlsby et al. 2019: 8 to 256,"
        " learning rate 3e-4); 0 for none.",
        least=0,
        decides="model",
        title=options.METHODS,
    )
    train_pooler: bool = option(
        False,
        "With LoRA or adapters: train the pooler too, for a checkpoint whose pooler"
        " is missing or was never trained.",
        decides="model",
        title=options.METHODS,
    )
    bilstm: bool = option(
        False,
        "Put a randomly initialized bidirectional LSTM on top of the encoder, trained"
        ' with it (Devlin et al. 2018, table 5: "+ BiLSTM").',
        title=options.METHODS,
        decides="numbers",
    )
    cls_normalization: bool = option(
        False,
        "Standardize the pooled [CLS], before training, by the mean and the deviation"
        " of each of its components over 1,024 training examples (Zhou et al. 2019: a"
        " few large components, far from 0, make fine-tuning harder).",
        title=options.METHODS,
        decides="numbers",
    )
    recipe: str = option(
        "devlin",
        "Defaults for flags that are not given: devlin, the original's; mosbach"
        " (Mosbach et al. 2021, more stable on small tasks): 20 epochs, 10 %"
        " warmup, bias correction, learning rate 2e-5, batch size 16.",
        choices=tuple(RECIPES),
        decides="setting",
    )
    layer_mixture: bool = option(
        False,
        "Use a learned mixture of the embeddings and all layers instead of the last"
        " layer (ELMo, Peters et al. 2018; for BERT, Tenney et al. 2019).",
        decides="model",
        title=options.METHODS,
    )
    warmup_proportion: float = option(
        0.1,
        "Share of the training steps during which the learning rate rises linearly.",
        least=0.0,
        decides="numbers",
    )
    best_metric: str | None = options.with_default(  # type: ignore[assignment]
        TrainingConfig, "best_metric", None
    )
    max_unusable_rows: float = option(
        MAX_UNUSABLE,
        "How many rows of a file may be unusable (without text, with too few columns or"
        " with an unknown label) and are left out, or have no prediction: a share below"
        " 1, or a number of rows. If there are more, the command stops.",
        least=0.0,
        decides="numbers",
        title=options.DATA,
    )
    delimiter: str | None = option(
        None,
        "The sign between the cells of CSV files, such as ; or tab. Default: commas, or"
        " semicolons or tabs if the first row has these instead, which is logged.",
        title=options.DATA,
    )
    eval_batch_size: int = option(32, "Sequences per evaluation step.", least=1)
    predict_batch_size: int = option(32, "Sequences per prediction step.", least=1)

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other, or have no effect."""
        yield from super().problems()
        yield from problems_of_limit(self.max_unusable_rows)
        frozen = self.lora_rank or self.adapter_size or self.init_adapter
        if self.lora_rank and self.adapter_size:
            yield "`lora_rank` and `adapter_size` do the same in two ways: give one."
        if frozen and self.reinitialize_layers:
            yield (
                "`reinitialize_layers` draws new weights that `lora_rank`,"
                " `adapter_size` and `init_adapter` leave untrained: leave it out."
            )
        if self.train_pooler and not frozen:
            yield "`train_pooler` is for `lora_rank` and `adapter_size`: leave it out."
        if self.init_adapter and not self.init_checkpoint:
            yield "`init_adapter` goes on top of a base: give `init_checkpoint`."
        for name in ("lora_rank", "adapter_size", "init_adapter"):
            if self.cls_normalization and getattr(self, name):
                yield f"`cls_normalization` and `{name}` exclude each other."

    @property
    def num_global(self) -> int:
        """See `LongTextOptions`: [CLS]."""
        return 1

    @property
    def settings(self) -> list[RunSetting]:
        """The settings of the requested runs, without repetition, in order."""

        def values(plural: str, singular: str) -> Sequence[Any]:
            several = getattr(self, plural)
            is_asked_for = self.is_given(singular) and not self.is_given(plural)
            if several is None or is_asked_for:
                return [getattr(self, singular)]
            return several

        # Seeds change slowest, so that every combination runs once early on.
        combinations = itertools.product(
            range(self.random_seed, self.random_seed + self.num_restarts),
            dict.fromkeys(values("train_batch_sizes", "train_batch_size")),
            dict.fromkeys(self.num_train_epochs),
            dict.fromkeys(values("learning_rates", "learning_rate")),
        )
        return [
            RunSetting(rate, batch_size, epochs, seed)
            for seed, batch_size, epochs, rate in combinations
        ]

    @property
    def asks_for_selection(self) -> bool:
        """Whether several runs are requested, to choose the best."""
        plurals = ("learning_rates", "train_batch_sizes")
        return any(map(self.is_given, plurals)) or len(self.settings) > 1

    @property
    def selects(self) -> bool:
        """Whether several runs are trained, to keep the best."""
        return self.do_train and self.asks_for_selection

    @property
    def looks_at_dev(self) -> bool:
        """Whether the development set is read."""
        while_training = self.eval_steps or self.asks_for_selection
        return bool(self.do_eval or (self.do_train and while_training))


def warn_of_stride(doc_stride: int | None, max_seq_length: int) -> None:
    """Warns if windows do not overlap; [CLS] and two [SEP] take three places."""
    room = max_seq_length - 3
    if doc_stride is not None and doc_stride >= room:
        logging.warning(
            "`doc_stride=%d` is not less than the %d tokens of a window, so windows do"
            " not overlap: text at a boundary is split between two.",
            doc_stride,
            room,
        )


class TfdsOptions(Options, title=options.DATA, decides="numbers"):
    """TensorFlow Datasets instead of files; each command names its splits."""

    tfds_name: str | None = option(None, "Read a TensorFlow dataset instead of files.")
    tfds_data_dir: str | None = option(
        None,
        "Folder of prepared TensorFlow datasets. Default: the library's own.",
        path=Path.OUTPUT,
        only_with="tfds_name",
        decides="nothing",
    )
    tfds_splits: tuple[str, ...] = option((), "The splits of --tfds_name to use.")

    def problems(self) -> Iterator[str]:
        """Yields an error for files and a data set, or a wrong number of splits."""
        yield from super().problems()
        for file, declared in options.declarations(type(self)).items():
            for use in declared.needed_for:
                yield from self.need_with(use, file, "tfds_name")
                yield from self.refuse_together("tfds_name", file)
        yield from self.refuse_together(
            "tfds_name", "delimiter", why="exclude each other"
        )
        wanted: Any = type(self).__dataclass_fields__["tfds_splits"].default
        if len(self.tfds_splits) != len(wanted):
            found = ",".join(self.tfds_splits)
            yield (
                f"`tfds_splits={found}` must name {len(wanted)} splits, such as"
                f" {','.join(wanted)}."
            )


def tfds_splits(uses: Mapping[str, str]) -> Any:
    """Returns the option for the splits, with their usual names and purposes."""
    purposes = ", ".join(uses.values())
    return option(
        tuple(uses),
        "For --tfds_name. Splits, or slices such as train[:90%], one each:"
        f" {purposes}.",
        only_with="tfds_name",
        decides="numbers",
    )


def sources(options: Any) -> Iterator[tuple[str, str | TfdsRows]]:
    """Yields the splits to read, each with its file or a TensorFlow dataset's rows."""
    wanted = (options.do_train, options.looks_at_dev, options.do_predict)
    for number, split in enumerate(("train", "dev", "test")):
        if not wanted[number]:
            continue
        if options.tfds_name:
            names = options.tfds_name, options.tfds_splits[number]
            yield split, TfdsRows(*names, options.tfds_data_dir)
            continue
        path = getattr(options, f"{split}_file")
        if path is None:
            raise InputError(f"Give `{split}_file`: the runs are compared by it.")
        yield split, path
