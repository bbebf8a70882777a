import os
import pathlib
import struct
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.modeling.fused import without_fusion
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.optimization.optimizers import create_optimizer
from bert_tf.records.dynamic_masking import MaskingOptions
from bert_tf.records.pipeline import read_records
from bert_tf.records.pretraining_input import PretrainingRecords, pretraining_dataset
from bert_tf.records.spec import RecordSpec
from bert_tf.records.writing import masked_checksum
from bert_tf.text.vocabulary import Vocabulary
from tests.records import unmasked
from tests.script_case import FolderCase
from tests.training import toy

CLS, SEP, MASK = 2, 3, 4


class PretrainingInputTestCase(FolderCase):
    def write(self, name="unmasked", **fields):
        return unmasked.write_set(self.path(name), **fields)


def batches(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def assert_same(test, ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        test.assertEqual(one.keys(), other.keys())
        for name, value in one.items():
            test.assertAllEqual(value, other[name])


class DamagedRecordsTest(PretrainingInputTestCase):
    def test_a_later_length_beyond_the_file(self):
        """TensorFlow's reader would end the process over it."""
        path = toy.write_records(self.path("x.tfrecord"))
        length = struct.pack("<Q", (1 << 62) + 5)
        with open(path, "ab") as file:
            file.write(length + masked_checksum(length) + b"1234")
        records = PretrainingRecords(path)
        for dataset in (
            lambda: records.training_dataset(4, seed=1),
            lambda: records.evaluation_dataset(4, repeat=False),
        ):
            with self.assertRaisesRegex(InputError, "breaks off in record 21"):
                dataset()


class OtherProgramsRecordsTest(PretrainingInputTestCase):
    def test_without_next_sentence_labels_there_are_no_pairs(self):
        path = toy.write_records(self.path("x.tfrecord"))
        self.assertTrue(PretrainingRecords(path).has_pairs)
        examples = [tf.train.Example.FromString(one) for one in read_records(path)]
        with tf.io.TFRecordWriter(path) as writer:
            for example in examples:
                del example.features.feature["next_sentence_labels"]
                writer.write(example.SerializeToString())
        with self.assertLogs("absl", "WARNING") as logs:
            records = PretrainingRecords(path)
        self.assertIn("no `next_sentence_labels`", logs.output[0])
        self.assertFalse(records.has_pairs)
        batch = next(iter(records.evaluation_dataset(4)))
        self.assertAllEqual(batch["next_sentence_labels"], [[0]] * 4)

    def test_hdf5_is_named(self):
        path = self.path("x.hdf5")
        pathlib.Path(path).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
        with self.assertRaisesRegex(
            InputError, "an HDF5 file.*create_pretraining_data"
        ):
            PretrainingRecords(path)


class DynamicRecordsTest(PretrainingInputTestCase):
    def training(self, records, batch_size=4, **options):
        return records.training_dataset(batch_size, seed=3, **options)

    def test_batches_are_those_of_masked_records(self):
        records = PretrainingRecords(self.write())
        self.assertTrue(records.is_dynamic)
        batch = next(iter(self.training(records)))
        self.assertEqual(
            {
                name: (value.shape.as_list(), value.dtype)
                for name, value in batch.items()
            },
            {
                "input_ids": ([4, 12], tf.int32),
                "input_mask": ([4, 12], tf.int32),
                "segment_ids": ([4, 12], tf.int32),
                "masked_lm_positions": ([4, 3], tf.int32),
                "masked_lm_ids": ([4, 3], tf.int32),
                "masked_lm_weights": ([4, 3], tf.float32),
                "next_sentence_labels": ([4, 1], tf.int32),
            },
        )
        # 0.2 of 8 to 12 tokens, rounded to even: two.
        self.assertAllEqual(batch["masked_lm_weights"].numpy().sum(1), [2.0] * 4)

    def test_a_stream_goes_on_with_the_masks_it_would_have_had(self):
        records = PretrainingRecords(self.write(count=10))
        whole = batches(self.training(records), 8)
        # Epochs of 10 records: batches of four run across their seams.
        for done in (1, 3, 5):
            rest = batches(self.training(records, start=4 * done), 8 - done)
            assert_same(self, rest, whole[done:])

    def test_evaluation_has_the_same_masks_every_time(self):
        path = self.write(count=10)
        first = batches(PretrainingRecords(path).evaluation_dataset(5, repeat=True), 4)
        assert_same(self, first[:2], first[2:])
        again = PretrainingRecords(path).evaluation_dataset(5, repeat=False)
        assert_same(self, batches(again, 9), first[:2])
        # The seed is that of the records.
        other = PretrainingRecords(self.write("other", count=10, random_seed=1))
        other = batches(other.evaluation_dataset(5, repeat=False), 1)[0]
        self.assertNotAllEqual(
            other["masked_lm_positions"], first[0]["masked_lm_positions"]
        )
        # And other ones than the training's first epoch with the same seed.
        training = PretrainingRecords(path).training_dataset(5, seed=12345)
        masks = {
            tuple(row)
            for batch in batches(training, 2)
            for row in batch["input_ids"].tolist()
        }
        ours = {tuple(row) for batch in first for row in batch["input_ids"].tolist()}
        self.assertLess(len(masks & ours), 4)

    def test_units_and_rates_come_from_the_records_unless_they_are_given(self):
        def share_of_marks(records):
            """[MASK] among the chosen, and chosen tokens a sequence."""
            marks = chosen = 0
            for batch in batches(records.evaluation_dataset(20, repeat=False), 9):
                marks += (batch["input_ids"] == MASK).sum()
                chosen += batch["masked_lm_weights"].sum()
            return marks / chosen, chosen / 20

        path = self.write(masked_lm_prob=0.1)
        self.assertAllClose(share_of_marks(PretrainingRecords(path))[1], 1.0)
        options = MaskingOptions(masked_lm_prob=1.0, mask_rate=0.0, random_rate=0.0)
        records = PretrainingRecords(path, masking=options, max_predictions_per_seq=99)
        marks, chosen = share_of_marks(records)
        self.assertEqual(marks, 0.0)
        # All but [CLS] and two [SEP] of 8 to 12 tokens.
        self.assertBetween(chosen, 6.0, 8.0)
        self.assertEqual(
            next(iter(self.training(records)))["masked_lm_ids"].shape, (4, 99)
        )
        # Without a number there are enough.
        records = PretrainingRecords(path, masking=options)
        self.assertEqual(share_of_marks(records), (marks, chosen))
        self.assertEqual(records.max_predictions_per_seq, unmasked.L)

    def test_whole_words_where_the_records_say_so(self):
        def cut_words(records):
            """How often a chosen piece has a neighbour of its word unchosen."""
            count = 0
            for batch in batches(records.evaluation_dataset(20, repeat=False), 9):
                for row in range(len(batch["input_ids"])):
                    used = int(batch["masked_lm_weights"][row].sum())
                    chosen = batch["masked_lm_positions"][row][:used].tolist()
                    ids = batch["input_ids"][row].copy()
                    ids[chosen] = batch["masked_lm_ids"][row][:used]
                    for position in range(2, len(ids)):
                        joins = ids[position] >= 25 and ids[position - 1] not in (2, 3)
                        both = (position in chosen) == (position - 1 in chosen)
                        count += joins and not both
            return count

        plain = self.write(count=60)
        whole = self.write("whole", count=60, do_whole_word_mask=True)
        self.assertGreater(cut_words(PretrainingRecords(plain)), 10)
        self.assertEqual(cut_words(PretrainingRecords(whole)), 0)
        for unit in ("word", "span"):
            options = MaskingOptions(masking_unit=unit)
            records = PretrainingRecords(plain, masking=options)
            self.assertEqual(cut_words(records), 0)

    def test_the_vocabulary_is_needed(self):
        path = self.write()
        vocab_path = path + ".vocab.txt"
        os.rename(vocab_path, self.path("v.txt"))
        with self.assertRaisesRegex(
            InputError, "unmasked.vocab.txt is missing: .* Give `vocab_file`"
        ):
            PretrainingRecords(path)
        PretrainingRecords(path, vocab_file=self.path("v.txt"))
        other = Vocabulary(
            [*unmasked.SPECIAL, *reversed(unmasked.VOCABULARY.tokens[5:])]
        )
        other.save(vocab_path)
        with self.assertRaisesRegex(InputError, "is not the voc.* was changed: give"):
            PretrainingRecords(path)
        with self.assertRaisesRegex(InputError, "is not the vocabulary of.*Leave"):
            PretrainingRecords(path, vocab_file=vocab_path)

    def test_hosts_of_a_tpu_on_other_machines_cannot_mask(self):
        strategy = mock.create_autospec(tf.distribute.TPUStrategy, instance=True)
        dynamic = PretrainingRecords(self.write())
        static = PretrainingRecords(toy.write_records(self.path("static.tfrecord")))
        one_way = PretrainingRecords(self.path("unmasked"), left_to_right=True)
        for job in ("localhost", "worker"):
            device = f"/job:{job}/replica:0/task:0/device:TPU:0"
            strategy.extended.worker_devices = (device,)
            static.check_hosts(strategy)
            one_way.check_hosts(strategy)
            if job == "localhost":
                dynamic.check_hosts(strategy)
        with self.assertRaisesRegex(InputError, "hosts, which read them, cannot draw"):
            dynamic.check_hosts(strategy)
        dynamic.check_hosts(tf.distribute.get_strategy())

    def test_a_negative_id_is_named(self):
        path = self.path("unmasked")
        ids = np.zeros([1, unmasked.L], np.int64)
        ids[0, 3] = -(2**31)
        zeros = np.zeros_like(ids)
        with tf.io.TFRecordWriter(path) as writer:
            for record in RecordSpec.pretraining(unmasked.L).serialize_block(
                {
                    "input_ids": ids,
                    "input_mask": zeros + 1,
                    "segment_ids": zeros,
                    "next_sentence_labels": zeros[:, :1],
                }
            ):
                writer.write(record)
        unmasked.write_manifest(path, 1)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "outside the vocabulary of 30 tokens"
        ):
            batches(self.training(PretrainingRecords(path), batch_size=1), 1)

    def test_an_id_outside_the_vocabulary_is_named(self):
        small = Vocabulary(unmasked.VOCABULARY.tokens[:20])
        records = PretrainingRecords(self.write(vocabulary=small))
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, "outside the vocabulary of 20 tokens"
        ):
            batches(self.training(records), 5)


class MixedRecordsTest(PretrainingInputTestCase):
    def test_records_of_different_kinds(self):
        static = toy.write_records(self.path("static.tfrecord"))
        order, none, plain = (
            self.write(name, pairs=name) for name in ("sop", "none", "nsp")
        )
        for paths, message in (
            ((plain, static), "nsp .masking=dynamic.* static.tfrecord .masking=static"),
            ((static, plain), "static.tfrecord .masking=static.* nsp .masking=dynamic"),
            ((order, none), "sop .*pairs=sop, .* and .*none .*pairs=none"),
            ((order, plain), "sop .*pairs=sop, .* and .*nsp .*pairs=nsp"),
        ):
            with self.assertRaisesRegex(InputError, message.replace(" ", ".*")):
                PretrainingRecords(",".join(paths))
        records = PretrainingRecords(order)
        self.assertTrue(records.has_pairs)
        self.assertFalse(PretrainingRecords(none).has_pairs)
        for other in (none, plain):
            with self.assertRaisesRegex(InputError, "pairs=sop.*cannot be used"):
                records.refuse_other(PretrainingRecords(other))

    def test_sets_that_disagree_about_masks(self):
        one = self.write()
        other = self.write("other", do_whole_word_mask=True, masked_lm_prob=0.3)
        third = self.write("third", max_predictions_per_seq=2)
        with self.assertRaisesRegex(InputError, "do_whole.*: give `masking_unit`"):
            PretrainingRecords(f"{one},{other}")
        with self.assertRaisesRegex(
            InputError, "with masked_lm_prob=0.2, .* 0.3: give `masked_lm_prob`"
        ):
            PretrainingRecords(
                f"{one},{other}", masking=MaskingOptions(masking_unit="piece")
            )
        with self.assertRaisesRegex(InputError, "give `max_predictions_per_seq`"):
            PretrainingRecords(f"{one},{third}")
        PretrainingRecords(f"{one},{third}", max_predictions_per_seq=2)

    def test_unmasked_records_without_a_manifest(self):
        path = self.write()
        os.remove(path + ".manifest.json")
        with self.assertRaisesRegex(
            InputError,
            "must have `masked_lm_positions`. Received: input_ids, input_mask",
        ):
            PretrainingRecords(path, max_seq_length=12, max_predictions_per_seq=3)
        with self.assertRaisesRegex(InputError, "must have `masked_lm_positions`"):
            PretrainingRecords(path)


class PretrainingDatasetTest(PretrainingInputTestCase):
    def test_options_of_masked_records_are_refused(self):
        static = toy.write_records(self.path("static.tfrecord"))
        with self.assertRaisesRegex(
            InputError, "`mask_rate=0.5` is for .* masks of .*static.tfrecord are in"
        ):
            pretraining_dataset(static, batch_size=4, mask_rate=0.5)

    def test_masked_records_without_a_manifest(self):
        static = toy.write_records(self.path("static.tfrecord"))
        batch = next(iter(pretraining_dataset(static, batch_size=4)))
        self.assertEqual(batch["input_ids"].shape, (4, toy.L))
        self.assertEqual(batch["masked_lm_positions"].shape, (4, toy.P))
        once = pretraining_dataset(static, batch_size=8, training=False)
        lengths = [len(batch["input_ids"]) for batch in batches(once, 9)]
        self.assertEqual(lengths, [8, 8, 4])

    def test_the_masked_lm_alone_is_fitted(self):
        model = BertPretrainer(toy.CONFIG, next_sentence=False)
        model.compile(create_optimizer(0.01, 2, 0), run_eagerly=True)
        dataset = pretraining_dataset(self.write(pairs="none"), batch_size=4)
        with without_fusion():
            logs = model.fit(dataset, steps_per_epoch=1, verbose=0).history
        self.assertIn("masked_lm_loss", logs)
        self.assertNotIn("next_sentence_loss", logs)
