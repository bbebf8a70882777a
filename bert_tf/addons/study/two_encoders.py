"""Two encoders side by side under one head, such as a LTR and an RTL model.

Devlin et al. 2018, section 5.1, mention and reject it: "it would also be possible to
train separate LTR and RTL models and represent each token as the concatenation of the
two models, as ELMo does".

A linear head on a concatenation is the sum of a linear head on each part,

    W [a, b] + c = (W_a a + c) + W_b b

so the model adds the outputs of two models with the same head; the second one's bias
stays 0. The first one's weights have their own names, the second one's are below
`cls/second/`.
"""

from typing import Any

import keras

from bert_tf.base import cli
from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.loading import ModelFiles, load_weights
from bert_tf.conversion.source import open_source
from bert_tf.modeling.head_model import HeadModel
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.tasks import finetuning
from bert_tf.tasks.run_options import RunResult
from bert_tf.tasks.task import FineTuningTask
from bert_tf.training.strategy import Strategy

# The commands whose heads are linear, by their modules' last names.
_HEADS = {"run_classifier": names.CLASSIFIER, "run_squad": names.SPAN}


def side_by_side(first: HeadModel, config: BertConfig) -> HeadModel:
    """Returns the model with a second encoder, of this config, next to its own."""
    arguments = {**first.get_config(), "config": config.to_dict()}
    del arguments["frozen_parts"]  # which depend on the number of layers
    with keras.name_scope("cls"), keras.name_scope("second"):
        second = type(first).from_config(arguments)
    for name, variable in weights_by_name(second).items():
        if name.endswith("output_bias"):
            variable.trainable = False
    inputs = dict(first.input)
    others = second(inputs)
    outputs = {name: x + others[name] for name, x in first.output.items()}
    model = HeadModel(first.encoder, inputs, outputs, first.objective, first.name)
    model.label_names, model.second = first.label_names, second
    return model


def with_second(make_task: finetuning.MakeTask, checkpoint: str) -> finetuning.MakeTask:
    """Returns a maker of tasks whose model also has another checkpoint's encoder."""
    source = open_source(checkpoint)

    def make(options: Any, files: ModelFiles, strategy: Strategy) -> FineTuningTask:
        vocabulary = source.tokenizer.vocabulary
        if vocabulary and vocabulary.sha256 != files.vocabulary.sha256:
            raise InputError(
                f"`second_checkpoint={checkpoint}` has another vocabulary than the"
                " model. Give two models with the same vocabulary."
            )
        task = make_task(options, files, strategy)
        build_first = task.build_model

        def build_model() -> HeadModel:
            model = side_by_side(build_first(), source.require_config())
            load_weights(model.second.encoder, source)
            return model

        task.build_model = build_model  # type: ignore[method-assign]
        return task

    return make


def fine_tune(script: Any, *, second_checkpoint: str, **values: Any) -> RunResult:
    """Fine-tunes by a command's options, with a second encoder next to the first."""
    given = {name: value for name, value in values.items() if value is not None}
    options = cli.options_of(script.run)(**given)
    task = names.HEADS[_HEADS[script.__name__.rpartition(".")[2]]].code("task")
    return finetuning.FineTuningRun(
        with_second(task, second_checkpoint), options
    ).main()
