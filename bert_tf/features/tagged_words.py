"""Tagged words as the feature model reads them: a vector for each word.

Windows are those that a tagger is fine-tuned on (`bert_tf.tasks.tagging.words`), and a
word's vector is that of its first piece, in the window that shows the word best.
"""

from collections.abc import Sequence

import numpy as np

from bert_tf.features.inputs import FeatureInput
from bert_tf.tasks.tagging.words import Features


def inputs_of_windows(windows: Sequence[Features]) -> list[FeatureInput]:
    """The windows as inputs, of which the words that are predicted have vectors.

    Args:
        windows: of all sentences.
    """
    return [
        FeatureInput(
            window.ids,
            [0] * len(window.ids),
            # Of the first piece alone: where a word ends makes no difference.
            spans=[(place, place + 1) for place in window.places.tolist()],
        )
        for window in windows
    ]


def words_of_vectors(windows: Sequence[Features]) -> np.ndarray:
    """Which word each vector is of: [T], counted over all sentences.

    Args:
        windows: of all sentences.
    """
    if not windows:
        return np.zeros([0], np.int64)
    return np.concatenate([window.words for window in windows])
