"""Masking worked out by hand, with a random stream that says what it is told."""

import numpy as np
import tensorflow as tf

from bert_tf.instances.creation import TokenIds
from bert_tf.instances.masking import Masking, mask, num_predictions
from tests.instances.scripted_stream import Script

PAD, UNK, CLS, SEP, MASK, PLAY, ING, CAT, THE = range(9)
IDS = TokenIds(
    cls_id=CLS,
    sep_id=SEP,
    mask_id=MASK,
    word_ids=tuple(range(9)),
    continuation_ids=frozenset([ING]),
)


def masked(tokens, script, *, whole_word=False, **changes):
    """(what the model sees, positions, labels), by all of the script's draws."""
    joins = np.zeros(9, bool)
    joins[list(IDS.continuation_ids)] = whole_word
    settings = {"masked_lm_prob": 0.5, "max_predictions_per_seq": 20, **changes}
    sequence = np.array(tokens, np.uint16)
    positions = np.zeros(len(tokens), np.int32)
    labels = np.zeros(len(tokens), np.uint16)
    stream = script.stream()
    count = mask(
        sequence,
        Masking(
            mask_id=IDS.mask_id,
            cls_id=IDS.cls_id,
            sep_id=IDS.sep_id,
            word_ids=np.array(IDS.word_ids, np.int32),
            joins=joins,
            **settings,
        ),
        stream,
        positions,
        labels,
    )
    assert script.is_used_up(stream)
    return sequence.tolist(), positions[:count].tolist(), labels[:count].tolist()


class MaskTest(tf.test.TestCase):
    def test_mask_keep_and_random_token(self):
        # [CLS] the cat [SEP] play ##ing [SEP]: 7 tokens, round(3.5) = 4 of them, and
        # the candidates are positions 1, 2, 4, 5.
        script = Script().shuffle([3, 0, 2, 1])
        script.random(0.79)  # position 5: [MASK]
        script.random(0.81).random(0.49)  # position 1: stays
        script.random(0.9).random(0.51).below(2, 9)  # position 4: token 2
        script.random(0.0)  # position 2: [MASK]
        seen, positions, labels = masked([CLS, THE, CAT, SEP, PLAY, ING, SEP], script)
        self.assertEqual(seen, [CLS, THE, MASK, SEP, CLS, MASK, SEP])
        self.assertEqual(positions, [1, 2, 4, 5])
        self.assertEqual(labels, [THE, CAT, PLAY, ING])

    def test_number_of_predictions(self):
        # 15 % of 128 is 19.2; of 5 is 0.75; halves go to the even number.
        self.assertEqual(num_predictions(128, 0.15, 20), 19)
        self.assertEqual(num_predictions(5, 0.15, 20), 1)
        self.assertEqual(num_predictions(3, 0.01, 20), 1)
        self.assertEqual(num_predictions(5, 0.5, 20), 2)
        self.assertEqual(num_predictions(7, 0.5, 20), 4)
        self.assertEqual(num_predictions(512, 0.15, 20), 20)


class TokenIdsTest(tf.test.TestCase):
    def test_of_a_vocabulary_with_a_duplicate(self):
        # The file: cat, [CLS], [SEP], ##s, cat, [MASK]. "cat" has its last id.
        ids = {"cat": 4, "[CLS]": 1, "[SEP]": 2, "##s": 3, "[MASK]": 5}
        self.assertEqual(
            TokenIds.from_vocabulary(ids),
            TokenIds(
                cls_id=1,
                sep_id=2,
                mask_id=5,
                word_ids=(4, 1, 2, 3, 5),
                continuation_ids=frozenset([3]),
            ),
        )


if __name__ == "__main__":
    tf.test.main()
