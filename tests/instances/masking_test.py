"""Masking worked out by hand, with a random stream that says what it is told."""

import tensorflow as tf

from bert_tf.instances.masking import Masking, num_predictions
from bert_tf.instances.token_ids import TokenIds

PAD, UNK, CLS, SEP, MASK, PLAY, ING, CAT, THE = range(9)
IDS = TokenIds(
    cls_id=CLS,
    sep_id=SEP,
    mask_id=MASK,
    word_ids=tuple(range(9)),
    continuation_ids=frozenset([ING]),
)


class Script:
    """Stands in for `random.Random`: shuffles to a given order, gives given numbers."""

    def __init__(self, order, *draws):
        self.order = order
        self.draws = list(draws)

    def shuffle(self, items):
        assert sorted(self.order) == list(range(len(items))), len(items)
        items[:] = [items[index] for index in self.order]

    def random(self):
        kind, value = self.draws.pop(0)
        assert kind == "random"
        return value

    def randrange(self, stop):
        kind, value, expected = self.draws.pop(0)
        assert (kind, expected) == ("randrange", stop)
        return value


def masking(**changes):
    settings = {"masked_lm_prob": 0.5, "max_predictions_per_seq": 20, **changes}
    return Masking(IDS, **settings)


class MaskingTest(tf.test.TestCase):
    def test_mask_keep_and_random_token(self):
        # [CLS] the cat [SEP] play ##ing [SEP]: 7 tokens, round(3.5) = 4 of them, and
        # the candidates are positions 1, 2, 4, 5.
        rng = Script(
            [3, 0, 2, 1],
            *[("random", 0.79)],  # position 5: [MASK]
            *[("random", 0.8), ("random", 0.49)],  # position 1: stays
            *[("random", 0.9), ("random", 0.5), ("randrange", 2, 9)],  # 4: token 2
            *[("random", 0.0)],  # position 2: [MASK]
        )
        masked = masking()([CLS, THE, CAT, SEP, PLAY, ING, SEP], rng)
        self.assertEqual(masked.input_ids, [CLS, THE, MASK, SEP, CLS, MASK, SEP])
        self.assertEqual(masked.positions, [1, 2, 4, 5])
        self.assertEqual(masked.labels, [THE, CAT, PLAY, ING])
        self.assertEqual(rng.draws, [])

    def test_stops_at_the_limit(self):
        rng = Script([2, 1, 0, 3], ("random", 0.1))
        masked = masking(max_predictions_per_seq=1)(
            [CLS, THE, CAT, SEP, PLAY, ING, SEP], rng
        )
        self.assertEqual(masked.positions, [4])
        self.assertEqual(masked.input_ids, [CLS, THE, CAT, SEP, MASK, ING, SEP])

    def test_whole_words_and_a_draw_for_each_piece(self):
        # Candidates: [1] the, [2 3] play ##ing, [5] cat; 7 tokens, 3 of them.
        rng = Script(
            [1, 2, 0],
            ("random", 0.1),
            *[("random", 0.85), ("random", 0.2)],
            ("random", 0.5),
        )
        masked = masking(masked_lm_prob=0.4, whole_word=True)(
            [CLS, THE, PLAY, ING, SEP, CAT, SEP], rng
        )
        self.assertEqual(masked.positions, [2, 3, 5])
        self.assertEqual(masked.input_ids, [CLS, THE, MASK, ING, SEP, MASK, SEP])
        self.assertEqual(masked.labels, [PLAY, ING, CAT])

    def test_a_word_that_does_not_fit_is_passed_over_for_a_shorter_one(self):
        rng = Script([1, 2, 0], ("random", 0.1))
        masked = masking(max_predictions_per_seq=1, whole_word=True)(
            [CLS, THE, PLAY, ING, SEP, CAT, SEP], rng
        )
        self.assertEqual(masked.positions, [5])

    def test_a_piece_after_a_separator_joins_the_word_before_it(self):
        # The second segment was cut in front: "##ing" goes with "the".
        rng = Script([0], ("random", 0.1), ("random", 0.1))
        masked = masking(whole_word=True)([CLS, THE, SEP, ING, SEP], rng)
        self.assertEqual(masked.positions, [1, 3])

    def test_a_piece_at_the_very_front_is_a_word_of_its_own(self):
        rng = Script([0, 1], ("random", 0.1), ("random", 0.1))
        masked = masking(whole_word=True)([CLS, ING, SEP, CAT, SEP], rng)
        self.assertEqual(masked.positions, [1, 3])

    def test_unknown_words_are_predicted_too(self):
        rng = Script([0, 1], ("random", 0.1), ("random", 0.1))
        masked = masking()([CLS, UNK, SEP, UNK, SEP], rng)
        self.assertEqual(masked.labels, [UNK, UNK])

    def test_the_input_stays_as_it_is(self):
        tokens = [CLS, THE, SEP, CAT, SEP]
        masking()(tokens, Script([0, 1], ("random", 0.1), ("random", 0.1)))
        self.assertEqual(tokens, [CLS, THE, SEP, CAT, SEP])

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

    def test_a_missing_special_token(self):
        with self.assertRaisesRegex(ValueError, r"Missing: \['\[MASK\]'\]"):
            TokenIds.from_vocabulary({"[CLS]": 0, "[SEP]": 1})


if __name__ == "__main__":
    tf.test.main()
