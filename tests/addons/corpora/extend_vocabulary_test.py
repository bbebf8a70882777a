"""The script, and the runs that begin with what it has written."""

import json
import lzma
import os
from unittest import mock

import numpy as np
import pytest
from absl import flags as flags_of_absl
from absl import logging

from bert_tf import run_classifier, run_pretraining
from bert_tf.addons.corpora import extension
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion.tensorflow import read_weights
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.records import create_pretraining_data
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS += ["ca", "##t", "##s", "d", "##o", "##g", "ran", "sat", "on", "."]
# cats saves 24 tokens, and so does dog, half of them in dogs, which then is two pieces.
TEXT = "cats ran . " * 12 + "\n\n" + "Dogs sat on dog . " * 6
EXTENDED = [TOKENS[0], "cats", *TOKENS[2:], "dog", "dogs"]
DOCUMENTS = "\n\n".join("cats ran on dogs .\ndogs sat .\ncats sat ." for _ in range(9))


class ExtensionCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.text = self.write("in.txt", TEXT)
        self.model = self.path("model")

    def checkpoint(self):
        model = BertPretrainer(toy.CONFIG)
        randomize(model)
        return runs.save(self.model, model, tokens=TOKENS)

    def run_script(self, *arguments, output="new/vocab.txt", text=None):
        given = {
            "init_checkpoint": self.model,
            "input_file": text or self.text,
            "output_file": self.path(output),
            "num_workers": 1,
        }
        flags = [f"--{name}={value}" for name, value in given.items()]
        flags = [*flags, *(arguments or ["--num_new_tokens=3"])]
        extension.run(cli.parse(extension.run, flags))
        return list(Vocabulary.from_file(self.path(output)))


class ExtendVocabularyTest(ExtensionCase):
    def test_the_words_that_save_the_most(self):
        self.checkpoint()
        with mock.patch.object(logging, "info") as info:
            self.assertEqual(self.run_script(), EXTENDED)
        lines = [call.args[0] % call.args[1:] for call in info.call_args_list]
        self.assertIn(
            "Added 3 words, 1 of them in place of [unused] tokens: cats, dog, dogs",
            lines,
        )
        # 36 and 30 words of 4, 3 and 1 pieces.
        self.assertIn(
            "Tokens per word: 1.0000, before: 1.8182. Words that become [UNK]: 0,"
            " before: 0",
            lines,
        )
        texts = {
            "xz": self.write("in.xz.txt.xz", lzma.compress(TEXT.encode())),
            "jsonl": self.write("in.jsonl", json.dumps({"text": TEXT})),
        }
        for name, path in texts.items():
            found = self.run_script("--num_new_tokens=3", text=path, output=name)
            self.assertEqual(found, EXTENDED)
        found = self.run_script("--tokens_per_word=1.2", output="length")
        self.assertEqual(found, EXTENDED[:-1])
        found = self.run_script(
            "--num_new_tokens=1", "--min_frequency=7", "--num_workers=2", output="one"
        )
        self.assertEqual(found, [*EXTENDED[:2], *TOKENS[2:]])

    def test_the_same_command_again(self):
        self.checkpoint()
        self.run_script()
        before = os.stat(self.path("new/vocab.txt")).st_mtime_ns
        with mock.patch.object(logging, "info") as info:
            # The pattern takes in both vocabularies, which are no text.
            pattern = f"{self.path('*.txt')},{self.path('*/vocab.txt')}"
            self.run_script(text=pattern)
        self.assertIn("All is done already", info.call_args.args[0])
        with self.assertRaisesRegex(InputError, "another vocabulary"):
            self.run_script("--num_new_tokens=2")
        self.assertEqual(os.stat(self.path("new/vocab.txt")).st_mtime_ns, before)
        self.assertEqual(
            self.run_script("--num_new_tokens=2", "--overwrite"), EXTENDED[:-1]
        )
        # A length that the text has already adds nothing, and is done as well.
        for _ in range(2):
            found = self.run_script("--tokens_per_word=3", output="nothing.txt")
            self.assertEqual(found, TOKENS)

    def test_the_casing_is_the_checkpoints(self):
        self.checkpoint()
        runs.write_json({"do_lower_case": False}, self.model, "tokenizer_config.json")
        text = self.write("cased.txt", "Dogs dogs " * 9)
        found = self.run_script("--num_new_tokens=2", text=text)
        # Dogs is [UNK], as many tokens as it has characters.
        self.assertEqual(found, [TOKENS[0], "Dogs", *TOKENS[2:], "dogs"])
        with self.assertRaisesRegex(InputError, "do_lower_case=True.*trained with Fal"):
            self.run_script("--num_new_tokens=2", "--do_lower_case")

    def test_what_is_wrong_is_one_line(self):
        folder = self.checkpoint()
        one = "--num_new_tokens=1"
        bare = runs.save(self.path("bare"), BertPretrainer(toy.CONFIG), tokens=None)
        odd = runs.save(self.path("odd"), BertPretrainer(toy.CONFIG), tokens=["a", "b"])
        other = runs.save(self.path("other"), BertPretrainer(toy.CONFIG), tokens=TOKENS)
        runs.write_json(
            {"do_lower_case": True, "tokenize_chinese_chars": False},
            *(other, "tokenizer_config.json"),
        )
        os.makedirs(self.path("empty"))
        self.write("mine.txt", "a poem\n")
        self.write("latin.txt", b"caf\xe9")
        self.write("blank.txt", "\n \n")
        for arguments, options, message in (
            ([one, f"--init_checkpoint={bare}"], {}, "No such vocabulary file: .*bare"),
            ([one, f"--init_checkpoint={odd}"], {}, r"must have \[UNK\], "),
            ([one, f"--init_checkpoint={other}"], {}, "tokenize_chinese_chars=false"),
            ([one, f"--init_checkpoint={self.path('empty')}"], {}, "no checkpoint in"),
            ([one], {"output": "mine.txt"}, "mine.txt exists and is another vocab"),
            ([one], {"output": "empty"}, "is a folder"),
            ([one], {"output": "in.txt/v.txt"}, "a file is in its way"),
            ([one], {"text": "/no/such"}, "no file matches"),
            ([one], {"text": self.path("latin.txt")}, "latin.txt:1: not UTF-8"),
            ([one], {"text": self.path("blank.txt")}, "must have words"),
            ([one], {"text": os.path.join(folder, "vocab.txt")}, "has only files that"),
            (["--num_new_tokens=4"], {}, "`num_new_tokens=4`: this text supports 3, "),
            (
                ["--tokens_per_word=1", "--min_frequency=12"],
                *({}, "`tokens_per_word=1.0`: this text supports 1.4545, with all"),
            ),
        ):
            with self.assertRaisesRegex(InputError, message) as caught:
                self.run_script(*arguments, **options)
            self.assertNotIn("\n", str(caught.exception))
        self.assertFalse(os.path.exists(self.path("new", "vocab.txt")))
        for arguments, message in (
            ([], "Give --num_new_tokens or --tokens_per_word"),
            ([one, "--tokens_per_word=1.5"], "mean the same: give one of them"),
            (["--num_new_tokens=0"], "must be at least 1"),
            (["--tokens_per_word=0.9"], "must be at least 1"),
        ):
            options = {"init_checkpoint": folder, "input_file": self.text}
            options["output_file"] = self.path("new", "vocab.txt")
            flags = [f"--{name}={value}" for name, value in options.items()]
            with self.assertRaisesRegex(flags_of_absl.IllegalFlagValueError, message):
                cli.parse(extension.run, [*flags, *arguments])


class RunsTest(ExtensionCase):
    """Pre-training and fine-tuning that begin with the extended vocabulary."""

    def setUp(self):
        super().setUp()
        self.checkpoint()
        self.run_script()
        self.vocab = self.path("new/vocab.txt")
        self.first = read_weights(self.model)

    def check_first_weights(self, folder, atol=0.0):
        """The weights after a first step, whose rate is 0 or small."""
        weights = read_weights(folder)
        ids = {token: row for row, token in enumerate(TOKENS)}
        for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
            if name not in weights:
                continue
            old, new = self.first[name], weights[name]
            self.assertLen(new, toy.V)
            rows = [row for row in range(toy.V) if row not in (1, 16, 17)]
            self.assertAllClose(new[rows], old[rows], rtol=0.0, atol=atol)
            for row, pieces in ((1, "ca t s"), (16, "d o g"), (17, "d o g s")):
                first, *rest = pieces.split()
                pieces = [ids[first], *(ids[f"##{piece}"] for piece in rest)]
                self.assertAllClose(new[row], np.mean(old[pieces], 0), atol=atol + 1e-7)
        layer = "bert/encoder/layer_0/output/dense/kernel"
        self.assertAllClose(weights[layer], self.first[layer], rtol=0.0, atol=atol)

    def make_records(self):
        cli.run_script(
            create_pretraining_data,
            input_file=self.write("documents.txt", DOCUMENTS),
            output_file=self.path("records"),
            vocab_file=self.vocab,
            max_seq_length=toy.L,
            max_predictions_per_seq=toy.P,
        )

    def pretrain(self, **flags):
        cli.run_script(
            run_pretraining,
            input_file=self.path("records"),
            output_dir=self.path("run"),
            init_checkpoint=self.model,
            max_eval_steps=2,
            num_warmup_steps=1,
            **flags,
        )

    def test_pretraining(self):
        self.make_records()
        self.pretrain(do_eval=True)  # the model as it is
        self.pretrain(do_train=True, num_train_steps=1)
        self.check_first_weights(self.path("run"))
        self.assertEqual(self.read("run", "vocab.txt"), self.read("new", "vocab.txt"))
        # It resumes, and then another run begins with it.
        self.pretrain(do_train=True, num_train_steps=2)
        self.assertTrue(os.path.exists(self.path("run", "model.ckpt-2.index")))

    @pytest.mark.slow
    def test_layers_that_are_stacked(self):
        self.make_records()
        config = self.write(
            "two.json", toy.CONFIG.to_dict() | {"num_hidden_layers": 2}
        )  # fmt: skip
        flags = {"bert_config_file": config, "num_train_steps": 1, "do_train": True}
        self.pretrain(stacking="1:1", **flags)
        self.check_first_weights(self.path("run", "stacking_1_layers"), 1e-3)
        self.check_first_weights(self.path("run"), 1e-3)

    def test_records_of_another_vocabulary(self):
        Vocabulary([*TOKENS[:-1], "x"]).save(self.vocab)
        self.make_records()
        with self.assertRaisesRegex(
            InputError, "of the records has other tokens.*line 16 is 'x' instead of"
        ):
            self.pretrain(do_train=True, num_train_steps=1)

    def test_fine_tuning(self):
        lines = "text_a\tlabel\n" + "Cats ran.\tyes\nThe dogs sat.\tno\n" * 8
        for split in ("train", "dev", "test"):
            self.write(f"data/{split}.tsv", lines)
        flags = {
            "task_name": "tsv",
            "data_dir": self.path("data"),
            "init_checkpoint": self.model,
            "vocab_file": self.vocab,
            "output_dir": self.path("run"),
            "max_seq_length": 10,
            "train_batch_size": 16,
            "plots": False,
        }
        cli.run_script(
            *(run_classifier,),
            do_train=True,
            do_eval=True,
            num_train_epochs=1,
            warmup_proportion=1.0,
            **flags,
        )
        self.check_first_weights(self.path("run"))
        # The run has its own vocabulary, for a prediction without the first one.
        del flags["init_checkpoint"], flags["vocab_file"]
        cli.run_script(run_classifier, do_predict=True, **flags)
        self.assertEqual(self.read("run", "vocab.txt"), self.read("new", "vocab.txt"))
