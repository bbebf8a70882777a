"""Rules of records, and examples as a person reads them."""

import numpy as np
import tensorflow as tf

from bert_tf.addons.study.inspect_records import broken_rules, example_lines
from bert_tf.text.vocabulary import Vocabulary

LETTERS = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"])

SOUND = {
    "input_ids": [2, 7, 4, 3, 8, 3, 0, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
    "masked_lm_positions": [2, 4, 0],
    "masked_lm_ids": [6, 8, 0],
    "masked_lm_weights": [1.0, 1.0, 0.0],
    "next_sentence_labels": [1],
}

BREAKS = (
    ("input_mask", "input_mask", [1, 1, 1, 0, 1, 1, 1, 0]),
    ("padding", "input_ids", [2, 7, 4, 3, 8, 3, 0, 5]),
    ("vocabulary", "input_ids", [2, 9, 4, 3, 8, 3, 0, 0]),
    ("vocabulary", "masked_lm_ids", [6, 9, 0]),
    ("cls", "input_ids", [1, 7, 4, 3, 8, 3, 0, 0]),
    ("sep", "input_ids", [2, 7, 4, 3, 8, 8, 0, 0]),
    ("sep", "input_ids", [2, 7, 4, 5, 8, 3, 0, 0]),
    ("sep", "segment_ids", [0, 0, 0, 1, 1, 1, 0, 0]),
    ("segments", "segment_ids", [0, 0, 0, 0, 1, 0, 0, 0]),
    ("segments", "segment_ids", [0, 0, 1, 0, 1, 1, 0, 0]),
    ("segments", "segment_ids", [1, 1, 1, 1, 0, 0, 0, 0]),
    ("segments", "segment_ids", [0, 0, 0, 0, 1, 1, 1, 1]),
    ("segments", "segment_ids", [0, 0, 0, 0, 2, 2, 0, 0]),
    ("segments", "segment_ids", [-1, 0, 0, 0, 1, 1, 0, 0]),
    ("special", "masked_lm_ids", [3, 8, 0]),
    ("mask", "input_ids", [2, 4, 4, 3, 8, 3, 0, 0]),
    ("label", "next_sentence_labels", [2]),
    *(
        ("weights", "masked_lm_weights", weights)
        for weights in ([1, 0, 1], [0, 1, 1], [1, 0.5, 0], [1, np.nan, 0], [1, -1, 0])
    ),
    ("weights", "masked_lm_positions", [2, 4, 5]),
    ("weights", "masked_lm_ids", [6, 8, 5]),
    *(
        ("positions", "masked_lm_positions", positions)
        for positions in ([2, 2, 0], [4, 2, 0], [2, 6, 0], [-1, 4, 0], [2, 2**40, 0])
    ),
)

# SOUND and another one in a row.
SOUND_ROW = {
    "input_ids": [2, 7, 4, 3, 8, 3, 2, 5, 4, 3, 0, 0],
    "input_mask": [1] * 10 + [0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0],
    "sequence_ids": [1] * 6 + [2] * 4 + [0, 0],
    "cls_positions": [0, 6, 0],
    "next_sentence_labels": [1, 0, 0],
    "next_sentence_weights": [1.0, 1.0, 0.0],
    "masked_lm_positions": [2, 4, 8, 0],
    "masked_lm_ids": [6, 8, 6, 0],
    "masked_lm_weights": [1.0, 1.0, 1.0, 0.0],
}

BREAKS_OF_ROWS = {
    "rows": [
        {"sequence_ids": [1] * 6 + [3] * 4 + [0, 0]},
        {"sequence_ids": [1] * 6 + [2] * 4 + [0, 2]},
        {"sequence_ids": [2] * 6 + [1] * 4 + [0, 0]},
        {"cls_positions": [0, 5, 0]},
        {"cls_positions": [0, 6, 6]},
        {"next_sentence_weights": [1.0, 0.0, 0.0]},
        {"next_sentence_labels": [1, 0, 1]},
    ],
    "cls": [{"input_ids": [2, 7, 4, 3, 8, 3, 5, 5, 4, 3, 0, 0]}],
    "sep": [
        {"input_ids": [2, 7, 4, 3, 8, 8, 2, 5, 4, 3, 0, 0]},
        {"input_ids": [2, 7, 4, 8, 8, 3, 2, 5, 4, 3, 0, 0]},
    ],
    "segments": [{"segment_ids": [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]}],
    "padding": [{"input_ids": [2, 7, 4, 3, 8, 3, 2, 5, 4, 3, 0, 7]}],
    "positions": [{"masked_lm_positions": [2, 8, 4, 0]}],
    "mask": [{"input_ids": [2, 4, 4, 3, 8, 3, 2, 5, 4, 3, 0, 0]}],
}


def arrays(*records):
    return {name: np.array([record[name] for record in records]) for name in records[0]}


def rules_of(record, vocabulary=LETTERS, sound=SOUND):
    found = broken_rules(arrays(sound, {**sound, **record}), vocabulary)
    for rule, broken in found.items():
        assert not broken[0], rule  # the sound record beside it
    return {rule for rule, broken in found.items() if broken[1]}


class RulesTest(tf.test.TestCase):
    def test_packed_rows(self):
        self.assertEqual(rules_of({}, sound=SOUND_ROW), set())
        for rule, breaks in BREAKS_OF_ROWS.items():
            for broken in breaks:
                self.assertIn(rule, rules_of(broken, sound=SOUND_ROW), broken)

    def test_a_sound_record_keeps_all(self):
        self.assertEqual(rules_of({}), set())
        full = {
            "input_ids": [2, 5, 3, 6, 6, 4, 6, 3],
            "input_mask": [1] * 8,
            "segment_ids": [0, 0, 0, 1, 1, 1, 1, 1],
            "masked_lm_positions": [1, 5, 6],
            "masked_lm_ids": [7, 7, 6],
            "masked_lm_weights": [1.0, 1.0, 1.0],
        }
        self.assertEqual(rules_of(full), set())
        one_segment = {
            "input_ids": [2, 7, 4, 6, 8, 3, 0, 0],
            "segment_ids": [0] * 8,
            "next_sentence_labels": [0],
        }
        self.assertEqual(rules_of(one_segment), set())

    def test_each_break_is_found_by_its_rule(self):
        for rule, name, values in BREAKS:
            self.assertIn(rule, rules_of({name: values}), values)

    def test_without_a_vocabulary(self):
        self.assertEqual(rules_of({"input_ids": [1, 9] * 4}, None), {"padding"})
        negative = {"input_ids": [2, -7, 4, 3, 8, 3, 0, 0]}
        self.assertEqual(rules_of(negative, None), {"vocabulary"})


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
TOKENS += ["on", "un", "##happi", "##ness", "river"]
VOCABULARY = Vocabulary(TOKENS)
IDS = VOCABULARY.ids

# Seen: the cats [MASK] on / unhappiness cat, with sat, on and river to be predicted.
RECORD = {
    "input_ids": "[CLS] the cat ##s [MASK] on [SEP] un ##happi ##ness cat [SEP]",
    "second": 7,
    "predictions": {4: "sat", 5: "on", 10: "river"},
    "label": 1,
}


def columns(input_ids, second, predictions, label, length=14, slots=4):
    ids = [IDS[token] for token in input_ids.split()]
    padding = [0] * (length - len(ids))
    unused = [0] * (slots - len(predictions))
    return {
        name: np.array([values])
        for name, values in {
            "input_ids": ids + padding,
            "input_mask": [1] * len(ids) + padding,
            "segment_ids": [0] * second + [1] * (len(ids) - second) + padding,
            "masked_lm_positions": list(predictions) + unused,
            "masked_lm_ids": [IDS[token] for token in predictions.values()] + unused,
            "masked_lm_weights": [1.0] * len(predictions) + unused,
            "next_sentence_labels": [label],
        }.items()
    }


def lines_of(values, vocabulary=VOCABULARY, pairs="nsp", width=80):
    record = {name: array[0] for name, array in values.items()}
    return example_lines("record 3", record, vocabulary, pairs, width)


class RenderTest(tf.test.TestCase):
    def test_pieces_round_a_prediction_stay_pieces(self):
        for predictions, expected in (
            ({7: "un"}, "  B [un=] ##happi ##ness cat [SEP]"),
            ({8: "##s"}, "  B un [##happi→##s] ##ness cat [SEP]"),
            ({9: "##ness"}, "  B unhappi [##ness=] cat [SEP]"),
        ):
            values = columns(**{**RECORD, "predictions": predictions})
            self.assertEqual(lines_of(values)[2], expected)

    def test_without_a_vocabulary(self):
        self.assertEqual(
            lines_of(columns(**RECORD), None)[1:3],
            ["  A 2 5 6 7 [4→8] [9=] 3", "  B 10 11 12 [6→13] 3"],
        )

    def test_ids_outside_the_vocabulary(self):
        values = columns(**RECORD)
        values["input_ids"][0, [1, 4]] = 12345, -1
        values["masked_lm_ids"][0, 0] = 16
        self.assertEqual(
            lines_of(values)[1],
            "  A [CLS] <id 12345?> cats [<id -1?>→<id 16?>] [on=] [SEP]",
        )

    def test_what_the_label_means(self):
        for pairs, label, words in (
            ("nsp", 0, "B follows A"),
            ("nsp", 1, "B is random"),
            ("sop", 0, "A and B are in order"),
            ("sop", 1, "A and B are swapped"),
            ("none", 0, "no pair"),
            ("none", 1, "next sentence label 1"),
            ("nsp", 7, "next sentence label 7"),
        ):
            first = lines_of(columns(**{**RECORD, "label": label}), pairs=pairs)[0]
            self.assertEndsWith(first, "3 predictions; " + words)

    def test_broken_records_are_shown(self):
        values = columns(**RECORD)
        values["input_mask"][:] = 0
        values["masked_lm_positions"][0, :2] = 99, -3
        self.assertEqual(lines_of(values)[2], "  B unhappiness [cat→river] [SEP]")
        for array in values.values():
            array[:] = 0
        self.assertEqual(lines_of(values)[0], "record 3: 0 of 14 tokens; B follows A")

    def test_wraps_to_the_width(self):
        self.assertEqual(
            lines_of(columns(**RECORD), width=20)[1:],
            [
                "  A [CLS] the cats",
                "    [MASK→sat] [on=]",
                "    [SEP]",
                "  B unhappiness",
                "    [cat→river]",
                "    [SEP]",
            ],
        )
