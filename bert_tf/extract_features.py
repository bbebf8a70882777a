r"""Writes the contextual vectors that BERT's layers give of each token of a text.

    python -m bert_tf.extract_features --input_file=/tmp/input.txt \
        --output_file=/tmp/output.jsonl --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

The input has one text per line, or two with " ||| " between them. The output gets its
name when it is complete.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from absl import flags, logging

from bert_tf import cli, feature_flags, files, finetuning_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    from bert_tf.features import FeatureInput


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    feature_flags.define_files(flag_values)
    feature_flags.define_vectors(flag_values)
    feature_flags.define_storage(flag_values)
    feature_flags.define_running(flag_values)
    finetuning_flags.define_padding(flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Reads the lines, and writes their features."""
    paths = flag_values.input_file, flag_values.output_file
    if len(set(map(files.identity, paths))) == 1:
        raise InputError(f"--output_file: {paths[1]} is also the input file.")
    cli.import_tensorflow()
    from bert_tf import features
    from bert_tf.conversion.loading import model_files
    from bert_tf.text.wordpiece import WordPieceTokenizer
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    strategy = strategy_from_flags(flag_values)
    check_batch_size(strategy, flag_values.batch_size, flag="batch_size")
    # The whole input is read and checked before anything is computed.
    num_lines = features.count_lines(flag_values.input_file)
    found = model_files(
        flag_values.init_checkpoint,
        bert_config_file=flag_values.bert_config_file,
        vocab_file=flag_values.vocab_file,
        do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
        output_dir=flag_values.init_checkpoint,
    )
    assert found.source is not None
    extractor = features.FeatureExtractor(
        dataclasses.replace(found.source, config=found.config),
        features.LayerSelection.parse(
            flag_values.layers,
            found.config.num_hidden_layers,
            combine=flag_values.combine,
            weights=flag_values.layer_weights,
        ),
        strategy,
        features.FeatureOptions(
            batch_size=flag_values.batch_size,
            max_seq_length=flag_values.max_seq_length,
            max_lengths=None
            if flag_values.pad == "max"
            else flag_values.length_buckets,
            token_vectors=flag_values.token_vectors,
            sentence_vectors=tuple(sorted(set(flag_values.sentence_vectors))),
            word_vectors=flag_values.words or features.FIRST_PIECE,
            precision=flag_values.precision,
            jit_compile=flag_values.jit_compile,
        ),
    )
    reader = features.FeatureReader(
        WordPieceTokenizer(found.vocabulary, do_lower_case=found.do_lower_case),
        max_seq_length=flag_values.max_seq_length,
        by_word=flag_values.words is not None,
    )
    counts = dict.fromkeys(("vectors", "cut"), 0)

    def counted(inputs: "Iterable[FeatureInput]") -> "Iterator[FeatureInput]":
        for each in inputs:
            counts["vectors"] += each.num_vectors
            counts["cut"] += each.is_cut
            yield each

    extractor.write(
        counted(reader(features.read_lines(flag_values.input_file))),
        flag_values.output_file,
        flag_values.format,
        vector_type=flag_values.vector_type,
        num_inputs=num_lines,
    )
    if counts["cut"]:
        logging.warning(
            "%d of %d lines were longer than --max_seq_length=%d, and cut.",
            counts["cut"],
            num_lines,
            flag_values.max_seq_length,
        )
    logging.info(
        "Wrote %d lines, %d %s, to %s.",
        num_lines,
        counts["vectors"],
        "words" if flag_values.words else "tokens",
        flag_values.output_file,
    )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
