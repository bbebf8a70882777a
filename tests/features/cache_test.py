import os
import tempfile

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.features.cache import cached, digest_of
from bert_tf.features.extraction import Features
from bert_tf.features.formats import format_of
from bert_tf.features.inputs import FeatureInput
from bert_tf.features.writing import write_features

INPUTS = [FeatureInput([2, number, 3], [0, 0, 1], ["a", "b", "c"]) for number in (5, 6)]


class FakeGroup:
    """A group of one input, whose vectors are its ids."""

    def __init__(self, number, inputs):
        self.number = self.first = number
        self._inputs = inputs

    def results(self):
        vectors = np.array(self._inputs.ids, np.float32)[:, None, None]
        return [Features(self._inputs, vectors, {})]


class CacheTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), "cache")
        self.made = []

    def write(self, settings, fail_at=None):
        def extract(inputs, is_done):
            for number, sequence in enumerate(inputs):
                if is_done(number):
                    continue
                if number == fail_at:
                    raise KeyboardInterrupt
                self.made.append(number)
                yield FakeGroup(number, sequence)

        output_format = format_of("npy", [-1], settings)
        write_features(INPUTS, extract, self.folder, output_format, settings)

    def get(self, settings, **options):
        return cached(self.folder, settings, lambda: self.write(settings, **options))

    def test_features_are_made_once(self):
        for _ in range(2):
            found = self.get({"layers": (-1,)})
            self.assertAllEqual(found[1][:, 0, 0], [2, 6, 3])
        self.assertEqual(self.made, [0, 1])

    def test_other_settings_make_them_anew(self):
        self.get({"weights": "a"})
        self.get({"weights": "b"})
        self.assertEqual(self.made, [0, 1, 0, 1])
        self.assertEqual(os.listdir(os.path.dirname(self.folder)), ["cache"])

    def test_a_killed_run_goes_on(self):
        with self.assertRaises(KeyboardInterrupt):
            self.get({"weights": "a"}, fail_at=1)
        self.assertFalse(files.exists(self.folder))
        files.make_folder(self.folder + ".tmp-123")  # of a start that was killed last
        found = self.get({"weights": "a"})
        self.assertEqual(self.made, [0, 1])
        self.assertAllEqual(found[0][:, 0, 0], [2, 5, 3])
        self.assertEqual(os.listdir(os.path.dirname(self.folder)), ["cache"])

    def test_parts_of_other_settings_are_thrown_away(self):
        with self.assertRaises(KeyboardInterrupt):
            self.get({"weights": "a"}, fail_at=1)
        found = self.get({"weights": "b"})
        self.assertEqual(self.made, [0, 0, 1])
        self.assertLen(found, 2)

    def test_a_part_that_fails_is_not_there(self):
        class Failing:
            def check_output(self, output):
                del output

            def write_part(self, file, first, group):
                file.write(b"half")
                raise OSError("disk full")

        with self.assertRaisesRegex(OSError, "disk full"):
            write_features(
                INPUTS,
                lambda inputs, is_done: iter([FakeGroup(0, INPUTS[0])]),
                self.folder,
                Failing(),
                {},
            )
        self.assertEqual(os.listdir(self.folder + ".parts"), ["settings.json"])


class DigestTest(tf.test.TestCase):
    def test_it_is_of_what_the_model_reads_and_of_the_words(self):
        first, second = INPUTS
        others = [
            [second, first],
            [first],
            [first, second._replace(ids=[2, 7, 3])],
            [first, second._replace(segment_ids=[0, 0, 0])],
            [first, second._replace(spans=[(0, 1)])],
            # The same numbers, cut otherwise.
            [first._replace(ids=[2], segment_ids=[5, 3, 0, 0, 1]), second],
        ]
        digests = {digest_of(inputs) for inputs in [INPUTS, *others]}
        self.assertLen(digests, 7)
        names = [first._replace(names=[]), second]
        self.assertEqual(digest_of(names), digest_of(INPUTS))


if __name__ == "__main__":
    tf.test.main()
