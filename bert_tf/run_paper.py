r"""Makes the tables of Devlin et al. 2018 with your text, tasks and model size.

    python -m bert_tf.run_paper --table=5,8 --input_file=wiki.txt \
        --eval_file=held_out.txt --vocab_file=vocab.txt --bert_size=tiny --budget=30m \
        --glue_dir=$GLUE_DIR --squad_dir=$SQUAD_DIR --output_dir=/tmp/paper

Tables 5, 6 and 8 and figure 5 pre-train a model per row on --input_file, on the same
unmasked records, and fine-tune it on the tasks whose files exist; 1 to 4 fine-tune
--init_checkpoint; 7 does either. Each table has the mean and the deviation over
--num_restarts seeds of the best settings on the development set, next to the paper's
numbers, and shows which differences exceed those between seeds. It is written to
OUTPUT_DIR/table_5.md, .json and .png. Tables share their common runs; the same command
resumes them.
"""

from bert_tf.addons.study import run_paper
from bert_tf.addons.study.run_paper import PaperOptions
from bert_tf.base import cli


def run(options: PaperOptions) -> None:
    """Makes the tables one after the other."""
    run_paper.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
