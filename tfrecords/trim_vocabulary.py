r"""Makes a smaller checkpoint, with the tokens that a text needs.

    python -m bert_tf.tfrecords.trim_vocabulary --input_file=text.txt \
        --init_checkpoint=multi_cased_L-12_H-768_A-12 --output_dir=smaller

The folder has the format of the original's releases, with the heads, labels and other
files of the checkpoint: `--init_checkpoint` and `--checkpoint` of every command take
it. It keeps the special tokens, the tokens of this text and its characters, in their
order. Text whose tokens are all kept is cut into the same tokens, and the encoder's
outputs are the same to the bit.

The same command again finds its folder complete.
"""

from bert_tf.addons.corpora import trimming
from bert_tf.addons.corpora.trimming import TrimOptions
from bert_tf.base import cli


def run(options: TrimOptions) -> None:
    """Trims the checkpoint as the flags ask, and writes it."""
    trimming.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
