import json
import os
import re

import keras
import numpy as np
import tensorflow as tf

from bert_tf import cli, plot_attention
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.study.attention_maps import (
    AttentionMaps,
    attention_maps,
    attention_picture,
)
from bert_tf.study.attention_page import attention_page
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.finetuning.drawn import drawn
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", "$", "<", "/"]


def some_maps(tokens, layers=2, heads=3):
    rng = np.random.default_rng(1)
    shares = rng.random([layers, heads, len(tokens), len(tokens)], np.float32)
    return AttentionMaps(
        tokens=tokens,
        probabilities=shares / shares.sum(axis=-1, keepdims=True),
        layers=tuple(range(layers)),
        heads=tuple(range(heads)),
    )


class AttentionMapsTest(tf.test.TestCase):
    def test_of_a_model(self):
        keras.utils.set_random_seed(1)
        encoder = BertEncoder(toy.CONFIG, output_attentions=True)
        rng = np.random.default_rng(2)
        for weight in encoder.weights:
            weight.assign(rng.normal(0, 0.5, weight.shape))
        tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
        pair = attention_maps(encoder, tokenizer, "a bc", "b")
        self.assertEqual(pair.tokens, ["[CLS]", "a", "b", "##c", "[SEP]", "b", "[SEP]"])
        self.assertEqual(pair.probabilities.shape, (1, 2, 7, 7))
        self.assertAllClose(pair.probabilities.sum(axis=-1), np.ones([1, 2, 7]))
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
        self.assertAllClose(pair.probabilities[0, 0], expected, 1e-4, 1e-4)
        alone = attention_maps(encoder, tokenizer, "a bc b")
        self.assertLen(alone.tokens, 6)
        with self.assertRaisesRegex(InputError, "19 tokens .* takes 16"):
            attention_maps(encoder, tokenizer, "a " * 17)

    def test_some_layers_and_heads(self):
        maps = some_maps(["a", "b"])
        part = maps.of([-1], [2, 0])
        self.assertEqual((part.layers, part.heads), ((1,), (2, 0)))
        self.assertAllEqual(part.probabilities[0, 1], maps.probabilities[1, 0])
        self.assertAllEqual(maps.of([], []).probabilities, maps.probabilities)
        for layers, heads, message in (
            ([2], [], "no layer 2: the model has 2, 0 to 1"),
            ([], [-4], "no head -4: the model has 3"),
        ):
            with self.assertRaisesRegex(InputError, message):
                maps.of(layers, heads)

    def test_the_picture_names_layers_heads_and_tokens(self):
        maps = some_maps(["[CLS]", "$", "[SEP]"])
        texts, content = drawn(lambda: attention_picture(maps.of([1], []), "a $1$ <"))
        self.assertContainsSubset({"a $1$ <", "share of the row's attention"}, texts)
        self.assertTrue({"layer 1, head 0", "layer 1, head 2", "[CLS]"} <= texts)
        self.assertGreater(len(content), 5000)
        # Of very many tokens the names are left out.
        texts, _ = drawn(lambda: attention_picture(some_maps(["x"] * 41), "t"))
        self.assertNotIn("x", texts)

    def test_the_page_holds_the_numbers(self):
        maps = some_maps(["</script>", "b"])
        page = attention_page(maps, "a < b & c")
        self.assertIn("<title>a &lt; b &amp; c</title>", page)
        self.assertEqual(page.count("</script>"), 1)
        data = json.loads(re.search(r"const data = (.*);\n", page).group(1))
        self.assertEqual(data["tokens"], maps.tokens)
        self.assertAllClose(data["probabilities"], maps.probabilities, atol=6e-4)


class PlotAttentionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.get_temp_dir(), "run")
        os.makedirs(self.folder)
        toy.save_checkpoint(self.folder, BertPretrainer(toy.CONFIG), 1, 1)
        toy.write_config(self.folder)
        Vocabulary(TOKENS).save(os.path.join(self.folder, "vocab.txt"))

    def plot(self, *arguments):
        plot_attention.run(
            cli.parse(
                plot_attention.define_flags,
                [
                    f"--checkpoint={self.folder}",
                    f"--output_dir={self.get_temp_dir()}/out",
                    *arguments,
                ],
            )
        )

    def test_writes_both(self):
        self.plot("--heads=1", "a ||| bc")
        with open(os.path.join(self.get_temp_dir(), "out", "attention.html")) as file:
            data = json.loads(re.search("const data = (.*);\n", file.read()).group(1))
        self.assertEqual(data["tokens"], ["[CLS]", "a", "[SEP]", "b", "##c", "[SEP]"])
        self.assertEqual(data["heads"], [1])
        picture = os.path.join(self.get_temp_dir(), "out", "attention.png")
        self.assertGreater(os.path.getsize(picture), 5000)

    def test_bad_input(self):
        for arguments, message in (
            ([], "Give one text"),
            (["a", "b"], "Give one text"),
            (["--layers=x", "a"], "--layers=x: give whole numbers"),
            (["--layers=5", "a"], "no layer 5"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.plot(*arguments)


if __name__ == "__main__":
    tf.test.main()
