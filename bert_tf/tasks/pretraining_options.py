"""The options of pre-training."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_tf.base import options
from bert_tf.base.config import (
    DISCRIMINATOR_WEIGHT,
    GENERATOR_SIZE,
    SIZE_NAMES,
    BertConfig,
)
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Path, declarations, option, with_default
from bert_tf.base.shared_options import DeviceOptions, LongTextOptions, ModelOptions
from bert_tf.records.dynamic_masking import MaskingOptions
from bert_tf.tasks.run_options import FineTuningOptions
from bert_tf.training.training_options import LossOptions, TrainingConfig

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

# Options for training on a labelled task, or for the start of fine-tuning.
_OF_FINE_TUNING = (
    *(n for n in declarations(LossOptions) if not n.startswith(("teacher", "distill"))),
    *("patience", "init_head", "reinitialize_layers", "init_adapter"),
)


def _from_scratch(value: str, *without: str) -> Callable[[Any], str | None]:
    """Returns a rule: the value, for BERT from scratch, without these options."""
    others = ("electra", "init_checkpoint", *without)
    return lambda given: None if any(getattr(given, x) for x in others) else value


# Recipe -> option -> its default. Settings of the records, such as packing or whole
# words, are not here. benchmarks/recipe.py measures each part. Left out, as they gained
# nothing there: the papers' beta_2 of 0.98 and clip_norm of 0.5.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    # Devlin et al. 2018, appendix A.2.
    "paper": {
        "train_batch_size": 256,
        "learning_rate": 1e-4,
        "num_train_steps": 1_000_000,
        "num_warmup_steps": 10_000,
    },
    # Izsak et al. 2021, "How to train BERT with an academic budget" (I), and Geiping
    # and Goldstein 2022, "Cramming" (G).
    "budget": {
        "dropout": 0.0,  # G
        "next_sentence": False,  # I, G; Liu et al. 2019
        "optimizer": _from_scratch("muon"),  # Jordan et al. 2024
        # make quickstart learns the next sentence later from heads at the neighbours.
        "initial_positions": _from_scratch("neighbours", "next_sentence"),
        # AdamW's: I, G.
        "learning_rate": lambda given: 3e-3 if given.optimizer == "muon" else 1e-3,
        "num_warmup_steps": lambda given: round(0.06 * given.last_step),  # I
        "bias_correction": True,  # I, G: plain AdamW
        # G; for records without masks. Not measured for ELECTRA's loss, of every token.
        "masked_lm_prob": lambda given: None if given.electra else 0.25,
        "learning_rate_schedule": "wsd",  # Hu et al. 2024; I and G decay throughout
        # The original's default. I has 4,096 and G up to 8,192, for billions of tokens;
        # with tens of millions, as a laptop reads in an hour, more steps are better.
        "train_batch_size": 32,
    },
}


class PretrainingOptions(
    ModelOptions,
    LongTextOptions,
    TrainingConfig,
    DeviceOptions,
    MaskingOptions,
    LossOptions,
    decides="numbers",
    hides=_OF_FINE_TUNING,
):
    """The options of a pre-training run."""

    num_global = 0  # the masked LM has none
    output_dir: str = with_default(FineTuningOptions, "output_dir", REQUIRED)
    do_train: bool = with_default(FineTuningOptions, "do_train", False)
    do_eval: bool = with_default(FineTuningOptions, "do_eval", False)
    eval_batch_size: int = with_default(
        FineTuningOptions, "eval_batch_size", 8, title=options.TRAINING
    )
    bert_size: str | None = option(
        None,
        "A released size, instead of --bert_config_file. The vocabulary is that of the"
        " records.",
        choices=SIZE_NAMES,
        title=options.MODEL,
    )
    input_file: str = option(
        REQUIRED,
        "TFRecords to train on: a glob, or several separated by commas.",
        path=Path.FILES,
        title=options.DATA,
        decides="nothing",
        in_summary=True,
    )
    eval_input_file: str | None = option(
        None,
        "TFRecords to evaluate on. Default: those of --input_file, as in the original.",
        path=Path.FILES,
        title=options.DATA,
        decides="nothing",
    )
    max_seq_length: int = option(
        128,
        "Maximum length of a sequence in WordPieces, including [CLS] and [SEP]."
        " Default: the records'.",
        least=1,
        title=options.LENGTHS,
        decides="reading",
        in_summary=True,
    )
    max_predictions_per_seq: int = option(
        20,
        "Masked-LM slots per sequence; must equal the records', unless these are"
        " masked while they are read. Default: the records', or as many as"
        " --masked_lm_prob needs.",
        least=1,
        title=options.LENGTHS,
        decides="reading",
    )
    phases: str | None = option(
        None,
        "Phases LENGTH:STEPS:BATCH, separated by commas, in order. Each reads the"
        " records of its length among --input_file. Replaces --num_train_steps and"
        " --train_batch_size.",
        title=options.TRAINING,
        in_summary=True,
    )
    stacking: str | None = option(
        None,
        "Stages LAYERS:STEPS before the training, separated by commas, such as"
        " 3:50000,6:70000 for a model of 12 layers. Each stage trains a model of that"
        " many layers, which begins with the layers of the stage before, stacked.",
        title=options.TRAINING,
        decides="result",
    )
    recipe: str | None = option(
        None,
        "Defaults for flags that are not given. paper: Devlin et al. 2018 (batches of"
        " 256, learning rate 1e-4, a million steps, 10,000 of warmup). budget, for a"
        " fixed number of hours (Izsak et al. 2021, Geiping and Goldstein 2022, Jordan"
        " et al. 2024): no dropout, no next sentence prediction, Muon at 3e-3 and"
        " --initial_positions=neighbours (from a checkpoint, and with --electra, AdamW"
        " at 1e-3), 6 % warmup, bias correction, batches of 32.",
        choices=tuple(RECIPES),
        decides="nothing",
    )
    data_license: str | None = option(
        None,
        "License of the text, such as cc-by-sa-4.0, for the model card in"
        " OUTPUT_DIR/README.md.",
        title=options.DATA,
        decides="nothing",
    )
    max_eval_steps: int = option(
        100,
        "Batches to evaluate on; the records are repeated if there are fewer. 0: as"
        " many as all of the records are.",
        least=0,
        decides="result",
    )
    eval_masked_lm_prob: float = option(
        0.15,
        "For records without masks: share of a sequence's tokens to predict in"
        " evaluation. It does not depend on --masked_lm_prob, so that runs with"
        " different rates compare.",
        above=0.0,
        most=1.0,
        decides="result",
    )
    dropout: float | None = option(
        None,
        "Dropout of layers and attention in this training, instead of the dropout in"
        " bert_config.json, which fine-tuning keeps. 0 suits a training that sees no"
        " text twice (Geiping and Goldstein 2022).",
        least=0.0,
        below=1.0,
    )
    initial_positions: str = option(
        "random",
        "First values of a model from scratch. random: as in the original; sinusoids:"
        " position embeddings as in Vaswani et al. 2017, and trained; neighbours:"
        " sinusoids, and each head begins by attending to the token before or after.",
        choices=("random", "sinusoids", "neighbours"),
        title=options.TRAINING,
        decides="result",
    )
    # The paper's ablations, section 5.1.
    next_sentence: bool = option(
        True,
        "Predict the next sentence if the records have pairs; false is the ablation"
        ' "No NSP".',
        decides="model",
    )
    direction: str = option(
        "both",
        "Which tokens a token attends to. both: the tokens on both sides;"
        " left_to_right: itself and the tokens before it; right_to_left: itself and the"
        " tokens after it. With one direction each token predicts the next one in that"
        " direction, records without masks are needed (--masking=dynamic), and"
        " fine-tuning with its bert_config.json keeps the direction. left_to_right with"
        ' --next_sentence=False is the ablation "LTR & No NSP".',
        choices=("both", "left_to_right", "right_to_left"),
    )
    left_to_right: bool = option(False, "The same as --direction=left_to_right.")
    # ELECTRA's objective.
    electra: bool = option(
        False,
        "Train with replaced-token detection (Clark et al. 2020, ELECTRA): a small"
        " generator fills in the masked tokens, and the model learns to detect which"
        " tokens are not the original ones. Sentence pairs are not used.",
        decides="model",
    )
    generator_size: float = option(
        GENERATOR_SIZE,
        "For --electra: the generator's hidden size, heads and feed-forward layer, as a"
        " share of the model's.",
        above=0.0,
        most=1.0,
        only_with="electra",
        decides="model",
    )
    discriminator_weight: float = option(
        DISCRIMINATOR_WEIGHT,
        "For --electra: weight of the model's loss; the weight of the generator's loss"
        " is 1.",
        above=0.0,
        only_with="electra",
        decides="model",
    )

    def problems(self) -> Iterator[str]:
        """Yields options that exclude each other, and missing options."""
        yield from super().problems()
        yield from self.refuse_together("bert_config_file", "bert_size")
        if self.do_train or not self.do_eval:  # else the run's folder has one
            yield from self.need_one_given(
                "bert_config_file", "bert_size", "init_checkpoint"
            )
        yield from self.refuse_together("stacking", "phases")
        for name in ("stacking", "phases", "num_schedule_steps"):
            yield from self.refuse_together("max_train_hours", name)
        if self.stack_layers and not self.init_checkpoint:
            yield "`stack_layers` needs an `init_checkpoint`: give both."
        if self.initial_positions != "random" and self.init_checkpoint:
            yield "`initial_positions` excludes `init_checkpoint`: leave one out."
        for name in ("num_train_steps", "train_batch_size", "max_seq_length"):
            yield from self.refuse_together("phases", name)
        yield from self.refuse_together("left_to_right", "direction")
        yield from self.need_one_of("do_train", "do_eval")
        others = ("next_sentence", "left_to_right", "direction", "teacher_checkpoint")
        for name in others:
            is_set = getattr(self, name) not in (False, "both", None)
            if self.electra and is_set and self.is_given(name):
                yield f"`electra` and `{name}` exclude each other."

    @property
    def schedule(self) -> str:
        """The schedule given, or else the recipe's."""
        own = super().schedule
        if self.recipe is None or self.is_given("learning_rate_schedule"):
            return own
        return RECIPES[self.recipe].get("learning_rate_schedule", own)

    @property
    def last_step(self) -> int:
        """The last step of all phases."""
        if not self.phases:
            return self.num_train_steps
        return sum(phase.num_steps for phase in parse_phases(self.phases))


class Stage(NamedTuple):
    """One stage of --stacking: LAYERS:STEPS."""

    num_layers: int
    num_steps: int


class PhaseSpec(NamedTuple):
    """One phase of --phases: LENGTH:STEPS:BATCH."""

    max_seq_length: int
    num_steps: int  # of this phase only
    batch_size: int


def parse_stacking(text: str) -> list[Stage]:
    """Parses "3:50000,6:70000" (Gong et al. 2019)."""
    wanted = "a stage must be LAYERS:STEPS, positive numbers, such as 3:50000"
    return [Stage(*numbers) for numbers in _numbers("stacking", text, 2, wanted)]


def parse_phases(text: str) -> list[PhaseSpec]:
    """Parses "128:900000:256,512:100000:256" (Devlin et al., appendix A.2)."""
    wanted = (
        "a phase must be LENGTH:STEPS:BATCH, positive numbers, such as 128:900000:256"
    )
    return [PhaseSpec(*numbers) for numbers in _numbers("phases", text, 3, wanted)]


def _numbers(flag: str, text: str, count: int, wanted: str) -> Iterator[list[int]]:
    """Yields the numbers in each part of a flag's text."""
    for part in text.split(","):
        numbers = part.strip().split(":")
        if len(numbers) != count or not all(n.isdecimal() and int(n) for n in numbers):
            raise InputError(f'`{flag}={text}`: {wanted}. Received: "{part.strip()}".')
        yield [int(number) for number in numbers]


def model_config(options: PretrainingOptions, source: "Source | None") -> BertConfig:
    """Returns the config by flags, the initial checkpoint, or the run's folder."""
    if options.bert_size:
        config = BertConfig.from_size(options.bert_size)
    elif options.bert_config_file:
        config = BertConfig.from_json_file(options.bert_config_file)
    elif source is not None:
        config = source.require_config()
    else:
        from bert_tf.conversion.loading import own_file
        from bert_tf.conversion.source import CONFIG_NAME

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
