"""The models of all tasks: the encoder with a task's head, each a Keras model.

    BertPretrainer       masked language model and next sentence prediction
    BertClassifier       classes, or a number, of a sentence or a pair
    BertMultipleChoice   the right one of several choices
    BertSpanPredictor    where an answer starts and ends in a passage
    BertTagger           a label for every word

What they share is in `head_model`.
"""

from bert_tf.modeling.pretrainer import BertPretrainer
from bert_tf.modeling.sequence_heads import BertClassifier, BertMultipleChoice
from bert_tf.modeling.token_heads import BertSpanPredictor, BertTagger

__all__ = [
    "BertClassifier",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertSpanPredictor",
    "BertTagger",
]
