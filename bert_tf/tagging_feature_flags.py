"""The flags of tagging with BERT's features (Devlin et al. 2018, Table 7)."""

from absl import flags

from bert_tf import flag_rules, path_flags
from bert_tf.flag_groups import TRAINING, belongs_to
from bert_tf.path_flags import Path
from bert_tf.tasks.tagging.feature_choices import (
    BILSTM_EPOCHS,
    BILSTM_LEARNING_RATE,
    FEATURE_CHOICES,
)

_NOTHING_TUNED = "cannot be together: with the first nothing of BERT is trained"


@belongs_to(TRAINING)
def define_features(flag_values: flags.FlagValues) -> None:
    """Defines the flags that leave BERT as it is, with a BiLSTM on its features."""
    flags.DEFINE_enum(
        "features",
        None,
        list(FEATURE_CHOICES),
        "Do not fine-tune: take these layers' outputs of --init_checkpoint as they are,"
        " and train a two-layer BiLSTM on them. Sums have learned weights. Default"
        f" --learning_rate is then {BILSTM_LEARNING_RATE}, and --num_train_epochs"
        f" {BILSTM_EPOCHS}.",
        flag_values=flag_values,
    )
    path_flags.define(
        "feature_dir",
        None,
        "For --features. Where they are kept once they are computed; runs may share it."
        " Default: OUTPUT_DIR/features.",
        Path.OUTPUT,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "bilstm_size",
        768,
        "For --features. Numbers that a layer of the BiLSTM gives of a word, half of"
        " them from either direction.",
        lower_bound=2,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "bilstm_dropout",
        0.1,
        "For --features. Dropout rate of what goes into each layer of the BiLSTM.",
        lower_bound=0.0,
        upper_bound=0.99,
        flag_values=flag_values,
    )
    flags.register_validator(
        "bilstm_size",
        lambda size: size % 2 == 0,
        message="must be even",
        flag_values=flag_values,
    )


def refuse_useless(flag_values: flags.FlagValues) -> None:
    """Makes it a usage error to give what has no effect with --features, or without.

    After `define_features` and the flags of training.
    """
    flag_rules.refuse_without(
        flag_values, "features", "feature_dir", "bilstm_size", "bilstm_dropout"
    )
    for name in ("frozen_layers", "layerwise_learning_rate_decay", "recompute"):
        flag_rules.refuse_together(flag_values, "features", name, why=_NOTHING_TUNED)
