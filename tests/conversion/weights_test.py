import numpy as np
import tensorflow as tf

from bert_tf.base.errors import InputError
from bert_tf.conversion import weights as weights_lib
from bert_tf.conversion.weights import Tensor, Weights
from tests.conversion import one_layer
from tests.conversion.one_layer import CONFIG, lines_of, random_weights


def weights_of(arrays):
    return Weights("somewhere", one_layer.tensors_of(arrays))


class WeightsTest(tf.test.TestCase):
    def test_an_array_is_read_when_it_is_asked_for(self):
        asked = []
        weights = Weights(
            "x", {"a": Tensor((2,), lambda: asked.append(1) or np.zeros(2))}
        )
        self.assertEqual(weights.shapes, {"a": (2,)})
        self.assertIn("a", weights)
        self.assertEqual((list(weights), len(weights), asked), (["a"], 1, []))
        self.assertAllEqual(weights["a"], [0, 0])
        self.assertEqual(asked, [1])

    def test_some_layers(self):
        names = [f"bert/encoder/layer_{n}/output/dense/kernel" for n in (0, 3, 11)]
        others = ["bert/embeddings/word_embeddings", "bert/layer_mixture/scores"]
        tensors = {
            name: Tensor((1,), lambda place=place: np.array([place]))
            for place, name in enumerate([*names, *others])
        }
        found = Weights("x", tensors).with_layers([11, 0, 11])
        there = {name: float(found[name][0]) for name in found}
        layer = "bert/encoder/layer_{}/output/dense/kernel".format
        self.assertEqual(
            there, {layer(0): 2, layer(1): 0, layer(2): 2, others[0]: 3, others[1]: 4}
        )

    def test_layers_on_top_of_each_other(self):
        name = "bert/encoder/layer_{}/output/dense/kernel".format
        tensors = {
            name(n): Tensor((1,), lambda n=n: np.array([n + 5])) for n in range(2)
        }
        found = Weights("x", tensors).stacked(4)
        self.assertEqual([found[name(n)][0] for n in range(4)], [5, 6, 5, 6])
        with self.assertRaisesRegex(InputError, "2 layers, of which 5 cannot"):
            Weights("x", tensors).stacked(5)


class CheckTest(tf.test.TestCase):
    def problem(self, arrays):
        with self.assertRaises(InputError) as caught:
            weights_lib.check_against_config(weights_of(arrays), CONFIG)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_whole_models_of_every_class(self):
        for name in one_layer.CLASSES:
            arrays = random_weights(lines_of(name))
            rows = weights_lib.check_against_config(weights_of(arrays), CONFIG)
            self.assertEqual([row.original for row in rows], list(arrays))

    def test_all_that_is_wrong_is_listed(self):
        arrays = random_weights(lines_of("BertForPreTraining"))
        del arrays["bert/embeddings/LayerNorm/beta"]
        del arrays["cls/seq_relationship/output_bias"]
        arrays["bert/pooler/dense/kernel"] = np.zeros((8, 9), np.float32)
        arrays["bert/encoder/layer_1/output/dense/bias"] = np.zeros(8, np.float32)
        self.assertEqual(
            self.problem(arrays),
            "somewhere and its config do not belong together: shapes that are not the"
            " config's: bert/pooler/dense/kernel is [8, 9], by the config [8, 8];"
            " weights that have no tensor: bert/embeddings/LayerNorm/beta,"
            " cls/seq_relationship/output_bias; tensors that have no place in the"
            " model: bert/encoder/layer_1/output/dense/bias.",
        )

    def test_without_a_head(self):
        weights = weights_of(random_weights(lines_of("BertForPreTraining")))
        kept = weights.with_heads(["next sentence prediction"])
        self.assertEqual(
            set(kept), set(random_weights(lines_of("BertForNextSentencePrediction")))
        )
