r"""Explains predictions: what each word of a text contributes.

    python -m bert_tf.explain --checkpoint=/tmp/reviews_output \
        --output_file=why.html "A film of rare charm, if a little long."

It prints each word, and the pieces of words with several, with a number: positive for
the predicted label, negative against it. For a model of SQuAD ("Who ...? ||| The
text.") the number is for or against the answer, for a tagger each word's label. A pair
of texts is separated by " ||| ".

The numbers are integrated gradients of the word embeddings (Sundararajan et al. 2017).
They sum to the score minus the score of the same text without its words; the relative
error, usually at most 1 %, is printed too. --output_file writes the same as an HTML
page, with coloured words.
"""

from bert_tf.addons.serving import explain
from bert_tf.addons.serving.explain import ExplainOptions
from bert_tf.base import cli


def run(options: ExplainOptions) -> None:
    """Prints the explanations of each text, and writes them if asked to."""
    explain.run(options)


main = cli.command(run, arguments="texts")

if __name__ == "__main__":
    main()
