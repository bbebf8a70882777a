r"""Answers questions about a text, with a model that was fine-tuned on SQuAD.

    python -m bert_tf.answer --checkpoint=/tmp/squad_output --context_file=article.txt \
        "Which team won Super Bowl 50?"

It prints the answer, its probability among the best answers, and its sentence. A model
trained on SQuAD 2.0 may also find that the text does not answer the question.
"""

from bert_tf.addons.serving import answer
from bert_tf.addons.serving.answer import AnswererOptions
from bert_tf.base import cli


def run(options: AnswererOptions) -> None:
    """Prints the answers to each question."""
    answer.run(options)


main = cli.command(run, arguments="questions")

if __name__ == "__main__":
    main()
