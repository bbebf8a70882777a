import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.records.spec import CLASSIFICATION, PRETRAINING, UNMASKED, RecordSpec


def pretraining_values():
    return {
        "input_ids": [2, 7, 30521, 3, 9, 3, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
        "masked_lm_positions": [2, 4, 0],
        "masked_lm_ids": [11, 9, 0],
        "masked_lm_weights": [1.0, 1.0, 0.0],
        "next_sentence_labels": [1],
    }


class RecordSpecTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.spec = RecordSpec.pretraining(8, 3)

    def test_parses_what_it_writes(self):
        serialized = self.spec.serialize(pretraining_values())
        one = self.spec.parse(tf.constant(serialized))
        two = self.spec.parse(tf.constant([serialized, serialized]))
        self.assertEqual(one.keys(), pretraining_values().keys())
        for name, value in pretraining_values().items():
            dtype = tf.float32 if name == "masked_lm_weights" else tf.int32
            self.assertEqual(one[name].dtype, dtype)
            self.assertAllEqual(one[name], value)
            self.assertAllEqual(two[name], [value, value])

    def test_several_sequences_stand_one_after_another(self):
        choices = RecordSpec.choices(3, 2)
        values = {
            "input_ids": [[2, 7, 3], [2, 9, 0]],
            "input_mask": [[1, 1, 1], [1, 1, 0]],
            "segment_ids": [[0, 0, 1], [0, 1, 0]],
            "label_ids": [1],
            "is_real_example": [1],
        }
        serialized = choices.serialize(values)
        example = tf.train.Example.FromString(serialized)
        self.assertEqual(
            list(example.features.feature["input_ids"].int64_list.value),
            [2, 7, 3, 2, 9, 0],
        )
        self.assertAllEqual(choices.parse(serialized)["input_ids"], values["input_ids"])
        parsed = choices.parse(tf.constant([serialized, serialized]))
        self.assertEqual(parsed["input_ids"].shape, (2, 2, 3))
        self.assertAllEqual(parsed["segment_ids"][1], values["segment_ids"])
        choices.check(serialized, "r")
        with self.assertRaisesRegex(InputError, "must have 9 values .*Received: 6"):
            RecordSpec.choices(3, 3).check(serialized, "r")
        with self.assertRaisesRegex(ValueError, "must be int64 of .2, 3."):
            choices.serialize({**values, "input_ids": [2, 7, 3, 2, 9, 0]})

    def test_a_callers_mistakes(self):
        for changes, message in (
            ({"segment_ids": [0] * 7}, r"`segment_ids` must be int64 of .* of \(7,\)"),
            ({"next_sentence_labels": [0.5]}, "`next_sentence_labels` must be int64"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self.spec.serialize({**pretraining_values(), **changes})


class CheckTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.record = RecordSpec.pretraining(8, 3).serialize(pretraining_values())

    def test_names_the_feature_both_lengths_and_the_flag(self):
        with self.assertRaisesRegex(
            InputError,
            r"a.tfrecord: `input_ids` must have 16 .*`max_seq_length`.*Received: 8",
        ):
            RecordSpec.pretraining(16, 3).check(self.record, "a.tfrecord")
        with self.assertRaisesRegex(
            InputError, r"`masked_lm_positions` must have 4 .*Received: 3"
        ):
            RecordSpec.pretraining(8, 4).check(self.record, "a.tfrecord")


def record_of(spec, **values):
    zeros = {feature.name: [0] * feature.length for feature in spec.features}
    return spec.serialize({**zeros, **values})


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


class OfRecordTest(tf.test.TestCase):
    def test_each_kind(self):
        for spec, kind, lengths in (
            (RecordSpec.pretraining(8, 3), PRETRAINING, (8, 3, 0)),
            (RecordSpec.pretraining(8), UNMASKED, (8, 0, 0)),
            (RecordSpec.pretraining(16, 5, 3), PRETRAINING, (16, 5, 3)),
            (RecordSpec.pretraining(16, max_sequences_per_row=3), UNMASKED, (16, 0, 3)),
            (RecordSpec.classification(4), CLASSIFICATION, (4, 0, 0)),
            (RecordSpec.classification(4, "float32"), CLASSIFICATION, (4, 0, 0)),
            (RecordSpec.classification(4, "float32", 3), CLASSIFICATION, (4, 0, 0)),
        ):
            found = RecordSpec.of_record(record_of(spec), "x")
            self.assertEqual(found, spec)
            self.assertEqual(found.kind, kind)
            self.assertEqual(
                (
                    found.max_seq_length,
                    found.max_predictions_per_seq,
                    found.max_sequences_per_row,
                ),
                lengths,
            )

    def test_records_of_the_model_garden(self):
        """Its second names, and no labels where it trains the masked LM alone."""
        features = pretraining_values()
        features["input_word_ids"] = features.pop("input_ids")
        features["input_type_ids"] = features.pop("segment_ids")
        for missing in ({"next_sentence_labels"}, set()):
            kept = {n: v for n, v in features.items() if n not in missing}
            spec = RecordSpec.of_record(example(**kept), "x")
            self.assertEqual(spec.lacks_labels, bool(missing))
            self.assertEqual(spec.max_seq_length, 8)
            self.assertIn("input_word_ids for input_ids", str(spec))
            batch = spec.parse(tf.constant([example(**kept)] * 2))
            self.assertAllEqual(batch["input_ids"], [[2, 7, 30521, 3, 9, 3, 0, 0]] * 2)
            self.assertAllEqual(batch["segment_ids"], [[0, 0, 0, 0, 1, 1, 0, 0]] * 2)
            label = 0 if missing else 1
            self.assertAllEqual(batch["next_sentence_labels"], [[label]] * 2)
        kept = {n: v for n, v in features.items() if n != "masked_lm_weights"}
        with self.assertRaisesRegex(InputError, "must have `masked_lm_weights`"):
            RecordSpec.of_record(example(**kept), "x")

    def test_in_words(self):
        for spec, words in (
            (RecordSpec.classification(4, "float32"), "regression records of 4 tokens"),
            (
                RecordSpec.classification(4, "float32", num_labels=3),
                "classification records of 4 tokens and 3 labels",
            ),
        ):
            self.assertEqual(str(RecordSpec.of_record(record_of(spec), "x")), words)

    def test_others_are_one_line_with_what_was_found(self):
        for record, message in (
            (
                example(image=[b"png"], label=[1]),
                r"these are neither .* Received: image bytes\[1\], label int64\[1\]\.",
            ),
            (example(input_ids=[1, 2]), r"neither .* Received: input_ids int64\[2\]"),
            (example(next_sentence_labels=[0]), "neither"),
            (example(), "Received: no features"),
            (b"\xff\xff", "must be tf.train.Example"),
            (example(input_ids=[1], masked_lm_positions=[1]), "must have `input_mask`"),
        ):
            with self.assertRaisesRegex(InputError, message) as context:
                RecordSpec.of_record(record, "x")
            self.assertNotIn("\n", str(context.exception))


class ParseTest(tf.test.TestCase):
    def test_large_ids_stay_what_they_are(self):
        spec = RecordSpec.pretraining(2)
        columns, rows = spec.read([record_of(spec, input_ids=[1, 2**40 + 7])])
        self.assertEqual(rows, [0])
        self.assertAllEqual(columns["input_ids"], [[1, 2**40 + 7]])

    def test_records_that_do_not_fit_are_left_out(self):
        spec = RecordSpec.pretraining(2)
        other = record_of(RecordSpec.pretraining(3))
        for pattern in ("+-+", "-++", "++-", "---", "-", "+-+-+--+", "-" * 7 + "+"):
            records = [
                record_of(RecordSpec.pretraining(2), input_ids=[1, number])
                if mark == "+"
                else (other, b"\xff", example())[number % 3]
                for number, mark in enumerate(pattern)
            ]
            columns, rows = spec.read(records)
            fitting = [number for number, mark in enumerate(pattern) if mark == "+"]
            self.assertEqual(rows, fitting)
            self.assertAllEqual(
                columns["input_ids"],
                np.array([[1, number] for number in fitting]).reshape(-1, 2),
            )
