r"""Pre-trains BERT on TFRecords of masked next-sentence pairs.

Trains with the sum of the masked LM and next sentence losses (only the masked LM if the
records have no sentence pairs), evaluates, or both:

    python -m bert_tf.run_pretraining --input_file=/tmp/tf_examples.tfrecord \
        --bert_config_file=bert_config.json --output_dir=/tmp/pretraining_output \
        --do_train=True --do_eval=True --num_train_steps=20 --num_warmup_steps=10

Started again with the same --output_dir, it resumes from the last checkpoint. The
paper's two phases are one command with

    --input_file=records/128/*,records/512/* --phases=128:900000:256,512:100000:256
"""

from bert_tf.base import cli
from bert_tf.tasks.pretraining_options import PretrainingOptions
from bert_tf.tasks.run_options import RunResult


def run(options: PretrainingOptions) -> RunResult:
    """Checks the input, then trains and evaluates."""
    cli.import_tensorflow(options)
    from bert_tf.tasks.pretraining import PretrainingRun

    return PretrainingRun(options).main()


main = cli.command(run)

if __name__ == "__main__":
    main()
