"""The whole recipe in a few minutes, on text that comes with Python.

It learns a vocabulary from the prose in Python's own documentation, writes masked
next-sentence pairs, pre-trains a small BERT, fills in blanks before and after, and
fine-tunes it on a labelled task, compared with the same network from scratch:

    python -m bert_tf.quickstart --output_dir=quickstart_output

Started again, it resumes.
"""

from bert_tf.addons.teaching import quickstart
from bert_tf.addons.teaching.quickstart import QuickstartOptions
from bert_tf.base import cli


def run(options: QuickstartOptions) -> None:
    """Runs the steps that are not done yet."""
    quickstart.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
