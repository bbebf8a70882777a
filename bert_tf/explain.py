r"""Explains predictions: what each word of a text contributes.

    python -m bert_tf.explain --checkpoint=/tmp/reviews_output \
        --output_file=why.html "A film of rare charm, if a little long."

It prints each word, and the pieces of those that have several, with a number: positive
for the predicted label, negative against it; and for a model of SQuAD for its answer
("Who ...? ||| The text."), for a tagger for the label of each word. A pair of texts has
" ||| " between them.

The numbers are integrated gradients of the word embeddings (Sundararajan et al. 2017).
They sum to the score less that of the same text without its words; the output has by
how much they miss it, at most 1 %. --output_file is the same as one page of HTML, with
the words coloured.
"""

from bert_tf.addons.serving import explain
from bert_tf.addons.serving.explain import ExplainOptions
from bert_tf.base import cli


def run(options: ExplainOptions) -> None:
    """Prints, and writes, the explanations of each text."""
    explain.run(options)


main = cli.command(run, arguments="texts")

if __name__ == "__main__":
    main()
