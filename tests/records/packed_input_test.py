"""Packed records, and those for a left-to-right model, as a run reads them."""

import numpy as np
import tensorflow as tf

from bert_tf.base.config import BertConfig
from bert_tf.base.errors import InputError
from bert_tf.instances.settings import InstanceSettings
from bert_tf.records.dynamic_masking import MaskingOptions
from bert_tf.records.pretraining_input import PretrainingRecords
from bert_tf.records.record_sets import create_records, plan_record_set
from bert_tf.text.sources import make_chunks
from bert_tf.text.vocabulary import Vocabulary
from tests.script_case import FolderCase
from tests.tfrecords.sharded_pretraining_data_test import TOKENS, as_text, corpus

L, N = 40, 13


class PackedInputTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.write("text", as_text(corpus(num_documents=8)))

    def write_set(self, name, **settings):
        settings = {
            "max_seq_length": 12,
            "max_predictions_per_seq": 3,
            "masked_lm_prob": 0.2,
            "dupe_factor": 1,
            **settings,
        }
        record_set = plan_record_set(
            make_chunks([self.path("text")]),
            [self.path(name)],
            Vocabulary(TOKENS),
            InstanceSettings(**settings),
        )
        create_records(record_set, overwrite=True)
        return self.path(name)

    def rows(self, name="rows", **settings):
        return self.write_set(name, packed_length=L, **settings)

    def test_another_share_has_the_slots_that_it_needs(self):
        half = MaskingOptions(masked_lm_prob=0.5)
        records = PretrainingRecords(self.rows(masking="dynamic"), masking=half)
        tokens = chosen = 0
        for batch in records.evaluation_dataset(2, repeat=False):
            ids, mask = batch["input_ids"].numpy(), batch["input_mask"].numpy()
            tokens += ((ids > 3) & (mask > 0)).sum()
            chosen += batch["masked_lm_weights"].numpy().sum()
        self.assertBetween(chosen / tokens, 0.5, 0.75)  # of all, with [CLS] and [SEP]

    def test_batches_of_masked_rows(self):
        records = PretrainingRecords(self.rows())
        self.assertTrue(records.is_packed)
        self.assertFalse(records.is_dynamic)
        self.assertEqual(
            (records.max_seq_length, records.max_predictions_per_seq), (L, 10)
        )
        batch = next(iter(records.training_dataset(2, seed=1)))
        self.assertEqual(
            {name: value.shape.as_list() for name, value in batch.items()},
            {
                "input_ids": [2, L],
                "input_mask": [2, L],
                "segment_ids": [2, L],
                "sequence_ids": [2, L],
                "cls_positions": [2, N],
                "masked_lm_positions": [2, 10],
                "masked_lm_ids": [2, 10],
                "masked_lm_weights": [2, 10],
                "next_sentence_labels": [2, N],
                "next_sentence_weights": [2, N],
            },
        )
        apart = PretrainingRecords(self.write_set("static"))
        apart.as_packed = True
        row_of_one = next(iter(apart.evaluation_dataset(2)))
        self.assertEqual(row_of_one.keys(), batch.keys())
        self.assertAllEqual(row_of_one["sequence_ids"], row_of_one["input_mask"])
        # Positions restart: a model of 12 is enough for rows of 40.
        records.check_model(BertConfig(vocab_size=30, max_position_embeddings=12))
        with self.assertRaisesRegex(InputError, "=12` must not exceed"):
            records.check_model(BertConfig(vocab_size=30, max_position_embeddings=11))
        with self.assertRaisesRegex(InputError, "1 segment .*pairs of texts need 2"):
            records.check_model(BertConfig(vocab_size=30, type_vocab_size=1))

    def test_rows_are_masked_as_they_are_read(self):
        records = PretrainingRecords(self.rows(masking="dynamic"))
        self.assertTrue(records.is_dynamic)
        batches = list(records.training_dataset(3, seed=1).take(8))
        for batch in batches:
            self.assertEqual(batch["masked_lm_positions"].shape, (3, 10))
            for row, weights in zip(
                batch["sequence_ids"].numpy(),
                batch["masked_lm_weights"].numpy(),
                strict=True,
            ):
                lengths = np.bincount(row)[1:]
                wanted = np.rint(lengths * 0.2).clip(1, 3).sum()
                self.assertEqual(weights.sum(), wanted)
        rest = list(records.training_dataset(3, seed=1, start=9).take(5))
        for ours, theirs in zip(rest, batches[3:], strict=True):
            for name, values in ours.items():
                self.assertAllEqual(values, theirs[name])

    def test_what_cannot_be_used_together(self):
        rows = self.rows(masking="dynamic")
        other = self.rows("other", masking="dynamic", max_seq_length=16)
        alike = self.write_set(
            "alike", masking="dynamic", max_seq_length=L, max_predictions_per_seq=10
        )
        with self.assertRaisesRegex(InputError, "packed=True.* and .*packed=False"):
            PretrainingRecords(f"{rows},{alike}")
        with self.assertRaisesRegex(
            InputError, "max_sequences_per_row=13, .* 10: they cannot"
        ):
            PretrainingRecords(f"{rows},{other}", max_predictions_per_seq=10)

    def test_the_next_token_at_every_position(self):
        for path, length in (
            (self.write_set("dynamic", masking="dynamic"), 12),
            (self.rows(masking="dynamic"), L),
        ):
            records = PretrainingRecords(path, left_to_right=True)
            self.assertEqual(records.max_predictions_per_seq, length - 1)
            batch = next(iter(records.training_dataset(2, seed=1)))
            ids, weights = batch["input_ids"], batch["masked_lm_weights"]
            self.assertEqual(weights.shape, (2, length - 1))
            is_asked = weights.numpy() > 0
            self.assertAllEqual(
                batch["masked_lm_ids"].numpy()[is_asked], ids[:, 1:].numpy()[is_asked]
            )
            num_tokens = tf.reduce_sum(batch["input_mask"]).numpy()
            starts = batch.get("next_sentence_weights", tf.ones([2, 1]))
            self.assertEqual(is_asked.sum(), num_tokens - tf.reduce_sum(starts).numpy())
            self.assertNotIn(4, ids.numpy().ravel().tolist())  # [MASK]

    def test_what_a_left_to_right_model_has_no_use_for(self):
        with self.assertRaisesRegex(InputError, "static: the records are masked, but"):
            PretrainingRecords(self.write_set("static"), left_to_right=True)
        dynamic = self.write_set("dynamic", masking="dynamic")
        for options, message in (
            ({"max_predictions_per_seq": 3}, "`max_predictions_per_seq=3` is for mask"),
            (
                {"masking": MaskingOptions(masking_unit="span")},
                "`masking_unit=span` is for masking",
            ),
        ):
            with self.assertRaisesRegex(InputError, message):
                PretrainingRecords(dynamic, left_to_right=True, **options)
