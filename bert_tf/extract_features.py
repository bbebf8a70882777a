r"""Writes the contextual vectors of each token of a text, from BERT's layers.

    python -m bert_tf.extract_features --input_file=/tmp/input.txt \
        --output_file=/tmp/output.jsonl --vocab_file=$BERT_BASE_DIR/vocab.txt \
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4 \
        --max_seq_length=128 --batch_size=8

The input has one text per line, or two separated by " ||| ". The output file gets its
name when it is complete.
"""

from bert_tf.base import cli
from bert_tf.tasks.feature_extraction import extract_features
from bert_tf.tasks.feature_extraction.extract_features import ExtractionOptions


def run(options: ExtractionOptions) -> None:
    """Reads the lines, and writes their features."""
    extract_features.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
