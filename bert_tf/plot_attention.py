r"""Draws the attention between the tokens of a sentence.

    python -m bert_tf.plot_attention --checkpoint=/tmp/pretraining_output \
        --output_dir=/tmp/attention --layers=0,-1 "The cat sat because it was tired."

It writes attention.png, with one row per layer and one column per head. Two texts
separated by " ||| " are a pair of sentences.

Row i, column j of a map is the share of token i's attention on token j
(softmax(Q K^T / sqrt(d)); Vaswani et al. 2017, Devlin et al. 2018, section 3).

Shapes: L layers, A heads, S tokens.
"""

from bert_tf.addons.study import plot_attention
from bert_tf.addons.study.plot_attention import AttentionOptions
from bert_tf.base import cli


def run(options: AttentionOptions) -> None:
    """Draws the attention in a text."""
    plot_attention.run(options)


main = cli.command(run, arguments="text")

if __name__ == "__main__":
    main()
