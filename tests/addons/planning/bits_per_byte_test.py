import math

import numpy as np
import tensorflow as tf

from bert_tf.addons.planning.bits_per_byte import MaskedWords, unigram_bits_per_byte
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "ca"]
TOKENS += ["##t", "##ch", "##er", "é", "."]
VOCABULARY = Vocabulary(TOKENS)
PAD, UNK, CLS, SEP, MASK = range(5)
L, P = 16, 4


def record(text, hidden=(), length=L):
    """A record of text in which some places are masked."""
    tokens = ["[CLS]", *text.split(), "[SEP]"]
    ids = np.zeros(length, np.int32)
    ids[: len(tokens)] = [TOKENS.index(token) for token in tokens]
    places = np.zeros(P, np.int32)
    places[: len(hidden)] = hidden
    labels = np.where(np.arange(P) < len(hidden), ids[places], 0)
    masked = ids.copy()
    masked[list(hidden)] = MASK
    return {
        "input_ids": masked,
        "input_mask": (np.arange(length) < len(tokens)).astype(np.int32),
        "masked_lm_positions": places,
        "masked_lm_ids": labels.astype(np.int32),
        "masked_lm_weights": (np.arange(P) < len(hidden)).astype(np.float32),
    }


class Found:
    """All rows of masked words, and the words."""

    def __init__(self, batch, vocabulary=VOCABULARY, **options):
        self.words = MaskedWords(
            lambda: [batch],
            vocabulary,
            **{
                "mask_token": "[MASK]",
                "vocab_size": len(TOKENS),
                "batch_size": 1,
                "max_batches": 10**6,
                **options,
            },
        )
        for _ in range(2):  # what is counted is of one time
            self.batches = list(self.words)
        names = self.batches[0] if self.batches else ()
        self.rows = {n: np.concatenate([b[n] for b in self.batches]) for n in names}
        self.num_predictions = self.words.num_predictions
        self.num_bytes = self.words.num_bytes


def masked_words(*records, **options):
    batch = {name: np.stack([r[name] for r in records]) for name in records[0]}
    return Found(batch, **options)


def predictions(rows, row):
    """Position -> the token to predict there."""
    weights = rows["masked_lm_weights"][row] > 0
    places = rows["masked_lm_positions"][row][weights].tolist()
    ids = rows["masked_lm_ids"][row][weights].tolist()
    return {place: TOKENS[i] for place, i in zip(places, ids, strict=True)}


class MaskWordsTest(tf.test.TestCase):
    def test_the_pieces_of_a_word_from_left_to_right(self):
        # One word, whose pieces were partly masked in the record.
        found = masked_words(record("ca ##t ##ch ##er", hidden=(2, 4)))
        rows = found.rows
        for step, shown in enumerate(
            ([MASK] * 4, [8, *[MASK] * 3], [8, 9, MASK, MASK], [8, 9, 10, MASK])
        ):
            ids = rows["input_ids"][step]
            self.assertAllEqual(ids[:7], [CLS, *shown, SEP, PAD])
            piece = ("ca", "##t", "##ch", "##er")[step]
            self.assertEqual(predictions(rows, step), {step + 1: piece})
        self.assertEqual((found.num_predictions, found.num_bytes), (4, 7))
        # 4 predictions of 2 nats each, and 7 bytes.
        self.assertAllClose(found.words.bits_per_byte(2.0), 8 / math.log(2) / 7)

    def test_words_are_whole_known_and_drawn_by_the_records_number(self):
        text = "##er the ca ##t [UNK] dog é . [SEP] ca ##t ##ch ."
        one = record(text, hidden=(2, 10))
        # Of 7 words one is drawn; in many records it is each of them.
        drawn = {}
        found = masked_words(*[one] * 200)
        for row, ids in enumerate(found.rows["input_ids"]):
            whole = np.array([TOKENS.index(t) for t in ["[CLS]", *text.split()]])
            masked = np.flatnonzero(ids[: len(whole)] != whole)
            place, token = predictions(found.rows, row).popitem()
            self.assertEqual(place, masked[0])
            drawn.setdefault((int(place), token), []).append(len(masked))
        self.assertEqual(
            {place: set(lengths) for place, lengths in drawn.items()},
            {
                (2, "the"): {1},
                (3, "ca"): {2},
                (4, "##t"): {1},
                (6, "dog"): {1},
                (7, "é"): {1},
                (8, "."): {1},
                (10, "ca"): {3},
                (11, "##t"): {2},
                (12, "##ch"): {1},
                (13, "."): {1},
            },
        )
        lengths = {"the": 3, "ca": 0, "##t": 0, "dog": 3, "é": 2, ".": 1, "##ch": 0}
        total = sum(lengths[token] * len(x) for (_, token), x in drawn.items())
        total += 3 * (len(drawn[4, "##t"]) - 0) + 5 * len(drawn[12, "##ch"])
        self.assertEqual(found.num_bytes, total)
        again = masked_words(*[one] * 200)
        self.assertAllEqual(again.rows["input_ids"], found.rows["input_ids"])

    def test_words_of_one_step_are_masked_together(self):
        text = " ".join(["the ca ##t"] * 10)
        found = masked_words(record(text, length=40))
        # 3 of 20 words; the short ones are masked in the second step, and not scored.
        rows = found.rows
        first, second = predictions(rows, 0), predictions(rows, 1)
        self.assertLen(first, 3)
        short = {place for place, token in first.items() if token == "the"}
        self.assertEqual({place - 1 for place in second}, set(first) - short)
        self.assertAllEqual(rows["input_ids"][1][[*short]], [MASK] * len(short))
        self.assertEqual(set(second.values()), {"##t"})

    def test_batches_are_whole_and_not_too_many(self):
        found = masked_words(*[record("the")] * 7, batch_size=4)
        self.assertLen(found.rows["input_ids"], 8)
        self.assertAllEqual(found.rows["masked_lm_weights"].sum(1), [1] * 7 + [0])
        self.assertEqual((found.num_predictions, found.num_bytes), (7, 21))
        found = masked_words(*[record("the")] * 7, batch_size=2, max_batches=2)
        self.assertLen(found.rows["input_ids"], 4)
        self.assertEmpty(masked_words(record("[UNK]"), record("##t")).batches)
        self.assertLen(masked_words(record("the"), batch_size=4).batches, 1)
        found = masked_words(record("the"), mask_token="[UNK]")
        self.assertAllEqual(found.rows["input_ids"][0][:3], [CLS, UNK, SEP])
        # Places of the model's table that have no token.
        other = record("the cat")
        other["input_ids"][1] = 20
        self.assertEqual(masked_words(other, vocab_size=24).num_bytes, 3)

    def test_unigrams(self):
        found = masked_words(record("ca ##t ##ch ##er", hidden=(2, 4)))
        frequencies = np.full(len(TOKENS), 1 / 32)
        frequencies[TOKENS.index("ca")] = 1 / 2
        # 1 + 3 * 5 bits, 7 bytes.
        self.assertAllClose(found.words.unigram_bits_per_byte(frequencies), 16 / 7)
        # Of "the", "é" and an unknown word; 9.5 and 0.5 of 9 + 14 / 2 were seen.
        the, accented = TOKENS.index("the"), TOKENS.index("é")
        ids, seen = np.array([the, accented, UNK]), np.array([the] * 9)
        bits = math.log2(16 / 9.5) + math.log2(16 / 0.5)
        found = unigram_bits_per_byte(ids, seen, VOCABULARY)
        self.assertAllClose(found, bits / (3 + 2))
        self.assertEqual(unigram_bits_per_byte(ids[2:], seen, VOCABULARY), 0.0)
        nothing = np.array([], np.int64)
        self.assertEqual(unigram_bits_per_byte(nothing, seen, VOCABULARY), 0.0)

    def test_two_vocabularies_have_the_same_bytes(self):
        fine = Vocabulary([*TOKENS[:5], *"thecadog", "##h", "##e", "##a", *TOKENS[9:]])
        fine = Vocabulary([*dict.fromkeys([*fine, "##o", "##g", "t", "##c", "##r"])])
        text = "the dog. the catcher, é the"
        sizes = []
        for vocabulary in (VOCABULARY, fine):
            ids = WordPieceTokenizer(vocabulary, do_lower_case=False).encode(text)
            base = record("the", length=40)
            base["input_ids"][1:] = 0
            base["input_ids"][1 : len(ids) + 1] = ids
            base["input_mask"] = (np.arange(40) <= len(ids)).astype(np.int32)
            base["masked_lm_weights"] = np.zeros(P, np.float32)
            batch = {name: np.stack([x] * 300) for name, x in base.items()}
            found = Found(batch, vocabulary, vocab_size=40)
            sizes.append(found.num_bytes)
        self.assertEqual(*sizes)
