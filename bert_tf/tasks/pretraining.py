"""Pre-training: the task, its data, and the run."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from absl import logging

from bert_tf.base import files
from bert_tf.base.addons import addon
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.base.options import deciding, flags_of_run
from bert_tf.conversion import names
from bert_tf.conversion.loading import (
    checked_casing,
    checked_segmenter,
    extended,
    refuse_other_function,
    resized,
)
from bert_tf.conversion.source import Source, folder_of, open_source
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.objectives import MASKED_LM, NEXT_SENTENCE, replaced_tokens
from bert_tf.records.dynamic_masking import ONE_DIRECTION, MaskingOptions
from bert_tf.records.pretraining_input import (
    PretrainingRecords,
    records_of_lengths,
    warn_of_shared_text,
)
from bert_tf.tasks.pretraining_options import (
    RECIPES,
    PhaseSpec,
    PretrainingOptions,
    model_config,
    parse_phases,
    parse_stacking,
)
from bert_tf.tasks.task import Run
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import STATE_NAME, restore_or_initialize
from bert_tf.training.evaluation import Evaluator
from bert_tf.training.events import Callback, Evaluation
from bert_tf.training.loop import train
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    create_strategy,
    is_chief,
)
from bert_tf.training.task import ENDLESS, Phase, Task
from bert_tf.training.training_options import TrainingConfig, with_flags_of, with_recipe

# Pre-training as a task: the masked LM, with or without next sentence prediction.


def pretraining_task(
    config: BertConfig,
    next_sentence: bool = True,
    num_pair_labels: int = 2,
    electra: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Task:
    """Returns the pre-training task; with `electra`, ELECTRA's objective.

    The settings are options of the encoder.
    """
    if electra is not None:
        return Task(
            name="electra",
            build_model=functools.partial(
                addon("electra"), config, **settings, **electra
            ),
            objective=MASKED_LM + replaced_tokens(electra["discriminator_weight"]),
        )

    def build_model() -> BertPretrainer:
        model = BertPretrainer(config, num_pair_labels=num_pair_labels, **settings)
        if not next_sentence:  # otherwise decayed without a gradient
            model.encoder.get_layer("pooler").trainable = False
            model.get_layer("seq_relationship").trainable = False
        return model

    return Task(
        name="pretraining",
        build_model=build_model,
        objective=MASKED_LM + NEXT_SENTENCE if next_sentence else MASKED_LM,
        unmeasured=() if next_sentence else ("bert/pooler/", "cls/seq_relationship/"),
    )


def _as_trained(options: PretrainingOptions) -> PretrainingOptions:
    """Takes heads and objective from the training if a model is only evaluated."""
    folder = options.output_dir
    if not files.exists(os.path.join(folder, STATE_NAME)):
        folder = folder_of(options.init_checkpoint or folder)
    if options.do_train or not files.exists(os.path.join(folder, STATE_NAME)):
        return options
    names_of_options = deciding(PretrainingOptions, "model")
    return with_flags_of(options, names_of_options, flags_of_run(folder), folder)


# A run of pre-training: from records to a model and its evaluation.

# From rows so many times as long as the longest sequence on, local attention costs no
# more by the TPU's compiler, and less on a CPU (`benchmarks/packed_rows.py`).
_LONG_ROW = 8

# Callbacks of every run, from `bert_tf.base.addons`, in order.
_CALLBACKS = ("bits_per_byte", "reference_curves", "card")


class PretrainingRun(Run):
    """A pre-training run in phases, perhaps after stacking stages."""

    options: PretrainingOptions

    def __init__(
        self,
        options: PretrainingOptions,
        strategy: Strategy | None = None,
        num_layers: int | None = None,  # overrides the options' number
    ) -> None:
        self.options = options = _as_trained(with_recipe(options, RECIPES))
        self.strategy = strategy = strategy or create_strategy(options)
        self.specs = parse_phases(options.phases) if options.phases else []
        self.init_checkpoint: str | Source | None = None
        # Finds errors that would otherwise appear after hours of training.
        self._refuse_uneven_batches()
        self.electra: dict[str, float] | None = None
        if options.electra:
            names_of_options = ("generator_size", "discriminator_weight")
            self.electra = {n: getattr(options, n) for n in names_of_options}
        checkpoint = options.init_checkpoint
        source = open_source(checkpoint) if checkpoint else None
        config = model_config(options, source)
        source, self.config = resized(options, source, config)
        if num_layers is not None:
            self.config = dataclasses.replace(self.config, num_hidden_layers=num_layers)
        if source is not None and source.config is not None:
            refuse_other_function(source, self.config, "this run's model")
        # The phases' records, for training and for evaluation.
        self.records = self._open("input_file", options)
        self.held_out = self.records
        rate = options.eval_masked_lm_prob
        if options.eval_input_file or any(
            records.masked_lm_prob not in (None, rate) for records in self.records
        ):
            self.held_out = self._open(
                "eval_input_file" if options.eval_input_file else "input_file",
                options.with_defaults(masked_lm_prob=rate),
            )
        if options.eval_input_file:
            warn_of_shared_text(self.held_out, self.records)
        first, *others = every = [*self.records, *self.held_out]
        for other in others:
            first.refuse_other(other)
        self.specs = self.specs or [
            PhaseSpec(
                first.max_seq_length, options.num_train_steps, options.train_batch_size
            )
        ]
        # If some records are packed, the others are read as rows of one sequence.
        self.is_packed = any(records.is_packed for records in every)
        self._fit_to_records(source, every)
        self.task = pretraining_task(
            self._trained_config,
            next_sentence=first.has_pairs and options.next_sentence,
            num_pair_labels=first.num_pair_labels,
            electra=self.electra,
            packed=self.is_packed,
            longest_sequence=self._longest_sequence(every),
            recompute=options.recompute,
        )
        self._losses = addon("losses").of(options)
        if self._losses.changed:
            heads = {
                "masked_lm_loss": names.MASKED_LM,
                "next_sentence_loss": names.NEXT_SENTENCE,
            }
            self.task = addon("regularization").regularized(
                self.task,
                self._losses,
                heads=[heads[name] for name in self.task.objective.losses],
                vocabulary=self.vocabulary,
                packed=self.is_packed,
            )
        if (kind := options.initial_positions) != "random":
            place = addon("initial_positions").place
            self.task = dataclasses.replace(
                self.task,  # a stage may have trained them already
                begin=lambda new: None if self.init_checkpoint else place(new, kind),
            )
        self.callbacks: list[Callback] = [addon(one)(self) for one in _CALLBACKS]
        self._refuse_other_metrics()

    def train(self) -> tuple[keras.Model, int]:
        """Trains through the phases."""
        options = self.options
        self._prepare()
        config = options.to(
            TrainingConfig,
            stack_layers=options.stack_layers or bool(options.stacking),
            num_train_steps=sum(spec.num_steps for spec in self.specs),
            num_warmup_steps=options.num_warmup_steps,
        )
        logging.info("***** Running training *****")
        phases = self.phases()
        ids = [phase.data_id for phase in phases]
        return train(
            self.task,
            config,
            folder=options.output_dir,
            phases=phases,
            init_checkpoint=self.init_checkpoint,
            strategy=self.strategy,
            callbacks=self.callbacks,
            start=run_folder.Start(
                task=self.task.name,
                data=RunData(options.input_file, files.sha256(repr(ids).encode())),
                settings=config.decisive
                | {"phases": options.phases, "dropout": options.dropout}
                | self._losses.changed
                | options.given_masking
                | {"masked_lm_prob": options.masked_lm_prob}
                | (self.electra or {}),
                flags=options.as_flags(),
            ),
        )

    def phases(self) -> list[Phase]:
        """Returns the phases, each with its records, their length and batch size."""
        phases: list[Phase] = []
        for spec, records, held_out in zip(
            self.specs, self.records, self.held_out, strict=True
        ):
            data_ids = records.fingerprints(records.counts)
            hours = self.options.max_train_hours
            logging.info(
                "  %s of %d sequences of length %d",
                f"{spec.num_steps} steps" if hours is None else f"{hours:g} hours",
                spec.batch_size,
                spec.max_seq_length,
            )
            # Evaluation reads the first records, whatever their number.
            evaluation_ids = held_out.fingerprints([0] * len(held_out.paths))
            begin = phases[-1].end_step if phases else 0
            phases.append(
                Phase(
                    end_step=begin + spec.num_steps if hours is None else ENDLESS,
                    batch_size=spec.batch_size,
                    streams=[records.stream(spec.batch_size, self.options.random_seed)],
                    data_id=data_ids[0],
                    data_was=data_ids[1:],
                    evaluate=self._evaluation(held_out),
                    evaluates_before=self._continues and self.options.do_eval,
                    num_evaluated=(1 + sum(one.passes for one in self.callbacks))
                    * self._num_eval_batches(held_out)
                    * self.options.eval_batch_size,
                    evaluates_afterwards=self.options.do_eval,
                    evaluation_id=evaluation_ids[0],
                    evaluation_was=evaluation_ids[1:],
                    name=f"the records of length {spec.max_seq_length}",
                )
            )
        return phases

    def first_stages(self) -> None:
        """Trains the stages of `stacking`, from the last of which the run starts."""
        options = self.options
        stages = parse_stacking(options.stacking) if options.stacking else []
        layers = [
            *(stage.num_layers for stage in stages),
            self.config.num_hidden_layers,
        ]
        for fewer, more in itertools.pairwise(layers):
            if more % fewer:
                found = f"`stacking={options.stacking}`: {more} layers"
                raise InputError(f"{found} are not a multiple of {fewer}.")
        if not stages or files.exists(os.path.join(options.output_dir, STATE_NAME)):
            return
        self._prepare()
        checkpoint = options.init_checkpoint
        for number, stage in enumerate(stages):
            logging.info("***** Stage of %d layers *****", stage.num_layers)
            name = f"stacking_{stage.num_layers}_layers"
            folder = os.path.join(options.output_dir, name)
            stage_options = dataclasses.replace(
                options,
                output_dir=folder,
                stacking=None,
                stop_if=(),
                num_train_steps=stage.num_steps,
                num_warmup_steps=min(options.num_warmup_steps, stage.num_steps // 10),
                num_schedule_steps=None,
                random_seed=options.random_seed + 1 + number,  # different batches
                init_checkpoint=checkpoint,
                initial_positions="random" if checkpoint else options.initial_positions,
                stack_layers=number > 0 or options.stack_layers,
            )
            PretrainingRun(stage_options, self.strategy, stage.num_layers).train()
            self.init_checkpoint = checkpoint = folder

    def restore(self) -> tuple[keras.Model, int]:
        """Returns --output_dir's last checkpoint's model, or --init_checkpoint's."""
        self._prepare()
        return restore_or_initialize(
            self.task,
            self.options.output_dir,
            self.init_checkpoint,
            self.options.precision,
            self.strategy,
        )

    def report(self, model: keras.Model, step: int) -> Mapping[str, float]:
        """Writes losses and accuracies to eval_results.txt."""
        results: Mapping[str, float] = {}
        if self.options.do_eval:
            results = self._report_evaluation(model, step)
        for one in self.callbacks:
            one.reported(model, step)
        return results

    def _report_evaluation(self, model: keras.Model, step: int) -> Mapping[str, float]:
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", self.options.eval_batch_size)
        results = self._evaluation(self.held_out[-1])(model)
        run_folder.report_evaluation(
            self.options.output_dir,
            step,
            results,
            is_chief=is_chief(self.strategy),
            task_name=self.task.name,
        )
        return results

    def _evaluation(
        self, records: PretrainingRecords
    ) -> Callable[[keras.Model], Mapping[str, float]]:
        """Returns an evaluation on the first batches of records, repeated if few."""
        options = self.options
        size = options.eval_batch_size
        dataset = functools.partial(records.evaluation_dataset, size)

        @functools.lru_cache(maxsize=1)
        def evaluator(model: keras.Model) -> Evaluator:
            return Evaluator(
                self.task, model, self.strategy, jit_compile=options.jit_compile
            )

        def observe(batch: Mapping[str, Any]) -> None:
            for one in self.callbacks:
                one.observe(batch)

        def evaluate(model: keras.Model) -> Mapping[str, float]:
            measure = evaluator(model).run
            results = measure(
                dataset(repeat=True),
                num_batches=self._num_eval_batches(records),
                observe=observe,
            )
            for one in self.callbacks:
                results |= one.scores(Evaluation(results, dataset, measure))
            return results

        return evaluate

    def _num_eval_batches(self, records: PretrainingRecords) -> int:
        if self.options.max_eval_steps:
            return self.options.max_eval_steps
        return math.ceil(sum(records.counts) / self.options.eval_batch_size)

    def _refuse_uneven_batches(self) -> None:
        """Raises InputError if a batch cannot be split over the devices."""
        options = self.options
        flag, sizes = "train_batch_size", [options.train_batch_size]
        if self.specs:
            flag = f"phases={options.phases}: BATCH"
            sizes = [spec.batch_size for spec in self.specs]
        parts = options.gradient_accumulation_steps
        for size in sizes if options.do_train else ():
            check_batch_size(self.strategy, size, parts, flag=flag)
        if options.do_eval or options.eval_steps:
            size = options.eval_batch_size
            check_batch_size(self.strategy, size, flag="eval_batch_size")

    def _open(self, flag: str, masking: MaskingOptions) -> list[PretrainingRecords]:
        """Opens and checks the phases' records; equal lengths are opened once."""
        options = self.options
        return records_of_lengths(
            getattr(options, flag),
            [spec.max_seq_length for spec in self.specs] or None,
            flag=flag,
            max_seq_length=options.value_if_given("max_seq_length"),
            max_predictions_per_seq=options.value_if_given("max_predictions_per_seq"),
            vocab_file=options.vocab_file,
            masking=masking,
            left_to_right=self.config.left_to_right,
            right_to_left=self.config.right_to_left,
            counts_cache=os.path.join(options.output_dir, "record_counts.json"),
        )

    def _longest_sequence(self, every: Sequence[PretrainingRecords]) -> int | None:
        """Returns the most tokens of a sequence, if rows are to be read locally."""
        config = self.config
        longest = max(records.max_sequence_length for records in every)
        rows = [records.max_seq_length for records in every if records.is_packed]
        if config.attention_window or config.shares_layers or not rows:
            return None
        is_faster = min(rows) >= _LONG_ROW * longest and config.is_bidirectional
        return longest if is_faster else None

    def _fit_to_records(
        self, source: Source | None, every: Sequence[PretrainingRecords]
    ) -> None:
        """Checks the model against the records; a named size takes their vocabulary."""
        vocabulary, do_lower_case = every[0].vocabulary_and_casing(
            self.options.value_if_given("do_lower_case")
        )
        if self.options.bert_size and vocabulary is not None:
            self.config = dataclasses.replace(self.config, vocab_size=len(vocabulary))
        vocabulary_said_by = "The vocabulary of the records"
        if source is not None and vocabulary is not None:
            source, self.config = extended(
                source, self.config, vocabulary, vocabulary_said_by
            )
        self.init_checkpoint = source
        for records in every:
            records.check_model(self.config)
            records.check_hosts(self.strategy)
            records.as_packed = self.is_packed
        given = {
            "eval_masked_lm_prob": self.options.value_if_given("eval_masked_lm_prob")
        }
        if not any(records.is_dynamic for records in every):
            self.options.refuse_where_unused(every[0].paths[0], **given)
        elif not self.config.is_bidirectional:
            self.options.refuse_masking(ONE_DIRECTION, **given)
        if vocabulary is not None:
            self.config.check_vocabulary(len(vocabulary), "The vocabulary")
            do_lower_case = checked_casing(
                *(source, vocabulary, do_lower_case, vocabulary_said_by),
                "The records have",
            )
        self.vocabulary = vocabulary
        self._do_lower_case = do_lower_case is not False
        self._segmenter = checked_segmenter(source, every[0].segmenter)

    def _refuse_other_metrics(self) -> None:
        """Raises InputError for wrong metrics, before the first evaluation."""
        objective = self.task.objective
        of_training = ["loss", *objective.losses, *objective.metrics]
        metrics = [*of_training]
        for one in self.callbacks:
            metrics += one.metrics
        if texts := self.options.stop_if:
            evaluates = bool(self.options.eval_steps)
            addon("stop_if").refuse_unknown(texts, of_training, metrics, evaluates)
        if self.options.eval_steps and self.options.best_metric not in metrics:
            raise InputError(
                f"`best_metric={self.options.best_metric}` is not a metric of the"
                f" evaluation: {', '.join(metrics)}."
            )

    @property
    def _trained_config(self) -> BertConfig:
        """The model's config, with this training's dropout."""
        if (rate := self.options.dropout) is None:
            return self.config
        return dataclasses.replace(
            self.config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
        )

    @property
    def _continues(self) -> bool:
        """Whether the initial model already predicts masked tokens."""
        source = self.init_checkpoint
        return isinstance(source, Source) and names.MASKED_LM in names.heads_of(
            source.weights
        )

    def _prepare(self) -> None:
        """Creates --output_dir, with all files that go with its checkpoints."""
        run_folder.prepare(
            self.options.output_dir,
            self.config,
            self.vocabulary,
            self._do_lower_case,
            self._segmenter,
            self.options,
            head=names.REPLACED_TOKENS if self.electra else names.MASKED_LM,
            task=self.task.name,
        )
        if not self.records[0].has_pairs and not self.electra:
            logging.info(
                "The records have no sentence pairs: only the masked LM is trained;"
                " the pooler and the next sentence head do not change."
            )
