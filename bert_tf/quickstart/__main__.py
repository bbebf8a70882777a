"""The whole recipe in a few minutes, on text that every Python has.

Learns a vocabulary from the prose in Python's own documentation, writes masked
next-sentence pairs, pre-trains a small BERT, fills in blanks before and after, and
fine-tunes it on a labelled task beside the same network from scratch:

    python -m bert_tf.quickstart --output_dir=quickstart_output

Started again, it goes on where it was stopped, or says that all is done.
"""

from absl import flags

from bert_tf import cli, flag_rules
from bert_tf import flags as shared_flags


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the script's flags."""
    shared_flags.define(flag_values, output_dir="quickstart_output", random_seed=12345)
    for name, default, help_text in (
        ("vocab_size", 4000, "Tokens of the vocabulary."),
        ("num_train_steps", 2500, "Steps of pre-training."),
        ("num_finetune_examples", 2400, "Labelled examples to fine-tune on."),
        ("num_finetune_seeds", 3, "Fine-tuning runs from each start."),
    ):
        flags.DEFINE_integer(name, default, help_text, flag_values=flag_values)
        flag_rules.require_at_least(flag_values, 1, name)


def run(flag_values: flags.FlagValues) -> None:
    """Makes the steps that are not yet done."""
    cli.import_tensorflow()
    from bert_tf.quickstart.steps import Settings, run_all

    run_all(
        Settings(
            output_dir=flag_values.output_dir,
            random_seed=flag_values.random_seed,
            vocab_size=flag_values.vocab_size,
            num_train_steps=flag_values.num_train_steps,
            num_finetune_examples=flag_values.num_finetune_examples,
            num_finetune_seeds=flag_values.num_finetune_seeds,
        )
    )


def main() -> None:
    """The command line."""
    cli.main(define_flags, run)


if __name__ == "__main__":
    main()
