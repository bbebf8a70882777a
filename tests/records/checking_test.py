"""Rules of records: a sound record keeps all, each break is found by its rule."""

import numpy as np
import tensorflow as tf

from bert_tf.records.checking import RULES, RecordChecks
from bert_tf.text.vocabulary import Vocabulary

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
VOCABULARY = Vocabulary(TOKENS)

SOUND = {
    "input_ids": [2, 7, 4, 3, 8, 3, 0, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
    "masked_lm_positions": [2, 4, 0],
    "masked_lm_ids": [6, 8, 0],
    "masked_lm_weights": [1.0, 1.0, 0.0],
    "next_sentence_labels": [1],
}

BREAKS = {
    "input_mask": {"input_mask": [1, 1, 1, 0, 1, 1, 1, 0]},
    "padding": {"input_ids": [2, 7, 4, 3, 8, 3, 0, 5]},
    "vocabulary": {"input_ids": [2, 9, 4, 3, 8, 3, 0, 0]},
    "cls": {"input_ids": [1, 7, 4, 3, 8, 3, 0, 0]},
    "special": {"masked_lm_ids": [3, 8, 0]},
    "mask": {"input_ids": [2, 4, 4, 3, 8, 3, 0, 0]},
    "label": {"next_sentence_labels": [2]},
    "predicted_ids": {"masked_lm_ids": [6, 9, 0]},
    "unused_slots": {"masked_lm_ids": [6, 8, 5]},
}

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


def columns(*records):
    return {name: np.array([record[name] for record in records]) for name in records[0]}


def broken_rules(record, vocabulary=VOCABULARY, sound=SOUND):
    found = RecordChecks(vocabulary).find(columns(sound, {**sound, **record}))
    for rule, broken in found.items():
        assert not broken[0], rule  # the sound record beside it
    return {rule for rule, broken in found.items() if broken[1]}


class RulesTest(tf.test.TestCase):
    def test_packed_rows(self):
        self.assertEqual(broken_rules({}, sound=SOUND_ROW), set())
        for rule, breaks in BREAKS_OF_ROWS.items():
            for broken in breaks:
                self.assertIn(rule, broken_rules(broken, sound=SOUND_ROW), broken)

    def test_a_sound_record_keeps_all(self):
        self.assertEqual(broken_rules({}), set())
        full = {
            "input_ids": [2, 5, 3, 6, 6, 4, 6, 3],
            "input_mask": [1] * 8,
            "segment_ids": [0, 0, 0, 1, 1, 1, 1, 1],
            "masked_lm_positions": [1, 5, 6],
            "masked_lm_ids": [7, 7, 6],
            "masked_lm_weights": [1.0, 1.0, 1.0],
        }
        self.assertEqual(broken_rules(full), set())
        one_segment = {
            "input_ids": [2, 7, 4, 6, 8, 3, 0, 0],
            "segment_ids": [0] * 8,
            "next_sentence_labels": [0],
        }
        self.assertEqual(broken_rules(one_segment), set())

    def test_each_break_is_found_by_its_rule(self):
        for rule, change in BREAKS.items():
            found = broken_rules(change)
            self.assertIn(rule, found)
            if rule != "input_mask":  # which lets the lengths be others, too
                self.assertEqual(found, {rule})

    def test_segments(self):
        for segment_ids in (
            [0, 0, 0, 0, 1, 0, 0, 0],
            [0, 0, 1, 0, 1, 1, 0, 0],
            [1, 1, 1, 1, 0, 0, 0, 0],
            [0, 0, 0, 0, 1, 1, 1, 1],
            [0, 0, 0, 0, 2, 2, 0, 0],
            [0, 0, 0, 0, 2, 0, 0, 0],
            [-1, 0, 0, 0, 1, 1, 0, 0],
        ):
            self.assertIn("segments", broken_rules({"segment_ids": segment_ids}))

    def test_ends_of_segments(self):
        for ids in ([2, 7, 4, 3, 8, 8, 0, 0], [2, 7, 4, 5, 8, 3, 0, 0]):
            self.assertEqual(broken_rules({"input_ids": ids}), {"sep"})
        moved = {"segment_ids": [0, 0, 0, 1, 1, 1, 0, 0]}
        self.assertEqual(broken_rules(moved), {"sep"})

    def test_weights_and_positions(self):
        for weights in ([1, 0, 1], [0, 1, 1], [1, 0.5, 0], [1, np.nan, 0], [1, -1, 0]):
            self.assertIn("weights", broken_rules({"masked_lm_weights": weights}))
        for positions in ([2, 2, 0], [4, 2, 0], [2, 6, 0], [-1, 4, 0], [2, 2**40, 0]):
            found = broken_rules({"masked_lm_positions": positions})
            self.assertIn("positions", found)
        unused = {"masked_lm_positions": [2, 4, 5]}
        self.assertEqual(broken_rules(unused), {"unused_slots"})

    def test_an_empty_record(self):
        empty = {"input_ids": [0] * 8, "input_mask": [0] * 8, "segment_ids": [0] * 8}
        self.assertContainsSubset({"cls", "sep", "positions"}, broken_rules(empty))

    def test_without_a_vocabulary(self):
        self.assertEqual(broken_rules({"input_ids": [1, 9] * 4}, None), {"padding"})
        negative = {"input_ids": [2, -7, 4, 3, 8, 3, 0, 0]}
        self.assertEqual(broken_rules(negative, None), {"vocabulary"})


class ReportTest(tf.test.TestCase):
    def test_counts_and_the_first_place(self):
        checks = RecordChecks(VOCABULARY)
        bad = {**SOUND, **BREAKS["cls"]}
        checks.add(columns(SOUND, SOUND), "x", [0, 1])
        self.assertEqual(checks.lines(), ["all 2 records keep the rules"])
        checks.add(columns(SOUND, bad, bad), "y", [10, 12, 13])
        checks.add(columns(bad, {**SOUND, **BREAKS["label"]}), "z", [0, 1])
        self.assertEqual(
            checks.lines(),
            [
                f"3 records: {RULES['cls']}; the first is record 12 of y",
                f"1 record: {RULES['label']}; the first is record 1 of z",
            ],
        )
        self.assertEqual(
            checks.to_values()["cls"], {"num_records": 3, "first": "record 12 of y"}
        )

    def test_says_what_was_not_checked(self):
        checks = RecordChecks(None)
        checks.add(columns(SOUND), "x", [0])
        self.assertIn("not checked without a vocabulary", checks.lines()[-1])

    def test_every_rule_has_a_text(self):
        found = RecordChecks(VOCABULARY).find(columns(SOUND))
        self.assertEqual(set(RULES) - set(found), {"layout", "rows"})


if __name__ == "__main__":
    tf.test.main()
