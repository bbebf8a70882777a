"""The flags of fine-tuning scripts, in groups.

A script calls the groups it needs from its `define_flags(flag_values)`. Flags that the
original does not have are marked "Ours".
"""

from absl import flags


def define_looking(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the reports on a split's predictions."""
    flags.DEFINE_bool(
        "plots",
        True,
        "Ours. Draw the predictions of a labelled split: a confusion matrix and a"
        " calibration plot (Guo et al. 2017), or predicted against true numbers, as"
        " PNG in --output_dir.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_mistakes",
        50,
        "Ours. Mistakes to list in --output_dir, the most confident ones; 0 for none.",
        lower_bound=0,
        flag_values=flag_values,
    )


def define_submission(flag_values: flags.FlagValues) -> None:
    """Defines the flags of the zip for the GLUE server."""
    flags.DEFINE_bool(
        "fill_missing_tasks",
        False,
        "Ours. Put a constant class into the submission for each task that was not"
        " predicted: the GLUE server takes a zip only if it has all files.",
        flag_values=flag_values,
    )
