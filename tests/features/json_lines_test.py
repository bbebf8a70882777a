import json
import math
from collections import OrderedDict

import numpy as np
import tensorflow as tf

from bert_tf.features import json_lines
from bert_tf.features.extraction import Features
from bert_tf.features.inputs import FeatureInput


def as_python_writes(values):
    """What the original does with an array's values."""
    return json.dumps([round(float(x), 6) for x in values])[1:-1]


class NumberListsTest(tf.test.TestCase):
    def test_numbers_by_hand(self):
        values = [
            0.0,
            -0.0,
            1.0,
            -2.5,
            0.1,
            0.0001,
            0.00001,
            0.0000125,
            0.0000004,
            123.456,
        ]
        (text,) = json_lines.number_lists(np.array([values], np.float32))
        self.assertEqual(
            text,
            "0.0, -0.0, 1.0, -2.5, 0.1, 0.0001, 1e-05, 1.2e-05, 0.0, 123.456001",
        )

    def test_half_a_millionth_goes_to_the_even_one(self):
        # Exact in binary: 2^-7 = 0.0078125, whose seventh decimal is a lone 5.
        values = np.array([[0.0078125, 0.0234375, -0.0078125, 3.0078125]], np.float32)
        self.assertEqual(
            json_lines.number_lists(values),
            ["0.007812, 0.023438, -0.007812, 3.007812"],
        )

    def test_any_bits_are_written_as_python_writes_them(self):
        rng = np.random.default_rng(0)
        bits = rng.integers(0, 1 << 32, 40000, np.uint64).astype(np.uint32)
        some = bits.view(np.float32)
        some = some[np.abs(some) < 1e9]
        usual = rng.normal(0, 1, 40000).astype(np.float32)
        small = (rng.integers(-120, 120, 5000) * 5e-7).astype(np.float32)
        large = rng.uniform(-1e9, 1e9, 5000).astype(np.float32)
        rows = [usual.reshape(-1, 8), small.reshape(-1, 8), large.reshape(-1, 8)]
        rows.append(some[: len(some) // 8 * 8].reshape(-1, 8))
        rows = np.concatenate(rows)
        for row, text in zip(rows, json_lines.number_lists(rows), strict=True):
            self.assertEqual(text, as_python_writes(row))

    def test_huge_and_broken_numbers(self):
        values = [3e9, -1e30, math.inf, -math.inf, math.nan, 0.5]
        rows = np.array([values], np.float32)
        self.assertEqual(
            json_lines.number_lists(rows),
            ["3000000000.0, -1.0000000150474662e+30, Infinity, -Infinity, NaN, 0.5"],
        )

    def test_no_rows(self):
        self.assertEqual(json_lines.number_lists(np.zeros([0, 4], np.float32)), [])


class JsonLineTest(tf.test.TestCase):
    def test_the_originals_layout(self):
        names = ["[CLS]", 'a"', "é", "[SEP]"]
        rng = np.random.default_rng(1)
        vectors = rng.normal(0, 1, [4, 2, 5]).astype(np.float32)
        line = json_lines.json_line(
            7,
            Features(FeatureInput([2, 5, 6, 3], [0] * 4, names), vectors, {}),
            [-1, -2],
        )
        # As extract_features.py of google-research/bert builds it.
        output = OrderedDict()
        output["linex_index"] = 7
        output["features"] = []
        for i, token in enumerate(names):
            layers = []
            for j, index in enumerate([-1, -2]):
                layer = OrderedDict()
                layer["index"] = index
                layer["values"] = [round(float(x), 6) for x in vectors[i, j]]
                layers.append(layer)
            feature = OrderedDict()
            feature["token"] = token
            feature["layers"] = layers
            output["features"].append(feature)
        self.assertEqual(line, (json.dumps(output) + "\n").encode())

    def test_words_and_sentence_vectors(self):
        vectors = np.array([[[0.5, 1.0]]], np.float32)
        sentence = {
            "pooled": np.array([0.25, -1.0], np.float32),
            "mean": np.array([[2.0, 3.0]], np.float32),
        }
        inputs = FeatureInput([2, 5, 3], [0] * 3, ["wörd"], [(1, 2)])
        line = json_lines.json_line(
            0, Features(inputs, vectors, sentence), ["sum(0,1)"]
        )
        self.assertEqual(
            line,
            b'{"linex_index": 0, "features": [{"word": "w\\u00f6rd", "layers":'
            b' [{"index": "sum(0,1)", "values": [0.5, 1.0]}]}], "sentence":'
            b' {"pooled": [0.25, -1.0], "mean": [{"index": "sum(0,1)", "values":'
            b" [2.0, 3.0]}]}}\n",
        )

    def test_nothing_but_sentence_vectors(self):
        sentence = {"pooled": np.array([0.25], np.float32)}
        inputs = FeatureInput([2, 3], [0, 0], ["[CLS]", "[SEP]"])
        line = json_lines.json_line(3, Features(inputs, None, sentence), [-1])
        self.assertEqual(line, b'{"linex_index": 3, "sentence": {"pooled": [0.25]}}\n')


if __name__ == "__main__":
    tf.test.main()
