import os

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.records import pipeline
from bert_tf.records.schema import Feature, RecordSchema

SCHEMA = RecordSchema([Feature("input_ids", "int64", (1,))])


class PipelineTestCase(tf.test.TestCase):
    def write(self, *counts):
        """Files of records that hold the numbers 0, 1, 2, ... over all files."""
        self.paths, number = [], 0
        for index, count in enumerate(counts):
            path = os.path.join(self.get_temp_dir(), f"part-{index}.tfrecord")
            with tf.io.TFRecordWriter(path) as writer:
                for _ in range(count):
                    writer.write(SCHEMA.serialize({"input_ids": [number]}))
                    number += 1
            self.paths.append(path)
        self.counts = list(counts)
        return number


def numbers(dataset, batches):
    return [
        int(value)
        for batch in dataset.take(batches).as_numpy_iterator()
        for value in batch["input_ids"][:, 0]
    ]


class TrainingDatasetTest(PipelineTestCase):
    def stream(self, batches, batch_size=1, **options):
        options = {"seed": 7, "shuffle_buffer": 4, **options}
        dataset = pipeline.training_dataset(
            self.paths, self.counts, SCHEMA, batch_size=batch_size, **options
        )
        return numbers(dataset, batches)

    def test_every_epoch_reads_every_record_once(self):
        total = self.write(3, 5, 1, 0, 4, 2)
        stream = self.stream(3 * total)
        for epoch in range(3):
            part = stream[epoch * total : (epoch + 1) * total]
            self.assertCountEqual(part, range(total))
        self.assertNotEqual(stream[:total], sorted(stream[:total]))
        self.assertNotEqual(stream[:total], stream[total : 2 * total])

    def test_the_order_is_a_function_of_the_seed(self):
        total = self.write(5, 5, 5)
        self.assertEqual(self.stream(2 * total), self.stream(2 * total))
        self.assertNotEqual(self.stream(total), self.stream(total, seed=8))

    def test_starting_at_a_position_gives_the_rest_of_the_same_stream(self):
        # Six files are two units; the positions fall on seams and between them.
        total = self.write(3, 5, 1, 2, 4, 2)
        whole = self.stream(3 * total)
        for start in range(2 * total + 1):
            self.assertEqual(
                self.stream(total, start=start), whole[start : start + total], start
            )

    def test_batches_run_across_the_seam_of_epochs(self):
        total = self.write(5)
        whole = self.stream(2 * total)
        self.assertEqual(self.stream(5, batch_size=2), whole)
        batch = next(
            iter(
                pipeline.training_dataset(
                    self.paths, self.counts, SCHEMA, batch_size=2, seed=7
                )
            )
        )
        self.assertEqual(batch["input_ids"].shape, (2, 1))
        self.assertEqual(batch["input_ids"].dtype, tf.int32)

    def test_the_order_does_not_depend_on_the_global_seed_of_the_process(self):
        total = self.write(9)
        first = self.stream(total)
        for global_seed in (0, 1):
            tf.random.set_seed(global_seed)
            self.assertEqual(first, self.stream(total))

    def test_no_tuner_keeps_an_iterator_from_being_deleted(self):
        self.write(5)
        dataset = pipeline.training_dataset(
            self.paths, self.counts, SCHEMA, batch_size=2, seed=7
        )
        self.assertIs(dataset.options().autotune.enabled, False)

    def test_no_records_is_an_error(self):
        self.write(0)
        with self.assertRaisesRegex(ValueError, "positive number"):
            self.stream(1)

    def test_an_id_outside_the_vocabulary_is_named(self):
        total = self.write(6)
        self.assertLen(self.stream(total, vocab_size=6), total)
        with self.assertRaises(tf.errors.InvalidArgumentError) as caught:
            self.stream(total, vocab_size=5)
        self.assertEqual(
            pipeline.record_error(caught.exception),
            "an id in `input_ids` is outside the vocabulary of 5 tokens (`vocab_size`"
            " of the config): make the records again.",
        )


class RecordKeysTest(PipelineTestCase):
    """What a transform is told of the records of its batch."""

    @staticmethod
    def with_keys(batch, keys):
        return {"number": batch["input_ids"][:, 0], **keys._asdict()}

    def keys(self, batches, batch_size=1, **options):
        """(record's content, its epoch, its number) in the stream's order."""
        dataset = pipeline.training_dataset(
            self.paths,
            self.counts,
            SCHEMA,
            batch_size=batch_size,
            seed=7,
            shuffle_buffer=4,
            transform=self.with_keys,
            **options,
        )
        return [
            triple
            for batch in dataset.take(batches).as_numpy_iterator()
            for triple in zip(
                batch["number"].tolist(),
                batch["epochs"].tolist(),
                batch["records"].tolist(),
                strict=True,
            )
        ]

    def test_a_records_number_is_its_own_in_every_epoch(self):
        total = self.write(3, 5, 1, 0, 4, 2)
        triples = self.keys(3 * total)
        self.assertEqual(
            [epoch for _, epoch, _ in triples], [1] * total + [2] * total + [3] * total
        )
        numbers = {(content, number) for content, _, number in triples}
        self.assertLen(numbers, total)
        self.assertLen({number for _, number in numbers}, total)

    def test_keys_hang_on_neither_start_nor_batch(self):
        total = self.write(3, 5, 1, 2, 4, 2)
        whole = self.keys(3 * total)
        for start in (1, 8, total, total + 5):
            self.assertEqual(
                self.keys(total, start=start), whole[start : start + total]
            )
        # Batches of four run across the seams of epochs.
        self.assertEqual(self.keys(total // 2, batch_size=4), whole[: total // 2 * 4])

    def test_evaluation_is_epoch_zero_however_often(self):
        self.write(3, 3)
        training = {content: number for content, _, number in self.keys(6)}
        dataset = pipeline.evaluation_dataset(
            self.paths, SCHEMA, batch_size=4, repeat=True, transform=self.with_keys
        )
        for batch in dataset.take(3).as_numpy_iterator():
            self.assertEqual(batch["epochs"].tolist(), [0] * 4)
            self.assertEqual(
                batch["records"].tolist(), [training[n] for n in batch["number"]]
            )


class EvaluationDatasetTest(PipelineTestCase):
    def stream(self, batches=100, **options):
        dataset = pipeline.evaluation_dataset(
            self.paths, SCHEMA, batch_size=4, **options
        )
        return [
            batch["input_ids"][:, 0].tolist()
            for batch in dataset.take(batches).as_numpy_iterator()
        ]

    def test_in_order_once(self):
        self.write(3, 3)
        self.assertEqual(self.stream(), [[0, 1, 2, 3], [4, 5]])

    def test_repeated_as_the_original_does(self):
        self.write(3, 3)
        self.assertEqual(
            self.stream(3, repeat=True), [[0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5]]
        )

    def test_padding_fills_the_last_batch_and_makes_no_other(self):
        padding = SCHEMA.serialize({"input_ids": [99]})
        for count, last in ((5, [4, 99, 99, 99]), (8, [4, 5, 6, 7])):
            self.write(count)
            batches = self.stream(padding=padding)
            self.assertLen(batches, 2)
            self.assertEqual(batches[-1], last)


class FirstRecordTest(PipelineTestCase):
    def test_first_record_of_something_else(self):
        path = os.path.join(self.get_temp_dir(), "text.txt")
        with open(path, "w") as file:
            file.write("not a record file at all\n" * 9)
        for wrong in (path, self.get_temp_dir()):
            with self.assertRaisesRegex(InputError, "not a TFRecord file"):
                pipeline.first_record([wrong])

    def test_first_record(self):
        self.write(0, 2)
        path, record = pipeline.first_record(self.paths)
        self.assertEqual(path, self.paths[1])
        self.assertEqual(record, SCHEMA.serialize({"input_ids": [0]}))
        self.write(0)
        self.assertIsNone(pipeline.first_record(self.paths))


if __name__ == "__main__":
    tf.test.main()
