import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tensorflow as tf

import bert_tf
from bert_tf.instances.compilation import forget_older_code

CALLER = """
from bert_tf.instances.compilation import compiled
from bert_tf.instances.callee import callee


@compiled
def caller():
    return callee()


from absl import logging
from bert_tf.instances.compilation import log_compilation_of

logging.set_verbosity(logging.INFO)
log_compilation_of(caller)
print(caller(), caller.stats.cache_hits, flush=True)
"""
CALLEE = """
from bert_tf.instances.compilation import compiled


@compiled
def callee():
    return {}
"""


class CompiledTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(tempfile.mkdtemp(dir=self.get_temp_dir()))
        self.folder = self.root / "bert_tf" / "instances"
        self.folder.mkdir(parents=True)
        source = pathlib.Path(bert_tf.__file__).parent / "instances" / "compilation.py"
        shutil.copyfile(source, self.folder / "compilation.py")
        for folder in (self.folder, self.folder.parent):
            (folder / "__init__.py").touch()
        (self.folder / "caller.py").write_text(CALLER)
        (self.folder / "callee.py").write_text(CALLEE.format(1))

    def call(self, **environment):
        """What the caller returns, and whether its machine code was there already."""
        done = subprocess.run(
            [sys.executable, "-m", "bert_tf.instances.caller"],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": ""} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return done.stdout.split(maxsplit=1)[0], "1}" in done.stdout

    def test_another_file_changes(self):
        self.assertEqual(self.call(), ("1", False))
        self.assertIn("Compiling inner", self.said)
        self.assertEqual(self.call(), ("1", True))
        self.assertEqual(self.said, "")
        (self.folder / "callee.py").write_text(CALLEE.format(2))
        self.assertEqual(self.call(), ("2", False))

    def test_nowhere_to_keep_it(self):
        # A locator of zip files alone finds no folder.
        locators = {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}
        self.assertEqual(self.call(**locators), ("1", False))
        self.assertIn("is kept for the next runs if", self.said)

    def test_newer_code_stays(self):
        cache = self.root / "cache"
        cache.mkdir()
        for name, moment in (("older.nbi", 1), ("newer.nbi", 1 << 40)):
            (cache / name).touch()
            os.utime(cache / name, (moment, moment))
        forget_older_code(str(cache))
        self.assertEqual(os.listdir(cache), ["newer.nbi"])
