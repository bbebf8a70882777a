import json
import os

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.conversion.model_files import checked_casing, model_files
from bert_tf.conversion.source import open_source
from bert_tf.errors import InputError
from bert_tf.modeling.encoder import BertEncoder
from bert_tf.text.vocabulary import Vocabulary
from tests.training import toy

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


class FolderTestCase(tf.test.TestCase):
    def folder(self, name, *, casing=None, config=toy.CONFIG, tokens=TOKENS):
        path = os.path.join(self.get_temp_dir(), name)
        os.makedirs(path)
        toy.write_config(path, config)
        Vocabulary(tokens).save(os.path.join(path, "vocab.txt"))
        if casing is not None:
            with open(os.path.join(path, "tokenizer_config.json"), "w") as file:
                json.dump({"do_lower_case": casing}, file)
        toy.save_checkpoint(path, BertEncoder(config), 1, 1)
        return path


class ModelFilesTest(FolderTestCase):
    def resolve(self, init_checkpoint=None, **given):
        return model_files(
            init_checkpoint,
            **{
                "bert_config_file": None,
                "vocab_file": None,
                "do_lower_case": None,
                "output_dir": os.path.join(self.get_temp_dir(), "output"),
                **given,
            },
        )

    def test_all_comes_along_with_the_checkpoint(self):
        config, vocabulary, casing, source = self.resolve(
            self.folder("model", casing=False)
        )
        self.assertEqual(config, toy.CONFIG)
        self.assertEqual(list(vocabulary), TOKENS)
        self.assertFalse(casing)
        self.assertIsNotNone(source)

    def test_a_runs_own_files_are_the_last_to_be_asked(self):
        folder = self.folder("run", casing=False)
        config, vocabulary, casing, source = self.resolve(output_dir=folder)
        self.assertEqual(config, toy.CONFIG)
        self.assertEqual(list(vocabulary), TOKENS)
        self.assertFalse(casing)
        self.assertIsNone(source)

    def test_what_is_said_nowhere_is_asked_for(self):
        with self.assertRaisesRegex(InputError, "Give --bert_config_file"):
            self.resolve()
        config = toy.write_config(self.get_temp_dir())
        with self.assertRaisesRegex(InputError, "Give --vocab_file"):
            self.resolve(bert_config_file=config)

    def test_contradictions_name_both(self):
        folder = self.folder("model", casing=True)
        other = os.path.join(self.get_temp_dir(), "other.txt")
        Vocabulary([*TOKENS, "dog"]).save(other)
        with self.assertRaisesRegex(InputError, "--vocab_file has .*model/vocab.txt"):
            self.resolve(folder, vocab_file=other)
        Vocabulary([*TOKENS, *map(str, range(toy.CONFIG.vocab_size))]).save(other)
        with self.assertRaisesRegex(InputError, "other.txt.*Leave --vocab_file out"):
            self.resolve(folder, vocab_file=other)
        with self.assertRaisesRegex(InputError, "do_lower_case=False.*model was"):
            self.resolve(folder, do_lower_case=False)
        config = os.path.join(self.get_temp_dir(), "other.json")
        with open(config, "w") as file:
            values = {**toy.CONFIG.to_dict(), "hidden_act": "relu"}
            file.write(BertConfig(**values).to_json_string())
        with self.assertRaisesRegex(
            InputError, "model was trained with hidden_act=gelu; .*other.json has relu"
        ):
            self.resolve(folder, bert_config_file=config)

    def test_a_vocabulary_beyond_the_embeddings(self):
        folder = self.folder("model", tokens=[*TOKENS, *map(str, range(30))])
        with self.assertRaisesRegex(InputError, "has 37 tokens"):
            self.resolve(folder)


class CasingTest(FolderTestCase):
    def test_of_the_releases_names(self):
        vocabulary = Vocabulary(TOKENS)
        self.assertTrue(checked_casing(None, vocabulary, None, "--vocab_file"))
        self.assertFalse(checked_casing(None, vocabulary, False, "--vocab_file"))
        for name, lower in (
            ("uncased_L-12_H-768_A-12", True),
            ("cased_L-24_H-1024_A-16", False),
            ("multi_cased_L-12_H-768_A-12", False),
            ("wwm_uncased_L-24_H-1024_A-16", True),
            ("chinese_L-12_H-768_A-12", True),
            ("multilingual_L-12_H-768_A-12", True),
        ):
            source = open_source(self.folder(name))
            self.assertEqual(checked_casing(source, vocabulary, None, ""), lower)
            self.assertEqual(checked_casing(source, vocabulary, lower, ""), lower)
            with self.assertRaisesRegex(InputError, f"do_lower_case={not lower}"):
                checked_casing(source, vocabulary, not lower, "")

    def test_of_a_vocabulary_where_nothing_else_tells(self):
        for name, tokens, lower in (
            ("mine_cased", [*TOKENS, "The", "##ABC"], False),
            ("mine_uncased", TOKENS, True),
        ):
            source = open_source(self.folder(name, tokens=tokens))
            vocabulary = Vocabulary(tokens)
            self.assertEqual(checked_casing(source, vocabulary, None, ""), lower)
            # The user's word goes before what is only guessed.
            for word in (True, False):
                self.assertEqual(checked_casing(source, vocabulary, word, ""), word)
        # What says it goes before what is guessed, too.
        source = open_source(
            self.folder("said", tokens=[*TOKENS, "The", "Cat"], casing=True)
        )
        self.assertTrue(checked_casing(source, source.tokenizer.vocabulary, None, ""))


if __name__ == "__main__":
    tf.test.main()
