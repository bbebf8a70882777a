"""Holds the commands to the outputs that they had when these were written.

After a change that is meant: `python -m tests.golden.make NAME`, and say why.
"""

import json
import os
import pathlib

import pytest
import tensorflow as tf

from bert_tf.base import keras_backend
from tests.golden import cases, compare, inputs, make, random_numbers

# What the back end computes; the rest is the same code on both.
_COMPUTED = (
    "pretraining",
    "classifier",
    "features",
    "ner",
    "probe",
    "squad",
    "swag",
)


class GoldenTest(tf.test.TestCase):
    inputs = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.inputs = os.path.join(cls.enterClassContext(make.folder()), "inputs")
        if keras_backend.is_jax():
            cls.enterClassContext(random_numbers.of_tensorflow())
        inputs.write(cls.inputs)

    def check(self, name):
        golden = json.loads(pathlib.Path(make.path_of(name)).read_text("utf-8"))
        now = make.outcome(name, self.inputs, os.path.join(self.get_temp_dir(), name))
        message = compare.report(golden, now, exact=name in cases.EXACT)
        if message:
            self.fail(f"\n{name}.json, golden and now:\n{message}")


def _test(name):
    def test(self):
        self.check(name)

    if name.startswith(_COMPUTED):
        test = pytest.mark.jax(test)
    return pytest.mark.slow(test) if name in cases.SLOW else test


for _name in cases.CASES:
    setattr(GoldenTest, f"test_{_name}", _test(_name))
