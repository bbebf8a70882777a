import tensorflow as tf

from bert_tf.finetuning.settings import Settings, grid


class GridTest(tf.test.TestCase):
    def test_all_combinations_in_order(self):
        self.assertEqual(
            grid([5e-5, 2e-5], [16, 32], [2, 3.5], 2, 7),
            [
                (5e-5, 16, 2, 7),
                (2e-5, 16, 2, 7),
                (5e-5, 16, 3.5, 7),
                (2e-5, 16, 3.5, 7),
                (5e-5, 32, 2, 7),
                (2e-5, 32, 2, 7),
                (5e-5, 32, 3.5, 7),
                (2e-5, 32, 3.5, 7),
                (5e-5, 16, 2, 8),
                (2e-5, 16, 2, 8),
                (5e-5, 16, 3.5, 8),
                (2e-5, 16, 3.5, 8),
                (5e-5, 32, 2, 8),
                (2e-5, 32, 2, 8),
                (5e-5, 32, 3.5, 8),
                (2e-5, 32, 3.5, 8),
            ],
        )

    def test_a_value_given_twice_counts_once(self):
        self.assertLen(grid([5e-5, 5e-5], [32, 32], [3.0, 3], 1, 1), 1)


class NameTest(tf.test.TestCase):
    def test_tells_settings(self):
        self.assertEqual(
            Settings(5e-5, 16, 3.0, 12345).name, "lr5e-05_bs16_ep3_seed12345"
        )
        self.assertEqual(
            Settings(0.00012345678, 8, 2.5, 0).name,
            "lr0.00012345678_bs8_ep2.5_seed0",
        )


if __name__ == "__main__":
    tf.test.main()
