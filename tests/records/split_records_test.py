import json
import os

import numpy as np
import tensorflow as tf

from bert_tf.records.split_records import SplitRecords
from bert_tf.tasks import classification
from tests.training.toy_examples import LENGTHS, TARGET, L, blocks, several_lengths


def never():
    """Records that nobody may begin to make."""
    raise AssertionError("made again")
    yield


class SplitRecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.get_temp_dir(), "train.tf_record")
        self.manifest = self.path + ".manifest.json"
        for name in os.listdir(self.get_temp_dir()):
            os.remove(os.path.join(self.get_temp_dir(), name))

    def prepare(self, records=None, made_from="a", length=L, **options):
        return SplitRecords.prepare(
            self.path,
            classification.schema(TARGET, length),
            {"examples": made_from},
            blocks() if records is None else records,
            **options,
        )

    def test_what_is_there_is_found_again(self):
        first = self.prepare(notes=lambda: {"num_truncated": 3})
        self.assertEqual(first.num_records, 11)
        before = {
            name: os.stat(os.path.join(self.get_temp_dir(), name)).st_mtime_ns
            for name in os.listdir(self.get_temp_dir())
        }
        self.assertLen(before, 2)
        again = self.prepare(never(), notes=never)
        self.assertEqual(
            (again.num_records, again.made_from, again.notes),
            (11, first.made_from, {"num_truncated": 3}),
        )
        for name, time in before.items():
            after = os.stat(os.path.join(self.get_temp_dir(), name)).st_mtime_ns
            self.assertEqual(after, time)

    def test_the_notes_are_those_of_when_all_are_made(self):
        made = []

        def counted():
            for block in blocks():
                made.append(len(block["label_ids"]))
                yield block

        records = self.prepare(counted(), notes=lambda: {"made": sum(made)})
        self.assertEqual(records.notes, {"made": 11})
        self.assertEqual(self.prepare(never()).notes, {"made": 11})

    def test_anything_else_is_made_anew(self):
        ids = [self.prepare().made_from]
        others = (
            {"made_from": "b"},
            {"made_from": {"max_seq_length": 16}},
            # As the schema's: a feature of another length.
            {"length": 16},
        )
        for options in others:
            wide = [
                {
                    name: np.pad(value, [(0, 0), (0, 4)])
                    if options.get("length") and value.shape[1] == L
                    else value
                    for name, value in block.items()
                }
                for block in blocks(lengths=[4, 4])
            ]
            records = self.prepare(wide, **options)
            self.assertEqual(records.num_records, 2)
            self.assertLen(records.table, 2)
            ids.append(records.made_from)
        self.assertLen(set(ids), 4)

    def test_a_damaged_manifest(self):
        for damaged in ("{", "[]", '{"made_from": "x"}', "\xff"):
            records = self.prepare()
            with open(self.manifest, "w", encoding="latin-1") as file:
                file.write(damaged)
            with self.assertLogs(level="WARNING") as logs:
                again = self.prepare()
            self.assertIn("The records are made again", logs.output[0])
            self.assertEqual(again.made_from, records.made_from)
            self.assertEqual(self.prepare(never()).num_records, 11)

    def test_records_without_a_manifest_or_the_other_way_round(self):
        for name in (self.manifest, self.path):
            self.prepare()
            os.remove(name)
            with self.assertRaisesRegex(AssertionError, "made again"):
                self.prepare(never())
            self.prepare()

    def test_killed_while_records_are_made(self):
        def dies():
            yield next(blocks())
            raise SystemExit("killed")

        for is_alone in (True, False):
            self.prepare()
            with self.assertRaises(SystemExit):
                self.prepare(dies(), made_from="b", is_alone=is_alone)
            # Neither takes what is there now for its own, unless it is its own.
            table = self.prepare().table
            self.assertAllEqual(table.column("label_ids")[:, 0], np.arange(11))
            with self.assertRaisesRegex(AssertionError, "made again"):
                self.prepare(never(), made_from="b")

    def test_killed_between_records_and_manifest(self):
        def dies():
            raise SystemExit("killed")

        for is_alone in (True, False):
            self.prepare()
            with self.assertRaises(SystemExit):
                self.prepare(
                    blocks(lengths=[4, 4]),
                    made_from="b",
                    notes=dies,
                    is_alone=is_alone,
                )
            # The old manifest does not speak for the new records.
            self.assertLen(self.prepare().table, 11)

    def test_workers_write_the_same_file_at_the_same_time(self):
        def while_another_writes():
            first, *others = blocks()
            yield first
            self.prepare(is_alone=False)
            yield from others

        records = self.prepare(while_another_writes(), is_alone=False)
        self.assertEqual(records.num_records, 11)
        self.assertAllEqual(
            records.table.column("label_ids")[:, 0], np.arange(11, dtype=np.float32)
        )
        self.assertCountEqual(
            os.listdir(self.get_temp_dir()),
            ["train.tf_record", "train.tf_record.manifest.json"],
        )
        with open(self.manifest) as file:
            manifest = json.load(file)
        self.assertEqual(manifest["num_records"], 11)
        self.assertEqual(manifest["made_from"], records.made_from)

    def test_fewer_lengths_where_batches_are_few(self):
        (spec,) = {
            batch["input_ids"].shape[1]
            for batch in self.prepare().batches(4, max_lengths=2)
        }
        self.assertEqual(spec, 12)

    @several_lengths()
    def test_batches_of_all_records(self):
        records = self.prepare()
        batches = list(records.batches(4))
        self.assertAllEqual(
            [batch["rows"] for batch in batches],
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, -1]],
        )
        self.assertEqual([b["input_ids"].shape[1] for b in batches], [12] * 3)
        batches = list(records.batches(4, max_lengths=2))
        self.assertLen(batches, records.num_batches(4))
        # By length, at equal lengths in their order; the padding comes last.
        self.assertAllEqual(
            [batch["rows"] for batch in batches],
            [[0, 5, 3, 8], [2, 9, 6, 10], [4, 7, 1, -1]],
        )
        lengths = [b["input_ids"].shape[1] for b in batches]
        self.assertLen(set(lengths), 2)
        for batch, length in zip(batches, lengths, strict=True):
            rows = batch["rows"].numpy()
            for row, mask in zip(rows, batch["input_mask"].numpy(), strict=True):
                self.assertEqual(mask.sum(), LENGTHS[row] if row >= 0 else 0)
            self.assertLessEqual(max(LENGTHS[row] for row in rows), length)
            self.assertAllEqual(batch["is_real_example"][:, 0], rows >= 0)


if __name__ == "__main__":
    tf.test.main()
