import os

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import cli, plot_attention
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.plot_attention import attention_maps, attention_picture, chosen
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.drawn import drawn
from tests.training import toy

TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "b",
    "##c",
    "$",
    "<",
    "/",
]


class AttentionMapsTest(tf.test.TestCase):
    def test_of_a_model(self):
        keras.utils.set_random_seed(1)
        encoder = BertEncoder(toy.CONFIG, output_attentions=True)
        rng = np.random.default_rng(2)
        for weight in encoder.weights:
            weight.assign(rng.normal(0, 0.5, weight.shape))
        tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
        tokens, maps = attention_maps(encoder, tokenizer, "a bc", "b")
        self.assertEqual(tokens, ["[CLS]", "a", "b", "##c", "[SEP]", "b", "[SEP]"])
        self.assertEqual(maps.shape, (1, 2, 7, 7))
        self.assertAllClose(maps.sum(axis=-1), np.ones([1, 2, 7]))
        # The first layer by hand, from its weights: scores are scaled products.
        names = {weight.path.split("bert/")[-1]: weight for weight in encoder.weights}
        table = {name: np.float64(weight.numpy()) for name, weight in names.items()}
        x = (
            table["embeddings/word_embeddings"][[2, 5, 6, 7, 3, 6, 3]]
            + table["embeddings/token_type_embeddings"][[0] * 5 + [1] * 2]
            + table["embeddings/position_embeddings"][:7]
        )
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        norm = "embeddings/LayerNorm/"
        x = x * table[norm + "gamma"] + table[norm + "beta"]
        prefix = "encoder/layer_0/attention/self/"
        query, key = (
            x @ table[f"{prefix}{name}/kernel"].reshape(8, 8)
            + table[f"{prefix}{name}/bias"].reshape(8)
            for name in ("query", "key")
        )
        scores = query[:, :4] @ key[:, :4].T / 2.0  # the first head's 4 of 8
        expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        self.assertAllClose(maps[0, 0], expected, 1e-4, 1e-4)
        tokens, _ = attention_maps(encoder, tokenizer, "a bc b")
        self.assertLen(tokens, 6)
        with self.assertRaisesRegex(InputError, "19 tokens.* 16"):
            attention_maps(encoder, tokenizer, "a " * 17)

    def test_some_layers_and_heads(self):
        self.assertEqual(chosen([-1], 2, "layer"), [1])
        self.assertEqual(chosen([2, 0], 3, "head"), [2, 0])
        self.assertEqual(chosen([], 3, "head"), [0, 1, 2])
        for wanted, message in (
            (2, "no layer 2: the model has 2, 0 to 1"),
            (-3, "no layer -3: the model has 2"),
        ):
            with self.assertRaisesRegex(InputError, message):
                chosen([wanted], 2, "layer")

    def test_the_picture_names_layers_heads_and_tokens(self):
        tokens = ["[CLS]", "$", "[SEP]"]
        maps = np.random.default_rng(1).random([2, 3, 3, 3], np.float32)
        texts, content = drawn(
            lambda: attention_picture(tokens, maps, [1], [0, 2], "a $1$ <")
        )
        self.assertContainsSubset({"a $1$ <", "share of the row's attention"}, texts)
        self.assertContainsSubset(
            {"layer 1, head 0", "layer 1, head 2", "[CLS]"}, texts
        )
        self.assertGreater(len(content), 5000)


class PlotAttentionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "run")
        toy.save_checkpoint(self.folder, BertPretrainer(toy.CONFIG), 1, 1)
        toy.write_config(self.folder)
        Vocabulary(TOKENS).save(os.path.join(self.folder, "vocab.txt"))

    def plot(self, *arguments):
        plot_attention.run(
            cli.parse(
                plot_attention.run,
                [
                    f"--checkpoint={self.folder}",
                    f"--output_dir={self.get_temp_dir()}/out",
                    *arguments,
                ],
            )
        )

    def test_writes_a_picture(self):
        self.plot("--heads=1", "a ||| bc")
        picture = os.path.join(self.get_temp_dir(), "out", "attention.png")
        self.assertGreater(os.path.getsize(picture), 5000)

    def test_bad_input(self):
        for arguments, message in (
            ([], "Give one text"),
            (["a", "b"], "Give one text"),
            (["--layers=5", "a"], "no layer 5"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.plot(*arguments)
        with self.assertRaisesRegex(flags.Error, "--layers=x: must be whole numbers"):
            self.plot("--layers=x", "a")
