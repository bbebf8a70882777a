r"""Compares two runs on the same examples: is the difference more than chance?

    python -m bert_tf.compare /tmp/mrpc_base /tmp/mrpc_other

The runs are folders with predictions for labelled examples, as written by every
fine-tuning command (--do_eval; for SQuAD --do_predict). For each metric it prints both
scores, their difference with a paired bootstrap's 95 % interval, and the probability of
so large a difference by chance (McNemar's exact test for accuracies, approximate
randomization for other metrics). For a folder of several runs it also prints the
expected best score of 1, 2, ... trials (Dodge et al. 2019). For runs without
predictions, such as pre-training, it prints the scores of their evaluations. If they
were evaluated during training (--eval_steps) on the same records, it also shows which
run is ahead, over steps, tokens and hours; --output_file draws the curves.
"""

from bert_tf.addons.study import compare
from bert_tf.addons.study.compare import CompareOptions
from bert_tf.base import cli


def run(options: CompareOptions) -> None:
    """Prints the table."""
    compare.run(options)


main = cli.command(run, arguments="runs")

if __name__ == "__main__":
    main()
