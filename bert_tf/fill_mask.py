r"""Fills in the blanks: the most probable tokens for each [MASK] in a text.

    python -m bert_tf.fill_mask --checkpoint=/tmp/pretraining_output \
        "The capital of France is [MASK]."

It prints the tokens with their probabilities.
"""

from bert_tf.addons.serving import fill_mask
from bert_tf.addons.serving.fill_mask import FillMaskOptions
from bert_tf.base import cli


def run(options: FillMaskOptions) -> None:
    """Prints the guesses for each text."""
    fill_mask.run(options)


main = cli.command(run, arguments="texts")

if __name__ == "__main__":
    main()
