r"""Writes a checkpoint in another format: for the original, transformers, a server.

    python -m bert_tf.export_model --checkpoint=/tmp/mrpc_output \
        --format=huggingface --output_dir=/tmp/mrpc_transformers

The checkpoint may be a run's output_dir, a TF1 release, a Hugging Face folder or a
KerasHub preset. Formats:

    tf1          bert_model.ckpt, for google-research/bert and every converter
    huggingface  for transformers, with the head
    kerashub     for keras_hub.models.BertBackbone: the encoder
    saved_model  for TensorFlow Serving: takes raw text
    litert       for devices, as Keras exports it; takes ids
    onnx         likewise
"""

from typing import TYPE_CHECKING, Any

from absl import flags, logging

from bert_tf import cli, flag_rules, path_flags
from bert_tf import flags as shared_flags
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.path_flags import Path

if TYPE_CHECKING:
    from bert_tf.conversion.source import Source

FORMATS = ("tf1", "huggingface", "kerashub", "saved_model", "litert", "onnx")

# Flag's word -> the head's name in the table of names.
HEADS = {
    "masked_lm": "masked LM",
    "next_sentence": "next sentence prediction",
    "classifier": "classifier",
    "span": "span",
    "multiple_choice": "multiple choice",
    "tagging": "tagging",
}
_NO_HEADS = "none"

# For saved_model with a span head.
_OF_SPANS = ("doc_stride", "max_query_length", "max_answer_length")

# [CLS] A [SEP] B [SEP] with a token cut away, as in the original.
_LEAST_SEQ_LENGTH = 5


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(
        flag_values, "bert_config_file", "vocab_file", "do_lower_case", "output_dir"
    )

    def integer(name: str, default: int | None, help_text: str) -> None:
        flags.DEFINE_integer(name, default, help_text, flag_values=flag_values)

    path_flags.define(
        "checkpoint",
        None,
        "What to export: an output_dir or a checkpoint in it, a TF1 release, a Hugging"
        " Face folder, a KerasHub preset.",
        Path.CHECKPOINT,
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "format", None, FORMATS, "What to write.", flag_values=flag_values
    )
    flags.DEFINE_list(
        "heads",
        None,
        f"Heads to export, of {', '.join(HEADS)}; {_NO_HEADS} for the encoder alone,"
        " which as a saved_model gives features. Default: those of the checkpoint.",
        flag_values=flag_values,
    )
    integer("max_seq_length", None, "For saved_model. Longer texts are cut, or read in"
            " windows. Default: the model's positions.")  # fmt: skip
    integer("doc_stride", 128, "For saved_model with a span head: tokens from one"
            " window's start to the next one's.")  # fmt: skip
    integer("max_query_length", 64, "For saved_model with a span head: a question is"
            " cut to so many tokens.")  # fmt: skip
    integer("max_answer_length", 30, "For saved_model with a span head: the most"
            " tokens of an answer.")  # fmt: skip
    flags.mark_flags_as_required(["checkpoint", "format", "output_dir"], flag_values)
    flag_rules.require_at_least(flag_values, _LEAST_SEQ_LENGTH, "max_seq_length")
    flag_rules.require_at_least(flag_values, 1, *_OF_SPANS)
    for_serving = ("max_seq_length", *_OF_SPANS)
    flags.register_multi_flags_validator(
        ["format", *for_serving],
        lambda given: (
            given["format"] in (None, "saved_model")
            or not any(flag_values[name].present for name in for_serving)
        ),
        message=f"{', '.join(f'--{name}' for name in for_serving)} have an effect with"
        " --format=saved_model alone: leave them out",
        flag_values=flag_values,
    )
    flags.register_multi_flags_validator(
        ["format", "heads"],
        lambda given: (
            given["format"] != "kerashub" or given["heads"] in (None, [], [_NO_HEADS])
        ),
        message="--format=kerashub writes the encoder alone: leave --heads out",
        flag_values=flag_values,
    )
    flags.register_validator(
        "heads",
        lambda heads: not heads or heads == [_NO_HEADS] or set(heads) <= set(HEADS),
        message=f"must be {_NO_HEADS}, or of {', '.join(HEADS)}",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> None:
    """Reads, checks, writes."""
    if flag_values.format == "onnx":
        # Their own requirements are older than TensorFlow's.
        cli.require_packages(
            "--format=onnx", "tf2onnx", "onnx", pip_options="--no-deps"
        )
    cli.import_tensorflow()
    from bert_tf.conversion import export
    from bert_tf.conversion.source import open_source
    from bert_tf.text.vocabulary import Vocabulary

    folder = export.NewFolder(flag_values.output_dir)
    source = open_source(flag_values.checkpoint)
    model = export.completed(
        source,
        config=(
            BertConfig.from_json_file(flag_values.bert_config_file)
            if flag_values.bert_config_file
            else None
        ),
        vocabulary=(
            Vocabulary.from_file(flag_values.vocab_file)
            if flag_values.vocab_file
            else None
        ),
        do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
        heads=_heads(flag_values.heads),
    )
    settings = {"format": flag_values.format}
    if flag_values.format == "saved_model":
        for name in ("max_seq_length", *_OF_SPANS):
            settings[name] = flag_values[name].value
    if folder.is_done(export.identity(model, settings)):
        logging.info("All is done already: %s.", flag_values.output_dir)
        return
    with folder as path:
        if flag_values.format == "tf1":
            export.write_tf1(path, model)
        elif flag_values.format == "huggingface":
            export.write_huggingface(path, model)
        elif flag_values.format == "kerashub":
            export.write_kerashub(path, model)
        elif flag_values.format == "saved_model":
            _write_saved_model(path, model, flag_values)
        else:
            from bert_tf.conversion.serving import head_to_serve, write_by_keras

            write_by_keras(path, model, head_to_serve(model), flag_values.format)
    logging.info("Wrote %s: %s.", flag_values.format, flag_values.output_dir)


def _heads(words: list[str] | None) -> list[str] | None:
    if words is None:
        return None
    return [HEADS[word] for word in words if word != _NO_HEADS]


def _write_saved_model(
    path: str, model: "Source", flag_values: flags.FlagValues
) -> None:
    from bert_tf.conversion.names import SPAN
    from bert_tf.conversion.serving import head_to_serve, write_saved_model

    config = model.require_config()
    max_seq_length = flag_values.max_seq_length or config.max_position_embeddings
    config.check_sequence_length(max_seq_length)
    if max_seq_length < _LEAST_SEQ_LENGTH:
        raise InputError(
            f"A pair takes {_LEAST_SEQ_LENGTH} tokens; the model has {max_seq_length}"
            " positions. Export it as another format."
        )
    head = head_to_serve(model)
    options: dict[str, Any] = {}
    if head == SPAN:
        options = _span_options(flag_values, max_seq_length)
    signatures = write_saved_model(
        path, model, head, max_seq_length=max_seq_length, **options
    )
    if model.tokenizer.vocabulary is None:
        logging.warning(
            "%s has no vocabulary, so the SavedModel takes ids, no text; give"
            " --vocab_file.",
            flag_values.checkpoint,
        )
    for name, function in sorted(signatures.items()):
        inputs = function.input_signature[0]
        specs = (
            inputs.values() if isinstance(inputs, dict) else function.input_signature
        )
        logging.info("  %s(%s)", name, ", ".join(str(spec.name) for spec in specs))


def _span_options(flag_values: flags.FlagValues, max_seq_length: int) -> dict[str, int]:
    """Of how contexts are read in windows: each has room for the question and more."""
    options: dict[str, Any] = {name: flag_values[name].value for name in _OF_SPANS}
    # [CLS], two [SEP] and at least one token of the context.
    most = max_seq_length - 4
    if options["max_query_length"] > most:
        if flag_values["max_query_length"].present:
            raise InputError(
                f"--max_query_length={options['max_query_length']} must leave room for"
                f" a context in sequences of {max_seq_length}: at most {most}."
            )
        options["max_query_length"] = max(1, most // 2)
        logging.info("  Questions are cut to %d tokens.", options["max_query_length"])
    return options


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
