"""The command `run_glue`."""

import os

from absl import logging

from bert_tf.base import cli
from bert_tf.tasks.data_set_options import GlueOptions
from bert_tf.tasks.run_options import RunResult, with_recipe

SUBMISSION_NAME = "glue_submission.zip"


def run(options: GlueOptions) -> RunResult:
    """Runs the tasks, then writes the table and the submission.

    The scores are the best runs', as in `scores["MRPC/accuracy"]`.
    """
    cli.import_tensorflow(options)
    options = with_recipe(options)
    from bert_tf.tasks import glue_suite
    from bert_tf.tasks.glue import write_submission
    from bert_tf.tasks.running import check_batches
    from bert_tf.training.run_folder import held_for_training
    from bert_tf.training.strategy import create_strategy, is_chief

    tasks = glue_suite.chosen_tasks(options)
    strategy = create_strategy(options)
    check_batches(options, strategy)
    for data_set in tasks:
        glue_suite.check_examples(data_set, options)
    logging.info("GLUE: %s", ", ".join(data_set.name for data_set in tasks))
    output_dir = options.output_dir
    with held_for_training(output_dir, strategy):
        results = glue_suite.read_results(output_dir)
        for data_set in tasks:
            name = data_set.name
            found = glue_suite.run_task(data_set, options, strategy, results.get(name))
            if found:
                results[name] = found
                if is_chief(strategy):
                    glue_suite.write_report(results, output_dir)
    returned = RunResult(
        {
            f"{name}/{metric}": score
            for name, result in results.items()
            for metric, score in result.scores.items()
        },
        output_dir,
    )
    if not is_chief(strategy):
        return returned
    if results:
        for line in glue_suite.report([*results.values()]).splitlines():
            logging.info("%s", line)
    if options.do_predict:
        write_submission(
            os.path.join(output_dir, glue_suite.SUBMISSION_NAME),
            os.path.join(output_dir, SUBMISSION_NAME),
            fill_missing=options.fill_missing_tasks,
        )
    return returned
