import dataclasses
import json
import os
import tempfile
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf import cli, run_ner
from bert_tf.errors import InputError
from bert_tf.features import FeatureExtractor
from bert_tf.finetuning import feature_tagging_session, tagging_session
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.modeling.heads import BiLstmTagger
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import loop
from tests.modeling.examples import randomize
from tests.run_ner_test import TOKENS, columns, sentences
from tests.training import toy

CONFIG = dataclasses.replace(toy.CONFIG, num_hidden_layers=4)


class FeatureTaggingSessionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = tempfile.mkdtemp(dir=self.get_temp_dir())
        self.model = self.path("bert")
        os.makedirs(self.model)
        encoder = BertEncoder(CONFIG)
        randomize(encoder)
        toy.save_checkpoint(self.model, encoder, 1, 1)
        with open(self.path("bert", "bert_config.json"), "w") as file:
            file.write(CONFIG.to_json_string())
        Vocabulary(TOKENS).save(self.path("bert", "vocab.txt"))
        self.train = self.write("train.txt", columns(sentences(160, 1)))
        self.dev = self.write("dev.txt", columns(sentences(20, 2)))

    def path(self, *names):
        return os.path.join(self.root, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def run_script(self, *arguments, **options):
        options = {
            "init_checkpoint": self.model,
            "features": "last",
            "train_file": self.train,
            "dev_file": self.dev,
            "output_dir": self.path("run"),
            "max_seq_length": 16,
            "train_batch_size": 16,
            "bilstm_size": 16,
            "learning_rate": 1e-2,
            "num_train_epochs": 6,
            **options,
        }
        run_ner.run(
            cli.parse(
                run_ner.define_flags,
                [
                    *arguments,
                    *(f"--{k}={v}" for k, v in options.items() if v is not None),
                ],
            )
        )
        with open(os.path.join(options["output_dir"], "eval_results.txt")) as file:
            pairs = (line.split(" = ") for line in file.read().splitlines())
            return {name: float(value) for name, value in pairs}

    def test_learns_from_features_that_are_computed_once(self):
        options = {"features": "embeddings", "bilstm_size": 32, "bilstm_dropout": 0}
        options |= {"num_train_epochs": 12, "learning_rate": 4e-2}
        results = self.run_script("--do_train", "--do_eval", **options)
        self.assertGreater(results["f1"], 0.9)
        self.assertLess(results["loss"], 0.5)
        with (
            mock.patch.object(FeatureExtractor, "extract", side_effect=AssertionError),
            mock.patch.object(loop, "_call", side_effect=AssertionError),
        ):
            again = self.run_script("--do_train", "--do_eval", **options)
        self.assertEqual(again, results)
        for change, message in (
            ({"features": "last"}, "a run with --features=embeddings"),
            ({"init_checkpoint": None}, "--features=embeddings needs --init_checkp"),
            (
                {"features": None, "bilstm_size": None, "bilstm_dropout": None},
                "holds a BiLSTM .* --features=embeddings too",
            ),
            ({"precision": "bfloat16"}, "embeddings, of other weights or in another"),
        ):
            with self.assertRaisesRegex(InputError, message):
                self.run_script("--do_train", **(options | change))

    @pytest.mark.slow
    def test_layers_mixed_and_one_after_another_share_their_vectors(self):
        expected = {"weighted_sum_last_four": (4, 8), "concat_last_four": (1, 32)}
        for features, shape in expected.items():
            with mock.patch.object(
                feature_tagging_session, "BiLstmTagger", wraps=BiLstmTagger
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

    @pytest.mark.slow
    def test_a_killed_run_ends_as_if_it_had_not_been(self):
        options = {"save_checkpoints_steps": 3, "iterations_per_loop": 1}
        options |= {"num_train_epochs": 1, "document_context": True}
        whole = self.run_script("--do_train", "--do_eval", **options)
        call, calls = loop._call, []

        def killed(*args):
            calls.append(args)
            if len(calls) == 5:
                raise KeyboardInterrupt
            return call(*args)

        options["output_dir"] = self.path("again")
        with (
            mock.patch.object(loop, "_call", killed),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.run_script("--do_train", "--do_eval", **options)
        found = self.run_script("--do_train", "--do_eval", **options)
        self.assertEqual(found, whole)

    def test_the_folders_flags_say_what_it_was_trained_with(self):
        options = {"learning_rate": None, "num_train_epochs": None}
        with (
            mock.patch.object(
                feature_tagging_session, "finetune", side_effect=SystemExit
            ) as finetune,
            self.assertRaises(SystemExit),
        ):
            self.run_script("--do_train", **options)
        own = finetune.call_args.args[2]
        self.assertEqual((own.learning_rate, own.num_train_epochs), (1e-3, 10.0))
        self.assertIsNone(own.init_checkpoint)
        with open(self.path("run", "flags.json")) as file:
            written = json.load(file)
        self.assertEqual(
            (written["learning_rate"], written["num_train_epochs"]), (1e-3, 10.0)
        )
        self.assertEqual(written["init_checkpoint"], self.model)
        # It has no checkpoint, so BERT itself may be fine-tuned there.
        with (
            mock.patch.object(tagging_session, "finetune", side_effect=SystemExit),
            self.assertRaises(SystemExit),
        ):
            self.run_script("--do_train", features=None, bilstm_size=None)
        self.assertNotIn("features.json", os.listdir(self.path("run")))

    def test_what_a_user_got_wrong(self):
        with self.assertRaisesRegex(InputError, "has no BiLSTM. Train first"):
            self.run_script("--do_eval", labels="O,B-PER,I-PER,B-LOC,I-LOC")
        small = self.path("small")
        os.makedirs(small)
        toy.save_checkpoint(small, BertEncoder(toy.CONFIG), 1, 1)
        toy.write_config(small)
        Vocabulary(TOKENS).save(os.path.join(small, "vocab.txt"))
        with self.assertRaisesRegex(InputError, "of 4 layers; this one has 1"):
            self.run_script(
                "--do_train", features="concat_last_four", init_checkpoint=small
            )
        with self.assertRaisesRegex(Exception, "must be even"):
            cli.parse(run_ner.define_flags, ["--bilstm_size=5"])


if __name__ == "__main__":
    tf.test.main()
