import os

import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf.addons.study import plot_attention
from bert_tf.addons.study.plot_attention import (
    attention_maps,
    attention_picture,
    chosen,
)
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.conversion import runs
from tests.drawn import drawn
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", *"$</"]


class AttentionMapsTest(tf.test.TestCase):
    def test_of_a_model(self):
        encoder = BertEncoder(toy.CONFIG, output_attentions=True)
        randomize(encoder)
        tokenizer = WordPieceTokenizer(Vocabulary(TOKENS))
        tokens, maps = attention_maps(encoder, tokenizer, "a bc", "b")
        self.assertEqual(tokens, ["[CLS]", "a", "b", "##c", "[SEP]", "b", "[SEP]"])
        self.assertEqual(maps.shape, (1, 2, 7, 7))
        self.assertAllClose(maps.sum(axis=-1), np.ones([1, 2, 7]))
        # Held to numpy's in tests/modeling/encoder_test.py.
        ids = np.array([[2, 5, 6, 7, 3, 6, 3]])
        inputs = {"input_ids": ids, "input_mask": ids * 0 + 1}
        inputs["segment_ids"] = np.array([[0] * 5 + [1] * 2])
        expected = encoder(inputs)["attention_probs"][0][0]
        self.assertAllClose(maps[0], expected, 1e-5, 1e-5)
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
        layers = {"layer 1, head 0", "layer 1, head 2", "[CLS]", "a $1$ <"}
        self.assertContainsSubset(layers | {"share of the row's attention"}, texts)
        self.assertGreater(len(content), 5000)


class PlotAttentionTest(FolderCase):
    def setUp(self):
        super().setUp()
        model = BertPretrainer(toy.CONFIG)
        self.folder = runs.save(self.path("run"), model, tokens=TOKENS)

    def plot(self, *arguments):
        folders = f"--checkpoint={self.folder}", f"--output_dir={self.path('out')}"
        printed(plot_attention, *folders, *arguments)

    def test_writes_a_picture(self):
        self.plot("--heads=1", "a ||| bc")
        self.assertGreater(os.path.getsize(self.path("out", "attention.png")), 5000)

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
