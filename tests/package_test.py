import ast
import dataclasses
import inspect
import os
import pydoc

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.records.pipeline import ALL_ROWS
from tests.conversion import runs
from tests.processes import run_python
from tests.training import toy


class ImportTest(tf.test.TestCase):
    def test_import_costs_no_tensorflow(self):
        code = "import sys, bert_tf; print('tensorflow' in sys.modules)"
        self.assertEqual(run_python("-c", code).stdout, "False\n")

    def test_without_the_packages_of_training(self):
        """Every command has its --help, and says what to install for the rest."""
        records = os.path.join(self.get_temp_dir(), "records")
        model = bert_tf.BertClassifier(toy.CONFIG, 2)
        checkpoint = runs.save(os.path.join(self.get_temp_dir(), "classifier"), model)
        code = f"""
import importlib, importlib.metadata, re, sys
requires = importlib.metadata.requires("bert-tf")
kept = {{re.match(r"[\\w-]+", one)[0] for one in requires if "extra" not in one}}
for name, found in importlib.metadata.packages_distributions().items():
    if not {{"bert-tf", *kept}} & {{one.lower().replace("_", "-") for one in found}}:
        sys.modules[name] = None  # cannot be imported
for one in importlib.metadata.distribution("bert-tf").entry_points:
    importlib.import_module(one.module)
import bert_tf
for use in (lambda: bert_tf.BertEncoder, lambda: bert_tf.load({checkpoint!r})):
    try:
        use()
    except bert_tf.InputError as error:
        print(error)
from bert_tf.tfrecords import create_pretraining_data
create_pretraining_data.main()
"""
        vocabulary = os.path.join(self.get_temp_dir(), "vocab.txt")
        with open(vocabulary, "w", encoding="utf-8") as file:
            file.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
        done = run_python(
            *("-c", code, f"--input_file={__file__}", f"--output_file={records}"),
            f"--vocab_file={vocabulary}",
        )
        told = "{} is not installed: pip install 'bert-tf[train]'"
        self.assertEqual(done.returncode, 2, done.stderr)
        for name, line in zip(
            ("keras", "tensorflow"), done.stdout.splitlines(), strict=True
        ):
            self.assertEqual(line, told.format(name))
        self.assertEqual(
            done.stderr, f"create_pretraining_data: {told.format('numba')}\n"
        )

    def test_every_public_name_is_there(self):
        names = {*dir(bert_tf)} - {"__version__"}
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertTrue(callable(getattr(bert_tf, name)), name)
            self.assertIn(name, bert_tf.__doc__)
        # Those that a type checker sees.
        tree = ast.parse(inspect.getsource(bert_tf))
        (block,) = (
            one for one in tree.body if isinstance(one, ast.If) and len(one.body) > 9
        )
        imported = {alias.asname for one in block.body for alias in one.names}
        self.assertEqual(imported, names)
        with self.assertRaisesRegex(AttributeError, "no attribute 'nonsense'"):
            _ = bert_tf.nonsense

    def test_help_can_be_read(self):
        lines = pydoc.render_doc(bert_tf, renderer=pydoc.plaintext).split("\n")
        self.assertLess(len(lines), 300)
        self.assertIn("TextClassifier", "\n".join(lines))

    @pytest.mark.checkout
    def test_types_of_a_users_script(self):
        """mypy finds what the names are, and a typo, in a script that uses them."""
        script = os.path.join(self.get_temp_dir(), "script.py")
        wrong = (
            "bert_tf.load(3)",
            "bert_tf.lode",
            "model.predict(texts=1)",
            "label + 1",
        )
        with open(script, "w", encoding="utf-8") as file:
            file.write(_SCRIPT + "".join(f"{line}\n" for line in wrong))
        first = _SCRIPT.count("\n") + 1
        # With the cache that `make check` has filled.
        done = run_python("-m", "mypy", "--config-file=setup.cfg", script)
        found = [
            int(line.split(":")[1])
            for line in done.stdout.splitlines()
            if ": error" in line
        ]
        self.assertEqual(found, [*range(first, first + len(wrong))], done.stdout)


_SCRIPT = """
from typing import assert_type

import bert_tf

model = bert_tf.load("run", max_length=64)
assert_type(model, bert_tf.TextModel)
assert isinstance(model, bert_tf.TextClassifier)
label: str = model.labels[0]
probability: float = model.predict(["A text."])[0].probabilities[label]
assert_type(model.explain("A text.", target=label), list[bert_tf.Explanation])
word: str = model.explain("A text.")[0].words[0].text
assert_type(model.tokenizer, bert_tf.WordPieceTokenizer)
assert_type(bert_tf.load_tokenizer("run").encode("A text."), list[int])
config = bert_tf.BertConfig(vocab_size=10, hidden_size=4)
encoder: bert_tf.BertEncoder = bert_tf.load_encoder("run")
table = bert_tf.TableSplit(text_a="review", label="stars")
"""


class NotebookTest(tf.test.TestCase):
    """The README's example, on a tiny model."""

    def test_compile_fit_save_load_and_predict(self):
        path = toy.write_records(os.path.join(self.get_temp_dir(), "text.tfrecord"))
        config = bert_tf.BertConfig(**toy.CONFIG.to_dict())
        model = bert_tf.BertPretrainer(config)
        model.compile(
            bert_tf.create_optimizer(1e-2, num_train_steps=9, num_warmup_steps=1)
        )
        # An epoch as one batch.
        records = next(iter(toy.data(path)(0, ALL_ROWS).batch(5)))
        arrays = {
            name: value.numpy().reshape(-1, value.shape[-1])
            for name, value in records.items()
        }
        history = model.fit(toy.data(path)(0, ALL_ROWS), steps_per_epoch=3, verbose=0)
        self.assertIn("masked_lm_accuracy", history.history)
        model.fit(arrays, batch_size=4, epochs=1, verbose=0)

        file = os.path.join(self.get_temp_dir(), "bert.keras")
        model.save(file)
        loaded = keras.saving.load_model(file)
        self.assertEqual(loaded.optimizer.iterations, model.optimizer.iterations)
        inputs = {name: arrays[name] for name in loaded.input}
        expected = model.predict(inputs, verbose=0)
        for name, values in loaded.predict(inputs, verbose=0).items():
            self.assertAllClose(values, expected[name], rtol=1e-6)

    @pytest.mark.slow
    def test_a_cell_that_makes_and_fits_a_model_is_run_again(self):
        # Weights as large as the embeddings of a real vocabulary are updated by
        # compiled code, which must not outlive them.
        config = dataclasses.replace(toy.CONFIG, vocab_size=10_000, hidden_size=8)
        ones = np.ones([2, 3], np.int32)
        batch = {
            "input_ids": ones,
            "input_mask": ones,
            "segment_ids": 0 * ones,
            "label_ids": ones[:, :1],
            "is_real_example": ones[:, :1],
        }
        for _ in range(10):
            model = bert_tf.BertClassifier(config, 2)
            model.compile(bert_tf.create_optimizer(1e-3, 10, 1))
            losses = model.fit(batch, epochs=2, verbose=0).history["loss"]
            self.assertLen(losses, 2)
