"""Models that `fit` has trained, saved for everything that takes a checkpoint."""

import dataclasses
import os

import keras
import numpy as np

import bert_tf
from bert_tf.base.config import MULTI_LABEL
from bert_tf.base.errors import InputError
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPieceTokenizer
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w1", "w2", "w3", "[x]"]
TOKENIZER = WordPieceTokenizer(Vocabulary(TOKENS), do_lower_case=False)
CONFIG = toy.CONFIG


class SavingTest(FolderCase):
    def saved(self, model, **options):
        """The folder of a model with random weights, which are in it."""
        randomize(model, 3)
        folder = self.folder()
        bert_tf.save(model, folder, TOKENIZER, **options)
        source = bert_tf.open_source(folder)
        for name, weight in weights_by_name(model).items():
            self.assertAllEqual(source.weights[name], weight, name)
        return folder

    def test_a_classifier_that_fit_has_trained(self):
        model = bert_tf.BertClassifier(CONFIG, 2)
        model.compile(bert_tf.create_optimizer(1e-2, 4, 1))
        inputs = TOKENIZER(["w1 w2", "w3"] * 4, max_length=8)
        model.fit(inputs, [0, 1] * 4, epochs=2, verbose=0)
        folder = self.path("fitted")
        bert_tf.save(model, folder, TOKENIZER, labels=["no", "yes"], max_length=8)
        loaded = bert_tf.load(folder)
        self.assertEqual(loaded.max_length, 8)
        found = loaded.predict(["w1 w2", "w3"])
        logits = model.predict(TOKENIZER(["w1 w2", "w3"], max_length=8), verbose=0)
        expected = np.exp(logits["logits"])
        expected /= expected.sum(axis=1, keepdims=True)
        self.assertAllClose([one.probabilities["yes"] for one in found], expected[:, 1])
        # Again it is what is there; another model is refused.
        bert_tf.save(model, folder, TOKENIZER, labels=["no", "yes"], max_length=8)
        randomize(model, 5)
        with self.assertRaisesRegex(InputError, "is not empty, and nothing is over"):
            bert_tf.save(model, folder, TOKENIZER, labels=["no", "yes"])
        again = self.path("hf")
        bert_tf.export(folder, again, format="huggingface")
        self.assertEqual(bert_tf.load(again).predict("w3"), loaded.predict("w3"))

    def test_every_head(self):
        self.assertIsNone(bert_tf.load(self.saved(bert_tf.BertEncoder(CONFIG))).model)
        folder = self.saved(bert_tf.BertTagger(CONFIG, 3), labels=["O", "B-X", "I-X"])
        self.assertLen(bert_tf.load(folder).tag("w1 w2")[0].labels, 2)
        bert_tf.load(self.saved(bert_tf.BertPretrainer(CONFIG))).fill("w1 [MASK]")
        long = dataclasses.replace(CONFIG, max_position_embeddings=128)
        bert_tf.load(self.saved(bert_tf.BertSpanPredictor(long))).answer("w1", "w2")
        folder = self.saved(bert_tf.BertMultipleChoice(CONFIG))
        bert_tf.load_multiple_choice(folder)
        for options in (
            {"problem_type": MULTI_LABEL},
            {"problem_type": "regression"},
            {"layer_mixture": True},
            {"adapter_size": 3},
        ):
            model = bert_tf.BertClassifier(CONFIG, 3, **options)
            loaded = bert_tf.load(self.saved(model, labels=["a", "b", "c"]))
            found, expected = (
                one(TOKENIZER(["w1 w3"]))["logits"] for one in (loaded.model, model)
            )
            self.assertAllClose(found, expected, rtol=1e-5, atol=1e-5)
        model = bert_tf.BertClassifier(CONFIG, 1, problem_type="regression")
        self.assertIsInstance(
            bert_tf.load(self.saved(model)).predict("w1")[0][0], float
        )

    def test_lora_is_added_to_the_kernels(self):
        model = bert_tf.BertClassifier(CONFIG, 2, lora_rank=2)
        randomize(model, 3)
        folder = self.path("lora")
        bert_tf.save(model, folder, TOKENIZER)
        inputs = TOKENIZER(["w1 w2"])
        found = bert_tf.load_classifier(folder)(inputs)["logits"]
        self.assertAllClose(found, model(inputs)["logits"], rtol=1e-5, atol=1e-5)

    def test_what_cannot_be_saved(self):
        model = bert_tf.BertClassifier(CONFIG, 2)
        with self.assertRaisesRegex(InputError, "has 2 outputs, its labels are a"):
            bert_tf.save(model, self.path("a"), TOKENIZER, labels=["a"])
        other = WordPieceTokenizer(Vocabulary([*TOKENS, *map(str, range(toy.V))]))
        with self.assertRaisesRegex(InputError, "`tokenizer`"):
            bert_tf.save(model, self.path("a"), other)
        with self.assertRaisesRegex(InputError, r"no model of bert_tf.*\.keras"):
            bert_tf.save(keras.Sequential(name="mine"), self.path("a"), TOKENIZER)
        self.assertFalse(os.path.exists(self.path("a")))
        with self.assertRaisesRegex(InputError, r"could not load it .*NAME\.keras"):
            model.save(self.path("model.h5"))
        path = self.path("model.keras")
        model.save(path)
        with self.assertRaisesRegex(InputError, r"bert_tf\.save\(model, FOLDER"):
            bert_tf.load(path)
