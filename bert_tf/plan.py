r"""Plans how to pre-train on a text in given hours on this machine, and does it.

    python -m bert_tf.plan --input_file=text.txt --hours=8 --output_dir=domain

counts the text, trains each size of model for some seconds on records of a sample, and
prints a plan, its reasons, and the commands. With --go it runs them one after the
other. Killed and started again, it resumes. --num_new_tokens adds words of the text to
the vocabulary of --init_checkpoint.

The size is the largest whose training sees at least 20 tokens per weight in the time
(Hoffmann et al. 2022), else the smallest; with --init_checkpoint, the checkpoint's. A
text should not be seen more than some 40 times, as often as in the original; the plan
shows how often it will be.
"""

from bert_tf.addons.planning import plan
from bert_tf.addons.planning.plan import PlanOptions
from bert_tf.base import cli


def run(options: PlanOptions) -> None:
    """Prints the plan; runs it if asked to."""
    plan.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
