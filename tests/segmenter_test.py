"""A segmenter, from the vocabulary to the predictions, through the folders alone."""

import dataclasses
import importlib.util
import os
import unittest

import pytest
from absl import logging

import bert_tf
from bert_tf import run_pretraining
from bert_tf.addons.corpora import extension, trimming
from bert_tf.addons.serving import export_model, fill_mask
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion.loading import read_model_files
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.records import create_pretraining_data, learn_vocabulary
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import runs
from tests.conversion.runs import ModelFlags
from tests.script_case import FolderCase, printed
from tests.training import toy

# Each line a phrase of words without spaces: the language Thai is a language.
LINES = ["ภาษาไทยเป็นภาษา", "ไทยเป็นภาษาไทย", "ภาษาเป็นภาษาไทย"]
OF_THE_RUN = {"do_lower_case": False, "segmenter": "icu"}
WORDS = ["ภาษา", "ไทย", "เป็น"]


@unittest.skipUnless(importlib.util.find_spec("icu4py"), "the extra `segmenter`")
class SegmenterTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", "\n\n".join(["\n".join(LINES)] * 9))
        self.vocab = self.path("vocab.txt")
        cli.run_script(
            learn_vocabulary,
            input_file=self.text,
            output_file=self.vocab,
            vocab_size=90,
            fewer_tokens=True,
            do_lower_case=False,
            segmenter="icu",
            num_workers=1,
        )

    def make_records(self, name, **flags):
        given = {"segmenter": "icu", "do_lower_case": False, **flags}
        cli.run_script(
            create_pretraining_data,
            input_file=self.text,
            output_file=self.path(name),
            vocab_file=self.vocab,
            max_seq_length=toy.L,
            max_predictions_per_seq=toy.P,
            num_workers=1,
            **given,
        )
        return self.path(name)

    def pretrain(self, records, output_dir="run", **flags):
        size = len(Vocabulary.from_file(self.vocab))
        config = dataclasses.replace(toy.CONFIG, vocab_size=size)
        cli.run_script(
            run_pretraining,
            input_file=records,
            bert_config_file=self.write("config.json", config.to_json_string()),
            output_dir=self.path(output_dir),
            do_train=True,
            num_train_steps=1,
            **flags,
        )
        return self.path(output_dir)

    def refused(self, message, function, *arguments, **flags):
        with self.assertRaisesRegex(InputError, message) as caught:
            function(*arguments, **flags)
        self.assertNotIn("\n", str(caught.exception))

    def checkpoint(self):
        """The folder of a run of the vocabulary, without training it."""
        tokens = Vocabulary.from_file(self.vocab).tokens
        config = dataclasses.replace(toy.CONFIG, vocab_size=len(tokens))
        model = BertPretrainer(config)
        folder = runs.save(self.path("model"), model, config=config, tokens=tokens)
        self.write("model/tokenizer_config.json", OF_THE_RUN)
        return folder

    def test_a_run(self):
        self.assertContainsSubset(WORDS, Vocabulary.from_file(self.vocab).tokens)
        records = self.make_records("records")
        self.assertEqual(self.read_json("records.manifest.json")["segmenter"], "icu")
        run = self.pretrain(records)
        self.assertEqual(self.read_json("run", "tokenizer_config.json"), OF_THE_RUN)
        self.assertIn("segmenter icu", self.read("run", "README.md"))
        other = self.make_records("other", segmenter="none")
        self.refused("holds a run .*segmenter=icu there, none", self.pretrain, other)
        shown = printed(fill_mask, f"--checkpoint={run}", "ไทยเป็น[MASK]ไทย")
        self.assertIn("%", shown)

    def test_what_is_made_with_another_one(self):
        records = self.make_records("records")
        self.refused(
            "made with `segmenter=icu`, not none",
            *(self.make_records, "records"),
            segmenter="none",
        )
        other = self.make_records("other", segmenter="none")
        self.refused("cannot be used tog.*segmenter", self.pretrain, (records, other))
        self.refused(
            "The records have `segmenter=none`, .*model was trained with icu",
            *(self.pretrain, other),
            init_checkpoint=self.checkpoint(),
        )
        cased = self.make_records("cased", do_lower_case=True)
        self.refused(
            "The records have `do_lower_case=True`, .*model was trained with False",
            *(self.pretrain, cased),
            init_checkpoint=self.checkpoint(),
        )

    def test_what_begins_with_a_checkpoint(self):
        model = self.checkpoint()
        text, tokens = LINES[0], ["ภาษา", "ไทย", "เป็น", "ภาษา"]
        self.assertEqual(bert_tf.load_tokenizer(model).tokenize(text), tokens)
        found = read_model_files(ModelFlags(init_checkpoint=model), self.path("new"))
        self.assertEqual(found.tokenizer.tokenize(text), tokens)
        again = read_model_files(ModelFlags(), model)
        self.assertEqual(again.segmenter, "icu")
        filler = bert_tf.load(model)
        self.assertEqual(filler.tokenizer.tokenize(text), tokens)
        self.assertLen(filler.fill("ไทยเป็น[MASK]ไทย"), 1)
        # New words are those of the checkpoint's segmenter.
        self.extend(model)
        self.refused(
            "^Received: `segmenter=none`, but .* with icu",
            self.extend,
            model,
            segmenter="none",
        )
        # So are those of a smaller vocabulary.
        cli.run_script(
            trimming,
            init_checkpoint=model,
            input_file=self.write("few.txt", f"{text}\n"),
            output_dir=self.path("trimmed"),
            num_workers=1,
        )
        trimmed = bert_tf.load_tokenizer(self.path("trimmed"))
        self.assertEqual((trimmed.segmenter, trimmed.tokenize(text)), ("icu", tokens))
        self.assertLess(len(trimmed.vocabulary), len(found.vocabulary))

    def extend(self, model, **more):
        cli.run_script(
            extension,
            init_checkpoint=model,
            input_file=self.write("new.txt", "นักเรียนไทยเป็นนักเรียน\n" * 9),
            output_file=self.path("extended.txt"),
            num_new_tokens=1,
            num_workers=1,
            **more,
        )
        extended = Vocabulary.from_file(self.path("extended.txt"))
        self.assertEqual(extended.tokens[-1], "นักเรียน")

    def test_new_words_of_a_checkpoint_that_had_no_segmenter(self):
        model = self.checkpoint()
        os.remove(self.path("model", "tokenizer_config.json"))
        self.extend(model, segmenter="icu", do_lower_case=False)

    def export(self, checkpoint, kind, *arguments):
        given = f"--checkpoint={checkpoint}", f"--format={kind}", *arguments
        with self.assertLogs(logging.get_absl_logger()) as logs:
            printed(export_model, *given, f"--output_dir={self.path(kind)}")
        return "".join(logs.output)

    def test_exports(self):
        model = self.checkpoint()
        for kind in ("huggingface", "kerashub", "sentence_transformers"):
            self.refused("trained with segmenter=icu.* ids", self.export, model, kind)
            self.assertFalse(os.path.exists(self.path(kind)))
        self.assertIn("by bert_tf alone", self.export(model, "tf1"))
        tokenizer = bert_tf.load_tokenizer(self.path("tf1"))
        self.assertEqual(tokenizer.segmenter, "icu")
        bert_tf.save(bert_tf.load_encoder(model), self.path("saved"), tokenizer)
        tokenizer = bert_tf.load_tokenizer(self.path("saved"))
        self.assertEqual(tokenizer.segmenter, "icu")

    @pytest.mark.slow
    def test_a_saved_model_takes_ids(self):
        logs = self.export(self.checkpoint(), "saved_model", "--heads=none")
        self.assertIn("the SavedModel takes ids", logs)
        self.assertIn("Its signatures: serving_default, tensors.", logs)
