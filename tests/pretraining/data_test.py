import tensorflow as tf

from bert_tf.pretraining.data import fingerprint


class FingerprintTest(tf.test.TestCase):
    def test_a_set_of_records_may_move(self):
        here = fingerprint(["/here/a.tfrecord", "/here/b.tfrecord"], [3, 4], 128)
        there = fingerprint(["gs://there/a.tfrecord", "b.tfrecord"], [3, 4], 128)
        self.assertEqual(here, there)

    def test_what_tells_sets_apart(self):
        found = {
            fingerprint(paths, counts, length)
            for paths, counts, length in (
                (["a", "b"], [3, 4], 128),
                (["b", "a"], [3, 4], 128),
                (["a", "b"], [4, 3], 128),
                (["a", "c"], [3, 4], 128),
                (["a"], [3], 128),
                (["a", "b"], [3, 4], 512),
            )
        }
        self.assertLen(found, 6)

    def test_a_checkpoint_can_hold_it(self):
        for count in range(100):
            self.assertBetween(fingerprint(["a"], [count], 128), 1, 2**63 - 1)

    def test_it_never_changes(self):
        """Runs that were begun with an older version go on.

        The number was worked out by sha256sum: the first 8 bytes of the digest of
        "128\\na 3\\n", halved.
        """
        self.assertEqual(fingerprint(["a"], [3], 128), 3526307621018167084)
