import dataclasses
import os
import tempfile
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import run_ner
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.records.batching import ExampleTable
from bert_tf.tasks import finetuning
from bert_tf.tasks.feature_extraction.features import FeatureExtractor
from bert_tf.tasks.tagging import frozen_features
from bert_tf.tasks.tagging.frozen_features import (
    BiLstmTagger,
    WordFeaturizer,
    inputs_of_windows,
    with_vectors,
)
from bert_tf.tasks.tagging.sentence_windows import SentenceFeatures, blocks, schema
from bert_tf.tasks.tagging.tagging_options import TaggingOptions
from bert_tf.training.step import on_devices
from tests.conversion import runs
from tests.modeling import numpy_bert
from tests.modeling.examples import randomize
from tests.run_ner_test import TOKENS, columns, sentences
from tests.script_case import ScriptCase
from tests.training import toy

# Two windows of 2 and 1 words; the words' labels, and their vectors [T, 1, 2].
WINDOWS = [
    SentenceFeatures([2, 7, 8, 9, 3], np.array([1, 3]), np.array([0, 1])),
    # Word 2 is predicted from here, word 1 from the window before.
    SentenceFeatures([2, 9, 11, 3], np.array([2]), np.array([2])),
]
LABELS = np.array([4, 0, 5])
VECTORS = np.array([[[1, 2]], [[3, 4]], [[5, 6]]], np.float16)


B, S, L, F, H, C = 2, 4, 3, 5, 6, 3


def logits_of(weights, vectors):
    """The scores of one sentence [S, L, F], in numpy."""
    scores = np.exp(weights["layer_mixture/scores"])
    mixed = np.tensordot(scores / scores.sum(), vectors, axes=(0, 1))
    x = weights["layer_mixture/gamma"] * mixed
    for number in range(2):
        parts = []
        for name, order in (("forward", 1), ("backward", -1)):
            part = numpy_bert.lstm(weights, f"bilstm_{number}/{name}_lstm", x[::order])
            parts.append(part[::order])
        x = np.concatenate(parts, axis=1)
    return x @ weights["tagging/output_weights"].T + weights["tagging/output_bias"]


class BiLstmTaggerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.model = BiLstmTagger(L, F, C, hidden_size=H)
        weights = randomize(self.model).items()
        self.weights = {name.removeprefix("cls/"): x for name, x in weights}
        rng = np.random.default_rng(2)
        self.features = np.float32(rng.normal(size=[B, S, L, F]))
        self.mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])

    def batch(self, **others):
        return {"features": self.features, "input_mask": self.mask, **others}

    def test_as_its_equations_have_it_whatever_the_padding(self):
        logits = self.model(self.batch())["logits"]
        for row, length in enumerate((4, 2)):
            expected = logits_of(self.weights, np.float64(self.features[row, :length]))
            self.assertAllClose(logits[row, :length], expected, 1e-5, 1e-5)

    def test_one_vector_a_word_is_not_mixed(self):
        model = BiLstmTagger(1, F, C, hidden_size=H)
        self.assertFalse([w for w in model.weights if "mixture" in w.path])
        features = self.features[:, :, :1]
        output = model({"features": features, "input_mask": self.mask})
        self.assertEqual(output["logits"].shape, (B, S, C))

    def test_saved(self):
        path = os.path.join(self.get_temp_dir(), "model.keras")
        self.model.save(path)
        again = keras.models.load_model(path)
        self.assertAllEqual(
            self.model(self.batch())["logits"], again(self.batch())["logits"]
        )


class TaggedWordsTest(tf.test.TestCase):
    def test_each_word_has_the_vector_of_its_first_piece(self):
        first, second = inputs_of_windows(WINDOWS)
        self.assertEqual(first.ids, [2, 7, 8, 9, 3])
        self.assertEqual(first.segment_ids, [0] * 5)
        self.assertEqual([start for start, _ in first.spans], [1, 3])
        self.assertEqual(first.num_vectors, 2)
        self.assertEqual([start for start, _ in second.spans], [2])


class OptionsTest(tf.test.TestCase):
    def test_given_rates_are_tried_and_else_one_is_a_bilstm_s(self):
        options = TaggingOptions(
            output_dir="o", do_train=True, train_file="t", features="last"
        )
        of_one = frozen_features.with_own_defaults(options)
        self.assertEqual(of_one.learning_rate, frozen_features.BILSTM_LEARNING_RATE)
        several = dataclasses.replace(
            options, learning_rates=(1e-3, 2e-3), dev_file="d"
        )
        rates = [
            one.learning_rate
            for one in frozen_features.with_own_defaults(several).settings
        ]
        self.assertEqual(rates, [1e-3, 2e-3])


class OfTokens:
    """Stands for the featurizer of tokens."""

    max_seq_length = 8

    def __call__(self, sentences):
        return WINDOWS


class WordVectorsTest(tf.test.TestCase):
    def records(self):
        return ExampleTable(
            blocks(WordFeaturizer(OfTokens(), {})([]), LABELS, 8),
            schema(8, for_training=True),
        )

    def check(self, batch):
        """A batch of the second window, the first one, and padding."""
        zero = [[0, 0]]
        self.assertAllEqual(
            batch["features"],
            [[[[5, 6]], zero, zero], [[[1, 2]], [[3, 4]], zero], [zero, zero, zero]],
        )
        self.assertEqual(np.asarray(batch["features"]).dtype, np.float32)
        self.assertAllEqual(batch["label_ids"], [[5, 0, 0], [4, 0, 0], [0, 0, 0]])
        weights = [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
        self.assertAllEqual(batch["label_weights"], weights)
        self.assertAllEqual(batch["input_mask"], weights)

    def test_batches_to_train_on(self):
        table = with_vectors(self.records(), VECTORS)
        dataset = table.dataset(np.array([[1, 0, -1]]), 3)
        self.assertEqual(dataset.element_spec["features"].shape, [3, 3, 1, 2])
        (batch,) = dataset
        self.check(batch)

    def test_batches_to_predict(self):
        plain = self.records().batches(3, num_lengths=1)
        batches = plain.of_table(with_vectors(plain.table, VECTORS))
        self.assertLen(batches, 1)
        (batch,) = batches
        self.assertAllEqual(batch["rows"], [0, 1, -1])
        batch = {name: value[[1, 0, 2]] for name, value in batch.items()}
        padding = np.zeros([3, 1, 1, 2])
        batch["features"] = np.concatenate([batch["features"], padding], axis=1)
        for name in ("label_ids", "label_weights", "input_mask"):
            batch[name] = np.pad(batch[name], [(0, 0), (0, 1)])
        batch["features"] = np.float32(batch["features"])
        self.check(batch)


CONFIG = dataclasses.replace(toy.CONFIG, num_hidden_layers=4)


class FeatureTaggingTest(ScriptCase):
    script = run_ner
    tokens = TOKENS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.models = []
        for config in (CONFIG, toy.CONFIG):
            encoder = BertEncoder(config)
            randomize(encoder)
            folder = os.path.join(root, f"layers{config.num_hidden_layers}")
            cls.models.append(runs.save(folder, encoder, config=config, tokens=TOKENS))

    def setUp(self):
        super().setUp()
        self.train = self.write("train.txt", columns(sentences(160, 1)))
        self.dev = self.write("dev.txt", columns(sentences(20, 2)))

    def defaults(self):
        return {
            "vocab_file": None,
            "bert_config_file": None,
            "init_checkpoint": self.models[0],
            "features": "last",
            "train_file": self.train,
            "dev_file": self.dev,
            "max_seq_length": 16,
            "train_batch_size": 16,
            "bilstm_size": 16,
            "learning_rate": 1e-2,
            "num_train_epochs": 6,
            "length_buckets": 1,
        }

    def run_script(self, *arguments, **options):
        super().run_script(*arguments, **options)
        return self.results(os.path.basename(options.get("output_dir", "run")))

    def test_learns_from_features_that_are_computed_once(self):
        options = {"features": "embeddings", "bilstm_size": 32, "bilstm_dropout": 0}
        options |= {"num_train_epochs": 7, "learning_rate": 4e-2}
        results = self.run_script("--do_train", "--do_eval", **options)
        self.assertGreater(results["f1"], 0.9)
        self.assertLess(results["loss"], 0.5)
        with (
            mock.patch.object(FeatureExtractor, "extract", side_effect=AssertionError),
            mock.patch.object(
                on_devices(), "training_steps", side_effect=AssertionError
            ),
        ):
            again = self.run_script("--do_train", "--do_eval", **options)
        self.assertEqual(again, results)
        for change, message in (
            ({"features": "last"}, "holds a run with .'features': 'embeddings'"),
            ({"init_checkpoint": None}, "features=embeddings` needs `init_checkp"),
            (
                {"features": None, "bilstm_size": None, "bilstm_dropout": None},
                "holds a BiLSTM .* `features=embeddings` too",
            ),
            ({"precision": "bfloat16"}, "precision': 'float32'"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **(options | change))

    @pytest.mark.slow
    def test_the_best_run_is_evaluated(self):
        several = {"learning_rates": 1e-2, "output_dir": self.path("several")}
        several |= {"learning_rate": None, "num_train_epochs": 1}
        several |= {"features": "embeddings"}
        results = self.run_script("--do_train", "--do_eval", **several)
        self.assertIn("features.json", os.listdir(self.path("several", "best")))
        self.assertEqual(self.run_script("--do_eval", **several), results)

    @pytest.mark.slow
    def test_layers_mixed_and_one_after_another_share_their_vectors(self):
        expected = {"weighted_sum_last_four": (4, 8), "concat_last_four": (1, 32)}
        for features, shape in expected.items():
            with mock.patch.object(
                frozen_features, "BiLstmTagger", wraps=BiLstmTagger
            ) as tagger:
                self.run_script(
                    "--do_train",
                    "--do_eval",
                    features=features,
                    feature_dir=self.path("features"),
                    output_dir=self.path(features),
                    num_train_epochs=1,
                )
            self.assertEqual(tagger.call_args.args, (*shape, 5))
        names = os.listdir(self.path("features"))
        self.assertCountEqual(
            [name[: name.rindex("-")] for name in names],
            ["train_-4_-3_-2_-1", "dev_-4_-3_-2_-1"],
        )

    def test_the_folders_flags_say_what_it_was_trained_with(self):
        options = {"learning_rate": None, "num_train_epochs": None}
        with (
            mock.patch.object(finetuning, "train", side_effect=SystemExit) as train,
            self.assertRaises(SystemExit),
        ):
            self.run_script("--do_train", **options)
        own = train.call_args.kwargs
        self.assertEqual(own["config"].learning_rate, 1e-3)
        self.assertEqual(own["start"].settings["num_train_epochs"], 10.0)
        self.assertIsNone(own["init_checkpoint"])
        written = self.read_json("run", "flags.json")
        found = written["learning_rate"], written["num_train_epochs"]
        self.assertEqual(found, (1e-3, [10.0]))
        self.assertEqual(written["init_checkpoint"], self.models[0])
        # It has no checkpoint, so BERT itself may be fine-tuned there.
        with (
            mock.patch.object(finetuning, "train", side_effect=SystemExit),
            self.assertRaises(SystemExit),
        ):
            self.run_script("--do_train", features=None, bilstm_size=None)
        self.assertNotIn("features.json", os.listdir(self.path("run")))

    def test_what_a_user_got_wrong(self):
        with self.assertRaisesRegex(InputError, "has no checkpoint and there is no"):
            self.run_script("--do_eval", labels="O,B-PER,I-PER,B-LOC,I-LOC")
        small = {"features": "concat_last_four", "init_checkpoint": self.models[1]}
        with self.assertRaisesRegex(InputError, "of 4 layers; this one has 1"):
            self.run_script("--do_train", **small)
        with self.assertRaisesRegex(Exception, "must be even"):
            cli.parse(run_ner.run, ["--output_dir=o", "--bilstm_size=5"])
