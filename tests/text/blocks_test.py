from collections import Counter

import tensorflow as tf

from bert_tf.text.blocks import drop, dropped_lines


class DroppedTest(tf.test.TestCase):
    def test_a_line_for_each_reason(self):
        dropped = Counter()
        drop(dropped, "title lines", characters=1200)
        drop(dropped, "title lines", characters=34)
        drop(dropped, "repeated documents", 2, tokens=7)
        drop(dropped, "documents without text")
        drop(dropped, "list items", 0)
        merged = Counter()
        merged.update(dict(dropped))
        self.assertEqual(
            dropped_lines(merged),
            [
                "Dropped 1: documents without text",
                "Dropped 2 (7 tokens): repeated documents",
                "Dropped 2 (1,234 characters): title lines",
            ],
        )
