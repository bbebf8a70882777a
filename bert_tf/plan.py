r"""Says how to pre-train on some text in so many hours, on this machine, and does it.

    python -m bert_tf.plan --input_file=text.txt --hours=8 --output_dir=domain

counts the text, writes records of a sample and trains each size of model on it for some
seconds, and prints what it would do, why, and the commands. With --go it runs them one
after the other. Killed and started again, it resumes where it was. --num_new_tokens
adds words of the text to the vocabulary of --init_checkpoint.

The size is the largest whose training sees at least 20 tokens per weight in the time
(Hoffmann et al. 2022), else the smallest. With --init_checkpoint the model is that one.
No text should be seen more than some 40 times, as often as by the original; a line says
how often it will be.
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
