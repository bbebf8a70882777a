import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.fused import without_fusion
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.records.pretraining_input import as_packed
from tests.modeling.examples import (
    outputs_of,
    random_records,
    randomize,
    relative_error,
    small_config,
)

# The sequences of each row, by their numbers in the unpacked batch.
ROWS = [[2, 0], [1], [3, 4, 5]]
ROW_LENGTH, ROW_PREDICTIONS, ROW_SEQUENCES = 40, 11, 4

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def unpacked_records(config):
    """Six sequences of 14 places and 5 slots, all predictions within the tokens."""
    records = random_records(config, batch=6)
    lengths = records["input_mask"].sum(axis=1, keepdims=True)
    records["masked_lm_positions"] %= lengths
    records["masked_lm_positions"].sort(axis=1)
    return records


def pack(records, rows=ROWS):
    """The rows by hand, one token after another."""
    packed = {
        name: np.zeros((len(rows), length), dtype)
        for name, length, dtype in (
            ("input_ids", ROW_LENGTH, "int32"),
            ("input_mask", ROW_LENGTH, "int32"),
            ("segment_ids", ROW_LENGTH, "int32"),
            ("sequence_ids", ROW_LENGTH, "int32"),
            ("masked_lm_positions", ROW_PREDICTIONS, "int32"),
            ("masked_lm_ids", ROW_PREDICTIONS, "int32"),
            ("masked_lm_weights", ROW_PREDICTIONS, "float32"),
            ("cls_positions", ROW_SEQUENCES, "int32"),
            ("next_sentence_labels", ROW_SEQUENCES, "int32"),
            ("next_sentence_weights", ROW_SEQUENCES, "float32"),
        )
    }
    for row, sequences in enumerate(rows):
        place = slot = 0
        for number, sequence in enumerate(sequences):
            packed["cls_positions"][row, number] = place
            packed["next_sentence_weights"][row, number] = 1
            label = records["next_sentence_labels"][sequence, 0]
            packed["next_sentence_labels"][row, number] = label
            for index, weight in enumerate(records["masked_lm_weights"][sequence]):
                if weight:
                    position = records["masked_lm_positions"][sequence, index]
                    packed["masked_lm_positions"][row, slot] = place + position
                    label = records["masked_lm_ids"][sequence, index]
                    packed["masked_lm_ids"][row, slot] = label
                    packed["masked_lm_weights"][row, slot] = 1
                    slot += 1
            for index in range(records["input_mask"][sequence].sum()):
                for name in ("input_ids", "segment_ids"):
                    packed[name][row, place] = records[name][sequence, index]
                packed["input_mask"][row, place] = 1
                packed["sequence_ids"][row, place] = number + 1
                place += 1
    return packed


def losses_and_gradients(model, records):
    # Compiling the pieces takes longer than all else.
    with without_fusion(), tf.GradientTape() as tape:
        outputs = model(records, training=True)
        means = model.objective.means(records, outputs)
        loss = tf.add_n([means[name].value() for name in model.objective.losses])
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    return means, [tf.convert_to_tensor(gradient) for gradient in gradients]


class PackedTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((False, None), (True, None), (False, 14))
    def test_losses_and_gradients_equal_those_apart(self, left_to_right, longest):
        config = small_config(left_to_right=left_to_right, **NO_DROPOUT)
        apart = BertPretrainer(config)
        together = BertPretrainer(config, packed=True, longest_sequence=longest)
        self.assertEqual(together.encoder.bert_config, config)
        randomize(apart)
        together.set_weights(apart.get_weights())
        records = unpacked_records(config)
        packed = pack(records)
        expected, expected_gradients = losses_and_gradients(apart, records)
        actual, gradients = losses_and_gradients(together, packed)
        tensors = {name: tf.constant(values) for name, values in records.items()}
        rows_of_one, _ = losses_and_gradients(together, as_packed(tensors))
        self.assertEqual(float(expected["next_sentence_loss"].weight), 6.0)
        for name, mean in expected.items():
            for found in (actual[name], rows_of_one[name]):
                self.assertEqual(float(found.weight), float(mean.weight))
                self.assertAllClose(found.total, mean.total, rtol=1e-5, atol=0)
        self.assertAllEqual(
            together.objective.weights(packed), apart.objective.weights(records)
        )
        for gradient, wanted, variable in zip(
            gradients, expected_gradients, apart.trainable_variables, strict=True
        ):
            # A key's bias moves no probability: its gradient is rounding alone.
            if variable.path.endswith("key/bias"):
                continue
            self.assertLess(relative_error(gradient, wanted), 1e-5, variable.path)

    def test_no_token_sees_another_sequence(self):
        config = small_config()
        model = BertEncoder(config, packed=True)
        randomize(model)
        records = unpacked_records(config)
        before = outputs_of(model, pack(records))
        records["input_ids"][4] = (records["input_ids"][4] + 1) % config.vocab_size
        records["segment_ids"][4] = 1 - records["segment_ids"][4].clip(0, 1)
        packed = pack(records)
        after = outputs_of(model, packed)
        numbers = packed["sequence_ids"]
        is_changed = (numbers == 2) & (np.arange(3) == 2)[:, None]
        is_other = (numbers > 0) & ~is_changed
        before_states, after_states = (
            outputs["sequence_output"] for outputs in (before, after)
        )
        self.assertAllEqual(before_states[is_other], after_states[is_other])
        self.assertNotAllClose(before_states[is_changed], after_states[is_changed])
        differs = (before["pooled_output"] != after["pooled_output"]).any(axis=-1)
        self.assertAllEqual(np.argwhere(differs), [[2, 1]])

    def test_positions_of_their_own_are_refused(self):
        with self.assertRaisesRegex(ValueError, "`use_position_ids` must be False"):
            BertEncoder(small_config(), packed=True, use_position_ids=True)

    def test_a_longest_sequence_is_of_packed_rows_with_full_attention(self):
        local = small_config(attention_window=3)
        for config, packed in ((small_config(), False), (local, True)):
            with self.assertRaisesRegex(ValueError, "`longest_sequence` is for"):
                BertEncoder(config, packed=packed, longest_sequence=14)


class DirectionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("left_to_right", np.tril), ("right_to_left", np.triu))
    def test_is_the_same_as_a_mask_given(self, direction, triangle):
        config = small_config()
        records = random_records(config)
        mask = triangle(np.ones((14, 14), np.int32))
        records["attention_mask"] = np.broadcast_to(mask, (4, 14, 14))
        masked = BertEncoder(config, use_attention_mask=True)
        randomize(masked)
        model = BertEncoder(small_config(**{direction: True}))
        model.set_weights(masked.get_weights())
        expected, found = outputs_of(masked, records), outputs_of(model, records)
        self.assertAllEqual(expected["sequence_output"], found["sequence_output"])
        if direction == "right_to_left":  # there [CLS] sees all of it
            self.assertAllEqual(expected["pooled_output"], found["pooled_output"])

    def test_the_classifier_reads_the_last_token(self):
        config = small_config(left_to_right=True)
        model = BertClassifier(config, num_labels=3)
        randomize(model)
        records = random_records(config)
        lengths = records["input_mask"].sum(axis=1)
        before = outputs_of(model, records)["logits"]
        for place, changes in ((lengths - 1, True), (lengths % 14, False)):
            changed = {name: values.copy() for name, values in records.items()}
            ids = changed["input_ids"]
            rows = np.arange(1, 4)  # the first one has no padding
            ids[rows, place[rows]] = (ids[rows, place[rows]] + 1) % 53
            after = outputs_of(model, changed)["logits"]
            differs = (before != after).any(axis=-1)
            self.assertAllEqual(differs, [False, changes, changes, changes])
