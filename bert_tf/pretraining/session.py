"""A run of pre-training: records in, a model and its evaluation out."""

import dataclasses
import os
from collections.abc import Sequence

import keras
import tensorflow as tf
from absl import flags, logging

from bert_tf import flags as shared_flags
from bert_tf.config import BertConfig
from bert_tf.conversion import names
from bert_tf.conversion.loading import checked_casing, refuse_other_function
from bert_tf.conversion.source import Source, open_source
from bert_tf.errors import InputError
from bert_tf.pretraining.data import PretrainingData, evaluation_of
from bert_tf.records.dynamic_masking import MaskingOptions
from bert_tf.records.pretraining_input import PretrainingRecords
from bert_tf.tasks.pretraining import pretraining_task
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import run_folder
from bert_tf.training.config import PhaseSpec, TrainingConfig, parse_phases
from bert_tf.training.initialization import restore_or_initialize
from bert_tf.training.loop import train
from bert_tf.training.strategy import check_batch_size, is_chief


class PretrainingSession:
    """A run of pre-training.

    Every input is read and checked here, before anything is written or trained.

    Attributes:
        config: the model's architecture.
        data: the records of each phase, and those to evaluate on.
        task: what to train.
    """

    def __init__(
        self, flag_values: flags.FlagValues, strategy: tf.distribute.Strategy
    ) -> None:
        self._flags = flag_values
        self._strategy = strategy
        specs = parse_phases(flag_values.phases) if flag_values.phases else None
        # What would otherwise come out after hours of training.
        self._refuse_uneven_batches(specs)
        checkpoint = flag_values.init_checkpoint
        source = open_source(checkpoint) if checkpoint else None
        self.config = model_config(flag_values, source)
        if source is not None and source.config is not None:
            refuse_other_function(source, self.config, "this run's model")
        self._masking = MaskingOptions(
            **{
                field.name: shared_flags.given(flag_values, field.name)
                for field in dataclasses.fields(MaskingOptions)
            }
        )
        self.data = PretrainingData.open(
            self._open_records,
            specs,
            input_file=flag_values.input_file,
            eval_input_file=flag_values.eval_input_file,
            num_train_steps=flag_values.num_train_steps,
            train_batch_size=flag_values.train_batch_size,
        )
        self._vocabulary, self._do_lower_case = self._fit_to_records(source)
        self.task = pretraining_task(
            self.config,
            next_sentence=self.data.records.has_pairs and flag_values.next_sentence,
            packed=self.data.is_packed,
            recompute=flag_values.recompute,
        )
        self._refuse_other_metrics()

    def train(self) -> tuple[keras.Model, int]:
        """Trains from where --output_dir stands."""
        self._prepare()
        training = TrainingConfig.from_flags(
            self._flags,
            num_train_steps=self.data.num_train_steps,
            num_warmup_steps=self._flags.num_warmup_steps,
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
            folder=self._flags.output_dir,
            phases=self.data.training_phases(
                self.task,
                training,
                self._strategy,
                vocab_size=self.config.vocab_size,
                eval_batch_size=self._flags.eval_batch_size,
                max_eval_steps=self._flags.max_eval_steps,
            ),
            init_checkpoint=self._flags.init_checkpoint,
            strategy=self._strategy,
            start=run_folder.Start(
                task=self.task.name,
                data=self.data.described(self._flags.input_file),
                settings=training.decisive
                | {"phases": self._flags.phases}
                | dataclasses.asdict(self._masking),
                flags=run_folder.resolved(self._flags),
            ),
        )

    def restore(self) -> tuple[keras.Model, int]:
        """The model of --output_dir's last checkpoint, or else of --init_checkpoint."""
        self._prepare()
        return restore_or_initialize(
            self.task,
            self._flags.output_dir,
            self._flags.init_checkpoint,
            self._flags.precision,
            self._strategy,
        )

    def evaluate(self, model: keras.Model, step: int) -> None:
        """Writes losses and accuracies to eval_results.txt."""
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", self._flags.eval_batch_size)
        evaluation = evaluation_of(
            self.task,
            self.data.held_out[-1],
            self._strategy,
            vocab_size=self.config.vocab_size,
            batch_size=self._flags.eval_batch_size,
            num_batches=self._flags.max_eval_steps,
            packed=self.data.is_packed,
            jit_compile=self._flags.jit_compile,
        )
        run_folder.report_evaluation(
            self._flags.output_dir,
            step,
            evaluation(model),
            is_chief=is_chief(self._strategy),
            task_name=self.task.name,
        )

    def _refuse_uneven_batches(self, specs: Sequence[PhaseSpec] | None) -> None:
        """Raises InputError if some batch cannot be dealt out to the devices."""
        values = self._flags
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
        values = self._flags
        return PretrainingRecords(
            paths,
            flag=flag,
            max_seq_length=max_seq_length
            or shared_flags.given(values, "max_seq_length"),
            max_predictions_per_seq=shared_flags.given(
                values, "max_predictions_per_seq"
            ),
            vocab_file=values.vocab_file,
            masking=self._masking,
            left_to_right=self.config.left_to_right,
            counts_cache=os.path.join(values.output_dir, "record_counts.json"),
        )

    def _fit_to_records(self, source: Source | None) -> tuple[Vocabulary | None, bool]:
        """Checks the model by the records; a named size's vocabulary is theirs."""
        vocabulary, do_lower_case = self.data.records.vocabulary(
            shared_flags.given(self._flags, "do_lower_case")
        )
        if self._flags.bert_size and vocabulary is not None:
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
        """Raises InputError now for what would come out at the first evaluation."""
        objective = self.task.objective
        metrics = ("loss", *objective.losses, *objective.metrics)
        if self._flags.eval_steps and self._flags.best_metric not in metrics:
            raise InputError(
                f"--best_metric={self._flags.best_metric} is none of the evaluation's"
                f" metrics: {', '.join(metrics)}."
            )

    def _prepare(self) -> None:
        """Makes --output_dir, with all that its checkpoints need beside them."""
        run_folder.prepare(
            self._flags.output_dir,
            self.config,
            self._vocabulary,
            self._do_lower_case,
            self._flags,
            head=names.MASKED_LM,
            task=self.task.name,
        )
        if not self.data.records.has_pairs:
            logging.info(
                "The records have no sentence pairs: the masked LM is alone; the pooler"
                " and the next sentence head stay as they are."
            )


def model_config(flag_values: flags.FlagValues, source: Source | None) -> BertConfig:
    """The architecture that the flags name, or else the checkpoint to start from."""
    if flag_values.bert_size:
        config = BertConfig.from_size(flag_values.bert_size)
    elif flag_values.bert_config_file:
        config = BertConfig.from_json_file(flag_values.bert_config_file)
    else:
        assert source is not None  # One of the three flags is given.
        config = source.require_config()
    if flag_values.left_to_right:
        config = dataclasses.replace(config, left_to_right=True)
    return config
