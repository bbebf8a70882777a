r"""Predicts for the texts of a table, with a trained model.

    python -m bert_tf.predict --checkpoint=/tmp/reviews_output \
        --input_file=new.csv --text_a_column=review --output_file=scored.csv

The table is CSV, TSV, JSON lines, Parquet, or one text per line, also compressed; `-`
is standard input and output. Rows are read one after another, so a table may have any
size. The output has all columns of the input, written like these, and then

    prediction   a classifier's label, or the best choice's; for several labels, all
                 over --threshold, separated by commas; a regression's number; a
                 tagger's labels, one per word, separated by spaces; an answer
    p_LABEL      a classifier's probability of each label, or of each choice
    words        a tagger's words, separated by spaces
    start, end   a SQuAD model's answer, as characters of the context, half open; empty
                 (null in JSON), like `prediction`, if there is no answer
    probability  the answer's probability among the best ones

and in JSON lines `prediction` and `probabilities`; for a tagger `words` and `entities`,
each a list of {"text", "start", "end", "label"}, counting characters of the given text.
Lengths, windows and column names are the run's, unless given; a classifier's scores are
logged if the table has labels. The output has one row per row of the input: a blank
line is predicted as an empty text; an unusable row has an empty prediction (null in
JSON), unless there are more of them than --max_unusable_rows.
"""

from bert_tf.addons.serving import predict
from bert_tf.addons.serving.predict import PredictOptions
from bert_tf.base import cli


def run(options: PredictOptions) -> None:
    """Writes a row with a prediction for each row."""
    predict.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
