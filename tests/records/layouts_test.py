"""Layouts told by the features; records that do not fit are left out, not fatal."""

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records.layouts import (
    CLASSIFICATION,
    PRETRAINING,
    UNMASKED,
    RecordLayout,
    find_layout,
)
from bert_tf.records.schema import (
    classifier_schema,
    packed_schema,
    pretraining_schema,
    unmasked_packed_schema,
    unmasked_schema,
)


def record_of(schema, **values):
    zeros = {feature.name: [0] * feature.length for feature in schema.features}
    return schema.serialize({**zeros, **values})


def example(**features):
    """A record with features of any type: bytes, int or float lists."""
    result = tf.train.Example()
    for name, values in features.items():
        feature = result.features.feature[name]
        if values and isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif values and isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return result.SerializeToString()


class FindLayoutTest(tf.test.TestCase):
    def test_each_kind(self):
        for schema, layout in (
            (
                pretraining_schema(8, 3),
                RecordLayout(
                    kind=PRETRAINING, max_seq_length=8, max_predictions_per_seq=3
                ),
            ),
            (unmasked_schema(8), RecordLayout(kind=UNMASKED, max_seq_length=8)),
            (
                packed_schema(16, 5, 3),
                RecordLayout(
                    kind=PRETRAINING,
                    max_seq_length=16,
                    max_predictions_per_seq=5,
                    max_sequences_per_row=3,
                ),
            ),
            (
                unmasked_packed_schema(16, 3),
                RecordLayout(kind=UNMASKED, max_seq_length=16, max_sequences_per_row=3),
            ),
            (classifier_schema(4), RecordLayout(kind=CLASSIFICATION, max_seq_length=4)),
            (
                classifier_schema(4, "float32"),
                RecordLayout(kind=CLASSIFICATION, max_seq_length=4, regression=True),
            ),
            (
                classifier_schema(4, "float32", num_labels=3),
                RecordLayout(
                    kind=CLASSIFICATION,
                    max_seq_length=4,
                    regression=True,
                    num_labels=3,
                ),
            ),
        ):
            found = find_layout(record_of(schema), "x")
            self.assertEqual(found, layout)
            self.assertEqual(found.schema.features, schema.features)

    def test_in_words(self):
        for schema, words in (
            (classifier_schema(4, "float32"), "regression records of 4 tokens"),
            (
                classifier_schema(4, "float32", num_labels=3),
                "classification records of 4 tokens and 3 labels",
            ),
        ):
            self.assertEqual(str(find_layout(record_of(schema), "x")), words)

    def test_others_are_one_line_with_what_was_found(self):
        for record, message in (
            (
                example(image=[b"png"], label=[1]),
                r"x: these are neither .* Found: image bytes\[1\], label int64\[1\]\.",
            ),
            (example(input_ids=[1, 2]), r"neither .* Found: input_ids int64\[2\]"),
            (example(next_sentence_labels=[0]), "neither"),
            (example(), "Found: no features"),
            (b"\xff\xff", "must be tf.train.Example"),
            (
                example(input_ids=[1], masked_lm_positions=[1]),
                "must have `input_mask`",
            ),
        ):
            with self.assertRaisesRegex(InputError, message) as context:
                find_layout(record, "x")
            self.assertNotIn("\n", str(context.exception))


class ParseTest(tf.test.TestCase):
    def test_large_ids_stay_what_they_are(self):
        schema = unmasked_schema(2)
        layout = find_layout(record_of(schema), "x")
        columns, rows = layout.parse([record_of(schema, input_ids=[1, 2**40 + 7])])
        self.assertEqual(rows, [0])
        self.assertAllEqual(columns["input_ids"], [[1, 2**40 + 7]])

    def test_records_that_do_not_fit_are_left_out(self):
        layout = RecordLayout(kind=UNMASKED, max_seq_length=2)
        other = record_of(unmasked_schema(3))
        for pattern in ("+-+", "-++", "++-", "---", "-", "+-+-+--+", "-" * 7 + "+"):
            records = [
                record_of(unmasked_schema(2), input_ids=[1, number])
                if mark == "+"
                else (other, b"\xff", example())[number % 3]
                for number, mark in enumerate(pattern)
            ]
            columns, rows = layout.parse(records)
            fitting = [number for number, mark in enumerate(pattern) if mark == "+"]
            self.assertEqual(rows, fitting)
            self.assertAllEqual(
                columns["input_ids"],
                np.array([[1, number] for number in fitting]).reshape(-1, 2),
            )


if __name__ == "__main__":
    tf.test.main()
