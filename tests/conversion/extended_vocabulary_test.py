"""A model with an extended vocabulary: loaded, the same as before, and exported."""

import dataclasses
import json
import os

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import bert_tf
from bert_tf.addons.methods.electra import ElectraPretrainer
from bert_tf.addons.serving import export_model
from bert_tf.base.errors import InputError
from bert_tf.conversion import names
from bert_tf.conversion.loading import (
    extended,
    load_pretrainer,
    load_weights,
    read_model_files,
)
from bert_tf.conversion.source import load_tokenizer, open_source
from bert_tf.modeling.heads import BertPretrainer
from bert_tf.modeling.weight_names import weights_by_name
from bert_tf.text.vocabulary import Vocabulary
from tests.conversion import runs
from tests.conversion.runs import ModelFlags
from tests.modeling.examples import randomize
from tests.script_case import FolderCase, printed
from tests.training import toy

TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS += ["ca", "t", "##t", "##s", "d", "##o", "##g", "."]
# One in place of [unused0], two at the end; the table had places without tokens there.
EXTENDED = [TOKENS[0], "cat", *TOKENS[2:], "dogs", "##gs"]
PIECES = {1: ("ca", "##t"), 14: ("d", "##o", "##g", "##s"), 15: ("##g", "##s")}
WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"
TEXT = "Dot, ca cag [MASK]."


class ExtendedVocabularyTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.extended = self.vocabulary("extended.txt", EXTENDED)

    def vocabulary(self, name, tokens):
        path = self.path(name)
        Vocabulary(tokens).save(path)
        return path

    def checkpoint(self, vocab_size, name="model", build=BertPretrainer):
        config = dataclasses.replace(toy.CONFIG, vocab_size=vocab_size)
        model = build(config)
        randomize(model)
        return runs.save(self.path(name), model, config=config, tokens=TOKENS)

    def extend(self, folder, path=None, **given):
        flags = ModelFlags(init_checkpoint=folder, vocab_file=path or self.extended)
        return read_model_files(
            dataclasses.replace(flags, **given), self.path("nothing")
        )

    def test_new_rows_are_means_and_all_others_as_before(self):
        ids = {token: row for row, token in enumerate(TOKENS)}
        for size, new_size in ((14, 16), (15, 16), (16, 16), (30, 30)):
            folder = self.checkpoint(size, f"of_{size}")
            old = open_source(folder).weights
            with self.assertLogs(level="INFO") as logs:
                found = self.extend(folder)
            self.assertIn("`vocab_file` adds 3 tokens to those of", logs.output[-1])
            self.assertEqual(found.config.vocab_size, new_size)
            self.assertEqual(list(found.vocabulary), EXTENDED)
            model = load_pretrainer(found.source)
            weights = weights_by_name(model)
            self.assertEqual(set(weights), set(old))
            for name, weight in weights.items():
                value = weight.numpy()
                if name not in (WORDS, BIAS):
                    self.assertAllEqual(value, old[name])
                    continue
                self.assertLen(value, new_size)
                for row in range(new_size):
                    if row in PIECES:
                        rows = [old[name][ids[piece]] for piece in PIECES[row]]
                        mean = np.sum(rows, 0, np.float64) / len(rows)
                        self.assertAllEqual(value[row], mean.astype(np.float32))
                    else:
                        self.assertAllEqual(value[row], old[name][row])

    def test_text_without_new_words_has_the_same_outputs_to_the_bit(self):
        folder = self.checkpoint(len(TOKENS))
        before, after = load_pretrainer(folder), load_pretrainer(
            self.extend(folder).source
        )  # fmt: skip
        old = load_tokenizer(folder, recognize_special_tokens=True)
        new = type(old)(Vocabulary(EXTENDED), recognize_special_tokens=True)
        texts = [TEXT, "d. t"]
        inputs, same = old(texts), new(texts)
        for name, value in inputs.items():
            self.assertAllEqual(value, same[name])
        positions = np.tile(np.arange(4, dtype=np.int32), (2, 1))
        inputs["masked_lm_positions"] = positions
        outputs, found = before(inputs), after(inputs)
        self.assertEqual(set(outputs), set(found))
        kept = [row for row in range(len(TOKENS)) if row not in PIECES]
        for name, value in outputs.items():
            value, there = np.asarray(value), np.asarray(found[name])
            if value.shape[-1] == len(TOKENS):
                value, there = value[..., kept], there[..., kept]
            self.assertAllEqual(value, there, name)

    @pytest.mark.slow
    def test_all_exports_hold_it(self):
        folder = self.checkpoint(len(TOKENS))
        source = self.extend(folder).source
        of_head = source.weights.with_heads([names.MASKED_LM])
        weights = {name: np.asarray(value) for name, value in of_head.items()}
        text = "Cats, dogs cogs [MASK]."
        tokens = ["cat", "##s", "[UNK]", "dogs", "[UNK]", "[MASK]", "."]
        ids = [EXTENDED.index(token) for token in tokens]
        flags = f"--checkpoint={folder}", f"--vocab_file={self.extended}"
        predicted = None
        for kind in ("tf1", "huggingface", "kerashub", "saved_model"):
            out = self.path(kind)
            given = *flags, f"--format={kind}", f"--output_dir={out}"
            # KerasHub's folder has the encoder alone.
            heads = [] if kind == "kerashub" else ["--heads=masked_lm"]
            printed(export_model, *given, *heads)
            if kind == "saved_model":
                served = tf.saved_model.load(out).signatures["top_k"]
                outputs = served(text_a=tf.constant([text]), top_k=tf.constant(3))
                found = dict(
                    zip(
                        outputs["tokens"].numpy()[0, 0].astype(str),
                        outputs["probabilities"].numpy()[0, 0],
                        strict=True,
                    )
                )
                for token, probability in found.items():
                    self.assertAllClose(predicted[token], probability, rtol=1e-4)
                continue
            exported = open_source(out)
            there = (WORDS, BIAS) if heads else (WORDS,)
            self.assertContainsSubset(there, exported.weights)
            for name, value in exported.weights.items():
                self.assertAllEqual(value, weights[name])
            self.assertEqual(exported.require_config().vocab_size, len(EXTENDED))
            self.assertEqual(list(exported.tokenizer.vocabulary), EXTENDED)
            tokenizer = load_tokenizer(exported, recognize_special_tokens=True)
            self.assertEqual(tokenizer.encode(text), ids)
            if heads:
                guesses = bert_tf.load(out).fill([text], top_k=len(EXTENDED))[0][0]
                guesses = {guess.token: guess.probability for guess in guesses}
                predicted = predicted or guesses
                self.assertEqual(guesses, predicted)
            if kind == "huggingface":
                path = os.path.join(out, "tokenizer.json")
                theirs = tokenizers.Tokenizer.from_file(path)
                encoded = theirs.encode(text, add_special_tokens=False)
                self.assertEqual((encoded.tokens, encoded.ids), (tokens, ids))
                with open(os.path.join(out, "config.json")) as file:
                    self.assertEqual(json.load(file)["vocab_size"], len(EXTENDED))

    def test_electras_generator(self):
        folder = self.checkpoint(14, build=ElectraPretrainer)
        source = self.extend(folder).source
        name = "cls/generator_predictions/output_bias"
        bias = open_source(folder).weights[name]
        self.assertAllEqual(source.weights[name][:14][2:], bias[2:])
        self.assertAllClose(source.weights[name][1], (bias[6] + bias[8]) / 2)
        self.assertEqual(source.weights.shapes[WORDS], (16, 8))

    def test_a_larger_model_of_another_config_is_refused(self):
        folder = self.checkpoint(14)
        given = self.write("large.json", json.dumps(toy.CONFIG.to_dict()))
        found = self.extend(folder, bert_config_file=given)
        with self.assertRaisesRegex(InputError, r"word_embeddings is \[16, 8\] there"):
            model = BertPretrainer(found.config)
            load_weights(model, found.source)

    def test_what_is_no_extension_is_one_line(self):
        remedy = "Take the checkpoint's, or one that extends it."
        folder = self.checkpoint(30)
        for tokens, message in (
            ([*TOKENS[:-1], "x"], "line 14 is 'x' instead of '.'."),
            (TOKENS[:-1], "it has 13 tokens instead of 14."),
            ([*EXTENDED, "ca"], "line 17 has 'ca' a second time."),
        ):
            path = self.vocabulary("other.txt", tokens)
            with self.assertRaises(InputError) as caught:
                self.extend(folder, path)
            line = str(caught.exception)
            self.assertNotIn("\n", line)
            self.assertIn("`vocab_file` has other tokens than", line)
            self.assertEndsWith(line, f"was trained with: {message} {remedy}")

    def test_a_checkpoint_without_a_vocabulary_takes_any(self):
        source = dataclasses.replace(
            open_source(self.checkpoint(30)),
            tokenizer=open_source(self.checkpoint(30)).tokenizer._replace(
                vocabulary=None
            ),
        )
        config = toy.CONFIG
        found = extended(source, config, Vocabulary(["a"]), "")
        self.assertEqual(found, (source, config))
