r"""Combines the n-best answers of several run_squad runs into one set of answers.

    python -m bert_tf.ensemble_squad --prediction_dirs=/tmp/run1,/tmp/run2,/tmp/run3 \
        --output_dir=/tmp/ensemble --predict_file=$SQUAD_DIR/dev-v1.1.json

The probability of each text is its mean over the runs, 0 in a run without it; with
--version_2_with_negative the score difference of "no answer" is averaged as well. It
writes predictions.json, nbest_predictions.json and null_odds.json as run_squad does.
evaluate_squad --na_prob_file finds the threshold with the best score.

Devlin et al. 2018 score ensembles of runs from several checkpoints and seeds (tables 2
and 3), but do not state how they average them.
"""

from bert_tf.addons.study import ensemble_squad
from bert_tf.addons.study.ensemble_squad import EnsembleOptions
from bert_tf.base import cli


def run(options: EnsembleOptions) -> None:
    """Writes the ensemble's answers; prints their scores if --predict_file is given."""
    ensemble_squad.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
