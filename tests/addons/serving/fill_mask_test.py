import dataclasses

import numpy as np

from bert_tf.addons.serving import fill_mask
from bert_tf.base.errors import InputError
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.conversion import runs
from tests.script_case import FolderCase, printed
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "."]


def biased_model():
    """A model whose guesses hang on the output bias alone, and so are known."""
    model = BertPretrainer(toy.CONFIG)
    weights = weights_by_name(model)
    table = weights["bert/embeddings/word_embeddings"]
    table.assign(np.zeros(table.shape))
    bias = np.full(toy.V, -100.0)
    # exp(0) : exp(log 3) of these two, and nothing of the rest.
    bias[TOKENS.index("cat")] = np.log(3.0)
    bias[TOKENS.index("sat")] = 0.0
    bias[toy.V - 1] = 50.0  # beyond the vocabulary: never a guess
    weights["cls/predictions/output_bias"].assign(bias)
    return model


class FillMaskTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.tokenizer = WordPieceTokenizer(
            Vocabulary(TOKENS), recognize_special_tokens=True
        )

    def test_the_likeliest_first_for_each_blank(self):
        (guesses,) = fill_mask.fill_masks(
            biased_model(), self.tokenizer, ["The [MASK] [MASK]."], top_k=2
        )
        self.assertLen(guesses, 2)
        for blank in guesses:
            self.assertEqual([guess.token for guess in blank], ["cat", "sat"])
            self.assertAllClose([guess.probability for guess in blank], [0.75, 0.25])

    def test_no_blank_and_too_long(self):
        model = BertPretrainer(toy.CONFIG)
        with self.assertRaisesRegex(InputError, r"No \[MASK\]"):
            fill_mask.fill_masks(model, self.tokenizer, ["The cat"])
        with self.assertRaisesRegex(InputError, "has 23 tokens .* takes 16"):
            fill_mask.fill_masks(model, self.tokenizer, ["[MASK] " + "cat " * 20])

    def test_left_to_right(self):
        model = BertPretrainer(dataclasses.replace(toy.CONFIG, left_to_right=True))
        with self.assertRaisesRegex(InputError, "in one direction"):
            fill_mask.fill_masks(model, self.tokenizer, ["The [MASK]."])

    def test_command(self):
        folder = runs.save(self.path("run"), biased_model(), tokens=TOKENS)
        given = f"--checkpoint={folder}", "--top_k=2", "The [MASK] sat."
        shown = "The [MASK] sat.\n   75.00%  cat\n   25.00%  sat\n"
        self.assertIn(shown, printed(fill_mask, *given))

    def test_command_without_a_blank_loads_nothing(self):
        for texts, message in (([], "Give a text"), (["The cat"], r"No \[MASK\]")):
            with self.assertRaisesRegex(InputError, message):
                printed(fill_mask, "--checkpoint=nowhere", *texts)
