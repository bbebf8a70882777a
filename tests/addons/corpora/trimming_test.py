"""Smaller checkpoints: the tokens that are kept, and the outputs that stay."""

import os
import random
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from absl import logging

import bert_tf
from bert_tf.addons.corpora import trimming
from bert_tf.addons.corpora.trimming import kept_ids
from bert_tf.addons.methods.electra import ElectraPretrainer
from bert_tf.base import cli
from bert_tf.base.errors import InputError
from bert_tf.conversion import loading
from bert_tf.conversion.source import load_tokenizer, open_source
from bert_tf.modeling.heads import BertClassifier, BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import runs
from tests.modeling.examples import randomize
from tests.script_case import FolderCase
from tests.training import toy

SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[E1]"]
LETTERS = "abcdefghij"


def random_vocabulary(rng, size=400):
    """Special tokens, letters, then words and pieces, among them unused ones."""
    pieces = {}
    while len(pieces) < size:
        piece = "".join(rng.choices(LETTERS, k=rng.randrange(2, 6)))
        pieces[rng.choice(["", "##"]) + piece] = None
    characters = [*LETTERS, *(f"##{char}" for char in LETTERS), "ø", "k", "##k", "."]
    return [*SPECIAL, *characters, *pieces]


def random_lines(rng, number, letters="abcdefg"):
    """Lines of words of these letters, with words that are [UNK]."""
    words = ["".join(rng.choices(letters, k=rng.randrange(1, 9))) for _ in range(300)]
    words += ["ø", "a☃", "AbE", "bad."]
    return [" ".join(rng.choices(words, k=rng.randrange(1, 13))) for _ in range(number)]


def independent(folder):
    """The tokenizers library's tokenizer of a folder's vocab.txt."""
    tokens = Vocabulary.from_file(os.path.join(folder, "vocab.txt")).tokens
    model = tokenizers.models.WordPiece(
        {token: place for place, token in enumerate(tokens)},
        unk_token="[UNK]",
        max_input_chars_per_word=200,
    )
    theirs = tokenizers.Tokenizer(model)
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return theirs


class KeptIdsTest(tf.test.TestCase):
    def test_worked_by_hand(self):
        # Lines 3 and 8 are one token, whose id is 8.
        tokens = ["pad", "[MASK]", "[unused7]", "cat", "##s", "d", "##d", "x", "cat"]
        vocabulary = Vocabulary([*tokens, "[UNK]", "dog", "##og", "", "[", "##x"])
        text = {8: 2, 5: 9, 11: 1}, {*"catdog["}
        self.assertEqual(kept_ids(vocabulary, *text), [0, 1, 5, 6, 8, 9, 11, 13])
        self.assertEqual(kept_ids(vocabulary, *text, 2), [0, 1, 5, 6, 8, 9, 13])
        self.assertEqual(kept_ids(vocabulary, *text, 3), [0, 1, 5, 6, 9, 13])


class TrimCase(FolderCase):
    def setUp(self):
        super().setUp()
        rng = random.Random(11)
        self.tokens = random_vocabulary(rng)
        # Words of the last lines occur once or twice.
        self.lines = random_lines(rng, 1950) + random_lines(rng, 50)
        self.text = self.write("in.txt", "\n".join(self.lines))

    def checkpoint(self, model=BertPretrainer, *, config=None, **settings):
        """A run's folder with a random model of this vocabulary and three more rows."""
        fields = toy.CONFIG.to_dict() | {"vocab_size": len(self.tokens) + 3}
        config = bert_tf.BertConfig.from_dict(fields | (config or {}))
        options = {"num_labels": 2} if model is BertClassifier else {}
        keras_model = model(config, **options)
        randomize(keras_model)
        saved = {"config": config, "tokens": self.tokens, **settings}
        return runs.save(self.folder("old"), keras_model, **saved)

    def run_script(self, *arguments, output="new", **given):
        given = {
            "init_checkpoint": self.path("old"),
            "input_file": self.text,
            "output_dir": self.path(output),
            "num_workers": 1,
            **given,
        }
        flags = [f"--{name}={value}" for name, value in given.items()]
        with mock.patch.object(logging, "info") as info:
            trimming.run(cli.parse(trimming.run, [*flags, *arguments]))
        self.logged = [call.args[0] % call.args[1:] for call in info.call_args_list]
        return self.path(output)


class TrimVocabularyTest(TrimCase):
    def test_words_are_cut_as_before(self):
        old = self.checkpoint()
        new = self.run_script()
        tokens = Vocabulary.from_file(os.path.join(new, "vocab.txt")).tokens
        self.assertLess(len(tokens), len(self.tokens) - 50)
        places = [self.tokens.index(token) for token in tokens]
        self.assertEqual(places, sorted(places))
        self.assertContainsSubset([*SPECIAL[2:], "##g", "ø", "."], tokens)
        self.assertNoCommonElements(["[unused0]", "h", "##j", "k"], tokens)
        before, after = independent(old), independent(new)
        ours = load_tokenizer(new)
        used = {*SPECIAL[2:], SPECIAL[0]}
        for line in self.lines:
            wanted = before.encode(line, add_special_tokens=False).tokens
            encoded = after.encode(line, add_special_tokens=False)
            self.assertEqual(encoded.tokens, wanted)
            self.assertEqual(ours.encode(line), encoded.ids)
            used.update(wanted)
        # Nothing else is kept but characters.
        self.assertEqual(
            {token for token in tokens if len(token.removeprefix("##")) > 1},
            {token for token in used if len(token.removeprefix("##")) > 1},
        )
        # Other words of the same characters are cut into other pieces.
        for line in random_lines(random.Random(12), 200, "abcdefg"):
            wanted = before.encode(line, add_special_tokens=False).tokens
            found = after.encode(line, add_special_tokens=False).tokens
            self.assertEqual(found.count("[UNK]"), wanted.count("[UNK]"))

    def test_outputs_are_the_same_to_the_bit(self):
        old = self.checkpoint()
        new = self.run_script("--num_workers=2")
        one, other = (
            load_tokenizer(folder)(
                self.lines, max_length=16, truncation=True, padding="max_length"
            )
            for folder in (old, new)
        )
        self.assertNotAllEqual(one["input_ids"], other["input_ids"])
        models = [loading.load_pretrainer(folder) for folder in (old, new)]
        sequences, scores, pairs = [], [], []
        for model, features in zip(models, (one, other), strict=True):
            sequences.append(model.encoder.predict(features, verbose=0))
            positions = np.tile(np.arange(3, dtype=np.int32), (2000, 1))
            features = {**features, "masked_lm_positions": positions}
            outputs = model.predict(features, verbose=0)
            scores.append(outputs["masked_lm_logits"])
            pairs.append(outputs["next_sentence_logits"])
        for name, values in sequences[0].items():
            self.assertAllEqual(values, sequences[1][name], name)
        self.assertAllEqual(*pairs)
        tokens = Vocabulary.from_file(os.path.join(new, "vocab.txt")).tokens
        places = [self.tokens.index(token) for token in tokens]
        self.assertEqual(scores[1].shape[-1], len(tokens))
        # The matrix product may be divided otherwise among a smaller table's columns.
        self.assertAllClose(scores[0][..., places], scores[1], rtol=1e-6, atol=1e-6)

    def test_what_is_logged(self):
        text = self.write("few.txt", "ab cd ab\n\nab ☃ abcd\n")
        held_out = self.write("held_out.txt", "ab ce ☃ dc\n")
        self.tokens = [*SPECIAL, *"abcd", "##b", "##c", "##d", "e", "##e", "ab", "dc"]
        self.checkpoint(BertClassifier)
        new = self.run_script(input_file=text, eval_input_file=held_out)
        # Out: [unused0], e, ##e, dc, and three rows without a token.
        rows = 8 * (len(self.tokens) + 3)
        rest = sum(
            int(np.prod(shape))
            for name, shape in open_source(new).weights.shapes.items()
            if name != "bert/embeddings/word_embeddings"
        )
        self.assertContainsSubset(
            [
                f"Tokens: 14, before: 21. Parameters: {rows + rest - 7 * 8}, before:"
                f" {rows + rest}; as float32"
                f" {(rows + rest - 56) * 4e-6:.1f} MB, before:"
                f" {(rows + rest) * 4e-6:.1f} MB",
                "The text: of 6 words 1 become [UNK] (16.6667%), before: 1. Tokens per"
                " word: 1.5000, before: 1.5000",
                f"{held_out}: of 4 words 2 become [UNK] (50.0000%), before: 1. Tokens"
                " per word: 1.2500, before: 1.2500",
                f"Wrote {new}.",
            ],
            self.logged,
        )
        self.run_script(input_file=text)
        self.assertEqual(self.logged[-1], f"All is done already: {new}.")
        self.run_script("--min_frequency=5", input_file=text, output="rare")
        self.assertLen(Vocabulary.from_file(self.path("rare/vocab.txt")), 13)
        # ab is now a ##b, and abcd has four pieces.
        self.assertIn(
            "The text: of 6 words 1 become [UNK] (16.6667%), before: 1. Tokens per"
            " word: 2.1667, before: 1.5000",
            self.logged,
        )

    def test_what_is_wrong_is_one_line(self):
        self.checkpoint()
        self.write("blank.txt", "\n \n")
        self.write("full/mine.txt", "a poem\n")
        self.write("pieces/spiece.model", b"x")
        model = bert_tf.load_pretrainer(self.path("old"))
        runs.save(self.path("pieces"), model, config=model.bert_config, tokens=None)
        bare = runs.save(
            self.path("bare"), model, config=model.bert_config, tokens=None
        )
        cased = runs.save(
            *(self.path("cased"), model),
            config=model.bert_config,
            tokens=self.tokens,
            casing=False,
        )
        for given, message in (
            ({"input_file": self.path("blank.txt")}, "The text must have words in it"),
            ({"eval_input_file": self.path("blank.txt")}, "blank.txt must have words"),
            ({"output": "full"}, "full` is not empty, and nothing is overwritten"),
            ({"init_checkpoint": self.path("full")}, "no checkpoint in this folder"),
            ({"init_checkpoint": self.path("pieces")}, "is a SentencePiece vocabulary"),
            ({"init_checkpoint": bare}, "No such vocabulary file: .*bare"),
            (
                {"init_checkpoint": cased, "do_lower_case": True},
                "do_lower_case=True.*trained with False",
            ),
            (
                {"vocab_file": self.write("v.txt", "[UNK]\n[CLS]\n[SEP]\n[MASK]\n")},
                "has other tokens than",
            ),
        ):
            with self.assertRaisesRegex(InputError, message) as caught:
                self.run_script(**given)
            self.assertNotIn("\n", str(caught.exception))
            self.assertFalse(os.path.exists(self.path("new")))


class ModelsTest(TrimCase):
    def test_a_classifier_and_its_exports(self):
        old = self.checkpoint(BertClassifier, labels=["good", "bad"])
        runs.write_json(
            {"max_seq_length": 14, "long_text": "truncate"}, old, "reading.json"
        )
        new = self.run_script()
        self.assertEqual(self.read_json("new/reading.json")["max_seq_length"], 14)
        models = [bert_tf.load(folder) for folder in (old, new)]
        self.assertEqual(models[1].labels, ("good", "bad"))
        found = [model.predict(self.lines[:50]) for model in models]
        self.assertEqual(found[0], found[1])
        bert_tf.export(new, self.path("theirs"), format="huggingface")
        theirs = tokenizers.Tokenizer.from_file(self.path("theirs/tokenizer.json"))
        ids = load_tokenizer(new)(self.lines[:1])["input_ids"][0]
        self.assertEqual(theirs.encode(self.lines[0]).ids, list(ids))
        again = bert_tf.load(self.path("theirs"))
        self.assertEqual(again.predict(self.lines[:50]), found[1])
        config = self.read_json("theirs/config.json")
        self.assertEqual(config["vocab_size"], len(load_tokenizer(new).vocabulary))
        # Trimmed from that format, it is the same again.
        third = self.run_script(output="third", init_checkpoint=self.path("theirs"))
        self.assertEqual(self.read("third/vocab.txt"), self.read("new/vocab.txt"))
        self.assertEqual(bert_tf.load(third).labels, ("good", "bad"))

    @pytest.mark.slow
    def test_a_saved_model(self):
        self.checkpoint(BertClassifier, labels=["good", "bad"])
        new = self.run_script()
        bert_tf.export(new, self.path("served"), format="saved_model")
        served = tf.saved_model.load(self.path("served"))
        found = served.signatures["serving_default"](
            text_a=tf.constant(self.lines[:50]), text_b=tf.constant([""] * 50)
        )
        wanted = [
            [*one.probabilities.values()]
            for one in bert_tf.load(self.path("old")).predict(self.lines[:50])
        ]
        self.assertAllClose(found["probabilities"], wanted, atol=1e-6)

    def test_an_onnx_file(self):
        pytest.importorskip("onnxruntime", reason="run by `make test-exports`")
        self.checkpoint(BertClassifier, labels=["good", "bad"])
        new = self.run_script()
        bert_tf.export(new, self.path("onnx"), format="onnx")
        found, wanted = (
            [[*one.probabilities.values()] for one in model.predict(self.lines[:50])]
            for model in map(bert_tf.load, (self.path("onnx"), self.path("old")))
        )
        self.assertAllClose(found, wanted, atol=1e-6)

    def test_other_tables_of_the_vocabulary(self):
        old = self.checkpoint(config={"tie_word_embeddings": False})
        new = self.run_script()
        tokens = Vocabulary.from_file(os.path.join(new, "vocab.txt")).tokens
        places = [self.tokens.index(token) for token in tokens]
        self.compare_weights(old, new, places, 3)
        config = {"embedding_size": 4, "pooler_hidden_act": "gelu"}
        old = self.checkpoint(ElectraPretrainer, config=config)
        new = self.run_script(output="electra")
        self.compare_weights(old, new, places, 2)

    def compare_weights(self, old, new, places, number):
        """Rows of `number` tensors are taken; all else is the same."""
        one, other = open_source(old).weights, open_source(new).weights
        self.assertEqual(set(one), set(other))
        chosen = 0
        for name in one:
            if len(one[name]) == len(self.tokens) + 3:
                self.assertAllEqual(one[name][places], other[name], name)
                chosen += 1
            else:
                self.assertAllEqual(one[name], other[name], name)
        self.assertEqual(chosen, number)


if __name__ == "__main__":
    tf.test.main()
