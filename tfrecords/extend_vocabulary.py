r"""Adds the words of a domain to the vocabulary of a checkpoint.

    python -m bert_tf.tfrecords.extend_vocabulary --input_file=domain.txt \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --num_new_tokens=1000 \
        --output_file=vocab.txt

Each new word is the one that saves the most tokens in this text. It takes the place of
an [unused] token while there is one, then a place at the end; every other token keeps
its id. With this vocabulary, `--init_checkpoint` of run_pretraining, of the fine-tuning
commands and of the exports initializes each new word with the means of its former
pieces' embeddings and masked LM biases.

The same text, flags and version give the same file for any number of workers. The same
command again finds its vocabulary complete.
"""

from bert_tf.addons.corpora import extension
from bert_tf.addons.corpora.extension import ExtensionOptions
from bert_tf.base import cli


def run(options: ExtensionOptions) -> None:
    """Extends the vocabulary as the flags ask, and writes it."""
    extension.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
