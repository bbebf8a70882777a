r"""Runs GLUE: fine-tunes on each task, chooses on its development set, reports all.

    python -m bert_tf.run_glue --tasks=all --glue_dir=$GLUE_DIR \
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --output_dir=/tmp/glue_output/

The defaults are the protocol of Devlin et al. 2018, section 4.1: batches of 32, 3
epochs, the best of four learning rates on the development set; --num_restarts for the
large model. Each task has its own folder in --output_dir, which also gets the table
(glue.md, glue.json, glue.png) and glue_submission.zip for GLUE's server. Started again,
it makes only the missing runs.
"""

from bert_tf.base import cli
from bert_tf.tasks.data_set_options import GlueOptions
from bert_tf.tasks.run_options import RunResult


def run(options: GlueOptions) -> RunResult:
    """Runs the tasks, then writes the table and the submission."""
    cli.import_tensorflow(options)
    from bert_tf.tasks import glue_suite

    return glue_suite.run(options)


main = cli.command(run)

if __name__ == "__main__":
    main()
