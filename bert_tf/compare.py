r"""Compares two runs on the same examples: is the difference more than chance?

    python -m bert_tf.compare /tmp/mrpc_base /tmp/mrpc_other

The runs are folders with predictions of labelled examples, as every fine-tuning command
writes them (--do_eval; of SQuAD --do_predict). For each metric of the task it prints
both scores, their difference with a paired bootstrap's 95 % interval, and how probable
so large a difference is by chance (McNemar's exact test of accuracies, for other
metrics approximate randomization). For a folder of several runs it also prints the
expected best score of 1, 2, ... trials (Dodge et al. 2019). Of runs without
predictions, as of pre-training, it prints the scores of their evaluations, and of
evaluations on the way (--eval_steps) on the same records which run is ahead where, over
steps, tokens and hours; --output_file draws them.
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
