r"""Writes what BERT's layers say of each token of a text: its contextual vectors.

    python -m bert_tf.extract_features --input_file=/tmp/input.txt \
        --output_file=/tmp/output.jsonl --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

The input has a text a line, or two with " ||| " between them. Memory does not grow with
the number of lines, and a run that was stopped goes on.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from bert_tf import cli, feature_flags, files, finetuning_flags
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError

if TYPE_CHECKING:
    from bert_tf.features.inputs import FeatureInput

_READ_AT_ONCE = 1 << 20


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    feature_flags.define_files(flag_values)
    feature_flags.define_vectors(flag_values)
    feature_flags.define_storage(flag_values)
    feature_flags.define_running(flag_values)
    finetuning_flags.define_padding(flag_values)


class _Counted:
    """Inputs, as they are gone through, counted."""

    def __init__(self, inputs: Iterable["FeatureInput"]) -> None:
        self._inputs = inputs
        self.num_inputs = self.num_vectors = self.num_cut = 0

    def __iter__(self) -> Iterator["FeatureInput"]:
        for sequence in self._inputs:
            self.num_inputs += 1
            self.num_vectors += sequence.num_vectors
            self.num_cut += sequence.is_cut
            yield sequence


def run(flag_values: flags.FlagValues) -> None:
    """Reads the lines, and writes their features."""
    paths = flag_values.input_file, flag_values.output_file
    if len(set(map(files.identity, paths))) == 1:
        raise InputError(f"--output_file: {paths[1]} is also the input file.")
    if flag_values.format == "parquet":
        cli.require_packages("--format=parquet", "pyarrow")
    cli.import_tensorflow()
    from bert_tf.conversion.loading import model_files
    from bert_tf.features.choices import FIRST_PIECE
    from bert_tf.features.inputs import FeatureReader, count_lines, read_lines
    from bert_tf.features.layers import LayerSelection
    from bert_tf.tasks.tagging.frozen_features import FeatureSession
    from bert_tf.text.wordpiece import WordPieceTokenizer
    from bert_tf.training.strategy import check_batch_size, strategy_from_flags

    strategy = strategy_from_flags(flag_values)
    check_batch_size(strategy, flag_values.batch_size, flag="batch_size")
    # The whole input is read and checked before anything is computed.
    num_lines = count_lines(flag_values.input_file)
    found = model_files(
        flag_values.init_checkpoint,
        bert_config_file=flag_values.bert_config_file,
        vocab_file=flag_values.vocab_file,
        do_lower_case=shared_flags.given(flag_values, "do_lower_case"),
        output_dir=flag_values.init_checkpoint,
    )
    assert found.source is not None
    selection = LayerSelection.parse(
        flag_values.layers,
        found.config.num_hidden_layers,
        combine=flag_values.combine,
        weights=flag_values.layer_weights,
    )
    session = FeatureSession(
        dataclasses.replace(found.source, config=found.config),
        selection,
        strategy,
        batch_size=flag_values.batch_size,
        max_seq_length=flag_values.max_seq_length,
        max_lengths=None if flag_values.pad == "max" else flag_values.length_buckets,
        token_vectors=flag_values.token_vectors,
        sentence_vectors=sorted(set(flag_values.sentence_vectors)),
        word_vectors=flag_values.words or FIRST_PIECE,
        precision=flag_values.precision,
        jit_compile=flag_values.jit_compile,
    )
    reader = FeatureReader(
        WordPieceTokenizer(found.vocabulary, do_lower_case=found.do_lower_case),
        max_seq_length=flag_values.max_seq_length,
        by_word=flag_values.words is not None,
    )
    inputs = _Counted(reader(read_lines(flag_values.input_file)))
    made_from: dict[str, Any] = {
        "input_sha256": _sha256(flag_values.input_file),
        "vocab_sha256": found.vocabulary.sha256,
        "do_lower_case": found.do_lower_case,
        "by_word": flag_values.words is not None,
    }
    session.write(
        inputs,
        flag_values.output_file,
        flag_values.format,
        made_from=made_from,
        vector_type=flag_values.vector_type,
        num_inputs=num_lines,
    )
    if inputs.num_cut:
        logging.warning(
            "%d of %d lines were longer than --max_seq_length=%d, and cut.",
            inputs.num_cut,
            inputs.num_inputs,
            flag_values.max_seq_length,
        )
    logging.info(
        "Wrote %d lines, %d %s, to %s.",
        inputs.num_inputs,
        inputs.num_vectors,
        "words" if flag_values.words else "tokens",
        flag_values.output_file,
    )


def _sha256(path: str) -> str:
    """A file's digest, a piece at a time."""
    digest = hashlib.sha256()
    with files.open_binary(path) as file:
        while data := file.read(_READ_AT_ONCE):
            digest.update(data)
    return digest.hexdigest()


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
