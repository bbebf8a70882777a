"""The six ways to take BERT's layers as features: Devlin et al. 2018, Table 7."""

from typing import NamedTuple


class FeatureChoice(NamedTuple):
    """What a word's features are.

    Attributes:
        layers: whose outputs, as `bert_tf.features.layers` names them.
        is_concatenated: whether they stand one after another; else several layers are
            mixed, with weights that are learned.
        dev_f1: what the paper found, BERT-BASE on CoNLL-2003's development set.
    """

    layers: tuple[str, ...]
    is_concatenated: bool
    dev_f1: float

    @property
    def num_layers(self) -> int:
        """How many layers a model must have at least."""
        return max(-int(name) if name.startswith("-") else 1 for name in self.layers)


_LAST_FOUR = ("-4", "-3", "-2", "-1")

FEATURE_CHOICES = {
    "embeddings": FeatureChoice(("embeddings",), False, 91.0),
    "second_to_last": FeatureChoice(("-2",), False, 95.6),
    "last": FeatureChoice(("-1",), False, 94.9),
    "weighted_sum_last_four": FeatureChoice(_LAST_FOUR, False, 95.9),
    "concat_last_four": FeatureChoice(_LAST_FOUR, True, 96.1),
    "weighted_sum_all": FeatureChoice(("all",), False, 95.5),
}
FINE_TUNED = "fine_tuned"
# All ways to use BERT for tagging, and what the paper found of each.
PAPER_DEV_F1 = {
    FINE_TUNED: 96.4,
    **{name: choice.dev_f1 for name, choice in FEATURE_CHOICES.items()},
}

# How a BiLSTM on features is trained, where no flag says otherwise.
BILSTM_LEARNING_RATE = 1e-3
BILSTM_EPOCHS = 10.0
