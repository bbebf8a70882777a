import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.features.layers import LayerSelection

parse = LayerSelection.parse


class LayerSelectionTest(tf.test.TestCase):
    def test_the_originals_numbers(self):
        # hidden_states: the embeddings, then layers 0 to 11.
        selection = parse("-1,-2,-12,0,11", 12)
        self.assertEqual(selection.hidden_states, [12, 11, 1, 1, 12])
        self.assertEqual(selection.labels, [-1, -2, -12, 0, 11])
        self.assertEqual(selection.vectors_shape(768), (5, 768))

    def test_words(self):
        selection = parse(["embeddings", " all"], 3)
        self.assertEqual(selection.hidden_states, [0, 1, 2, 3])
        self.assertEqual(selection.labels, ["embeddings", 0, 1, 2])

    def test_combinations(self):
        for combine, weights, shape in (
            ("sum", (), (1, 8)),
            ("mean", (), (1, 8)),
            ("weighted", ("0.5", "2"), (1, 8)),
            ("concat", (), (1, 16)),
        ):
            selection = parse("-1,embeddings", 3, combine=combine, weights=weights)
            self.assertEqual(selection.labels, [f"{combine}(-1,embeddings)"])
            self.assertEqual(selection.vectors_shape(8), shape)

    def test_what_is_wrong_is_said(self):
        for layers, options, message in (
            ("3", {}, "has 3 layers, -3 to 2, and `embeddings`. Received: 3"),
            ("-4", {}, "Received: -4"),
            ("-1,,", {}, "--layers: numbers.*Received: ''"),
            ("top", {}, "Received: 'top'"),
            ([], {}, "must name a layer"),
            ("0", {"combine": "max"}, "--combine must be one of none, sum"),
            ("0,1", {"combine": "weighted", "weights": ["1"]}, "must be 2 numbers"),
            ("0", {"combine": "weighted", "weights": ["x"]}, "--layer_weights: .*'x'"),
            ("0", {"combine": "weighted", "weights": ["nan"]}, "must be finite.*nan"),
            ("0", {"weights": ["1"]}, "for --combine=weighted alone"),
        ):
            with self.assertRaisesRegex(InputError, message):
                parse(layers, 3, **options)


if __name__ == "__main__":
    tf.test.main()
