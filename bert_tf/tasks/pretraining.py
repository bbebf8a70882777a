"""Pre-training: the task, its data, and a run."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.loading import checked_casing, refuse_other_function
from bert_tf.conversion.source import Source, open_source
from bert_tf.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.objectives import MASKED_LM, NEXT_SENTENCE
from bert_tf.records.dynamic_masking import MaskingOptions
from bert_tf.records.pretraining_input import PretrainingRecords, files_by_length
from bert_tf.records.writing import record_files
from bert_tf.tasks.pretraining_options import PretrainingOptions
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import restore_or_initialize
from bert_tf.training.evaluation import Evaluator
from bert_tf.training.loop import train
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import check_batch_size, is_chief
from bert_tf.training.task import Task
from bert_tf.training.training_options import (
    Phase,
    PhaseSpec,
    TrainingConfig,
    TrainingData,
    parse_phases,
)

# Pre-training as a task: the masked LM, with next sentence prediction or alone.


def pretraining_task(
    config: BertConfig,
    next_sentence: bool = True,
    packed: bool = False,
    recompute: bool = False,
) -> Task:
    """The task of pre-training a model with that architecture."""
    build_model = functools.partial(
        BertPretrainer, config, packed=packed, recompute=recompute
    )
    if next_sentence:
        return Task(
            name="pretraining",
            build_model=build_model,
            objective=MASKED_LM + NEXT_SENTENCE,
        )
    return Task(
        name="pretraining",
        build_model=lambda: _masked_lm_alone(build_model()),
        objective=MASKED_LM,
        unmeasured=("bert/pooler/", "cls/seq_relationship/"),
    )


# Metric -> labels and their weights in a batch; all weigh 1 if there are none.
_LABELS = {
    "masked_lm_majority": ("masked_lm_ids", "masked_lm_weights"),
    "next_sentence_majority": ("next_sentence_labels", "next_sentence_weights"),
}


class Majority:
    """The majority-class baseline's score on the batches seen.

    Next sentence labels may be far from balanced, so their accuracy means nothing
    without it.
    """

    def __init__(self, task: Task) -> None:
        self._counts = {
            name: np.zeros(0)
            for name in _LABELS
            if name.replace("majority", "accuracy") in task.objective.metrics
        }

    def add(self, batch: Mapping[str, Any]) -> None:
        """Counts a batch's labels."""
        for name, counts in self._counts.items():
            labels_key, weights_key = _LABELS[name]
            labels = np.asarray(batch[labels_key]).ravel()
            weights = np.asarray(batch.get(weights_key, np.ones_like(labels))).ravel()
            more = np.bincount(labels, weights, len(counts)).astype(np.float64)
            more[: len(counts)] += counts
            self._counts[name] = more

    def scores(self) -> dict[str, float]:
        """The share of the most frequent label of each kind."""
        return {
            name: float(counts.max() / counts.sum()) if counts.any() else 0.0
            for name, counts in self._counts.items()
        }


def _masked_lm_alone(model: BertPretrainer) -> BertPretrainer:
    """The whole model, with only the masked LM's weights visible to the optimizer.

    A weight without a gradient would still decay.
    """
    model.encoder.get_layer("pooler").trainable = False
    model.get_layer("seq_relationship").trainable = False
    return model


# The records of a pre-training run's phases (--phases) and of its evaluation. Each
# phase reads the records of its length.


class OpenRecords(Protocol):
    """Opens record files."""

    def __call__(
        self, paths: Sequence[str], flag: str, max_seq_length: int | None = None
    ) -> PretrainingRecords:
        """The records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingData:
    """What a run trains and evaluates on.

    phases: the requested phases, each with its records.
        held_out: the records to evaluate a phase on.
        held_out: the records to evaluate a phase on.
    """

    phases: Sequence[tuple[PhaseSpec, PretrainingRecords]]
    held_out: Sequence[PretrainingRecords]

    @classmethod
    def open(
        cls,
        open_records: OpenRecords,
        specs: Sequence[PhaseSpec] | None,
        *,
        input_file: str,
        eval_input_file: str | None,
        num_train_steps: int,
        train_batch_size: int,
    ) -> "PretrainingData":
        """Finds the records of each phase, and checks that they are compatible."""
        phases: list[tuple[PhaseSpec, PretrainingRecords]]
        if specs is None:
            records = open_records(record_files(input_file, "input_file"), "input_file")
            phases = [
                (
                    PhaseSpec(
                        records.max_seq_length, num_train_steps, train_batch_size
                    ),
                    records,
                )
            ]
        else:
            opened = _open_by_length(open_records, specs, input_file, "input_file")
            phases = [(spec, opened[spec.max_seq_length]) for spec in specs]
        held_out = [records for _, records in phases]
        if eval_input_file:
            if specs is None:
                paths = record_files(eval_input_file, "eval_input_file")
                held_out = [open_records(paths, "eval_input_file")]
            else:
                opened = _open_by_length(
                    open_records, specs, eval_input_file, "eval_input_file"
                )
                held_out = [opened[spec.max_seq_length] for spec in specs]
        first = phases[0][1]
        for other in (*[records for _, records in phases[1:]], *held_out):
            first.refuse_other_vocabulary(other)
            first.refuse_other_pairs(other)
        return cls(phases=phases, held_out=held_out)

    @property
    def records(self) -> PretrainingRecords:
        """The first phase's records, for what they have in common with all others."""
        return self.phases[0][1]

    @property
    def every_records(self) -> list[PretrainingRecords]:
        """The records of all phases, then those to evaluate on."""
        return [*[records for _, records in self.phases], *self.held_out]

    @property
    def is_packed(self) -> bool:
        """Whether some records are packed: the others are then read as rows of one."""
        return any(records.is_packed for records in self.every_records)

    @property
    def num_train_steps(self) -> int:
        """The steps of all phases."""
        return sum(spec.num_steps for spec, _ in self.phases)

    def described(self, input_file: str) -> RunData:
        """The records of all phases, as recorded in a run's folder."""
        ids = [
            fingerprint(records.paths, records.counts, records.max_seq_length)
            for _, records in self.phases
        ]
        return RunData(input_file, files.sha256(repr(ids).encode()))

    def training_phases(
        self,
        task: Task,
        config: TrainingConfig,
        strategy: tf.distribute.Strategy,
        *,
        vocab_size: int,
        eval_batch_size: int,
        max_eval_steps: int,
    ) -> list[Phase]:
        """The phases in the engine's form."""
        phases = []
        end_step = 0
        for (spec, records), held_out in zip(self.phases, self.held_out, strict=True):
            end_step += spec.num_steps
            phases.append(
                Phase(
                    end_step=end_step,
                    batch_size=spec.batch_size,
                    streams=[
                        _training_data(
                            records,
                            spec,
                            config.random_seed,
                            vocab_size,
                            self.is_packed,
                        )
                    ],
                    data_id=fingerprint(
                        records.paths, records.counts, records.max_seq_length
                    ),
                    evaluate=evaluation_of(
                        task,
                        held_out,
                        strategy,
                        vocab_size=vocab_size,
                        batch_size=eval_batch_size,
                        num_batches=max_eval_steps,
                        packed=self.is_packed,
                        jit_compile=config.jit_compile,
                    ),
                    evaluation_id=fingerprint(
                        held_out.paths,
                        # Evaluation takes the first ones.
                        [0] * len(held_out.paths),
                        held_out.max_seq_length,
                    ),
                    name=f"the records of length {spec.max_seq_length}",
                )
            )
        return phases


def _open_by_length(
    open_records: OpenRecords, specs: Sequence[PhaseSpec], patterns: str, flag: str
) -> dict[int, PretrainingRecords]:
    """The records of each phase's length, opened once."""
    lengths = files_by_length(record_files(patterns, flag))
    opened = {}
    for spec in specs:
        length = spec.max_seq_length
        if length not in lengths:
            raise InputError(
                f"--phases asks for records of length {length}; those of --{flag} have"
                f" {', '.join(map(str, sorted(lengths))) or 'no records'}."
            )
        if length not in opened:
            opened[length] = open_records(lengths[length], flag, length)
    return opened


def _training_data(
    records: PretrainingRecords,
    spec: PhaseSpec,
    seed: int,
    vocab_size: int,
    packed: bool,
) -> TrainingData:
    return lambda position, shard: records.training_dataset(
        spec.batch_size,
        seed=seed,
        start=position,
        shard=shard,
        vocab_size=vocab_size,
        packed=packed,
    )


def evaluation_of(
    task: Task,
    records: PretrainingRecords,
    strategy: tf.distribute.Strategy,
    *,
    vocab_size: int,
    batch_size: int,
    num_batches: int,
    packed: bool = False,
    jit_compile: bool = False,
) -> Callable[[keras.Model], Mapping[str, float]]:
    """Evaluates a model on the first batches of some records, repeated if few."""
    evaluators: dict[int, Evaluator] = {}

    def evaluate(model: keras.Model) -> Mapping[str, float]:
        if id(model) not in evaluators:
            evaluators[id(model)] = Evaluator(
                task, model, strategy, jit_compile=jit_compile
            )
        majority = Majority(task)
        results = evaluators[id(model)].run(
            records.evaluation_dataset(
                batch_size, repeat=True, vocab_size=vocab_size, packed=packed
            ),
            num_batches=num_batches,
            observe=majority.add,
        )
        return results | majority.scores()

    return evaluate


def fingerprint(
    paths: Sequence[str], counts: Sequence[int], max_seq_length: int
) -> int:
    """Identifies record sets: their files' names, numbers and record lengths."""
    lines = f"{max_seq_length}\n" + "".join(
        f"{os.path.basename(path)} {count}\n"
        for path, count in zip(paths, counts, strict=True)
    )
    digest = hashlib.sha256(lines.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1


# A run of pre-training: records in, a model and its evaluation out.


class PretrainingSession:
    """A run of pre-training.

    Every input is read and checked here, before anything is written or trained.

    Attributes:
        config: the model's architecture.
        data: the records of each phase, and those to evaluate on.
        task: what to train.
    """

    def __init__(
        self, options: PretrainingOptions, strategy: tf.distribute.Strategy
    ) -> None:
        self._options = options
        self._strategy = strategy
        specs = parse_phases(options.phases) if options.phases else None
        # Errors that would otherwise appear after hours of training.
        self._refuse_uneven_batches(specs)
        checkpoint = options.init_checkpoint
        source = open_source(checkpoint) if checkpoint else None
        self.config = model_config(options, source)
        if source is not None and source.config is not None:
            refuse_other_function(source, self.config, "this run's model")
        self._masking = MaskingOptions(
            **{
                field.name: options.given(field.name)
                for field in dataclasses.fields(MaskingOptions)
            }
        )
        self.data = PretrainingData.open(
            self._open_records,
            specs,
            input_file=options.input_file,
            eval_input_file=options.eval_input_file,
            num_train_steps=options.num_train_steps,
            train_batch_size=options.train_batch_size,
        )
        self._vocabulary, self._do_lower_case = self._fit_to_records(source)
        self.task = pretraining_task(
            self.config,
            next_sentence=self.data.records.has_pairs and options.next_sentence,
            packed=self.data.is_packed,
            recompute=options.recompute,
        )
        self._refuse_other_metrics()

    def train(self) -> tuple[keras.Model, int]:
        """Trains, resuming from --output_dir."""
        self._prepare()
        training = TrainingConfig.of(
            self._options,
            num_train_steps=self.data.num_train_steps,
            num_warmup_steps=self._options.num_warmup_steps,
        )
        logging.info("***** Running training *****")
        for spec, _ in self.data.phases:
            logging.info(
                "  %d steps of %d sequences of length %d",
                spec.num_steps,
                spec.batch_size,
                spec.max_seq_length,
            )
        return train(
            self.task,
            training,
            folder=self._options.output_dir,
            phases=self.data.training_phases(
                self.task,
                training,
                self._strategy,
                vocab_size=self.config.vocab_size,
                eval_batch_size=self._options.eval_batch_size,
                max_eval_steps=self._options.max_eval_steps,
            ),
            init_checkpoint=self._options.init_checkpoint,
            strategy=self._strategy,
            start=run_folder.Start(
                task=self.task.name,
                data=self.data.described(self._options.input_file),
                settings=training.decisive
                | {"phases": self._options.phases}
                | dataclasses.asdict(self._masking),
                flags=self._options.as_flags(),
            ),
        )

    def restore(self) -> tuple[keras.Model, int]:
        """The model of --output_dir's last checkpoint, or else of --init_checkpoint."""
        self._prepare()
        return restore_or_initialize(
            self.task,
            self._options.output_dir,
            self._options.init_checkpoint,
            self._options.precision,
            self._strategy,
        )

    def evaluate(self, model: keras.Model, step: int) -> None:
        """Writes losses and accuracies to eval_results.txt."""
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", self._options.eval_batch_size)
        evaluation = evaluation_of(
            self.task,
            self.data.held_out[-1],
            self._strategy,
            vocab_size=self.config.vocab_size,
            batch_size=self._options.eval_batch_size,
            num_batches=self._options.max_eval_steps,
            packed=self.data.is_packed,
            jit_compile=self._options.jit_compile,
        )
        run_folder.report_evaluation(
            self._options.output_dir,
            step,
            evaluation(model),
            is_chief=is_chief(self._strategy),
            task_name=self.task.name,
        )

    def _refuse_uneven_batches(self, specs: Sequence[PhaseSpec] | None) -> None:
        """Raises InputError if some batch cannot be split over the devices."""
        values = self._options
        if values.do_train:
            batches = {"train_batch_size": [values.train_batch_size]}
            if specs:
                batches = {"phases: BATCH": [spec.batch_size for spec in specs]}
            for flag, sizes in batches.items():
                for size in sizes:
                    check_batch_size(
                        self._strategy,
                        size,
                        values.gradient_accumulation_steps,
                        flag=flag,
                    )
        if values.do_eval or values.eval_steps:
            check_batch_size(
                self._strategy, values.eval_batch_size, flag="eval_batch_size"
            )

    def _open_records(
        self, paths: Sequence[str], flag: str, max_seq_length: int | None = None
    ) -> PretrainingRecords:
        values = self._options
        return PretrainingRecords(
            paths,
            flag=flag,
            max_seq_length=max_seq_length or values.given("max_seq_length"),
            max_predictions_per_seq=values.given("max_predictions_per_seq"),
            vocab_file=values.vocab_file,
            masking=self._masking,
            left_to_right=self.config.left_to_right,
            counts_cache=os.path.join(values.output_dir, "record_counts.json"),
        )

    def _fit_to_records(self, source: Source | None) -> tuple[Vocabulary | None, bool]:
        """Checks the model against the records; a named size takes their vocabulary."""
        vocabulary, do_lower_case = self.data.records.vocabulary(
            self._options.given("do_lower_case")
        )
        if self._options.bert_size and vocabulary is not None:
            self.config = dataclasses.replace(self.config, vocab_size=len(vocabulary))
        every = self.data.every_records
        for records in every:
            records.check_model(self.config)
        if not any(records.is_dynamic for records in every):
            self._masking.refuse_where_unused(self.data.records.paths[0])
        if vocabulary is not None:
            self.config.check_vocabulary(len(vocabulary), "The vocabulary")
            do_lower_case = checked_casing(
                source, vocabulary, do_lower_case, "The vocabulary of the records"
            )
        return vocabulary, do_lower_case is not False

    def _refuse_other_metrics(self) -> None:
        """Raises InputError now for errors that the first evaluation would meet."""
        objective = self.task.objective
        metrics = ("loss", *objective.losses, *objective.metrics)
        if self._options.eval_steps and self._options.best_metric not in metrics:
            raise InputError(
                f"--best_metric={self._options.best_metric} is none of the evaluation's"
                f" metrics: {', '.join(metrics)}."
            )

    def _prepare(self) -> None:
        """Makes --output_dir, with all files that must accompany its checkpoints."""
        run_folder.prepare(
            self._options.output_dir,
            self.config,
            self._vocabulary,
            self._do_lower_case,
            self._options,
            head=names.MASKED_LM,
            task=self.task.name,
        )
        if not self.data.records.has_pairs:
            logging.info(
                "The records have no sentence pairs: the masked LM is alone; the pooler"
                " and the next sentence head stay as they are."
            )


def model_config(options: PretrainingOptions, source: Source | None) -> BertConfig:
    """The architecture of the flags, or else of the checkpoint to start from."""
    if options.bert_size:
        config = BertConfig.from_size(options.bert_size)
    elif options.bert_config_file:
        config = BertConfig.from_json_file(options.bert_config_file)
    else:
        assert source is not None  # One of the three flags is given.
        config = source.require_config()
    if options.left_to_right:
        config = dataclasses.replace(config, left_to_right=True)
    return config
