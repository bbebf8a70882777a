r"""Scores a predictions file, SQuAD 1.1's or 2.0's, as the official scripts do.

    python -m bert_tf.evaluate_squad dev-v1.1.json predictions.json

    python -m bert_tf.evaluate_squad dev-v2.0.json predictions.json \
        --na_prob_file=null_odds.json --na_prob_thresh=THRESHOLD

Prints what evaluate-v1.1.py or evaluate-v2.0.py prints, digit for digit.
"""

from bert_tf.base import cli
from bert_tf.tasks.squad import evaluate_squad
from bert_tf.tasks.squad.evaluate_squad import EvaluateSquadOptions


def run(options: EvaluateSquadOptions) -> None:
    """Prints the scores, or writes them to --out_file."""
    evaluate_squad.run(options)


main = cli.command(run, arguments="files")

if __name__ == "__main__":
    main()
