r"""Shows what a checkpoint is: format, configuration, parameters, heads, vocabulary.

    python -m bert_tf.inspect_checkpoint /tmp/pretraining_output

Several checkpoints may be given.
"""

from bert_tf.addons.study import inspect_checkpoint
from bert_tf.base import cli
from bert_tf.base.options import Options, Path


def run(options: Options) -> None:
    """Prints a page for each checkpoint."""
    inspect_checkpoint.run(options)


main = cli.command(run, arguments="checkpoints", argument_kind=Path.CHECKPOINT)

if __name__ == "__main__":
    main()
