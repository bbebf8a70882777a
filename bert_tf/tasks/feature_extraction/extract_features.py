"""Extracts features: the layers' outputs for lines of text, written to a file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import logging

from bert_tf.base import cli, files
from bert_tf.base.errors import InputError
from bert_tf.base.options import REQUIRED, Path, option, with_default
from bert_tf.base.shared_options import DeviceOptions, LengthOptions, ModelOptions
from bert_tf.training.training_options import TrainingConfig

if TYPE_CHECKING:
    from bert_tf.tasks.feature_extraction.feature_records import FeatureInput


class ExtractionOptions(ModelOptions, DeviceOptions, LengthOptions, decides="numbers"):
    """The text, and the vectors to compute."""

    input_file: str = option(
        REQUIRED,
        "One text per line, or two with ' ||| ' between them; may be compressed (.gz,"
        " .bz2, .xz).",
        path=Path.FILE,
        decides="nothing",
    )
    output_file: str = option(
        REQUIRED, "The file to write.", path=Path.OUTPUT, decides="nothing"
    )
    init_checkpoint: str = with_default(ModelOptions, "init_checkpoint", REQUIRED)
    precision: str = with_default(TrainingConfig, "precision", "float32")
    jit_compile: bool = with_default(TrainingConfig, "jit_compile", False)
    batch_size: int = option(
        32, "Lines per batch, over all devices.", least=1, decides="nothing"
    )
    use_one_hot_embeddings: bool = option(
        False,
        "Accepted, but has no effect: a lookup gives the same numbers.",
        decides="nothing",
    )
    layers: tuple[str, ...] = option(
        ("-1", "-2", "-3", "-4"),
        "Layers whose outputs to write: 0 is the first, -1 the last. Also"
        " `embeddings`, the input of the first layer, and `all`.",
    )
    combine: str = option(
        "none",
        "How to combine a token's layers: none, sum, mean, weighted (a sum with"
        " --layer_weights), or concat.",
        choices=("none", "sum", "mean", "weighted", "concat"),
    )
    layer_weights: tuple[float, ...] = option(
        (), "For --combine=weighted: one weight for each of --layers."
    )
    token_vectors: bool = option(
        True,
        "Write a vector for each token or word; if false, write only"
        " --sentence_vectors.",
    )
    sentence_vectors: tuple[str, ...] = option(
        (),
        "Vectors of whole lines, separated by commas: the pooler's output (pooled), the"
        " output of [CLS] (cls), the mean or maximum over all tokens including [CLS]"
        " and [SEP] (mean, max). They have length 1 if the sentence-transformers folder"
        " or the run of run_embeddings says so.",
        choices=("pooled", "cls", "mean", "max"),
    )
    words: str | None = option(
        None,
        "Write one vector for each word between white space, and none for [CLS] and"
        " [SEP]: the vector of its first piece, or the mean over its pieces.",
        choices=("first", "mean"),
    )
    format: str = option(
        "jsonl",
        "jsonl: the original's JSON lines; npz: arrays in one file.",
        choices=("jsonl", "npz"),
        decides="nothing",
    )
    vector_type: str = option(
        "float32",
        "For --format=npz: the type of the numbers.",
        choices=("float32", "float16"),
        only_with="format=npz",
    )

    def problems(self) -> Iterator[str]:
        """Yields options for vectors that are not extracted."""
        yield from super().problems()
        if not self.token_vectors and not self.sentence_vectors:
            yield "`token_vectors=false` needs `sentence_vectors`."
        if not self.token_vectors and self.words:
            yield "`words` is only for token vectors."


def run(options: ExtractionOptions) -> None:
    """Reads the lines, and writes their features."""
    paths = options.input_file, options.output_file
    if len(set(map(files.identity, paths))) == 1:
        raise InputError(f"--output_file: {paths[1]} is also the input file.")
    cli.import_tensorflow(options)
    from bert_tf.conversion.source import open_reading
    from bert_tf.tasks.feature_extraction import feature_records as line_features
    from bert_tf.tasks.feature_extraction import features

    # A task's own reading is for its records.
    reading = open_reading(options.init_checkpoint)
    if options.sentence_vectors or not reading.unknown_vectors:
        reading = reading.of_vectors()
    if reading.max_seq_length and not options.is_given("max_seq_length"):
        options = options.with_defaults(max_seq_length=reading.max_seq_length)
    # The whole input is read and checked before any computation.
    num_lines = line_features.count_lines(options.input_file)
    extractor, tokenizer = features.open_extractor(
        options,
        options.layers,
        combine=options.combine,
        weights=options.layer_weights,
        token_vectors=options.token_vectors,
        sentence_vectors=tuple(sorted(set(options.sentence_vectors))),
        normalizes=bool(reading.normalize),
        word_vectors=options.words or line_features.FIRST_PIECE,
    )
    reader = line_features.FeatureReader(
        tokenizer,
        max_seq_length=options.max_seq_length,
        by_word=options.words is not None,
    )
    num_cut = 0

    def inputs() -> "Iterator[FeatureInput]":
        nonlocal num_cut
        for each in reader(line_features.read_lines(options.input_file)):
            num_cut += each.is_cut
            yield each

    extractor.write(
        inputs(),
        options.output_file,
        options.format,
        vector_type=options.vector_type,
        num_inputs=num_lines,
    )
    if num_cut:
        logging.warning(
            "%d of %d lines were longer than --max_seq_length=%d, and cut.",
            *(num_cut, num_lines, options.max_seq_length),
        )
    logging.info("Wrote %d lines to %s.", num_lines, options.output_file)
