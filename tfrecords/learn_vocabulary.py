"""Learns a WordPiece vocabulary from text, for BERT's pre-training.

google-research/bert has no such script. The vocabulary has the layout of the released
ones: [PAD], [unused0] and so on, [UNK], [CLS], [SEP], [MASK], the characters, then the
pieces, most frequent first. The text is read once, on all cores, and split into words
by the tokenizer's own rules. The same text, flags and version give the same file for
any number of workers.

The same command again finds its vocabulary complete. It overwrites another file only
with --overwrite.
"""

from bert_tf.base import cli
from bert_tf.records import learn_vocabulary
from bert_tf.records.learn_vocabulary import VocabularyOptions


def run(options: VocabularyOptions) -> None:
    """Learns the vocabulary that the flags ask for, and writes it."""
    learn_vocabulary.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
