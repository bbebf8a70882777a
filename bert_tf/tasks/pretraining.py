"""Pre-training: the task, its data, and a run."""

import dataclasses
import functools
import hashlib
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
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
    own_file,
    refuse_other_function,
)
from bert_tf.conversion.source import CONFIG_NAME, Source, folder_of, open_source
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.objectives import MASKED_LM, NEXT_SENTENCE, replaced_tokens
from bert_tf.records.manifest import Manifest
from bert_tf.records.masking_options import ONE_DIRECTION, MaskingOptions
from bert_tf.records.pretraining_input import PretrainingRecords, files_by_length
from bert_tf.records.writing import record_files
from bert_tf.tasks import reference_curves
from bert_tf.tasks.bits_per_byte import (
    BITS_PER_BYTE,
    UNIGRAM_BITS,
    MaskedWords,
    smoothed,
)
from bert_tf.tasks.card import card_path, shared_text, write_card
from bert_tf.tasks.pretraining_options import (
    RECIPES,
    PhaseSpec,
    PretrainingOptions,
    parse_phases,
    parse_stacking,
)
from bert_tf.tasks.run_options import with_flags_of, with_recipe
from bert_tf.tasks.task import Run
from bert_tf.training import run_folder
from bert_tf.training.checkpoints import STATE_NAME, restore_or_initialize
from bert_tf.training.evaluation import Evaluator
from bert_tf.training.events import EVALUATION, addon
from bert_tf.training.loop import train
from bert_tf.training.reporting import metrics_of, tokens_seen, write_curves
from bert_tf.training.run_folder import RunData
from bert_tf.training.strategy import (
    Strategy,
    check_batch_size,
    create_strategy,
    description,
    is_chief,
)
from bert_tf.training.task import ENDLESS, Phase, Task, TrainingData
from bert_tf.training.training_options import LossOptions, TrainingConfig

# Pre-training as a task: the masked LM, with next sentence prediction or alone.


def pretraining_task(
    config: BertConfig,
    next_sentence: bool = True,
    packed: bool = False,
    recompute: bool = False,
    num_pair_labels: int = 2,
    electra: Mapping[str, Any] | None = None,
) -> Task:
    """The task of pre-training a model, with ELECTRA's objective if it has options."""
    settings: dict[str, Any] = {"packed": packed, "recompute": recompute}
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
        if not next_sentence:  # what has no gradient would still decay
            model.encoder.get_layer("pooler").trainable = False
            model.get_layer("seq_relationship").trainable = False
        return model

    return Task(
        name="pretraining",
        build_model=build_model,
        objective=MASKED_LM + NEXT_SENTENCE if next_sentence else MASKED_LM,
        unmeasured=() if next_sentence else ("bert/pooler/", "cls/seq_relationship/"),
    )


# Metric -> labels and their weights in a batch; all weigh 1 if there are none.
_LABELS = {
    "masked_lm_majority": ("masked_lm_ids", "masked_lm_weights"),
    "next_sentence_majority": ("next_sentence_labels", "next_sentence_weights"),
}


UNIGRAM_LOSS = "masked_lm_unigram_loss"
# How near to it a loss must be to stand at it.
_AT_THE_UNIGRAMS = 0.03
# So many training records are read for the frequencies of tokens, at most.
_COUNTED = 25_600
# For bits per byte, by a guess: the pieces of a record's longest word that is masked.
_MASKED_ROWS = 4


class Majority:
    """The scores on the batches seen, for models that know only the label counts."""

    # Next sentence labels may be far from balanced, so their accuracy means nothing
    # without.

    def __init__(self, task: Task, frequencies: np.ndarray) -> None:
        self._frequencies = frequencies  # of each token, [V]
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
        """The share of the most frequent label of each kind, and the unigrams' loss.

        -sum over labels of log q(label) / their number, in nats, where q is how
        frequent each token is among those of the training records.
        """
        scores = {
            name: float(counts.max() / counts.sum()) if counts.any() else 0.0
            for name, counts in self._counts.items()
        }
        counts = self._counts["masked_lm_majority"]
        losses = -np.log(self._frequencies[: len(counts)])
        return scores | {UNIGRAM_LOSS: float(counts @ losses / max(counts.sum(), 1.0))}


def _manifests(records: Sequence[PretrainingRecords]) -> list[Manifest]:
    return [one for each in records for one in each.manifests]


def warn_of_unigrams(results: Mapping[str, float]) -> None:
    """Warns if a masked LM has learned only how frequent the tokens are.

    Most runs are there for some time at their beginning.
    """
    loss, unigrams = results["masked_lm_loss"], results[UNIGRAM_LOSS]
    if abs(loss - unigrams) >= _AT_THE_UNIGRAMS * unigrams:
        return
    logging.warning(
        "The masked LM's loss, %.2f, is about the unigram entropy, %.2f, which a model"
        " reaches by the frequencies of the tokens: the model does not use the context"
        " yet. This is normal for the first thousands of steps. If it stays, give a"
        " higher `learning_rate` or smaller batches, as `recipe=budget` has,"
        " `num_warmup_steps` of at most a tenth of the steps, or a narrow model an"
        " initializer_range of 0.08 in its bert_config.json.",
        *(loss, unigrams),
    )


def fingerprint(
    paths: Sequence[str],
    counts: Sequence[int],
    max_seq_length: int,
    identities: Sequence[str] = (),
) -> int:
    """Identifies record sets: their files' names, numbers and record lengths.

    And what their manifests say that they were made from: `Manifest.identity`.
    """
    lines = f"{max_seq_length}\n" + "".join(
        f"{os.path.basename(path)} {count}\n"
        for path, count in zip(paths, counts, strict=True)
    )
    lines += "".join(f"{identity}\n" for identity in identities)
    digest = hashlib.sha256(lines.encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1


def _fingerprints(records: PretrainingRecords, counts: Sequence[int]) -> list[int]:
    """A set's number, and the one that earlier versions gave it."""
    identities = [manifest.identity for manifest in records.manifests]
    of_names = records.paths, counts, records.max_seq_length
    return [fingerprint(*of_names, identities), fingerprint(*of_names)]


def _as_trained(options: PretrainingOptions) -> PretrainingOptions:
    """Takes what the model predicts from its training where it is only evaluated."""
    folder = options.output_dir
    if not files.exists(os.path.join(folder, STATE_NAME)):
        folder = folder_of(options.init_checkpoint or folder)
    if options.do_train or not files.exists(os.path.join(folder, STATE_NAME)):
        return options
    names_of_options = deciding(PretrainingOptions, "model")
    return with_flags_of(options, names_of_options, flags_of_run(folder), folder)


# A run of pre-training: records in, a model and its evaluation out.


class PretrainingRun(Run):
    """A run of pre-training, in phases, perhaps after stages with fewer layers."""

    options: PretrainingOptions

    def __init__(
        self,
        options: PretrainingOptions,
        strategy: Strategy | None = None,
        num_layers: int | None = None,  # another number than the options'
    ) -> None:
        self.options = options = _as_trained(with_recipe(options, RECIPES))
        self.strategy = strategy = strategy or create_strategy(options)
        specs = parse_phases(options.phases) if options.phases else None
        self.init_checkpoint: str | Source | None = None
        # Errors that would otherwise appear after hours of training.
        self._refuse_uneven_batches(specs)
        self._electra: dict[str, float] | None = None
        if options.electra:
            names_of_options = ("generator_size", "discriminator_weight")
            self._electra = {n: getattr(options, n) for n in names_of_options}
        checkpoint = options.init_checkpoint
        source = open_source(checkpoint) if checkpoint else None
        self.config = model_config(options, source)
        if num_layers is not None:
            self.config = dataclasses.replace(self.config, num_hidden_layers=num_layers)
        if source is not None and source.config is not None:
            refuse_other_function(source, self.config, "this run's model")
        # Of each phase: what it trains on, and what it is evaluated on.
        self._records = self._open(options.input_file, "input_file", specs, options)
        self._held_out = self._records
        rate = options.eval_masked_lm_prob
        if options.eval_input_file or any(
            records.masked_lm_prob not in (None, rate) for records in self._records
        ):
            self._held_out = self._open(
                options.eval_input_file or options.input_file,
                "eval_input_file" if options.eval_input_file else "input_file",
                specs,
                masking=options.with_defaults(masked_lm_prob=rate),
            )
        if options.eval_input_file:
            read, scored = map(_manifests, (self._records, self._held_out))
            if seen := shared_text(scored, read):
                logging.warning(
                    "`eval_input_file`: the training reads %s too, so that its scores"
                    " are not those of held-out text.",
                    ", ".join(seen),
                )
        first, *others = every = [*self._records, *self._held_out]
        for other in others:
            first.refuse_other(other)
        self._specs = specs or [
            PhaseSpec(
                first.max_seq_length, options.num_train_steps, options.train_batch_size
            )
        ]
        # If some records are packed, the others are read as rows of one.
        self._is_packed = any(records.is_packed for records in every)
        self._fit_to_records(source, every)
        self.task = pretraining_task(
            self._trained_config,
            next_sentence=first.has_pairs and options.next_sentence,
            packed=self._is_packed,
            recompute=options.recompute,
            num_pair_labels=first.num_pair_labels,
            electra=self._electra,
        )
        self._losses = LossOptions.of(options)
        if self._losses.changed:
            heads = {
                "masked_lm_loss": names.MASKED_LM,
                "next_sentence_loss": names.NEXT_SENTENCE,
            }
            self.task = addon("regularization").regularized(
                self.task,
                self._losses,
                heads=[heads[name] for name in self.task.objective.losses],
                vocabulary=self._vocabulary,
                packed=self._is_packed,
            )
        self._refuse_other_metrics()

    def train(self) -> tuple[keras.Model, int]:
        """Trains through the phases."""
        options = self.options
        self._prepare()
        config = options.to(
            TrainingConfig,
            stack_layers=options.stack_layers or bool(options.stacking),
            num_train_steps=sum(spec.num_steps for spec in self._specs),
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
            start=run_folder.Start(
                task=self.task.name,
                data=RunData(options.input_file, files.sha256(repr(ids).encode())),
                settings=config.decisive
                | {"phases": options.phases, "dropout": options.dropout}
                | self._losses.changed
                | options.given_masking
                | {"masked_lm_prob": options.masked_lm_prob}
                | (self._electra or {}),
                flags=options.as_flags(),
            ),
        )

    def phases(self) -> list[Phase]:
        """The run's parts, each with its records, their length and its batch size."""
        phases: list[Phase] = []
        for spec, records, held_out in zip(
            self._specs, self._records, self._held_out, strict=True
        ):
            data_ids = _fingerprints(records, records.counts)
            hours = self.options.max_train_hours
            logging.info(
                "  %s of %d sequences of length %d",
                f"{spec.num_steps} steps" if hours is None else f"{hours:g} hours",
                spec.batch_size,
                spec.max_seq_length,
            )
            # As many masked rows as records, or all: see MaskedWords.
            rows_per_record = 1 if self.options.max_eval_steps else _MASKED_ROWS
            # Evaluation takes the first records, however many there are.
            evaluation_ids = _fingerprints(held_out, [0] * len(held_out.paths))
            begin = phases[-1].end_step if phases else 0
            end_step = begin + spec.num_steps
            if self.options.max_train_hours is not None:
                end_step = ENDLESS
            phases.append(
                Phase(
                    end_step=end_step,
                    batch_size=spec.batch_size,
                    streams=[self._stream(records, spec.batch_size)],
                    data_id=data_ids[0],
                    data_was=data_ids[1:],
                    evaluate=self._evaluation(held_out),
                    evaluates_before=self._continues and self.options.do_eval,
                    num_evaluated=(1 + self._has_bits_per_byte * rows_per_record)
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
        """Trains the stages of `stacking`; the run starts from the last one's model."""
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
                random_seed=options.random_seed + 1 + number,  # other batches
                init_checkpoint=checkpoint,
                stack_layers=number > 0 or options.stack_layers,
            )
            PretrainingRun(stage_options, self.strategy, stage.num_layers).train()
            self.init_checkpoint = checkpoint = folder

    def restore(self) -> tuple[keras.Model, int]:
        """The model of --output_dir's last checkpoint, or else of --init_checkpoint."""
        self._prepare()
        return restore_or_initialize(
            self.task,
            self.options.output_dir,
            self.init_checkpoint,
            self.options.precision,
            self.strategy,
        )

    def report(self, model: keras.Model, step: int) -> Mapping[str, float]:
        """Writes losses and accuracies to eval_results.txt, and the model's card."""
        results: Mapping[str, float] = {}
        if self.options.do_eval:
            results = self._report_evaluation(model, step)
        if is_chief(self.strategy):
            self._draw_reference()
            if self.options.do_train:
                self._write_card(model, step)
        return results

    def _report_evaluation(self, model: keras.Model, step: int) -> Mapping[str, float]:
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", self.options.eval_batch_size)
        results = self._evaluation(self._held_out[-1])(model)
        run_folder.report_evaluation(
            self.options.output_dir,
            step,
            results,
            is_chief=is_chief(self.strategy),
            task_name=self.task.name,
        )
        return results

    def _draw_reference(self) -> None:
        """Draws the run's curves again, with those of its size behind them."""
        reference = reference_curves.of_run(self.options.output_dir)
        steps, tokens = tokens_seen(metrics_of(self.options.output_dir))
        if reference is None or len(steps) == 1:
            return
        behind = {}
        for name in ("bits_per_byte", "masked_lm_loss"):
            at, values = reference.until(tokens[-1], name)
            there = np.interp(at, tokens, steps).tolist()
            behind[f"{EVALUATION}{name}"] = (there, values)
        write_curves(self.options.output_dir, self.task.name, behind)

    def _write_card(self, model: keras.Model, step: int) -> None:
        options, held_out = self.options, self._held_out[-1:]
        write_card(
            options.output_dir,
            config=self.config,
            manifests=_manifests(self._records),
            held_out=_manifests(held_out) if options.eval_input_file else None,
            num_evaluated=options.max_eval_steps * options.eval_batch_size,
            num_held_out=sum(held_out[0].counts),
            step=step,
            sequences_per_step=[spec.batch_size for spec in self._specs],
            num_weights=model.count_params(),
            devices=description(self.strategy),
            base_model=options.init_checkpoint,
            data_license=options.data_license,
        )
        logging.info("The model's card is %s.", card_path(options.output_dir))

    def _stream(self, records: PretrainingRecords, batch_size: int) -> TrainingData:
        return lambda position, shard: records.training_dataset(
            batch_size,
            seed=self.options.random_seed,
            start=position,
            shard=shard,
            vocab_size=self.config.vocab_size,
            packed=self._is_packed,
        )

    def _evaluation(
        self, records: PretrainingRecords
    ) -> Callable[[keras.Model], Mapping[str, float]]:
        """Evaluates a model on the first batches of some records, repeated if few."""
        options = self.options

        def dataset(repeat: bool) -> tf.data.Dataset:
            return records.evaluation_dataset(
                options.eval_batch_size,
                repeat=repeat,
                vocab_size=self.config.vocab_size,
                packed=self._is_packed,
            )

        @functools.lru_cache(maxsize=1)
        def evaluator(model: keras.Model) -> Evaluator:
            return Evaluator(
                self.task, model, self.strategy, jit_compile=options.jit_compile
            )

        def evaluate(model: keras.Model) -> Mapping[str, float]:
            majority = Majority(self.task, self._frequencies)
            results = evaluator(model).run(
                dataset(repeat=True),
                num_batches=self._num_eval_batches(records),
                observe=majority.add,
            )
            results |= majority.scores()
            warn_of_unigrams(results)
            if self._has_bits_per_byte:
                assert self._vocabulary is not None
                words = MaskedWords(
                    lambda: dataset(repeat=False).as_numpy_iterator(),
                    self._vocabulary,
                    vocab_size=self.config.vocab_size,
                    mask_token=options.mask_token,
                    batch_size=options.eval_batch_size,
                    max_batches=options.max_eval_steps,
                )
                if next(iter(words), None) is None:  # no record has a word
                    return results
                batches = tf.data.Dataset.from_generator(
                    lambda: words, output_signature=dataset(repeat=True).element_spec
                )
                loss = evaluator(model).run(batches)["masked_lm_loss"]
                results[BITS_PER_BYTE] = words.bits_per_byte(loss)
                unigrams = words.unigram_bits_per_byte(self._frequencies)
                results[UNIGRAM_BITS] = unigrams
                self._log_reference(results)
            return results

        return evaluate

    def _num_eval_batches(self, records: PretrainingRecords) -> int:
        if self.options.max_eval_steps:
            return self.options.max_eval_steps
        return math.ceil(sum(records.counts) / self.options.eval_batch_size)

    def _log_reference(self, results: Mapping[str, float]) -> None:
        """Says where the reference of the run's size is after as many tokens."""
        if (reference := reference_curves.of_run(self.options.output_dir)) is None:
            return
        _, tokens = tokens_seen(metrics_of(self.options.output_dir))
        line = reference.of_text(results).line(tokens[-1])
        if line is not None:
            logging.info("%s", line)

    def _refuse_uneven_batches(self, specs: Sequence[PhaseSpec] | None) -> None:
        """Raises InputError if some batch cannot be split over the devices."""
        options = self.options
        flag, sizes = "train_batch_size", [options.train_batch_size]
        if specs:
            flag = f"phases={options.phases}: BATCH"
            sizes = [spec.batch_size for spec in specs]
        parts = options.gradient_accumulation_steps
        for size in sizes if options.do_train else ():
            check_batch_size(self.strategy, size, parts, flag=flag)
        if options.do_eval or options.eval_steps:
            size = options.eval_batch_size
            check_batch_size(self.strategy, size, flag="eval_batch_size")

    def _open(
        self,
        patterns: str,
        flag: str,
        specs: Sequence[PhaseSpec] | None,
        masking: MaskingOptions,
    ) -> list[PretrainingRecords]:
        """The records of each phase, checked; those of one length are opened once."""
        paths = record_files(patterns, flag)
        by_length: dict[Any, list[str]] = {None: paths}
        wanted: list[int | None] = [None]
        if specs is not None:
            by_length = dict(files_by_length(paths))
            wanted = [spec.max_seq_length for spec in specs]
        for length in wanted:
            if length not in by_length:
                lengths = ", ".join(map(str, sorted(by_length)))
                raise InputError(
                    f"`phases` asks for records of length {length}; those of `{flag}`"
                    f" have {lengths or 'no records'}."
                )
        options = self.options
        opened = {
            length: PretrainingRecords(
                by_length[length],
                flag=flag,
                max_seq_length=length or options.value_if_given("max_seq_length"),
                max_predictions_per_seq=options.value_if_given(
                    "max_predictions_per_seq"
                ),
                vocab_file=options.vocab_file,
                masking=masking,
                left_to_right=self.config.left_to_right,
                right_to_left=self.config.right_to_left,
                counts_cache=os.path.join(options.output_dir, "record_counts.json"),
            )
            for length in dict.fromkeys(wanted)
        }
        return [opened[length] for length in wanted]

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
        self._vocabulary = vocabulary
        self._do_lower_case = do_lower_case is not False
        self._segmenter = checked_segmenter(source, every[0].segmenter)

    def _refuse_other_metrics(self) -> None:
        """Raises InputError now for errors that the first evaluation would meet."""
        objective = self.task.objective
        metrics = ["loss", *objective.losses, *objective.metrics]
        of_training = [*metrics]
        if self._has_bits_per_byte:
            metrics.append(BITS_PER_BYTE)
        if texts := self.options.stop_if:
            evaluates = bool(self.options.eval_steps)
            addon("stop_if").refuse_unknown(texts, of_training, metrics, evaluates)
        if self.options.eval_steps and self.options.best_metric not in metrics:
            raise InputError(
                f"`best_metric={self.options.best_metric}` is not a metric of the"
                f" evaluation: {', '.join(metrics)}."
            )

    @functools.cached_property
    def _frequencies(self) -> np.ndarray:
        """The frequency [V] of each token at the records' predicted positions."""
        counts = np.zeros(self.config.vocab_size)
        dataset = self._records[0].evaluation_dataset(
            _COUNTED // 100,
            repeat=False,
            vocab_size=self.config.vocab_size,
            packed=self._is_packed,
        )
        for batch in dataset.take(100).as_numpy_iterator():
            labels = batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]
            counts += np.bincount(labels, minlength=len(counts))
        return smoothed(counts)

    @property
    def _trained_config(self) -> BertConfig:
        """The model's config, with the dropout of this training."""
        if (rate := self.options.dropout) is None:
            return self.config
        return dataclasses.replace(
            self.config, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
        )

    @property
    def _has_bits_per_byte(self) -> bool:
        """Whether words can be masked: not where each token predicts the next one."""
        return (
            self._vocabulary is not None
            and self._electra is None
            and self.config.is_bidirectional
        )

    @property
    def _continues(self) -> bool:
        """Whether the run begins with a model that predicts masked tokens."""
        source = self.init_checkpoint
        return isinstance(source, Source) and names.MASKED_LM in names.heads_of(
            source.weights
        )

    def _prepare(self) -> None:
        """Makes --output_dir, with all files that must accompany its checkpoints."""
        run_folder.prepare(
            self.options.output_dir,
            self.config,
            self._vocabulary,
            self._do_lower_case,
            self._segmenter,
            self.options,
            head=names.REPLACED_TOKENS if self._electra else names.MASKED_LM,
            task=self.task.name,
        )
        if not self._records[0].has_pairs and not self._electra:
            logging.info(
                "The records have no sentence pairs: only the masked LM is trained;"
                " the pooler and the next sentence head do not change."
            )


def model_config(options: PretrainingOptions, source: Source | None) -> BertConfig:
    """The architecture of the flags, the initial checkpoint, or the run's folder."""
    if options.bert_size:
        config = BertConfig.from_size(options.bert_size)
    elif options.bert_config_file:
        config = BertConfig.from_json_file(options.bert_config_file)
    elif source is not None:
        config = source.require_config()
    else:
        path = own_file(options.output_dir, CONFIG_NAME, "bert_size")
        config = BertConfig.from_json_file(path)
    direction = "left_to_right" if options.left_to_right else options.direction
    if direction == "both":
        return config
    return dataclasses.replace(
        config,
        left_to_right=direction == "left_to_right",
        right_to_left=direction == "right_to_left",
    )
