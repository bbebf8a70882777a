"""Examples in readable form: the lines as a person would write them."""

import re

import numpy as np
import tensorflow as tf

from bert_tf.records.examples import read_example
from bert_tf.records.rendering import display_width, render
from bert_tf.text.vocabulary import Vocabulary

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
TOKENS += ["on", "un", "##happi", "##ness", "river", "東", "京"]
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


def lines_of(values, vocabulary=VOCABULARY, pairs="nsp", width=80, color=False):
    example = read_example(values, 0, vocabulary, pairs)
    return render(example, "title", ["a remark"], width=width, color=color)


class RenderTest(tf.test.TestCase):
    def test_words_marks_segments_and_label(self):
        self.assertEqual(
            lines_of(columns(**RECORD)),
            [
                "title: 12 of 14 tokens (A 7, B 5); 3 predictions; B is random",
                "  A [CLS] the cats [MASK→sat] [on=] [SEP]",
                "  B unhappiness [cat→river] [SEP]",
                "  ! a remark",
            ],
        )

    def test_pieces_round_a_prediction_stay_pieces(self):
        for predictions, expected in (
            ({7: "un"}, "  B [un=] ##happi ##ness cat [SEP]"),
            ({8: "##s"}, "  B un [##happi→##s] ##ness cat [SEP]"),
            ({9: "##ness"}, "  B unhappi [##ness=] cat [SEP]"),
        ):
            values = columns(**{**RECORD, "predictions": predictions})
            self.assertEqual(lines_of(values)[2], expected)

    def test_a_piece_is_not_joined_over_a_border(self):
        values = columns("[CLS] the [SEP] ##s ##ness [SEP]", 3, {}, 0)
        self.assertEqual(
            lines_of(values)[1:3], ["  A [CLS] the [SEP]", "  B ##s ##ness [SEP]"]
        )
        values = columns("[CLS] the ##s [SEP]", 2, {}, 0)
        self.assertEqual(lines_of(values)[1:3], ["  A [CLS] the", "  B ##s [SEP]"])

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

    def test_classifiers_records(self):
        values = {
            name: values
            for name, values in columns(**RECORD).items()
            if name in ("input_ids", "input_mask", "segment_ids")
        }
        for label, words in (([2], "label 2"), ([2.5], "label 2.5")):
            values["label_ids"] = np.array([label])
            self.assertEqual(
                lines_of(values)[0], f"title: 12 of 14 tokens (A 7, B 5); {words}"
            )

    def test_broken_records_are_shown(self):
        values = columns(**RECORD)
        values["input_mask"][:] = 0
        values["masked_lm_positions"][0, :2] = 99, -3
        self.assertEqual(lines_of(values)[2], "  B unhappiness [cat→river] [SEP]")
        for array in values.values():
            array[:] = 0
        self.assertEqual(lines_of(values)[0], "title: 0 of 14 tokens; B follows A")

    def test_wraps_to_the_width(self):
        self.assertEqual(
            lines_of(columns(**RECORD), width=20)[1:-1],
            [
                "  A [CLS] the cats",
                "    [MASK→sat] [on=]",
                "    [SEP]",
                "  B unhappiness",
                "    [cat→river]",
                "    [SEP]",
            ],
        )
        values = columns("[CLS] 東 京 東 京 [SEP]", 6, {}, 0)
        self.assertEqual(
            lines_of(values, width=15)[1:-1], ["  A [CLS] 東 京", "    東 京 [SEP]"]
        )

    def test_colours_are_an_addition(self):
        for width in (20, 80):
            plain = lines_of(columns(**RECORD), width=width)
            colored = lines_of(columns(**RECORD), width=width, color=True)
            self.assertNotEqual(colored, plain)
            self.assertEqual(
                [re.sub(r"\x1b\[\d+m", "", line) for line in colored], plain
            )
        text = "\n".join(colored)
        self.assertIn("\x1b[32m[MASK→sat]\x1b[0m", text)
        self.assertIn("\x1b[31m[cat→river]\x1b[0m", text)
        self.assertIn("\x1b[36m[on=]\x1b[0m", text)

    def test_width_of_characters(self):
        self.assertEqual(display_width("ab"), 2)
        self.assertEqual(display_width("東京"), 4)
        self.assertEqual(display_width("e\u0301"), 1)


class ExampleTest(tf.test.TestCase):
    def test_for_programs(self):
        values = read_example(columns(**RECORD), 0, VOCABULARY).to_values()
        self.assertEqual(
            list(values["predictions"]),
            [
                {"position": 4, "seen": "[MASK]", "wanted": "sat", "kind": "masked"},
                {"position": 5, "seen": "on", "wanted": "on", "kind": "kept"},
                {"position": 10, "seen": "cat", "wanted": "river", "kind": "random"},
            ],
        )
        self.assertEqual(list(values["tokens"]), RECORD["input_ids"].split())
        self.assertEqual(values["num_tokens_a"], 7)


if __name__ == "__main__":
    tf.test.main()
