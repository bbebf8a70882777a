import functools
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.addons.serving import fill_mask
from bert_tf.base import keras_backend
from bert_tf.base.errors import InputError
from tests.processes import run_python
from tests.training import toy

# In a process where Keras cannot be imported.
_USE_ALL = """
import bert_tf

for name in sorted({*dir(bert_tf)} - {"__version__"}):
    try:
        getattr(bert_tf, name)
        print(name)
    except bert_tf.InputError as error:
        message = str(error)
print(message)
"""
# Reductions that XLA gives to YNNPACK where it is allowed to.
_NORMALIZE = """
import os

import tensorflow as tf

from bert_tf.modeling import fused

x, ones = tf.random.normal([512, 128]), tf.ones([128])
with tf.GradientTape() as tape:
    tape.watch(x)
    y = tf.reduce_sum(fused.layer_norm(x, ones, ones, 1e-12) ** 2)
tape.gradient(y, x)
print(os.environ.get("XLA_FLAGS"))
"""
_ADVICE = (
    "; bert_tf supports 'tensorflow' and 'jax'. Set KERAS_BACKEND=tensorflow in the"
    " environment, before Keras is imported."
)
_NO_JAX = "The back end jax is not installed: pip install 'bert-tf[jax]'"


run = functools.partial(run_python, without=("KERAS_BACKEND",))


class YnnpackTest(tf.test.TestCase):
    def fusions(self, given):
        """How often a program of XLA's names such a fusion, with these flags."""
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        dump = f"--xla_dump_to={folder} --xla_dump_hlo_as_text {given}"
        done = run("-c", _NORMALIZE, XLA_FLAGS=dump)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{dump}\n")  # what children inherit
        programs = pathlib.Path(folder).glob("*after_optimizations.txt")
        texts = [path.read_text("utf-8") for path in programs]
        self.assertNotEmpty(texts)
        return sum(text.count("ynn_fusion") for text in texts)

    @pytest.mark.slow
    def test_it_is_not_used_unless_asked_for(self):
        if not tf.__version__.startswith("2.21."):
            self.skipTest("for the XLA of TensorFlow 2.21")
        self.assertEqual(self.fusions(""), 0)
        given = "--xla_cpu_experimental_ynn_fusion_type=+reduce"
        self.assertGreater(self.fusions(given), 0)

    def test_no_child_inherits_its_flag(self):
        done = run("-c", _NORMALIZE, without=("XLA_FLAGS",))
        self.assertEqual((done.returncode, done.stdout), (0, "None\n"), done.stderr)


class KerasBackendTest(tf.test.TestCase):
    def test_another_one_is_refused_before_keras_is_imported(self):
        folder = self.get_temp_dir()
        with open(os.path.join(folder, "keras.py"), "w") as file:
            # As where jax is not installed; TensorFlow tries to, and passes it over.
            file.write("raise ModuleNotFoundError('imported')")
        done = run("-c", _USE_ALL, KERAS_BACKEND="torch", modules=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        *usable, message = done.stdout.splitlines()
        self.assertEqual(
            message, f"Keras' back end is 'torch' (KERAS_BACKEND){_ADVICE}"
        )
        self.assertIn("Vocabulary", usable)
        self.assertNotIn("BertClassifier", usable)
        self.assertNotIn("load_encoder", usable)

    def test_keras_own_file_is_read(self):
        home = self.get_temp_dir()
        path = os.path.join(home, "keras.json")
        command = "from bert_tf.base import keras_backend as b; b.require_supported()"
        for content, environment, message in (
            ('{"backend": "torch"}', {}, f"'torch' ({path}){_ADVICE}"),
            ('{"backend": "torch"}', {"KERAS_BACKEND": "tensorflow"}, ""),
            ("{", {}, ""),
            ('{"floatx": "float32"}', {}, ""),
        ):
            with open(path, "w") as file:
                file.write(content)
            done = run("-c", command, KERAS_HOME=home, **environment)
            self.assertEqual(done.returncode, 1 if message else 0)
            self.assertIn(message, done.stderr)

    def test_a_command_tells_it_in_one_line(self):
        arguments = [f"--checkpoint={self.get_temp_dir()}", "a [MASK]"]
        done = run("-m", "bert_tf.fill_mask", *arguments, KERAS_BACKEND="torch")
        self.assertEqual(done.returncode, 2)
        message = f"fill_mask: Keras' back end is 'torch' (KERAS_BACKEND){_ADVICE}\n"
        self.assertEqual(done.stderr, message)

    def test_the_flag_chooses_it_before_keras_is_imported(self):
        with (
            mock.patch.dict(os.environ, KERAS_BACKEND="tensorflow"),
            mock.patch.dict(sys.modules),
        ):
            del sys.modules["keras"]
            with (
                mock.patch.object(importlib.util, "find_spec", lambda name: None),
                self.assertRaisesRegex(InputError, re.escape(_NO_JAX)),
            ):
                keras_backend.choose("jax")
            self.assertTrue(keras_backend.is_jax())
            with self.assertRaisesRegex(InputError, "--format=litert needs TensorFlow"):
                keras_backend.require_tensorflow("--format=litert")
            keras_backend.choose("tensorflow")
            self.assertFalse(keras_backend.is_jax())
            keras_backend.choose(None)
        other = "jax" if not keras_backend.is_jax() else "tensorflow"
        with self.assertRaisesRegex(InputError, "already imported with the back end"):
            keras_backend.choose(other)
        # In Python as on the command line.
        with self.assertRaisesRegex(InputError, "already imported with the back end"):
            options = fill_mask.FillMaskOptions(
                checkpoint="x", backend=other, positional=("[MASK]",)
            )
            fill_mask.run(options)


LOADING = """
import importlib.util
import sys
import bert_tf
assert "keras" not in sys.modules
importlib.util.find_spec("keras")
import keras
import numpy as np
model = keras.saving.load_model(sys.argv[1])
print(type(model).__name__, type(model.optimizer).__name__)
np.savez(sys.argv[2], **model.predict(dict(np.load(sys.argv[3])), verbose=0))
"""


STARTING = """
import sys
from bert_tf.base import cli
cli.import_tensorflow()
import keras, bert_tf.tasks.classification
print(*{"matplotlib", "numba", "pandas", "sklearn"} & {*sys.modules})
import sklearn.metrics
print(sklearn.metrics.f1_score([1], [1]))
"""


class StartTest(tf.test.TestCase):
    def test_a_command_imports_what_it_uses(self):
        done = run_python("-c", STARTING)
        self.assertEqual(done.stdout, "\n1.0\n", done.stderr)


class SavedModelTest(tf.test.TestCase):
    def test_it_loads_in_a_new_process(self):
        model = bert_tf.BertClassifier(toy.CONFIG, 2)
        model.compile(bert_tf.create_optimizer(1e-3, 10, 1))
        folder = pathlib.Path(self.get_temp_dir())
        saved, inputs, outputs = (
            str(folder / name) for name in ("model.keras", "in.npz", "out.npz")
        )
        model.save(saved)
        ones = np.ones([1, 3], np.int32)
        batch = {"input_ids": 2 * ones, "input_mask": ones, "segment_ids": 0 * ones}
        np.savez(inputs, **batch)
        done = run_python("-c", LOADING, saved, outputs, inputs)
        self.assertEqual(done.stdout.split(), ["BertClassifier", "AdamWeightDecay"])
        expected = model.predict(batch, verbose=0)
        self.assertAllClose(dict(np.load(outputs)), expected, atol=1e-6)

    def test_keras_may_be_imported_before_or_after(self):
        # A stand-in, which is imported at once.
        folder = self.get_temp_dir()
        pathlib.Path(folder, "keras.py").write_text(
            "class saving:\n    classes = {}\n"
            "    get_custom_objects = lambda: saving.classes"
        )
        for first, second in (("bert_tf", "keras"), ("keras", "bert_tf")):
            code = f"import {first}, {second}; print(*keras.saving.classes)"
            done = run_python("-c", code, modules=folder)
            names = {f"bert_tf>{name}" for name in keras_backend._CLASSES}
            self.assertEqual({*done.stdout.split()}, names, done.stderr)

    def test_every_registered_class_is_found(self):
        pattern = re.compile(
            r"^@keras\.saving\.register.*\n(?:@.*\n)*class (\w+)", re.MULTILINE
        )
        root = pathlib.Path(os.path.dirname(bert_tf.__file__))
        sources = (path.read_text("utf-8") for path in root.rglob("*.py"))
        registered = {name for text in sources for name in pattern.findall(text)}
        # No model is saved with the loss: its head makes it.
        self.assertEqual(registered - {"_ScaledLoss"}, {*keras_backend._CLASSES})
