import itertools
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.features import extraction
from bert_tf.features.inputs import FeatureInput

LENGTH = 9


def sequences(lengths):
    """Inputs, each of whose ids say which one it is, and where they stand in it."""
    return [
        FeatureInput(
            [100 * number + place + 1 for place in range(length)],
            [0] * length,
            [f"t{place}" for place in range(length)],
        )
        for number, length in enumerate(lengths)
    ]


def echo(batches, total):
    """A model of two vectors a token: its id, and its id's negative, twice each."""
    for batch in batches:
        batch = {name: np.asarray(value) for name, value in batch.items()}
        ids = batch["input_ids"].astype(np.float32)
        vectors = np.stack([ids, -ids], axis=-1)[..., None] * [1, 1]
        yield batch, {"vectors": vectors, "cls": vectors[:, 0]}


class ExtractTest(tf.test.TestCase):
    def extract(self, inputs, predict=echo, values_at_once=1 << 25, **options):
        options = {
            "values_per_token": 4,
            "batch_size": 3,
            "max_seq_length": LENGTH,
            "num_inputs": len(inputs),
            **options,
        }
        with mock.patch.object(extraction, "VALUES_AT_ONCE", values_at_once):
            return list(extraction.extract(iter(inputs), predict, **options))

    def test_features_come_back_in_the_inputs_order(self):
        lengths = [3, 9, 2, 5, 5, 1, 8, 2, 2, 7]
        inputs = sequences(lengths)
        for values_at_once in (1, 60, 1 << 25):
            for max_lengths in (None, 1, 3):
                groups = self.extract(
                    inputs, values_at_once=values_at_once, max_lengths=max_lengths
                )
                results = [group.results() for group in groups]
                found = list(itertools.chain(*results))
                self.assertEqual([f.input for f in found], inputs)
                firsts = np.cumsum([0, *map(len, results)])
                self.assertEqual([g.first for g in groups], firsts[:-1].tolist())
                for number, (features, length) in enumerate(
                    zip(found, lengths, strict=True)
                ):
                    ids = 100 * number + 1 + np.arange(length)
                    self.assertAllEqual(features.vectors[:, 0, 1], ids)
                    self.assertAllEqual(features.vectors[:, 1, 0], -ids)
                    self.assertAllEqual(
                        features.sentence["cls"], [[ids[0]] * 2, [-ids[0]] * 2]
                    )

    def test_groups_hold_so_many_values(self):
        # 60 values are 15 tokens: a group is closed by the input that reaches them.
        groups = self.extract(sequences([5, 5, 5, 9, 9, 2, 1]), values_at_once=60)
        self.assertEqual([len(group.inputs) for group in groups], [3, 2, 2])

    def test_memory_does_not_grow_with_the_inputs(self):
        alive = []

        def predict(batches, total):
            for batch, outputs in echo(batches, total):
                alive.append(len(batches.group.inputs))
                yield batch, outputs

        def inputs():
            for number in range(50):
                yield sequences([5])[0]
                # Nothing is read far ahead.
                self.assertLess(number, (len(alive) + 2) * 3)

        groups = extraction.extract(
            inputs(),
            predict,
            values_per_token=4,
            batch_size=3,
            max_seq_length=LENGTH,
        )
        with mock.patch.object(extraction, "VALUES_AT_ONCE", 60):
            self.assertLen(list(groups), 17)
        self.assertEqual(max(alive), 3)

    def test_groups_that_are_done_are_passed_over(self):
        inputs = sequences([5, 5, 5, 9, 9, 2, 1, 4])
        seen = []

        def predict(batches, total):
            for batch, outputs in echo(batches, total):
                seen.append(batch["input_ids"].shape[1])
                yield batch, outputs

        options = {"values_at_once": 60, "max_lengths": 2, "batch_size": 2}
        all_groups = self.extract(inputs, predict, **options)
        shapes, seen[:] = list(seen), []
        groups = self.extract(inputs, predict, is_done=lambda n: n != 1, **options)
        self.assertEqual([(g.number, g.first) for g in groups], [(1, 3)])
        # In batches of the same lengths, so with the same bits.
        self.assertEqual(seen, shapes[2:3])
        for found, expected in zip(
            groups[0].results(), all_groups[1].results(), strict=True
        ):
            self.assertAllEqual(found.vectors, expected.vectors)
        self.assertEqual(self.extract(inputs, echo, is_done=lambda n: True), [])
        self.assertEqual(self.extract([], None), [])

    def test_words(self):
        spans = [(1, 2), (2, 5), (6, 8)]  # of 9 positions; [SEP] at 5 and 8
        inputs = [
            sequences([9])[0]._replace(spans=spans, names=["x", "y", "z"]),
            sequences([2])[0]._replace(spans=[], names=[]),
        ]
        # The ids of positions 0 to 8 are 1 to 9.
        for word_vectors, expected in (
            ("first", [2, 3, 7]),
            ("mean", [2, (3 + 4 + 5) / 3, (7 + 8) / 2]),
        ):
            for max_lengths in (None, 1):
                (group,) = self.extract(
                    inputs, word_vectors=word_vectors, max_lengths=max_lengths
                )
                words, nothing = group.results()
                self.assertAllClose(words.vectors[:, 0, 0], expected)
                self.assertAllClose(words.vectors[:, 1, 1], np.negative(expected))
                self.assertEqual(nothing.vectors.shape, (0, 2, 2))

    def test_a_word_that_ends_where_the_batch_does(self):
        inputs = [sequences([4])[0]._replace(spans=[(0, 1), (1, 4)], names=["x", "y"])]
        (group,) = self.extract(inputs, word_vectors="mean", max_lengths=1)
        self.assertAllClose(group.results()[0].vectors[:, 0, 0], [1, 3])


if __name__ == "__main__":
    tf.test.main()
