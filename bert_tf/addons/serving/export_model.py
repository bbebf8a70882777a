"""Exports of checkpoints to the formats of other programs."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bert_tf.base import cli, files, keras_backend
from bert_tf.base.addons import addon
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, TASK, Path, option, with_default
from bert_tf.base.shared_options import DeviceOptions, LongTextOptions, ModelOptions
from bert_tf.conversion import names
from bert_tf.tasks.run_options import FineTuningOptions

if TYPE_CHECKING:
    from bert_tf.conversion.reading import Reading
    from bert_tf.conversion.source import Source
    from bert_tf.tasks.tables import Examples

FORMATS = (
    *("tf1", "huggingface", "kerashub", "saved_model", "litert", "onnx"),
    *("sentence_transformers", "peft"),
)

# The flag's word -> the head's name.
HEADS = {head.word: name for name, head in names.HEADS.items() if head.word}
_NO_HEADS = "none"

# For saved_model with a span head; the first also for other heads with windows.
_OF_SPANS = ("doc_stride", "max_query_length", "max_answer_length")

_COLUMNS = ("text_a_column", "text_b_column")

TextPairs = Iterable[tuple[str, str | None]]

# [CLS] A [SEP] B [SEP]: one token of each text.
_LEAST_SEQ_LENGTH = 5


class ExportOptions(
    ModelOptions, LongTextOptions, decides="result", hides=("init_checkpoint",)
):
    """The checkpoint to export, and the format."""

    backend: str | None = with_default(DeviceOptions, "backend", None)
    output_dir: str = with_default(
        FineTuningOptions, "output_dir", REQUIRED, title=TASK
    )
    checkpoint: str = option(
        REQUIRED,
        "What to export: a run's output_dir or a checkpoint in it, a TF1 release, a"
        " Hugging Face folder, or a KerasHub preset.",
        path=Path.CHECKPOINT,
        decides="numbers",
    )
    format: str = option(REQUIRED, "The format to write.", choices=FORMATS)
    heads: tuple[str, ...] | None = option(
        None,
        f"Heads to export, of {', '.join(HEADS)}; {_NO_HEADS} for the encoder alone,"
        " which as a saved_model gives features. Default: those of the checkpoint.",
        choices=(*HEADS, _NO_HEADS),
    )
    max_seq_length: int | None = option(
        None,
        "For saved_model: longer texts are truncated, or read in windows. Default: the"
        " setting of the run or of the sentence-transformers folder, or else the"
        " model's number of positions.",
        least=_LEAST_SEQ_LENGTH,
        decides="reading",
    )
    doc_stride: int | None = option(
        None,
        "For saved_model: tokens from the start of one window to the start of the next,"
        " if the head reads long texts in windows. Default: the run's.",
        least=1,
        decides="reading",
    )
    max_query_length: int | None = option(
        None,
        "For saved_model with a span head: the maximum length of a question in tokens;"
        " longer ones are truncated. Default: the run's, or else 64.",
        least=1,
        decides="reading",
    )
    max_answer_length: int | None = option(
        None,
        "For saved_model with a span head: the maximum length of an answer in tokens."
        " Default: the run's, or else 30.",
        least=1,
        decides="reading",
    )
    quantize: str | None = option(
        None,
        "For onnx and litert: float16 halves the size; int8 quarters it and is faster"
        " on a CPU. Both change the outputs. Default: float32.",
        choices=("float16", "int8"),
    )
    calibration_file: str | None = option(
        None,
        "For --quantize=int8: a table of some hundred texts, on which the ranges of the"
        " activations are measured once. Default: every call measures its own.",
        path=Path.FILE,
        only_with="quantize=int8",
    )
    text_a_column: str | None = option(
        None,
        "Column of the texts of --calibration_file. Default: the run's.",
        only_with="calibration_file",
        decides="nothing",
    )
    text_b_column: str | None = option(
        None,
        "Column of the second texts of --calibration_file. Default: the run's, or"
        " none.",
        only_with="calibration_file",
        decides="nothing",
    )

    def problems(self) -> Iterator[str]:
        """Yields the options that have no effect on the format."""
        yield from super().problems()
        if self.quantize and self.format not in ("onnx", "litert"):
            yield (
                "`quantize` is only for `format=onnx` and `format=litert`: leave it"
                " out."
            )
        if self.calibration_file and self.format != "onnx":
            yield "`calibration_file` is only for `format=onnx`: leave it out."
        for_serving = ("max_seq_length", *_OF_SPANS)
        if self.format != "saved_model" and any(map(self.is_given, for_serving)):
            listed = ", ".join(f"`{name}`" for name in for_serving)
            yield f"{listed} are only for `format=saved_model`: leave them out."
        heads = self.heads or (_NO_HEADS,)
        of_encoder = self.format in ("kerashub", "sentence_transformers")
        if of_encoder and heads != (_NO_HEADS,):
            yield f"`format={self.format}` writes only the encoder: leave `heads` out."
        if _NO_HEADS in heads and len(heads) > 1:
            yield f"`heads` must be {_NO_HEADS}, or of {', '.join(HEADS)}."


def export(checkpoint: str, output_dir: str, *, format: str, **options: Any) -> None:
    """Writes a checkpoint in another format, as export_model does.

    Args:
        checkpoint: as for `open_source`, or a folder that `save` wrote.
        output_dir: a new or empty folder.
        format: tf1, huggingface, kerashub, saved_model, litert, onnx,
            sentence_transformers or peft.
        **options: export_model's other flags, such as `heads=("classifier",)`.

    Raises:
        InputError: the command would end with the same message.

    Examples:
        >>> bert_tf.export("classifier", "for_transformers", format="huggingface")
        >>> bert_tf.load("for_transformers").labels
        ('bad', 'good')
    """
    run(
        ExportOptions(
            checkpoint=checkpoint, output_dir=output_dir, format=format, **options
        )
    )


def run(options: ExportOptions) -> None:
    """Exports a checkpoint."""
    if options.format == "onnx":
        runtime = ["onnxruntime"] if options.quantize == "int8" else []
        cli.require_packages("--format=onnx", "onnx", *runtime)
    cli.import_tensorflow(options)
    from bert_tf.addons.planning.card import copy_card
    from bert_tf.conversion import export
    from bert_tf.conversion.source import Format
    from bert_tf.conversion.tensorflow import is_glob

    if options.format in ("saved_model", "litert"):
        keras_backend.require_tensorflow(f"--format={options.format}")
    if options.format == "saved_model" and is_glob(files.absolute(options.output_dir)):
        raise InputError(
            f"`output_dir={options.output_dir}`: TensorFlow cannot load a SavedModel"
            " from a folder with [ or \\ in its path. Give another one."
        )
    folder = export.NewFolder(options.output_dir)
    words = options.heads
    heads = None if words is None else [HEADS[w] for w in words if w != _NO_HEADS]
    model = export.source_of(options, heads)
    settings: dict[str, Any] = {"format": options.format}
    if options.quantize:
        settings["quantize"] = options.quantize
    reading = None
    if options.format == "saved_model":
        reading = _reading(model, options)
        settings |= reading.known()
    calibration = None
    if options.calibration_file:
        rows = _rows(options, model, options.calibration_file)
        calibration = [(one.text_a, one.text_b) for one in rows]
        content = json.dumps(calibration).encode()
        settings["calibration"] = hashlib.sha256(content).hexdigest()
    if folder.is_done(export.identity(model, settings)):
        logging.info("All is done already: %s.", options.output_dir)
        return
    with folder as path:
        if options.format == "tf1":
            export.write_tf1(path, model)
        elif options.format == "huggingface":
            export.write_huggingface(path, model)
            if model.format is Format.RUN and files.is_folder(options.checkpoint):
                name = os.path.basename(os.path.abspath(options.output_dir))
                copy_card(model.folder, path, name)
        elif options.format == "kerashub":
            export.write_kerashub(path, model)
        elif reading is not None:
            _write_saved_model(path, model, reading)
        elif options.format == "onnx":
            _write_onnx(path, model, options.quantize, calibration)
        elif options.format in ("sentence_transformers", "peft"):
            addon(options.format).write(path, model)
        else:
            from bert_tf.addons.serving.saved_model import head_to_serve, write_litert

            write_litert(path, model, head_to_serve(model), options.quantize)
    logging.info("Wrote %s: %s.", options.format, options.output_dir)


def _rows(options: ExportOptions, model: "Source", path: str) -> "Examples":
    """Reads a table's rows from the columns given, or else the run's."""
    from bert_tf.tasks.data_set_options import as_column
    from bert_tf.tasks.tables import TableSplit

    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        column = getattr(options, name) or model.reading.columns.get(name)
        if column is None and name != "text_b_column":
            raise InputError(f"{path} needs `{name}`: {model.path} has none.")
        columns[name.removesuffix("_column")] = column and as_column(column)
    return TableSplit(**columns).read(path)


def _write_saved_model(path: str, model: "Source", reading: "Reading") -> None:
    from bert_tf.addons.serving.saved_model import head_to_serve, write_saved_model
    from bert_tf.conversion.tokenizer_files import write_labels

    signatures = write_saved_model(path, model, head_to_serve(model), reading)
    reading.write(path)
    write_labels(path, model.labels or None, model.problem_type)
    logging.info("Its signatures: %s.", ", ".join(sorted(signatures)))
    if model.tokenizer.has_segmenter:
        logging.warning(
            "No graph separates words with `segmenter=%s`: the SavedModel takes ids.",
            model.tokenizer.segmenter,
        )
    elif model.tokenizer.vocabulary is None:
        logging.warning(
            "%s has no vocabulary, so the SavedModel takes ids; give --vocab_file.",
            model.path,
        )


def _write_onnx(
    folder: str,
    model: "Source",
    quantize: str | None = None,
    calibration: TextPairs | None = None,
) -> None:
    """Writes model.onnx, and the files that other libraries need to open the folder.

    config.json and the tokenizer are for Optimum, fastembed and transformers.js; if the
    pooling is known, modules.json and its folders are for sentence-transformers.

    Args:
        folder: the folder to write to.
        model: a checkpoint with one head, or none: see `onnx_graph`.
        quantize: "float16" for weights and activations; "int8" for weights of 7 bits,
            so that no processor's sums overflow, scaled per output, and for
            activations, scaled per call. None: float32.
        calibration: for int8, texts, or pairs, on which the ranges of the activations
            are measured once, instead of in each call.
    """
    from bert_tf.addons.serving import onnx_files, onnx_graph, runtimes
    from bert_tf.conversion import export, huggingface, loading
    from bert_tf.conversion.reading import Reading
    from bert_tf.conversion.source import ONNX_NAME

    export.refuse_segmenter(model)
    config, heads = model.require_config(), names.heads_of(model.weights)
    if names.WINDOWS in heads:  # a graph has none
        heads = [head for head in heads if head != names.WINDOWS]
        weights = model.weights.with_heads(heads)
        model = dataclasses.replace(model, weights=weights)
    reading = Reading() if heads else model.reading
    content = onnx_graph.build(
        model,
        dtype=np.float16 if quantize == "float16" else np.float32,
        pooling=reading.pooling,
        normalizes=bool(reading.normalize),
    )
    path = os.path.join(folder, ONNX_NAME)
    if quantize == "int8":
        batches = None if calibration is None else _batches(model, calibration)
        onnx_files.write_int8(path, content, batches)
    else:
        files.write_atomically(path, content.SerializeToString())
    # The graph has the constants that transformers' config lacks.
    known = dataclasses.replace(
        config, masked_lm_hidden_act=None, masked_lm_layer_norm_eps=None
    )
    # For a head that transformers lacks, the config describes the encoder.
    theirs = [head for head in heads if names.HEADS[head].hugging_face]
    weights = model.weights.with_heads(theirs)
    values = export.hugging_face_config(
        dataclasses.replace(model, config=known, weights=weights)
    )
    files.write_atomically(
        os.path.join(folder, huggingface.CONFIG_NAME),
        json.dumps(values, indent=2) + "\n",
    )
    export.write_hugging_face_tokenizer(folder, model)
    if reading.pooling:
        addon("sentence_transformers").write_modules(folder, model)
    keras_model = loading.load_encoder(model) if not heads else None
    if heads and names.HEADS[heads[0]].model:
        keras_model = loading.load_model(model, heads[0])
    if keras_model is not None:
        runtimes.check(path, "onnx", keras_model, quantize)


def _batches(model: "Source", texts: TextPairs) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of an ONNX model for each text, cut as `load` does."""
    from bert_tf.addons.serving import onnx_graph
    from bert_tf.conversion.source import load_tokenizer

    tokenizer = load_tokenizer(model)
    length = model.reading.length(model.require_config().max_position_embeddings)
    heads = names.heads_of(model.weights)
    has_choices = any(names.HEADS[head].has_choices for head in heads)
    for text, second in texts:
        inputs = tokenizer([text], [second], max_length=length, truncation=True)
        yield {
            onnx_graph.INPUTS[name]: (x[:, None] if has_choices else x).astype(np.int64)
            for name, x in inputs.items()
        }


def _reading(model: "Source", options: ExportOptions) -> "Reading":
    """Returns how a SavedModel reads texts: as given, or else as the run predicts."""
    from bert_tf.addons.serving.saved_model import head_to_serve, server_of

    head, config = head_to_serve(model), model.require_config()
    server = server_of(head)
    found = server.reading_of(model)
    used = server.reads_of(found)
    given = [name for name in ("max_seq_length", *_OF_SPANS) if options.is_given(name)]
    for name in given:
        if name not in ("max_seq_length", *used):
            raise InputError(
                f"`{name}` has no effect on this model, which serves {head}: leave it"
                " out."
            )
    inherited = [
        f"{name}={value}"
        for name, value in found.known().items()
        if name in ("max_seq_length", "window_pooling", *used) and name not in given
    ]
    if inherited:
        logging.info("As in the run: %s.", " ".join(inherited))
    found = dataclasses.replace(found, **{n: getattr(options, n) for n in given})
    length = found.max_seq_length or config.max_position_embeddings
    config.check_sequences(
        length, 2 if head in (names.SPAN, names.MULTIPLE_CHOICE) else 1
    )
    if length < _LEAST_SEQ_LENGTH:
        raise InputError(
            f"A pair takes {_LEAST_SEQ_LENGTH} tokens; the model has {length}"
            " positions. Export it as another format."
        )
    found = dataclasses.replace(found, max_seq_length=length)
    return server.fitted(found, given)
