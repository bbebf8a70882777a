"""Creates masked language model and next sentence records for BERT's pre-training.

Flags, defaults and records are those of google-research/bert. The input is UTF-8 text,
one sentence per line with a blank line between documents, or the output of
wikiextractor, JSON lines, or a TensorFlow dataset. NAME.manifest.json and
NAME.vocab.txt are written next to the records, where NAME is the first output file
without a shard suffix such as -00000-of-00008.

The same command again finds its records complete, or resumes where it was killed. It
overwrites other files only with --overwrite.
"""

from bert_tf.base import cli
from bert_tf.records import create_pretraining_data
from bert_tf.records.create_pretraining_data import PretrainingDataOptions


def run(options: PretrainingDataOptions) -> None:
    """Writes the records that the flags ask for."""
    create_pretraining_data.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
