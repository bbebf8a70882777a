r"""Predicts for the texts of a table, with a trained model.

    python -m bert_tf.predict --checkpoint=/tmp/reviews_output \
        --input_file=new.csv --text_a_column=review --output_file=scored.csv

The table is CSV, TSV, JSON lines, Parquet, or a text per line, also compressed; `-` is
standard input and output, and rows are read as they come, so that a table may have any
size. The output has all columns of the input, and then

    prediction   a classifier's label, or the best choice's; of several labels all that
                 are likelier than not, with commas between; a regression's number; a
                 tagger's labels, one for each word, with spaces between; an answer
    p_LABEL      a classifier's probability of each label, or of each choice
    words        a tagger's words, with spaces between
    start, end   a SQuAD model's answer, as characters of the context, half open; empty
                 (in JSON null), and `prediction` too, where there is no answer
    probability  the answer's among the best ones

and in JSON lines `prediction` and `probabilities`; of a tagger `words` and `entities`,
each a list of {"text", "start", "end", "label"} with characters of the text as it is.
Lengths, windows and the columns' names are the run's, unless given; a classifier's
scores are logged if the table has labels. The output has a row for each of the
input's: a blank line is predicted as an empty text; a row that cannot be used has an
empty prediction (in JSON null), unless there are more than --max_unusable_rows.
"""

from bert_tf.addons.serving import predict
from bert_tf.addons.serving.predict import PredictOptions
from bert_tf.base import cli


def run(options: PredictOptions) -> None:
    """Writes a row for each row."""
    predict.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
