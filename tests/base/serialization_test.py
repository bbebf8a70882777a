import os
import pathlib
import re

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.base import serialization
from tests.processes import run_python
from tests.training import toy

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
            names = {f"bert_tf>{name}" for name in serialization._CLASSES}
            self.assertEqual({*done.stdout.split()}, names, done.stderr)

    def test_every_registered_class_is_found(self):
        pattern = re.compile(
            r"^@keras\.saving\.register.*\n(?:@.*\n)*class (\w+)", re.MULTILINE
        )
        root = pathlib.Path(os.path.dirname(bert_tf.__file__))
        sources = (path.read_text("utf-8") for path in root.rglob("*.py"))
        registered = {name for text in sources for name in pattern.findall(text)}
        # No model is saved with the loss: its head makes it.
        self.assertEqual(registered - {"_ScaledLoss"}, {*serialization._CLASSES})
