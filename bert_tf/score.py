r"""Scores sentences, and pairs of sentences, with a pre-trained model.

    python -m bert_tf.score --checkpoint=/tmp/pretraining_output \
        "The cat sat on the mat." "The cat sat on the ||| mat."

It prints the pseudo-perplexity of a sentence (Salazar et al. 2020: each token is masked
in turn), or, for two texts separated by " ||| ", the probability that the second one
follows the first (the next sentence head). --input_file=FILE has one per line.
"""

from bert_tf.addons.study import score
from bert_tf.addons.study.score import ScoreOptions
from bert_tf.base import cli


def run(options: ScoreOptions) -> None:
    """Prints a line for each text, in order."""
    score.run(options)


main = cli.command(run, arguments="texts")

if __name__ == "__main__":
    main()
