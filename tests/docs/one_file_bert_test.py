"""docs/one_file_bert.py runs, and computes what the package computes."""

import ast
import contextlib
import importlib.util
import io
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.modeling.fused import without_fusion

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = ROOT / "docs" / "one_file_bert.py"

pytestmark = pytest.mark.checkout

# From a weight's name in the package to its path in the file, in this order.
RENAMED = (
    ("cls/seq_relationship/output_weights", "bert/next_sentence/kernel"),
    ("cls/seq_relationship/output_bias", "bert/next_sentence/bias"),
    ("cls/predictions/", "bert/"),
    ("bert/encoder/", "bert/"),
    ("bert/embeddings/LayerNorm", "bert/LayerNorm"),
    ("embeddings/token_type_embeddings", "segment_embeddings/embeddings"),
    (r"embeddings/(word|position)_embeddings", r"\1_embeddings/embeddings"),
    ("attention/self/", ""),
    ("attention/output/dense", "attention_output"),
    ("attention/output/LayerNorm", "attention_LayerNorm"),
    ("(output|transform)/LayerNorm", r"\1_LayerNorm"),
    ("/dense/", "/"),
)


def load():
    spec = importlib.util.spec_from_file_location("one_file_bert", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


one_file = load()


def some_text(num_documents=8):
    return one_file.built_in_text(np.random.default_rng(3), num_documents)


def numbered(tokens):
    return {token: number for number, token in enumerate(tokens)}


def some_examples(settings, num_documents=8):
    text = some_text(num_documents)
    vocabulary = numbered(one_file.make_vocabulary(text))
    documents = [
        [one_file.encode(line, vocabulary) for line in document.split("\n")]
        for document in text.split("\n\n")
    ]
    rng = np.random.default_rng(4)
    examples = one_file.make_examples(documents, vocabulary, settings, rng)
    return examples, documents, vocabulary


def batches(examples, size):
    for start in range(0, len(examples["input_ids"]), size):
        yield {name: x[start : start + size] for name, x in examples.items()}


def path_in_file(name):
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def transposed(name, values):
    return values.T if name.endswith("output_weights") else values


def same_models(settings, vocab_size, batch):
    """The file's model and the package's, with the same random weights."""
    model = one_file.Bert(vocab_size, settings)
    model(batch)
    config = bert_tf.BertConfig(
        vocab_size=vocab_size,
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=settings.max_length,
        type_vocab_size=2,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )
    reference = bert_tf.BertPretrainer(config)
    own = {weight.path: weight for weight in model.weights}
    rng = np.random.default_rng(5)
    for name, weight in bert_tf.weights_by_name(reference).items():
        center = 1.0 if name.endswith("gamma") else 0.0
        values = rng.normal(center, 0.1, weight.shape).astype("float32")
        weight.assign(values)
        own.pop(path_in_file(name)).assign(transposed(name, values))
    assert not own, own
    return model, reference


class OneFileBertTest(tf.test.TestCase):
    def assert_close(self, actual, expected, message, relative=1e-6):
        """To a share of the largest of the expected values."""
        actual, expected = np.asarray(actual), np.asarray(expected)
        self.assertEqual(actual.shape, expected.shape, message)
        error = np.abs(actual - expected).max() / np.abs(expected).max()
        self.assertLess(error, relative, message)

    def test_it_is_short_and_needs_keras_and_numpy_alone(self):
        text = PATH.read_text("utf-8")
        self.assertLessEqual(len(text.splitlines()), 400)
        imported = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
        self.assertEqual(imported - sys.stdlib_module_names, {"keras", "numpy"})

    def test_token_ids(self):
        text = some_text()
        tokens = one_file.make_vocabulary(text)
        rng = np.random.default_rng(6)
        # Letters, accents, ideographs, punctuation, spaces and controls of many kinds.
        points = [*range(0x20, 0x250), *range(0x300, 0x530), *range(0x2000, 0x2070)]
        points += [*range(0x3000, 0x3100), *range(0x4DF0, 0x4E20), 0xFFFD, 0x1F600]
        points += [*range(32), *range(0x1E00, 0x2000), 0xAC00, 0x20000, 0x2F800, 0xF900]
        characters = [chr(point) for point in points]
        tokens += ["##" + "".join(rng.choice(characters[:400], 2)) for _ in range(300)]
        tokens += [characters[i] for i in rng.permutation(len(characters))[:1500]]
        tokens = [token for token in tokens if token.strip() == token and token]
        tokens = [*dict.fromkeys(token for token in tokens if "\n" not in token)]
        tokenizer = bert_tf.WordPieceTokenizer(bert_tf.Vocabulary(tokens))
        vocabulary = numbered(tokens)
        nonsense = ["".join(rng.choice(characters, 60)) for _ in range(300)]
        letters = [*"abcde .,ABCé\t"]
        nonsense += ["".join(rng.choice(letters, 60)) for _ in range(300)]
        words = [
            "Paris" * 40,
            "Paris" * 40 + "s",
            "ΑΣ ΟΔΥΣΣΕΎΣ",
            "İ",
            "[MASK]",
            "",
            "a\0b",
        ]
        known = 0
        for line in [*text.split("\n"), *nonsense, *words]:
            ids = one_file.encode(line, vocabulary)
            self.assertEqual(ids, tokenizer.encode(line), repr(line))
            known += sum(token_id != vocabulary["[UNK]"] for token_id in ids)
        self.assertGreater(known, 10_000)

    def test_computes_as_the_package(self):
        settings = one_file.Settings(dropout=0.0, batch_size=16)
        examples, _, vocabulary = some_examples(settings)
        first, *_ = all_batches = [*batches(examples, 16)][:3]
        self.assertLen(all_batches, 3)
        self.assertTrue((first["input_mask"] == 0).any())
        model, reference = same_models(settings, len(vocabulary), first)
        optimizer = one_file.AdamWeightDecay(one_file.WarmupThenDecay(1e-3, 12, 3))
        # Tracing takes longer than all steps.
        model.compile(optimizer, run_eagerly=True)
        reference.compile(bert_tf.create_optimizer(1e-3, 12, 3), run_eagerly=True)
        for step, batch in enumerate(all_batches):
            outputs, logits = reference(batch), model(batch)
            names = "masked_lm_logits", "next_sentence_logits"
            for name, own in zip(names, logits, strict=True):
                self.assert_close(own, outputs[name], f"{name} {step}", 2e-6)
            expected = reference.compute_loss(batch, None, outputs)
            loss = model.compute_loss(batch, None, logits)
            self.assertAllClose(loss, expected, rtol=1e-6, atol=0.0)
            model.train_on_batch(batch)
            with without_fusion():
                reference.train_on_batch(batch)
        own = {weight.path: weight for weight in model.weights}
        for name, weight in bert_tf.weights_by_name(reference).items():
            values = own[path_in_file(name)].numpy()
            # A key's bias changes no softmax: its gradient is rounding errors alone.
            relative = 1e-5 if name.endswith("key/bias") else 1e-6
            self.assert_close(values, transposed(name, weight.numpy()), name, relative)

    def files(self):
        """A text and its vocabulary."""
        folder = pathlib.Path(self.get_temp_dir())
        text = some_text(20)
        (folder / "text.txt").write_text(text, "utf-8")
        tokens = one_file.make_vocabulary(text, min_count=2)
        (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", "utf-8")
        return folder, len(tokens)

    def check_printed(self, printed, num_tokens, epochs):
        self.assertIn(f"19 documents, {num_tokens} tokens, ", printed)
        losses = [float(x) for x in re.findall(r" loss: ([\d.]+)", printed)]
        self.assertLen(losses, epochs)
        self.assertLess(losses[-1], 0.95 * losses[0])
        *_, blank, first, _, _ = printed.splitlines()
        self.assertRegex(blank, r"\[SEP\] \w+ speaks \[MASK\] \. \[SEP\]$")
        self.assertRegex(first, r"^  0\.\d{3} \S+$")

    def test_it_trains_and_fills_in_a_blank(self):
        folder, num_tokens = self.files()
        small = one_file.Settings(hidden_size=32, num_layers=1, epochs=2)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            one_file.main(folder / "text.txt", folder / "vocab.txt", small)
        self.check_printed(out.getvalue(), num_tokens, 2)
